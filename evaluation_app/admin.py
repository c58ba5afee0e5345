"""The rows of evaluation_app in the admin: test sets, evaluation runs, scores and spans."""

from __future__ import annotations

from django.db.models import Model
from django.urls import reverse

from collections_app.admin.base import ERASE, Listing, register, row_action
from evaluation_app.experiments.services import cancel_experiment
from evaluation_app.models import (
    EvaluationItem,
    EvaluationRun,
    Experiment,
    GoldenQuestion,
    GoldenSet,
    GoldenSetVersion,
    KeptJudgement,
    PromotionGate,
    ReviewTask,
    RunScore,
    Sampling,
    Span,
)
from evaluation_app.runs import lifecycle
from evaluation_app.scoring.judge_selection import clear_stored
from evaluation_app.telemetry.explorer.span_links import span_href

TABLE: dict[type[Model], Listing] = {
    Span: Listing(
        columns=("started_at", "name", "kind", "collection", "duration_ms", "status_code", "trace_id"),
        filters=("status_code", "kind", "service", "collection"),
        search=("name__startswith", "=trace_id", "=span_id"),
        order=("-started_at", "-id"),
        page=span_href,
    ),
    GoldenSet: Listing(
        columns=("name", "collection_name", "version", "updated_at"),
        search=("name", "collection_name"),
        page=lambda row: reverse("evaluation:golden-set", args=[row.pk]),
    ),
    GoldenQuestion: Listing(
        columns=("question", "golden_set", "category", "expected_doc_ids", "weight", "suggested"),
        filters=("golden_set", "category", "suggested"),
        search=("question", "expected_answer"),
    ),
    GoldenSetVersion: Listing(
        columns=("golden_set", "version", "reason", "made_by", "created_at"), filters=("golden_set",)
    ),
    EvaluationRun: Listing(
        columns=(
            "__str__", "set_name", "collection_name", "state", "done", "total", "failed", "passed", "judge", "purpose",
            "created_by", "created_at",
        ),
        filters=("state", "passed", "purpose", "judge", "set_name"),
        search=("name", "set_name", "collection_name", "plan_hash", "=id"),
        order=("-created_at", "-id"),
        dates="created_at",
        page=EvaluationRun.get_absolute_url,
        actions=(
            row_action("Cancel the selected runs", lifecycle.cancel_run, "cancelled", name="cancel"),
            row_action("Resume the selected runs", lifecycle.resume_run, "queued again", name="resume"),
            row_action(
                "Retry what failed in the selected runs", lifecycle.retry_failed, "queued again", name="retry_failed"
            ),
            row_action(
                "Delete the selected runs with their results", lifecycle.delete_run, "deleted",
                name="delete_runs", permission=ERASE,
            ),
        ),
    ),
    EvaluationItem: Listing(
        columns=("question_text", "run", "position", "category", "outcome", "error_type", "took_ms", "created_at"),
        filters=("outcome", "category", "error_type"),
        search=("question_text", "answer", "=run__id", "=query_run"),
        order=("-created_at", "-id"),
        page=lambda row: reverse("evaluation:evaluation-item", args=[row.run_id, row.position]),
    ),
    Experiment: Listing(
        columns=("__str__", "kind", "set_name", "collection_name", "created_by", "created_at"),
        filters=("kind", "collection_name"),
        search=("name", "set_name", "collection_name"),
        order=("-created_at", "-id"),
        page=Experiment.get_absolute_url,
        actions=(row_action("Cancel the selected experiments", cancel_experiment, "cancelled", name="cancel"),),
    ),
    ReviewTask: Listing(
        columns=("question_text", "set_name", "collection_name", "state", "wanted", "created_by", "created_at"),
        filters=("state", "set_name", "collection_name"),
        search=("question_text", "answer", "reason", "=query_run"),
        page=lambda row: reverse("evaluation:review-task", args=[row.pk]),
    ),
    RunScore: Listing(
        columns=("question_text", "collection_name", "outcome", "reason", "judge", "asked_at"),
        filters=("reason", "outcome", "judge", "collection_name"),
        search=("question_text", "=query_run"),
    ),
    Sampling: Listing(
        columns=("collection_name", "enabled", "rate", "per_day", "judge", "looked_until", "updated_by"),
        filters=("enabled", "judge"),
        search=("collection_name",),
    ),
    KeptJudgement: Listing(
        columns=("key", "model", "created_at"),
        filters=("model",),
        search=("=key", "model"),
        actions=(
            row_action(
                "Forget every judgement of these models", lambda row, user: clear_stored(row.model, actor=user),
                "forgotten", name="forget_models", noun="judgement", permission=ERASE,
            ),
        ),
    ),
    PromotionGate: Listing(
        columns=("collection_name", "set_name", "measure", "k", "margin", "updated_by", "updated_at"),
        search=("collection_name", "set_name"),
    ),
}  # fmt: skip

register(TABLE)
