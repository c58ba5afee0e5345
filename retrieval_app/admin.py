"""Runs in the admin: to read, to search, to take away as JSON Lines. They are never edited here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import reverse

from collections_app.admin.base import ERASE, CollectionRowsAdmin, ReadOnlyAdmin, row_action
from collections_app.domain.formats import duration
from collections_app.http.downloads import Reading, download_response
from retrieval_app.api.responses import encode
from retrieval_app.api.schemas import Run
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.models.runs import LIST_DEFERRED
from retrieval_app.runs import plans

EXPORT_BATCH = 200


@admin.register(QueryRun)
class QueryRunAdmin(ReadOnlyAdmin):
    list_display = (
        "short_query", "kind", "collection_name", "status", "mode", "results_count", "took", "door", "created_at",
    )  # fmt: skip
    list_filter = ("kind", "status", "door", "collection_name", "answerer", "created_at")
    search_fields = ("query", "answer", "error", "trace_id", "plan_hash", "api_key_label")
    date_hierarchy = "created_at"
    list_select_related = ("user",)
    list_deferred = LIST_DEFERRED
    deletable = True
    actions = ("export_json_lines",)
    fieldsets = (
        (None, {"fields": ("id", "kind", "collection_name", "query", "status", "error_type", "error", "created_at")}),
        (
            "Answer",
            {"fields": ("answer", "answerer", "system_prompt", "citations", "removed_citations", "token_usage")},
        ),
        (
            "Retrieval",
            {
                "fields": (
                    "plan", "plan_hash", "plan_name", "generation", "embed_model", "exact_used", "short_result",
                    "retrieved_ids", "timings_ms",
                )
            },
        ),
        (
            "Quality",
            {
                "fields": (
                    "trace_scores", "evidence", "retrieval_confidence", "doc_contribution_scores", "retrieval_action",
                    "fallback_triggered", "correction",
                )
            },
        ),
        ("Origin", {"fields": ("door", "user", "api_key_label", "trace_id", "spec_version")}),
    )  # fmt: skip

    @admin.display(description="query", ordering="query")
    def short_query(self, run: QueryRun) -> str:
        return run.query if len(run.query) <= 80 else f"{run.query[:79]}…"

    @admin.display(description="mode")
    def mode(self, run: QueryRun) -> str:
        return run.plan_mode

    @admin.display(description="results")
    def results_count(self, run: QueryRun) -> int:
        return len(run.retrieved_ids)

    @admin.display(description="duration")
    def took(self, run: QueryRun) -> str:
        return duration(run.took_ms)

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        return [("Open", reverse("retrieval:run", args=[obj.pk]))]

    @admin.action(description="Download selected runs as JSON Lines", permissions=["view"])
    def export_json_lines(self, request: HttpRequest, queryset: QuerySet[QueryRun]) -> StreamingHttpResponse:
        return download_response(
            request,
            _lines(queryset),
            "application/jsonl",
            "runs.jsonl",
            reading=Reading("queryrun.export", "downloaded query runs", subject_kind="queryrun", rows=queryset.count()),
        )


def _mark_default(saved: SavedPlan, user: Any, *, is_default: bool) -> None:
    plans.update_plan(saved.collection, saved.name, is_default=is_default, actor=user)


@admin.register(SavedPlan)
class SavedPlanAdmin(CollectionRowsAdmin):
    """Saved plans. They are made where they can be tried; here they are looked at, marked and deleted."""

    list_display = ("name", "collection", "is_default", "mode", "description", "created_by", "updated_at")
    list_filter = ("is_default", "collection__name")
    search_fields = ("name", "description", "collection__name")
    ordering = ("collection__name", "name")
    fields = (
        "name", "collection", "is_default", "description", "plan", "plan_hash", "created_by", "created_at",
        "updated_at",
    )  # fmt: skip
    actions = ("make_default", "unmark_default", "delete_plans")

    make_default = row_action(
        "Set as collection default", partial(_mark_default, is_default=True), "changed", noun="preset"
    )
    unmark_default = row_action("Remove as default", partial(_mark_default, is_default=False), "changed", noun="preset")
    delete_plans = row_action(
        "Delete selected presets",
        lambda saved, user: plans.delete_plan(saved.collection, saved.name, actor=user),
        "deleted",
        noun="preset",
        permission=ERASE,
    )

    @admin.display(description="mode")
    def mode(self, saved: SavedPlan) -> str:
        return str(saved.plan.get("mode", ""))

    @admin.display(description="settings hash")
    def plan_hash(self, saved: SavedPlan) -> str:
        return saved.retrieve_plan.hash


def _lines(runs: QuerySet[QueryRun]) -> Iterator[str]:
    for run in runs.defer(None).select_related("user").iterator(chunk_size=EXPORT_BATCH):
        yield encode(Run.from_orm(run)) + "\n"
