"""One question in two runs: its scores, its answers with their differences, its rankings joined by lines."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from django.http import Http404

from collections_app.documents.revisions.differences import Part, mark_words
from evaluation_app.measures.catalogue import Measure, measure_of, order_of
from evaluation_app.measures.scores import Score
from evaluation_app.measures.statistics import SAME
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.comparison.changes import Yardsticks, query_times
from evaluation_app.runs.comparison.stored_comparisons import check_comparable
from evaluation_app.runs.summaries import first_names
from ragd.insight.ranking_comparison import rank_moves
from retrieval_app.answers.answer_html import strip_marks
from retrieval_app.playground.ranking import RankLine, join_ranks

SHOWN_RANKS = 50
HEADLINE_SCORES = 5


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One measure of the question. delta: after - before, None without a pair. reason: why the two scores are not of
    one kind, "" when they are."""

    measure: Measure
    before: Score | None
    after: Score | None
    reason: str

    @property
    def delta(self) -> float | None:
        old, new = (self.before.value, self.after.value) if self.before and self.after else (None, None)
        return None if self.reason or old is None or new is None else new - old

    @property
    def tone(self) -> str:
        if self.delta is None or abs(self.delta) <= SAME:
            return "neutral"
        return "good" if (self.delta > 0) == self.measure.higher_is_better else "bad"


@dataclass(frozen=True, slots=True)
class RankRow:
    """One retrieved chunk. gain: ranks won against the other run; mark: "new" or "gone" where only one has it."""

    rank: int
    doc_id: str
    chunk_index: str
    number: int
    expected: bool
    gain: int | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """The question in one run. answer: its words without Markdown, marked where the other run's answer has others.

    query_ms: of the query without judging, None where its run is gone.
    """

    letter: str
    item: EvaluationItem
    answer: tuple[Part, ...]
    ranks: tuple[RankRow, ...]
    more: int
    query_ms: float | None

    @property
    def total(self) -> int:
        return len(self.item.retrieved_ids)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """scores: the headline measures and those that moved, in the catalogue's order; other_scores: the rest.

    lines: between the two rankings, as `join_ranks` gives them.
    """

    golden: dict[str, Any]
    scores: tuple[ScoreRow, ...]
    other_scores: tuple[ScoreRow, ...]
    sides: tuple[Side, Side]
    lines: tuple[RankLine, ...]
    same_answer: bool


@dataclass(frozen=True, slots=True)
class JoinedRankings:
    """ranks: the first SHOWN_RANKS rows of each. lines: between them, as `join_ranks` gives them."""

    ranks: tuple[tuple[RankRow, ...], tuple[RankRow, ...]]
    lines: tuple[RankLine, ...]


def join_rankings(before: Sequence[str], after: Sequence[str], expected: Set[str] = frozenset()) -> JoinedRankings:
    """Two rankings of "doc_id#chunk_index" beside each other. expected: documents and chunks that are marked."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys((*before, *after)), 1)}
    moves = {move.key: move for move in rank_moves(before, after)}
    columns = []
    for keys, lone in ((before, "gone"), (after, "new")):
        rows = []
        for rank, key in enumerate(keys[:SHOWN_RANKS], 1):
            move = moves[key]
            both = move.before is not None and move.after is not None
            doc_id, _, index = key.rpartition("#")
            gain = move.gain if lone == "new" else None
            is_expected = key in expected or doc_id in expected
            rows.append(RankRow(rank, doc_id, index, numbers[key], is_expected, gain, "" if both else lone))
        columns.append(tuple(rows))
    return JoinedRankings((columns[0], columns[1]), tuple(join_ranks(before, after, SHOWN_RANKS, numbers)))


def compare_question(base: EvaluationRun, other: EvaluationRun, position: int, letters: str = "AB") -> SideBySide:
    """The question at one place of both runs. Raises Http404 where one has not done it, ServiceError (409)."""
    check_comparable(base, other)
    records = {item.run_id: item for item in EvaluationItem.objects.filter(run__in=[base, other], position=position)}
    if base.pk not in records or other.pk not in records:
        raise Http404(f"question {position} was not asked in both runs")
    before, after = records[base.pk], records[other.pk]
    parts = mark_words(strip_marks(before.answer), strip_marks(after.answer))
    joined = join_rankings(before.retrieved_ids, after.retrieved_ids, _expected(before))
    times = query_times([before.query_run, after.query_run])
    sides = []
    for letter, item, kind, ranks in zip(letters, (before, after), ("removed", "added"), joined.ranks, strict=True):
        marked = tuple(part for part in parts if part.kind in ("same", kind))
        query_ms = times.get(item.query_run) if item.query_run else None
        sides.append(Side(letter, item, marked, ranks, max(0, len(item.retrieved_ids) - SHOWN_RANKS), query_ms))
    same = before.answer == after.answer
    rows = _scores(base, other, before, after)
    headline = first_names([row.measure.name for row in rows], HEADLINE_SCORES, base.answerer)
    shown = [row for row in rows if row.measure.name in headline or row.tone != "neutral"]
    rest = [row for row in rows if row not in shown]
    return SideBySide(before.golden, tuple(shown), tuple(rest), (sides[0], sides[1]), joined.lines, same)


def _expected(item: EvaluationItem) -> set[str]:
    return {*item.golden.get("expected_doc_ids", ()), *item.golden.get("expected_chunks", ())}


def _scores(
    base: EvaluationRun, other: EvaluationRun, before: EvaluationItem, after: EvaluationItem
) -> tuple[ScoreRow, ...]:
    yardsticks, rows = Yardsticks.between(base, other), []
    for name in sorted(before.scores.keys() | after.scores.keys(), key=order_of):
        measure = measure_of(name)
        old, new = (Score.from_dict(item.scores[name]) if name in item.scores else None for item in (before, after))
        rows.append(ScoreRow(measure, old, new, yardsticks.reason(measure)))
    return tuple(rows)


def neighbours(positions: Sequence[int], position: int) -> tuple[int | None, int | None]:
    """The places before and behind in the filtered order; None at an end, and both for one that is not in it."""
    if position not in positions:
        return None, None
    index = list(positions).index(position)
    after = positions[index + 1] if index + 1 < len(positions) else None
    return (positions[index - 1] if index else None), after
