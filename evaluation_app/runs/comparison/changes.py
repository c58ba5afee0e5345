"""What moved between two runs: per measure, and per question.

Why scores of two runs are not of one kind: other judges, other units, other contexts, other chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from collections_app.models import IndexVersion
from evaluation_app.golden.sets import CORRECTNESS
from evaluation_app.measures.catalogue import CHUNK, Measure, measure_of
from evaluation_app.measures.scores import Mean
from evaluation_app.measures.statistics import SAME, Interval, Verdict
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.comparison.run_reader import Asked
from evaluation_app.runs.figures import JUDGED_GROUPS


@cache
def _is_higher_better(measure: str) -> bool:
    return measure_of(measure).higher_is_better


@dataclass(frozen=True, slots=True)
class Move:
    """A measure whose score differs. delta: after - before; gain: the same, above 0 for better."""

    measure: str
    delta: float
    gain: float

    @property
    def title(self) -> str:
        return measure_of(self.measure).title


@dataclass(frozen=True)
class QuestionChange:
    """One question in both runs. deltas: measure -> after - before, of those that both scored and may be compared."""

    position: int
    question: str
    category: str
    before: Asked
    after: Asked
    deltas: Mapping[str, float]

    @cached_property
    def moves(self) -> list[Move]:
        """The measures whose scores differ: losses, then gains, the largest first; ties in the catalogue's order."""
        moved = [Move(name, delta, self._gain(name)) for name, delta in self.deltas.items() if abs(delta) > SAME]
        return sorted(moved, key=lambda item: (item.gain > 0, -abs(item.gain)))

    @property
    def worst(self) -> float:
        """The largest loss in any measure, below 0; else the smallest gain; 0 when nothing moved."""
        return min((item.gain for item in self.moves), default=0.0)

    @property
    def broke(self) -> bool:
        """Whether asking it failed in the later run alone."""
        return self.after.is_error and not self.before.is_error

    @cached_property
    def is_worse(self) -> bool:
        return self.broke or any(item.gain < 0 for item in self.moves)

    @cached_property
    def is_better(self) -> bool:
        return any(item.gain > 0 for item in self.moves)

    @property
    def lost(self) -> bool:
        """It was passing and does not any more."""
        return self.before.passed and not self.after.passed

    @property
    def won(self) -> bool:
        return self.after.passed and not self.before.passed

    def gain_in(self, measure: str) -> float | None:
        return self._gain(measure) if measure in self.deltas else None

    def _gain(self, measure: str) -> float:
        delta = self.deltas[measure]
        return delta if _is_higher_better(measure) else -delta


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


# What is divided by the context, by the relevant part of it, or by the retrieved documents: it rises when fewer results
# are handed over, though no answer is any better.
CONTEXT_RATIOS = frozenset(
    {"context_relevance", "context_utilization", "completeness", "erag_precision", "erag_map", "erag_ndcg"}
)
CONTEXT_FIELDS = ("k", "compress", "token_budget")  # of the plan
MODEL_JUDGE = "llm"


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """Per kind of measure the reason against comparing, "" for none. asks_model: whether a judging model finds what an
    answer holds of the expected one. longer: why a ranking finds more by itself."""

    judge: str
    asks_model: bool
    downstream: str
    context: str
    chunks: str
    longer: str

    @classmethod
    def between(cls, base: EvaluationRun, other: EvaluationRun) -> Yardsticks:
        """Of two runs of the same questions. Reads the chunking policies where the index versions differ."""
        return cls(
            judge=_judge_differs(base, other),
            asks_model=MODEL_JUDGE in (base.judge, other.judge),
            downstream=_setting_differs(base, other, "downstream", "documents labelled by {} and by {}"),
            context=_context_differs(base, other),
            chunks=_chunks_differ(base, other),
            longer=_list_is_longer(base, other),
        )

    def reason(self, measure: Measure) -> str:
        """Why the two runs' scores of the measure are not of one kind, "" when they are."""
        name = measure.name.partition("@")[0]
        is_judged = measure.group in JUDGED_GROUPS or (name == CORRECTNESS and self.asks_model)
        reasons = (
            self.judge if is_judged else "",
            self.downstream if measure.group == "erag" else "",
            self.context if name in CONTEXT_RATIOS else "",
            self.chunks if name in CONTEXT_RATIOS or name.startswith(CHUNK) else "",
        )
        return next(filter(None, reasons), "")

    def by_construction(self, measure: Measure) -> str:
        """Why a gain in the measure says nothing of the change, "" where it does."""
        return self.longer if measure.group == "retrieval" else ""


def _judge_differs(base: EvaluationRun, other: EvaluationRun) -> str:
    if (base.judge, base.judge_version) != (other.judge, other.judge_version):
        return f"judged by {_judge(base)} and by {_judge(other)}"
    return _setting_differs(base, other, "unit", "counted in {} and in {}")


def _judge(run: EvaluationRun) -> str:
    return f"{run.judge} ({run.judge_version})" if run.judge_version else run.judge


def _setting_differs(base: EvaluationRun, other: EvaluationRun, name: str, reason: str) -> str:
    before, after = (str(run.settings.get(name, "")) for run in (base, other))
    return "" if before == after else reason.format(before, after)


def _context_differs(base: EvaluationRun, other: EvaluationRun) -> str:
    before, after = (_context(run) for run in (base, other))
    changed = [
        f"{name} {_spell(before[name])} and {_spell(after[name])}" for name in before if before[name] != after[name]
    ]
    return f"a share of contexts of other sizes: {', '.join(changed)}" if changed else ""


def _context(run: EvaluationRun) -> Mapping[str, Any]:
    """What decides how much an answer is made of."""
    return {name: run.plan.get(name) for name in CONTEXT_FIELDS} | {"corrective": bool(run.calibration)}


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def _chunks_differ(base: EvaluationRun, other: EvaluationRun) -> str:
    if base.index_version == other.index_version or base.collection_name != other.collection_name:
        return ""
    rows = IndexVersion.objects.filter(
        collection__name=base.collection_name, number__in=(base.index_version, other.index_version)
    )
    policies = dict(rows.values_list("number", "policy"))
    if len(policies) < 2 or policies[base.index_version] == policies[other.index_version]:
        return ""
    return f"other chunks: index versions {base.index_version} and {other.index_version} have other chunking policies"


def _list_is_longer(base: EvaluationRun, other: EvaluationRun) -> str:
    before, after = (run.plan.get("k") or 0 for run in (base, other))
    return f"k {before} and {after}: a longer list finds more by itself" if after > before else ""
