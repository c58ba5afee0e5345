"""Evaluation runs and their questions in the admin: looked at, changed by actions over the services."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from collections_app.admin.base import ReadOnlyAdmin, is_list, page_link
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs import lifecycle
from evaluation_app.runs.requests import ITEM_DEFERRED


class EvaluationRunAdmin(ReadOnlyAdmin):
    list_display = (
        "__str__", "set_name", "collection_name", "state", "progress", "failed", "passed", "judge", "purpose",
        "created_by", "created_at", "page",
    )  # fmt: skip
    list_filter = ("state", "passed", "purpose", "judge", "set_name")
    search_fields = ("name", "set_name", "collection_name", "plan_hash", "=id")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("cancel", "resume", "retry_failed", "delete_runs")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        rows = super().get_queryset(request)
        return rows.defer("summary", "plan") if is_list(request) else rows

    @admin.display(description="questions")
    def progress(self, run: EvaluationRun) -> str:
        return f"{run.done} of {run.total}"

    @admin.display(description="page")
    def page(self, run: EvaluationRun) -> SafeString:
        return page_link("open", "evaluation:evaluation-run", run.pk)

    @admin.action(description="Cancel the selected runs", permissions=["manage"])
    def cancel(self, request: HttpRequest, rows: QuerySet[EvaluationRun]) -> None:
        self.do_each(request, rows, lambda run: lifecycle.cancel_run(run, request.user), "cancelled")

    @admin.action(description="Resume the selected runs", permissions=["manage"])
    def resume(self, request: HttpRequest, rows: QuerySet[EvaluationRun]) -> None:
        self.do_each(request, rows, lambda run: lifecycle.resume_run(run, request.user), "queued again")

    @admin.action(description="Retry what failed in the selected runs", permissions=["manage"])
    def retry_failed(self, request: HttpRequest, rows: QuerySet[EvaluationRun]) -> None:
        self.do_each(request, rows, lambda run: lifecycle.retry_failed(run, request.user), "queued again")

    @admin.action(description="Delete the selected runs with their results", permissions=["manage"])
    def delete_runs(self, request: HttpRequest, rows: QuerySet[EvaluationRun]) -> None:
        self.do_each(request, rows, lambda run: lifecycle.delete_run(run, request.user), "deleted")


class EvaluationItemAdmin(ReadOnlyAdmin):
    list_display = ("question_text", "run", "position", "category", "outcome", "error_type", "took_ms", "created_at")
    list_filter = ("outcome", "category", "error_type")
    list_select_related = ("run",)
    search_fields = ("question_text", "answer", "=run__id", "=query_run")
    ordering = ("-created_at", "-id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        rows = super().get_queryset(request)
        return rows.defer(*ITEM_DEFERRED, "scores", "golden") if is_list(request) else rows


def register_admin() -> None:
    """With Django's own site."""
    admin.site.register(EvaluationRun, EvaluationRunAdmin)
    admin.site.register(EvaluationItem, EvaluationItemAdmin)
