"""Runs against a base: each pair computed once, kept, and read at the next load.

A pair of finished runs is kept under a key of all that decides its figures; when a run or the set's criteria change,
the key does, and the pair is computed anew."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from pydantic import TypeAdapter

from collections_app.errors import WrongValueError
from evaluation_app.golden.sets import Criteria
from evaluation_app.measures.catalogue import order_of
from evaluation_app.measures.statistics import Draws, holm
from evaluation_app.models import EvaluationRun, RunComparison
from evaluation_app.runs.comparison.changes import MeasureChange, QuestionChange
from evaluation_app.runs.comparison.decisive import RunVerdict, judge
from evaluation_app.runs.comparison.run_comparison import PairFigures, check_comparable, compare_pair
from evaluation_app.runs.comparison.run_reader import HeaderRow, compare_headers, pair_items, read_contents, read_items
from evaluation_app.runs.comparison.usage import UsageChange
from ragd.types import canonical_json

OTHERS_MAX = 7
FORMAT = 1  # of what is kept; another one is computed anew
FIGURES: TypeAdapter[PairFigures] = TypeAdapter(PairFigures)


@dataclass(frozen=True, slots=True)
class RunDifference:
    """One run against the base."""

    run: EvaluationRun
    figures: PairFigures
    verdict: RunVerdict

    @property
    def changes(self) -> tuple[MeasureChange, ...]:
        return self.figures.changes

    @property
    def questions(self) -> tuple[QuestionChange, ...]:
        return self.figures.questions

    @property
    def usage(self) -> tuple[UsageChange, ...]:
        return self.figures.usage

    @property
    def unpaired(self) -> int:
        return self.figures.unpaired

    @property
    def counts(self) -> Counter[str]:
        """How many measures there are of each verdict."""
        return Counter(change.verdict for change in self.changes)

    @property
    def lost(self) -> list[QuestionChange]:
        return [item for item in self.questions if item.lost]

    @property
    def won(self) -> list[QuestionChange]:
        return [item for item in self.questions if item.won]


@dataclass(frozen=True, slots=True)
class Comparison:
    """measures: every measure that any of the runs has, in the catalogue's order. headers: what differs."""

    base: EvaluationRun
    others: tuple[RunDifference, ...]
    measures: tuple[str, ...]
    headers: tuple[HeaderRow, ...]

    @property
    def runs(self) -> tuple[EvaluationRun, ...]:
        return (self.base, *(item.run for item in self.others))


def compare_runs(base: EvaluationRun, others: Sequence[EvaluationRun], *, keep: bool = True) -> Comparison:
    """Each of the other runs against the base, over the same questions. keep: see `differences`.

    Raises ServiceError: 409 "not_comparable" for a run of other questions than the base's, with the reason; 422 for no
    other run, too many, or one twice.
    """
    _check(base, others)
    found = differences(base, others, keep=keep)
    measures = sorted({change.name for item in found for change in item.changes}, key=order_of)
    contents = [found[0].figures.contents[0], *(item.figures.contents[1] for item in found)]
    return Comparison(base, found, tuple(measures), tuple(compare_headers([base, *others], contents)))


def differences(
    base: EvaluationRun, others: Sequence[EvaluationRun], *, keep: bool = True
) -> tuple[RunDifference, ...]:
    """Each of the other runs, which asked the same questions, against the base, in the given order.

    Runs that are still going are compared as far as both have come; finished pairs are kept, and all that are kept of
    the base count as looks. keep: False reads and writes nothing that is kept, and these runs are the only looks.
    """
    figures = _figures(base, others, keep=keep)
    looks = {pk: _p_of(pair) for pk, pair in figures.items()}
    if keep:
        looks = dict(RunComparison.objects.filter(base=base).values_list("other", "p")) | looks
    known = {pk: p for pk, p in looks.items() if p is not None}
    adjusted = dict(zip(known, holm(list(known.values())), strict=True))
    return tuple(
        RunDifference(run, pair, judge(pair.decisive, adjusted.get(run.pk), len(looks), pair.usage))
        for run, pair in ((run, figures[run.pk]) for run in others)
    )


def forget_comparisons(run: EvaluationRun) -> None:
    """What is kept of the run is computed again at the next look; the looks still count."""
    RunComparison.objects.filter(Q(base=run) | Q(other=run)).update(key="")


def key_of(base: EvaluationRun, other: EvaluationRun) -> str:
    """SHA-256 of all that decides the figures of a pair: both runs as they are now, and the criteria of the set."""
    values = [FORMAT, asdict(Criteria.of(base.golden_set)), *(_state_of(run) for run in (base, other))]
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


def _state_of(run: EvaluationRun) -> list[object]:
    finished = run.finished_at.isoformat() if run.finished_at else ""
    return [str(run.pk), run.state, run.done, run.failed, run.retries, finished, run.thresholds, run.summary]


def _p_of(pair: PairFigures) -> float | None:
    return pair.decisive.primary.p if pair.decisive.primary else None


def _figures(base: EvaluationRun, others: Sequence[EvaluationRun], *, keep: bool) -> dict[UUID, PairFigures]:
    """By the other run's id. What is not kept is computed, and kept where both runs are finished."""
    rows = RunComparison.objects.filter(base=base, other__in=others) if keep else ()
    keys = {run.pk: key_of(base, run) for run in others}
    figures = {row.other_id: FIGURES.validate_python(row.figures) for row in rows if row.key == keys[row.other_id]}
    missing = [run for run in others if run.pk not in figures]
    if not missing:
        return figures
    items, content, draws = read_items(base), read_contents(base), Draws()
    fresh = []
    for run in missing:
        before, after = pair_items(base, items, read_items(run))
        pair = figures[run.pk] = compare_pair(base, run, before, after, (content, read_contents(run)), draws)
        if keep and not (base.is_active or run.is_active):
            values = FIGURES.dump_python(pair, mode="json")
            fresh.append(RunComparison(base=base, other=run, key=keys[run.pk], p=_p_of(pair), figures=values))
    # a run that was deleted meanwhile leaves nothing behind
    with contextlib.suppress(IntegrityError), transaction.atomic():
        RunComparison.objects.bulk_create(
            fresh,
            update_conflicts=True,
            unique_fields=["base", "other"],
            update_fields=["key", "p", "figures", "created_at"],
        )
    return figures


def _check(base: EvaluationRun, others: Sequence[EvaluationRun]) -> None:
    known = [base.pk, *(run.pk for run in others)]
    if not others or len(others) > OTHERS_MAX:
        raise WrongValueError(
            f"a comparison needs a base and 1 to {OTHERS_MAX} other runs; {len(others)} came", "other"
        )
    if len(set(known)) != len(known):
        raise WrongValueError("a run is compared with other runs; one of them came twice", "other")
    for run in others:
        check_comparable(base, run)
