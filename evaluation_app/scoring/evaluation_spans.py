"""The `rag.evaluate` span of a stored run: a trace of its own that points at the run's root."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import INVALID_SPAN, Span

from evaluation_app.judges.protocol import Judge
from evaluation_app.measures.scores import Score
from evaluation_app.models import Span as StoredSpan
from evaluation_app.spans.store.span_reads import flush_pending
from ragd import telemetry
from retrieval_app.models import QueryRun

FIELDS = ("context_relevance", "answer_relevance", "faithfulness", "groundedness")  # what AITF names come first
EXPLAINED = ("context_relevance", "groundedness")
JUDGED_NAMES = frozenset(
    {
        "context_relevance",
        "context_utilization",
        "completeness",
        "adherence",
        "groundedness",
        "faithfulness",
        "answer_relevance",
    }
)


@contextmanager
def judged_span(run: QueryRun) -> Iterator[Span]:
    """Open around the judging, so that a model's calls stand in it. A span that records nothing where the run's root is
    not known: a judgement must point at what it judges."""
    root = root_of(run)
    if not root:
        yield INVALID_SPAN
        return
    with telemetry.evaluate_later_span(
        run.collection_name,
        trace_id=run.trace_id,
        span_id=root,
        query=run.query,
        run_id=str(run.pk) if run.pk else None,
        api_key=run.api_key_label or None,
    ) as span:
        yield span


def root_of(run: QueryRun) -> str:
    """The id of the run's root span, 16 hex digits; "" when nothing was recorded of it."""
    if run.root_span_id or not run.trace_id:
        return run.root_span_id
    flush_pending(run)
    rows = StoredSpan.objects.of_trace(run.trace_id).filter(name__startswith=f"{telemetry.PIPELINE} ")
    return rows.filter(run_id=run.pk).values_list("span_id", flat=True).first() or ""


def record_scores(span: Span, scores: Mapping[str, Score], judge: Judge | None, details: Mapping[str, Any]) -> None:
    """Each score as one metric. groundedness is adherence under the name that the fields of AITF have for it."""
    named = dict(scores)
    if "adherence" in named:
        named["groundedness"] = named["adherence"]
    order = [name for name in FIELDS if name in named] + [name for name in named if name not in FIELDS]
    for number, name in enumerate(order):
        score = named[name]
        judged = judge is not None and name in JUDGED_NAMES
        evaluation = telemetry.Evaluation(
            name,
            score=score.value,
            label=score.reason if score.state == "unscorable" else None,
            error_type=score.reason if score.state == "error" else None,
            explanation=details.get("explanation") if name in EXPLAINED else None,
            annotator="LLM" if judged and judge is not None and judge.name == "llm" else "CODE",
            identifier=f"{judge.name} {judge.version}" if judged and judge is not None else None,
        )
        telemetry.record_evaluation(span, evaluation, number)
