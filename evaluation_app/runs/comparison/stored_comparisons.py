"""Runs against a base: per measure and question, what decides, the verdict; each pair computed once and kept.

One sentence on two runs: better, worse, not better, or inconclusive.

Better is said only with a correction for the number of looks: the runs that were compared with one base are a family,
and their p-values are adjusted by Holm's method (`measures.statistics.holm`). Worse is said without it, so that looking
often hides no loss.

A pair of finished runs is kept under a key of all that decides its figures; when a run or the set's criteria change,
the key does, and the pair is computed anew.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Literal
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.translation import gettext_noop
from pydantic import TypeAdapter

from collections_app.access.context import current_access, system_access
from collections_app.errors import ServiceError, WrongValueError
from evaluation_app.golden.sets import Criteria
from evaluation_app.measures import statistics
from evaluation_app.measures.catalogue import measure_of, order_of
from evaluation_app.measures.scores import Mean, mean
from evaluation_app.models import EvaluationRun, RunComparison
from evaluation_app.runs.comparison.changes import (
    HASH_SHOWN,
    HeaderRow,
    MeasureChange,
    QuestionChange,
    RunItem,
    UsageChange,
    Yardsticks,
    compare_headers,
    compare_usage,
    pair_items,
    read_contents,
    read_items,
)
from ragd.types import canonical_json


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure over the questions that both runs scored: the primary one, or a guardrail.

    difference: other - base. p: `sign_flip_p` of the weighted differences, of this pair alone. allowed: of the primary
    measure the smallest relevant effect, of a guardrail the largest drop. by_construction: why a gain says nothing.
    """

    measure: str
    title: str
    higher_is_better: bool
    difference: statistics.Interval
    p: float
    better: int
    worse: int
    same: int
    allowed: float
    by_construction: str = ""

    @property
    def gain(self) -> float:
        """The mean difference, above 0 for better."""
        return self.difference.mean if self.higher_is_better else -self.difference.mean

    @property
    def highest_gain(self) -> float:
        """The interval's end on the better side."""
        return self.difference.high if self.higher_is_better else -self.difference.low

    @property
    def is_relevant(self) -> bool:
        """Whether the mean difference reaches what is allowed, either way; rounding does not count."""
        return abs(self.gain) >= self.allowed - statistics.SAME

    @property
    def has_dropped(self) -> bool:
        """Whether it fell by more than is allowed; rounding does not count."""
        return -self.gain > self.allowed + statistics.SAME

    @property
    def moved(self) -> int:
        return self.better + self.worse

    @property
    def count(self) -> int:
        return self.moved + self.same


@dataclass(frozen=True, slots=True)
class Decisive:
    """primary: None where the runs cannot be compared by it, with the reason. guardrails: those that can be compared,
    in the catalogue's order."""

    primary: Finding | None
    guardrails: tuple[Finding, ...]
    reason: str = ""


def find_decisive(
    runs: tuple[EvaluationRun, EvaluationRun],
    criteria: Criteria,
    yardsticks: Yardsticks,
    changes: Sequence[MeasureChange],
    questions: Sequence[QuestionChange],
    weights: Sequence[float],
) -> Decisive:
    """runs: the base and the other. weights: of the questions, in their order."""
    allowed = criteria.guardrails_for(runs)
    primary = criteria.primary_for(runs)
    known = {change.name: change for change in changes}
    found = {
        name: _finding(known[name], allowed.get(name, criteria.relevant_effect), yardsticks, questions, weights)
        for name in known
        if (name == primary or name in allowed) and known[name].difference is not None
    }
    guardrails = tuple(finding for name, finding in found.items() if name != primary)
    if primary in found:
        return Decisive(found[primary], guardrails)
    return Decisive(None, guardrails, _missing(primary, criteria, known.get(primary)))


def _finding(
    change: MeasureChange,
    allowed: float,
    yardsticks: Yardsticks,
    questions: Sequence[QuestionChange],
    weights: Sequence[float],
) -> Finding:
    assert change.difference is not None
    weighted = [
        item.deltas[change.name] * weight
        for item, weight in zip(questions, weights, strict=True)
        if change.name in item.deltas
    ]
    return Finding(
        measure=change.name,
        title=change.title,
        higher_is_better=change.higher_is_better,
        difference=change.difference,
        p=statistics.sign_flip_p(weighted),
        better=change.better,
        worse=change.worse,
        same=change.same,
        allowed=allowed,
        by_construction=yardsticks.by_construction(measure_of(change.name)),
    )


def _missing(primary: str, criteria: Criteria, change: MeasureChange | None) -> str:
    if change is not None:
        return f"{change.title}: {change.reason or 'no question is scored in both runs'}"
    wanted = measure_of(criteria.primary_measure).title if criteria.primary_measure else "the primary metric"
    return f"{wanted} is not scored in both runs"


Kind = Literal["better", "worse", "not_better", "inconclusive"]
ALPHA = 0.05
WORDS: dict[Kind, str] = {
    "better": gettext_noop("Better"),
    "worse": gettext_noop("Worse"),
    "not_better": gettext_noop("Not better"),
    "inconclusive": gettext_noop("Inconclusive"),
}
SHOWN_MS = 1.0  # a smaller difference of latencies is left out


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """kind: see `judge`. p: of the primary measure, adjusted for `looks` runs; None without one. broken: guardrails
    that fell for certain by more than is allowed; doubtful: those that fell by more, which may be chance."""

    kind: Kind
    decisive: Decisive
    p: float | None
    looks: int
    broken: tuple[Finding, ...]
    doubtful: tuple[Finding, ...]
    sentence: str

    @property
    def word(self) -> str:
        return WORDS[self.kind]


def judge(decisive: Decisive, p: float | None, looks: int, usage: Sequence[UsageChange] = ()) -> RunVerdict:
    """The verdict on a run. p: of its primary measure, adjusted; looks: how many runs were compared with the base.

    worse: the primary measure fell (p of this pair at most 5 %) by at least the smallest relevant effect; or a
    guardrail did by more than its drop, and the primary measure is not better. better: it rose (adjusted p at most 5 %)
    by at least the relevant effect, not by construction, and every guardrail is within its drop. not_better: it rose
    and a guardrail fell; or it is the same, or could only rise by less than the relevant effect, or rose by
    construction. inconclusive: anything else.
    """
    fallen = [item for item in decisive.guardrails if item.has_dropped]
    broken = tuple(item for item in fallen if item.p <= ALPHA)
    doubtful = tuple(item for item in fallen if item.p > ALPHA)
    kind = _kind(decisive.primary, p, is_broken=bool(broken), is_doubtful=bool(doubtful))
    sentence = _say(kind, decisive, (*broken, *doubtful), usage)
    return RunVerdict(kind, decisive, p, looks, broken, doubtful, sentence)


def _kind(primary: Finding | None, p: float | None, *, is_broken: bool, is_doubtful: bool) -> Kind:
    if primary is None or p is None:
        return "worse" if is_broken else "inconclusive"
    if primary.p <= ALPHA and primary.gain < 0 and primary.is_relevant:
        return "worse"
    if p <= ALPHA and primary.gain > 0 and primary.is_relevant and not primary.by_construction:
        return "not_better" if is_broken else "inconclusive" if is_doubtful else "better"
    if is_broken:
        return "worse"
    is_settled = not primary.moved or primary.highest_gain < primary.allowed - statistics.SAME
    return "not_better" if is_settled or (primary.by_construction and primary.gain > 0) else "inconclusive"


def _say(kind: Kind, decisive: Decisive, fallen: Sequence[Finding], usage: Sequence[UsageChange]) -> str:
    """As in "Not better: correctness unchanged, recall@10 lower on 5 of 22 questions, p50 −40 ms"."""
    parts = [decisive.reason] if decisive.primary is None else [_primary_words(decisive.primary)]
    parts += [_fallen_words(item) for item in fallen]
    latency = next((row.difference for row in usage if row.name == "latency_p50"), None)
    if latency is not None and abs(latency.mean) >= SHOWN_MS:
        parts.append(f"p50 {_signed(latency.mean, 0)} ms")
    return f"{WORDS[kind]}: {', '.join(parts)}"


def _primary_words(primary: Finding) -> str:
    name = title_inside(primary.title)
    if not primary.moved:
        return f"{name} unchanged"
    difference = primary.difference
    words = f"{name} {_signed(difference.mean)} ({_signed(difference.low)} to {_signed(difference.high)})"
    return f"{words}, {primary.by_construction}" if primary.by_construction and primary.gain > 0 else words


def _fallen_words(guardrail: Finding) -> str:
    way = "lower" if guardrail.higher_is_better else "higher"
    return f"{title_inside(guardrail.title)} {way} on {guardrail.worse} of {guardrail.count} questions"


def title_inside(title: str) -> str:
    """A measure's title within a sentence: "recall@10", but "MRR@10", "nDCG@10"."""
    return title[0].lower() + title[1:] if title[1:2].islower() and title[0].isupper() else title


def _signed(value: float, digits: int = 3) -> str:
    return f"{value:+.{digits}f}".replace("-", "−") if round(value, digits) else f"{0:.{digits}f}"


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

    def within(self, positions: Set[int]) -> PairFigures:
        """The same with these questions alone, which whoever asks may see."""
        return replace(self, questions=tuple(item for item in self.questions if item.position in positions))


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
    draws: statistics.Draws,
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
    draws: statistics.Draws,
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
    values = [0.0 if abs(delta) <= statistics.SAME else delta for delta, _ in pairs]
    difference = statistics.bootstrap_mean(values, weights=[weight for _, weight in pairs], draws=draws)
    gains = [value if measure.higher_is_better else -value for value in values]
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return MeasureChange(
        name,
        measure.title,
        measure.higher_is_better,
        *means,
        difference=difference,
        verdict=statistics.judge_difference(
            difference, better + worse, higher_is_better=measure.higher_is_better, relevant=relevant - statistics.SAME
        ),
        better=better,
        worse=worse,
        same=len(gains) - better - worse,
    )


def _mean_of(name: str, items: Mapping[int, RunItem]) -> Mean:
    known = [(item.scores[name], item.weight) for item in items.values() if name in item.scores]
    return mean([score for score, _ in known], [weight for _, weight in known])


OTHERS_MAX = 7
FORMAT = 2  # of what is kept; another one is computed anew
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
    with system_access():  # they are of all questions, whoever asks first
        figures = _figures(base, others, keep=keep)
    if not current_access().unbound:
        seen = {run.pk: set(run.items.values_list("position", flat=True)) for run in (base, *others)}
        figures = {pk: pair.within(seen[base.pk] & seen[pk]) for pk, pair in figures.items()}
    looks = {pk: _p_of(pair) for pk, pair in figures.items()}
    if keep:
        looks = dict(RunComparison.objects.filter(base=base).values_list("other", "p")) | looks
    known = {pk: p for pk, p in looks.items() if p is not None}
    adjusted = dict(zip(known, statistics.holm(list(known.values())), strict=True))
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
    items, content, draws = read_items(base), read_contents(base), statistics.Draws()
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
