"""What each retrieved chunk is worth alone: eRAG over one stored run, with the answerer that answered it.

Every chunk is given alone to the answerer, and its answer, held against the expected one, labels the chunk (Salemi and
Zamani, arXiv 2404.13781). An abstention is worth 0: nothing was said. What a chunk contributes is its label less what
an answer without any chunk is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collections_app.errors import ServiceError
from evaluation_app.measures import erag
from evaluation_app.measures.downstream import DOWNSTREAM
from evaluation_app.measures.scores import Score, failed, unscorable
from evaluation_app.scoring.cases import candidate_of, spans_of, without_markers
from ragd import telemetry
from ragd.errors import RagdError
from retrieval_app.answers import Answerer

BINARY_MEASURES = ("exact_match", "accuracy", "contains")
NO_EXPECTED = "no expected answer is known"
NO_RESULTS = "no document was retrieved"
NOT_BINARY = "{measure} gives other labels than 0 and 1"
NAMES = tuple(f"erag_{name}" for name in erag.BINARY)
DIGITS = 6


@dataclass(frozen=True, slots=True)
class Contributions:
    """records: by rank {"key", "alone", "without", "contribution", "effect"}; where the answerer failed "alone",
    "contribution" and "effect" are None and "error" tells the kind. scores: the measures erag_*."""

    scores: Mapping[str, Score]
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def labels(self) -> dict[str, float]:
        """ "doc_id#chunk_index" -> its label."""
        return {item["key"]: item["alone"] for item in self.records if item["alone"] is not None}


def measure_contributions(
    answerer: Answerer, query: str, results: Sequence[Mapping[str, Any]], expected: str, measure: str
) -> Contributions:
    """results: of a stored run, in rank order. measure: of DOWNSTREAM, by which answers are labelled.

    Without an expected answer or without results the scores are unscorable and nothing is asked. An answerer that fails
    for one chunk leaves that label out, and the scores are errors of its kind: a list with a hole has no figure.
    """
    if not expected.strip():
        return Contributions(dict.fromkeys(NAMES, unscorable(NO_EXPECTED)))
    if not results:
        return Contributions(dict.fromkeys(NAMES, unscorable(NO_RESULTS)))
    label = _Labeller(answerer, query, expected, measure)
    without, error = label.of(None)
    records = [_record(result, *label.of(result), without) for result in results]
    kinds = [item["error"] for item in records if "error" in item] or ([error] if error else [])
    if kinds:
        return Contributions(dict.fromkeys(NAMES, failed(kinds[0])), records)
    return Contributions(aggregates([item["alone"] for item in records], measure), records)


def aggregates(labels: Sequence[float], measure: str) -> dict[str, Score]:
    """erag_precision, erag_success, erag_map, erag_mrr, erag_ndcg over the whole list, by the rules of the paper.

    Whether labels are binary is decided by the measure that gave them, not by their values: otherwise a question whose
    F1 labels happen to be 0 and 1 would count where the others do not.
    """
    binary = measure in BINARY_MEASURES
    return {
        f"erag_{name}": erag.aggregate(labels, name)
        if binary or name in erag.CONTINUOUS
        else unscorable(NOT_BINARY.format(measure=measure))
        for name in erag.BINARY
    }


class _Labeller:
    def __init__(self, answerer: Answerer, query: str, expected: str, measure: str) -> None:
        self.answerer, self.query, self.expected = answerer, query, [expected]
        self.worth = DOWNSTREAM[measure]

    def of(self, result: Mapping[str, Any] | None) -> tuple[float | None, str]:
        """(the label of this chunk alone, or of none; "") or (None, the kind of the error)."""
        sources = [candidate_of(result)] if result is not None else []
        spans = spans_of(result, 1) if result is not None else []
        if result is not None and "spans" in result and not spans:
            sources = []  # compression left nothing of it, so the answerer could not read it
        try:
            with telemetry.silenced():
                draft = self.answerer.answer(self.query, sources, spans)
        except ServiceError as error:
            return None, error.type
        except RagdError:
            return None, "answerer"
        if draft.abstained:
            return 0.0, ""
        citations = [citation.as_dict() for citation in draft.checked.citations]
        score = self.worth(without_markers(draft.checked.answer, citations), self.expected)
        return (score.value, "") if score.value is not None else (None, score.reason)


def _record(result: Mapping[str, Any], alone: float | None, error: str, without: float | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "key": f"{result['doc_id']}#{result['chunk_index']}",
        "alone": None if alone is None else round(alone, DIGITS),
        "without": None if without is None else round(without, DIGITS),
        "contribution": None,
        "effect": None,
    }
    if alone is None:
        return record | {"error": error}
    if without is not None:
        contributed = erag.contribution(alone, without)
        record |= {"contribution": round(contributed, DIGITS), "effect": erag.effect(contributed)}
    return record
