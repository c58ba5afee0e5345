"""What a sweep would take, from what was measured of the same collection before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import FloatField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.scoring.settings import RunSettings
from retrieval_app.models import QueryRun

RUNS_LOOKED_AT = 5
QUERIES_LOOKED_AT = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """plans times questions. took_s and cost_usd: None where nothing was measured that it could be told from.

    source: what they are told from, "" for nothing.
    """

    plans: int
    questions: int
    took_s: float | None
    cost_usd: float | None
    source: str

    @property
    def asked(self) -> int:
        return self.plans * self.questions

    def as_dict(self) -> dict[str, Any]:
        return {
            "plans": self.plans,
            "questions": self.questions,
            "asked": self.asked,
            "took_s": self.took_s,
            "cost_usd": self.cost_usd,
            "source": self.source,
        }


def estimate_sweep(golden_set: GoldenSet, plans: int, settings: RunSettings) -> Estimate:
    """From the last runs of the collection with the same kind of settings, else from its last queries of that kind."""
    questions = golden_set.questions.filter(suggested=False).count()
    asked = plans * questions
    alike = EvaluationRun.objects.filter(
        collection_name=golden_set.collection_name,
        state=EvaluationRun.State.SUCCEEDED,
        judge=settings.judge,
        settings__answers=settings.answers,
        settings__contributions=settings.contributions,
        done__gt=0,
    )
    runs = list(alike.values_list("took_ms", "done", "cost_usd", "judge_cost_usd")[:RUNS_LOOKED_AT])
    if runs:
        done = sum(run[1] for run in runs)
        costs = [answers + judge for _, _, answers, judge in runs if answers is not None and judge is not None]
        cost = sum(costs) / done * asked if len(costs) == len(runs) else None
        took = sum(run[0] for run in runs) / done * asked / 1000
        return Estimate(plans, questions, took, cost, f"the last {_counted(len(runs), 'evaluation run')} like it")
    figures = _query_times(golden_set.collection_name, settings)
    if not figures or settings.judge != "none":
        return Estimate(plans, questions, None, None, "")
    took = sum(figures) / len(figures) * asked / 1000
    source = f"the last {_counted(len(figures), 'query,queries')} of the collection"
    return Estimate(plans, questions, took, None, source)


def _query_times(collection_name: str, settings: RunSettings) -> list[float]:
    """Milliseconds of the newest queries of the kind that the sweep would make."""
    kind = QueryRun.Kind.ASK if settings.answers else QueryRun.Kind.SEARCH
    took_ms = Cast(KeyTextTransform("total", "timings_ms"), FloatField())
    queries = QueryRun.objects.filter(collection_name=collection_name, kind=kind).order_by("-created_at")
    found = queries.annotate(total_ms=took_ms).values_list("total_ms", flat=True)[:QUERIES_LOOKED_AT]
    return [value for value in found if value is not None]


def _counted(count: int, noun: str) -> str:
    one, _, many = noun.partition(",")
    return f"{count} {one if count == 1 else many or one + 's'}"
