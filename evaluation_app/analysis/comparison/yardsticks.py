"""Why scores of two runs are not of one kind: other judges, other units, other contexts, other chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collections_app.models import Generation
from evaluation_app.analysis.figures import JUDGED_GROUPS
from evaluation_app.golden.criteria import CORRECTNESS
from evaluation_app.measures.catalogue import CHUNK, Measure
from evaluation_app.models import EvaluationRun

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
    if base.generation == other.generation or base.collection_name != other.collection_name:
        return ""
    rows = Generation.objects.filter(
        collection__name=base.collection_name, number__in=(base.generation, other.generation)
    )
    policies = dict(rows.values_list("number", "policy"))
    if len(policies) < 2 or policies[base.generation] == policies[other.generation]:
        return ""
    return f"other chunks: index versions {base.generation} and {other.generation} have other chunking policies"


def _list_is_longer(base: EvaluationRun, other: EvaluationRun) -> str:
    before, after = (run.plan.get("k") or 0 for run in (base, other))
    return f"k {before} and {after}: a longer list finds more by itself" if after > before else ""
