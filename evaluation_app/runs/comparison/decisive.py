"""What decides between two runs: their difference in the primary measure and in the guardrails of the set.

One sentence on two runs: better, worse, not better, or inconclusive.

Better is said only with a correction for the number of looks: the runs that were compared with one base are a family,
and their p-values are adjusted by Holm's method (`measures.statistics.holm`). Worse is said without it, so that looking
often hides no loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext_noop

from evaluation_app.golden.sets import Criteria
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.statistics import SAME, Interval, sign_flip_p
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.comparison.changes import MeasureChange, QuestionChange, Yardsticks
from evaluation_app.runs.comparison.usage import UsageChange


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure over the questions that both runs scored: the primary one, or a guardrail.

    difference: other - base. p: `sign_flip_p` of the weighted differences, of this pair alone. allowed: of the primary
    measure the smallest relevant effect, of a guardrail the largest drop. by_construction: why a gain says nothing.
    """

    measure: str
    title: str
    higher_is_better: bool
    difference: Interval
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
        return abs(self.gain) >= self.allowed - SAME

    @property
    def has_dropped(self) -> bool:
        """Whether it fell by more than is allowed; rounding does not count."""
        return -self.gain > self.allowed + SAME

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
        p=sign_flip_p(weighted),
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
    is_settled = not primary.moved or primary.highest_gain < primary.allowed - SAME
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
