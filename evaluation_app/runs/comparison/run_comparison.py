"""Two runs of one golden set side by side: per measure and per question what is better, worse, the same, or noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collections_app.errors import ServiceError
from evaluation_app.golden.sets import Criteria
from evaluation_app.measures.catalogue import measure_of, order_of
from evaluation_app.measures.scores import Mean, mean
from evaluation_app.measures.statistics import SAME, Draws, bootstrap_mean, judge_difference
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.comparison.changes import MeasureChange, QuestionChange, Yardsticks
from evaluation_app.runs.comparison.decisive import Decisive, find_decisive
from evaluation_app.runs.comparison.run_reader import HASH_SHOWN, RunItem
from evaluation_app.runs.comparison.usage import UsageChange, compare_usage


@dataclass(frozen=True, slots=True)
class PairFigures:
    """One run against the base, as it is stored. changes: per measure, in the catalogue's order. questions: the worst
    first. usage: time, tokens and cost. decisive: what a verdict follows from. unpaired: questions that only one of the
    two runs has done so far. contents: `read_contents` of both.
    """

    changes: tuple[MeasureChange, ...]
    questions: tuple[QuestionChange, ...]
    usage: tuple[UsageChange, ...]
    decisive: Decisive
    unpaired: int
    contents: tuple[str, str]


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
        field="other",
    )


def compare_pair(
    base: EvaluationRun,
    other: EvaluationRun,
    before: Mapping[int, RunItem],
    after: Mapping[int, RunItem],
    contents: tuple[str, str],
    draws: Draws,
) -> PairFigures:
    """`other` against `base`, which asked the same questions; before and after: their items by position.

    contents: `read_contents` of both.
    """
    criteria, yardsticks = Criteria.of(base.golden_set), Yardsticks.between(base, other)
    items = (*before.values(), *after.values())
    measures = sorted({name for item in items for name in item.scores}, key=order_of)
    reasons = {name: yardsticks.reason(measure_of(name)) for name in measures}
    shared = sorted(before.keys() & after.keys())
    questions = [_question(before[position], after[position], reasons) for position in shared]
    weights = [before[position].weight for position in shared]
    changes = [
        _change(
            name,
            (_mean_of(name, before), _mean_of(name, after)),
            [
                (item.deltas[name], weight)
                for item, weight in zip(questions, weights, strict=True)
                if name in item.deltas
            ],
            reasons[name],
            draws,
            criteria.relevant_effect,
        )
        for name in measures
    ]
    ordered = sorted(
        questions, key=lambda item: (not item.broke, item.worst, sum(move.gain for move in item.moves), item.position)
    )
    pairs = [(before[position].query_run, after[position].query_run) for position in shared]
    costs = [(before[position].cost_usd, after[position].cost_usd) for position in shared]
    return PairFigures(
        changes=tuple(changes),
        questions=tuple(ordered),
        usage=compare_usage(pairs, costs, draws),
        decisive=find_decisive((base, other), criteria, yardsticks, changes, questions, weights),
        unpaired=len(before.keys() ^ after.keys()),
        contents=contents,
    )


def _question(before: RunItem, after: RunItem, reasons: Mapping[str, str]) -> QuestionChange:
    deltas = {}
    for name in sorted(before.scores.keys() & after.scores.keys(), key=order_of):
        old, new = before.scores[name].value, after.scores[name].value
        if not reasons[name] and old is not None and new is not None:
            deltas[name] = new - old
    return QuestionChange(before.position, before.question, before.category, before.asked, after.asked, deltas)


def _change(
    name: str,
    means: tuple[Mean, Mean],
    pairs: Sequence[tuple[float, float]],
    reason: str,
    draws: Draws,
    relevant: float,
) -> MeasureChange:
    """means: of the two runs. pairs: (difference, weight) of each question that both scored."""
    measure = measure_of(name)
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
        verdict=judge_difference(
            difference, better + worse, higher_is_better=measure.higher_is_better, relevant=relevant - SAME
        ),
        better=better,
        worse=worse,
        same=len(gains) - better - worse,
    )


def _mean_of(name: str, items: Mapping[int, RunItem]) -> Mean:
    known = [(item.scores[name], item.weight) for item in items.values() if name in item.scores]
    return mean([score for score, _ in known], [weight for _, weight in known])
