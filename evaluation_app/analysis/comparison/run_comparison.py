"""Runs of one golden set side by side: per measure and per question what is better, worse, the same, or noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collections_app.errors import ServiceError
from evaluation_app.analysis.comparison.run_reader import (
    HeaderRow,
    RunItem,
    compare_headers,
    read_items,
    yardstick_differs,
)
from evaluation_app.measures.catalogue import measure_of, order_of
from evaluation_app.measures.scores import Mean, Score, mean
from evaluation_app.measures.statistics import (
    SAME,
    Draws,
    Interval,
    Verdict,
    bootstrap_mean,
    judge_difference,
)
from evaluation_app.models import EvaluationRun

OTHERS_MAX = 7
HASH_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Delta:
    """One measure of one question. delta: after - before; gain: the same, above 0 for better. None without a pair."""

    measure: str
    before: Score | None
    after: Score | None
    delta: float | None

    @classmethod
    def between(cls, measure: str, before: Score | None, after: Score | None) -> Delta:
        old, new = (before.value, after.value) if before and after else (None, None)
        return cls(measure, before, after, None if old is None or new is None else new - old)

    @property
    def title(self) -> str:
        return measure_of(self.measure).title

    @property
    def gain(self) -> float | None:
        if self.delta is None:
            return None
        return self.delta if measure_of(self.measure).higher_is_better else -self.delta


@dataclass(frozen=True, slots=True)
class QuestionChange:
    """One question in both runs. deltas: by measure, of the measures that may be compared."""

    before: RunItem
    after: RunItem
    deltas: Mapping[str, Delta]

    @property
    def position(self) -> int:
        return self.before.position

    @property
    def moves(self) -> list[Delta]:
        """The measures whose scores differ: losses, then gains, the largest first; ties in the catalogue's order."""
        moved = [item for item in self.deltas.values() if item.gain is not None and abs(item.gain) > SAME]
        return sorted(moved, key=lambda item: ((item.gain or 0.0) > 0, -abs(item.gain or 0.0)))

    @property
    def gains(self) -> list[float]:
        return [item.gain or 0.0 for item in self.moves]

    @property
    def worst(self) -> float:
        """The largest loss in any measure, below 0; else the smallest gain; 0 when nothing moved."""
        return min(self.gains, default=0.0)

    @property
    def broke(self) -> bool:
        """Whether asking it failed in the later run alone."""
        return self.after.is_error and not self.before.is_error

    @property
    def is_worse(self) -> bool:
        return self.broke or any(gain < 0 for gain in self.gains)

    @property
    def is_better(self) -> bool:
        return any(gain > 0 for gain in self.gains)

    @property
    def lost(self) -> bool:
        """It was passing and does not any more."""
        return self.before.passed and not self.after.passed

    @property
    def won(self) -> bool:
        return self.after.passed and not self.before.passed

    def gain_in(self, measure: str) -> float | None:
        value = self.deltas.get(measure)
        return value.gain if value else None


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One measure in both runs.

    base and other: the mean of all questions of each run, with its coverage. difference: other - base over the
    questions that are scored in both (`difference.count`), None without any. better, worse, same: so many of those.
    reason: why the two are not compared, "" when they are.
    """

    name: str
    title: str
    higher_is_better: bool
    base: Mean
    other: Mean
    difference: Interval | None
    verdict: Verdict
    better: int = 0
    worse: int = 0
    same: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunDifference:
    """One run against the base. changes: per measure, in the catalogue's order; questions: the worst first.

    unpaired: questions that only one of the two runs has done so far.
    """

    run: EvaluationRun
    changes: tuple[MeasureChange, ...]
    questions: tuple[QuestionChange, ...]
    unpaired: int

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

    @property
    def regressed(self) -> list[tuple[EvaluationRun, MeasureChange]]:
        """Every measure that is worse by more than noise, by run."""
        return [(item.run, change) for item in self.others for change in item.changes if change.verdict == "regressed"]


def compare_runs(base: EvaluationRun, others: Sequence[EvaluationRun]) -> Comparison:
    """Each of the other runs against the base, over the same questions. Reads the items, writes nothing.

    Runs that are still going are compared as far as both have come. Raises ServiceError: 409 "not_comparable" for a run
    of other questions than the base's, with the reason; 422 for no other run, too many, or one twice.
    """
    _check(base, others)
    before, *items = read_items([base, *others])
    draws = Draws()
    measures = sorted(
        {name for each in (before, *items) for item in each.values() for name in item.scores}, key=order_of
    )
    return Comparison(
        base=base,
        others=tuple(
            _against(base, before, run, after, measures, draws) for run, after in zip(others, items, strict=True)
        ),
        measures=tuple(measures),
        headers=tuple(compare_headers([base, *others])),
    )


def check_comparable(base: EvaluationRun, other: EvaluationRun) -> None:
    """Raises ServiceError 409 "not_comparable" when the two did not ask the same questions."""
    if base.set_digest == other.set_digest:
        return
    if base.set_name == other.set_name and base.set_version != other.set_version:
        why = (
            f"{base} asked version {base.set_version} of the set {base.set_name!r} and {other} version "
            f"{other.set_version}, whose questions differ"
        )
    elif base.set_name == other.set_name:
        why = f"{base} and {other} asked different questions under the name {base.set_name!r}"
    else:
        why = f"{base} asked the set {base.set_name!r} and {other} the set {other.set_name!r}, whose questions differ"
    raise ServiceError(
        f"{why} (digests {base.set_digest[:HASH_SHOWN]} and {other.set_digest[:HASH_SHOWN]}); a difference between "
        "them would say nothing of what changed. Run the plan of the one on the questions of the other",
        type="not_comparable",
        status=409,
        field="other",
    )


def _check(base: EvaluationRun, others: Sequence[EvaluationRun]) -> None:
    known = [base.pk, *(run.pk for run in others)]
    if not others or len(others) > OTHERS_MAX:
        raise ServiceError(
            f"a comparison needs a base and 1 to {OTHERS_MAX} other runs; {len(others)} came",
            type="invalid_input",
            status=422,
            field="other",
        )
    if len(set(known)) != len(known):
        raise ServiceError(
            "a run is compared with other runs; one of them came twice", type="invalid_input", status=422, field="other"
        )
    for run in others:
        check_comparable(base, run)


def _against(
    base: EvaluationRun,
    before: Mapping[int, RunItem],
    run: EvaluationRun,
    after: Mapping[int, RunItem],
    measures: Sequence[str],
    draws: Draws,
) -> RunDifference:
    shared = sorted(before.keys() & after.keys())
    reasons = {name: yardstick_differs(measure_of(name), base, run) for name in measures}
    questions = [_question(before[position], after[position], reasons) for position in shared]
    changes = tuple(_change(name, before, after, questions, reasons[name], draws) for name in measures)
    ordered = sorted(questions, key=lambda item: (not item.broke, item.worst, sum(item.gains), item.position))
    return RunDifference(run, changes, tuple(ordered), len(before.keys() ^ after.keys()))


def _question(before: RunItem, after: RunItem, reasons: Mapping[str, str]) -> QuestionChange:
    names = sorted((before.scores.keys() | after.scores.keys()) & reasons.keys(), key=order_of)
    deltas = {name: _delta(name, before, after) for name in names if not reasons[name]}
    return QuestionChange(before, after, deltas)


def _delta(name: str, before: RunItem, after: RunItem) -> Delta:
    return Delta.between(name, before.scores.get(name), after.scores.get(name))


def _change(
    name: str,
    before: Mapping[int, RunItem],
    after: Mapping[int, RunItem],
    questions: Sequence[QuestionChange],
    reason: str,
    draws: Draws,
) -> MeasureChange:
    measure = measure_of(name)
    means = _mean_of(name, before), _mean_of(name, after)
    if reason:
        return MeasureChange(
            name,
            measure.title,
            measure.higher_is_better,
            *means,
            difference=None,
            verdict="incomparable",
            reason=reason,
        )
    pairs = [
        (known.delta, item.before.weight)
        for item in questions
        if (known := item.deltas.get(name)) is not None and known.delta is not None
    ]
    values = [0.0 if abs(delta) <= SAME else delta for delta, _ in pairs]
    difference = bootstrap_mean(values, weights=[weight for _, weight in pairs], draws=draws)
    gains = [value if measure.higher_is_better else -value for value in values]
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return MeasureChange(
        name,
        measure.title,
        measure.higher_is_better,
        *means,
        difference=difference,
        verdict=judge_difference(difference, better + worse, higher_is_better=measure.higher_is_better),
        better=better,
        worse=worse,
        same=len(gains) - better - worse,
    )


def _mean_of(name: str, items: Mapping[int, RunItem]) -> Mean:
    known = [(item.scores[name], item.weight) for item in items.values() if name in item.scores]
    return mean([score for score, _ in known], [weight for _, weight in known])
