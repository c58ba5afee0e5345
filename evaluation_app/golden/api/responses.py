"""Golden questions with what they expect that is gone, as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation_app.golden.expectation_status import read_status
from evaluation_app.golden.expected_chunks import find_drifts
from evaluation_app.golden.questions import Golden
from evaluation_app.models import GoldenQuestion, GoldenSet


@dataclass(frozen=True, slots=True)
class QuestionState:
    """lost: keys of the expected documents and chunks that are gone, off, or another text now."""

    row: GoldenQuestion
    lost: list[str]


def question_states(golden_set: GoldenSet, rows: Sequence[GoldenQuestion]) -> list[QuestionState]:
    """In the order of the rows. A fixed number of queries."""
    goldens = [Golden.of(row) for row in rows]
    standing = read_status(golden_set.collection_name, goldens)
    drifts = find_drifts(golden_set.collection_name, [row.chunk_marks for row in rows])
    return [
        QuestionState(row, standing.lost(golden, drift))
        for row, golden, drift in zip(rows, goldens, drifts, strict=True)
    ]
