"""Time and cost of asking a test set, from what was measured of the same collection before: of one run or of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import FloatField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from evaluation_app.judges.rubrics import read_rubrics
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.scoring.judge_selection import has_judge_model
from evaluation_app.scoring.run_settings import RunSettings
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun

RUNS_READ = 60
RUNS_LOOKED_AT = 5  # with one reranker
QUERIES_LOOKED_AT = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """plans times questions. took_s and cost_usd: None where nothing was measured that they could rest on.

    source: what they rest on, "" for nothing.
    """

    plans: int
    questions: int
    took_s: float | None
    cost_usd: float | None
    source: str

    @property
    def asked(self) -> int:
        return self.plans * self.questions


def estimate_plans(golden_set: GoldenSet, plans: Sequence[RetrievePlan], settings: RunSettings) -> Estimate:
    """From the last runs of the collection with the same kind of settings, else from its last queries of that kind.

    A plan is estimated from runs with the same reranker, which takes most of the time, where there are any.
    """
    questions = golden_set.questions.filter(suggested=False).count()
    runs = _runs_alike(golden_set.collection_name, settings)
    if runs:
        alike = {plan.rerank: [run for run in runs if run.rerank == plan.rerank][:RUNS_LOOKED_AT] for plan in plans}
        known = {rerank: match or runs for rerank, match in alike.items()}
        took_ms = sum(_per_question([run.took_ms for run in known[plan.rerank]], known[plan.rerank]) for plan in plans)
        costs = [run.cost_usd for run in runs if run.cost_usd is not None]
        cost = _per_question(costs, runs) * questions * len(plans) if len(costs) == len(runs) else None
        used = {id(run): run for plan in plans for run in known[plan.rerank]}
        source = f"the last {_several(len(used), 'evaluation run')} like it"
        return Estimate(len(plans), questions, took_ms * questions / 1000, cost, source)
    figures = _query_times(golden_set.collection_name, settings)
    if not figures or settings.judge != "none":
        return Estimate(len(plans), questions, None, None, "")
    took_s = sum(figures) / len(figures) * questions * len(plans) / 1000
    source = f"the last {_several(len(figures), 'query,queries')} of the collection"
    return Estimate(len(plans), questions, took_s, None, source)


def count_model_calls(golden_set: GoldenSet, plan: RetrievePlan, settings: RunSettings, *, asks_model: bool) -> int:
    """Calls of a chat model that a run makes when it answers every question: repairs, retries and a corrective step
    come on top.

    asks_model: whether a chat model answers. With contributions it also answers from each of the k results alone and
    from none. The judge "llm" is asked once per question, and once more where an answer is expected; each rubric in
    words once per question, where a chat model can judge. What was said of the same answer before is not asked again.
    """
    if not settings.answers:
        return 0
    accepted = golden_set.questions.filter(suggested=False)
    each = 1 + (plan.k + 1 if settings.contributions else 0) if asks_model else 0
    if has_judge_model():
        each += sum(rubric.kind == "prompt" for rubric in read_rubrics(golden_set.rubrics))
    calls = each * accepted.count()
    if settings.judge == "llm":
        calls += accepted.count() + accepted.exclude(expected_answer="").count()
    return calls


@dataclass(frozen=True, slots=True)
class _FinishedRun:
    """A run that went through. cost_usd: of answers and judge, None where a price is not known."""

    took_ms: float
    done: int
    cost_usd: float | None
    rerank: str | None


def _runs_alike(collection_name: str, settings: RunSettings) -> list[_FinishedRun]:
    """Newest first."""
    rows = EvaluationRun.objects.filter(
        collection_name=collection_name,
        state=EvaluationRun.State.SUCCEEDED,
        judge=settings.judge,
        settings__answers=settings.answers,
        settings__contributions=settings.contributions,
        done__gt=0,
    ).values_list("took_ms", "done", "cost_usd", "judge_cost_usd", "plan")
    return [
        _FinishedRun(took, done, None if answers is None or judge is None else answers + judge, plan.get("rerank"))
        for took, done, answers, judge, plan in rows[:RUNS_READ]
    ]


def _per_question(amounts: Sequence[float], runs: Sequence[_FinishedRun]) -> float:
    return sum(amounts) / sum(run.done for run in runs)


def _query_times(collection_name: str, settings: RunSettings) -> list[float]:
    """Milliseconds of the newest queries of the kind that the experiment would make."""
    kind = QueryRun.Kind.ASK if settings.answers else QueryRun.Kind.SEARCH
    took_ms = Cast(KeyTextTransform("total", "timings_ms"), FloatField())
    queries = QueryRun.objects.filter(collection_name=collection_name, kind=kind).order_by("-created_at")
    result = queries.annotate(total_ms=took_ms).values_list("total_ms", flat=True)[:QUERIES_LOOKED_AT]
    return [value for value in result if value is not None]


def _several(count: int, noun: str) -> str:
    """ "query", "3 queries": what follows "the last"."""
    one, _, many = noun.partition(",")
    return one if count == 1 else f"{count} {many or one + 's'}"
