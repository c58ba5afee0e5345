"""Runs in the admin: to read, to search, to take away as JSON Lines. They are never edited here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from collections_app.admin import ReadOnlyAdmin
from retrieval_app.api.responses import encode
from retrieval_app.api.schemas import Run
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.models.runs import LIST_DEFERRED
from retrieval_app.runs import plans

EXPORT_BATCH = 200

if TYPE_CHECKING:
    RunAdmin = admin.ModelAdmin[QueryRun]
else:  # generic in the type stubs only
    RunAdmin = admin.ModelAdmin


@admin.register(QueryRun)
class QueryRunAdmin(RunAdmin):
    list_display = (
        "short_query",
        "kind",
        "collection_name",
        "status",
        "mode",
        "results_count",
        "took",
        "door",
        "created_at",
    )
    list_filter = ("kind", "status", "door", "collection_name", "answerer", "created_at")
    search_fields = ("query", "answer", "error", "trace_id", "plan_hash", "api_key_label")
    date_hierarchy = "created_at"
    list_per_page = 50
    show_full_result_count = False
    actions = ["export_json_lines"]
    fieldsets = (
        (None, {"fields": ("id", "kind", "collection_name", "query", "status", "error_type", "error", "created_at")}),
        ("Answer", {"fields": ("answer", "answerer", "system_prompt", "citation_list", "removed_citations", "usage")}),
        (
            "Retrieval",
            {
                "fields": (
                    "plan_text",
                    "plan_hash",
                    "plan_name",
                    "generation",
                    "embed_model",
                    "exact_used",
                    "short",
                    "ids",
                    "timings",
                )
            },
        ),
        (
            "Quality",
            {
                "fields": (
                    "trace_scores",
                    "evidence",
                    "retrieval_confidence",
                    "doc_contribution_scores",
                    "retrieval_action",
                    "fallback_triggered",
                    "correction",
                )
            },
        ),
        ("Origin", {"fields": ("door", "user", "api_key_label", "trace_id", "spec_version")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[QueryRun]:
        runs = super().get_queryset(request)
        return runs.select_related("user").defer(*LIST_DEFERRED)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: QueryRun | None = None) -> bool:
        return False

    @admin.display(description="query", ordering="query")
    def short_query(self, run: QueryRun) -> str:
        return run.query if len(run.query) <= 80 else f"{run.query[:79]}…"

    @admin.display(description="mode")
    def mode(self, run: QueryRun) -> str:
        return run.plan_mode

    @admin.display(description="results")
    def results_count(self, run: QueryRun) -> int:
        return len(run.retrieved_ids)

    @admin.display(description="duration (ms)")
    def took(self, run: QueryRun) -> str:
        return f"{run.took_ms:.1f}"

    @admin.display(description="plan")
    def plan_text(self, run: QueryRun) -> SafeString:
        return _as_json(run.plan)

    @admin.display(description="citations")
    def citation_list(self, run: QueryRun) -> SafeString:
        return _as_json(run.citations)

    @admin.display(description="token usage")
    def usage(self, run: QueryRun) -> SafeString:
        return _as_json(run.token_usage)

    @admin.display(description="fewer results than k")
    def short(self, run: QueryRun) -> SafeString:
        return _as_json(run.short_result)

    @admin.display(description="retrieved")
    def ids(self, run: QueryRun) -> SafeString:
        return _as_json(run.retrieved_ids)

    @admin.display(description="timings (ms)")
    def timings(self, run: QueryRun) -> SafeString:
        return _as_json(run.timings_ms)

    @admin.action(description="Download selected runs as JSON Lines", permissions=["view"])
    def export_json_lines(self, request: HttpRequest, queryset: QuerySet[QueryRun]) -> StreamingHttpResponse:
        response = StreamingHttpResponse(_lines(queryset), content_type="application/jsonl")
        response["Content-Disposition"] = 'attachment; filename="runs.jsonl"'
        return response


@admin.register(SavedPlan)
class SavedPlanAdmin(ReadOnlyAdmin):
    """Saved plans. They are made where they can be tried; here they are looked at, marked and deleted."""

    list_display = ("name", "collection", "is_default", "mode", "description", "created_by", "updated_at")
    list_filter = ("is_default", "collection__name")
    search_fields = ("name", "description", "collection__name")
    list_select_related = ("collection",)
    ordering = ("collection__name", "name")
    fields = (
        "name", "collection", "is_default", "description", "plan_text", "plan_hash", "created_by", "created_at",
        "updated_at",
    )  # fmt: skip
    actions = ("make_default", "unmark_default", "delete_plans")

    def get_queryset(self, request: HttpRequest) -> QuerySet[SavedPlan]:
        return SavedPlan.objects.filter(collection__deleted_at__isnull=True).select_related("collection")

    @admin.display(description="mode")
    def mode(self, saved: SavedPlan) -> str:
        return str(saved.plan.get("mode", ""))

    @admin.display(description="plan")
    def plan_text(self, saved: SavedPlan) -> SafeString:
        return _as_json(saved.plan)

    @admin.display(description="settings hash")
    def plan_hash(self, saved: SavedPlan) -> str:
        return saved.retrieve_plan.hash

    @admin.action(description="Set as collection default", permissions=["manage"])
    def make_default(self, request: HttpRequest, queryset: QuerySet[SavedPlan]) -> None:
        """Of several plans of one collection the last by name becomes it."""
        self._mark(request, queryset, True)

    @admin.action(description="Remove as default", permissions=["manage"])
    def unmark_default(self, request: HttpRequest, queryset: QuerySet[SavedPlan]) -> None:
        self._mark(request, queryset, False)

    def _mark(self, request: HttpRequest, queryset: QuerySet[SavedPlan], is_default: bool) -> None:
        chosen = list(queryset.order_by("collection_id", "name"))
        for saved in chosen:
            plans.update_plan(saved.collection, saved.name, is_default=is_default, actor=request.user)
        self.message_user(request, f"{len(chosen)} presets changed.", messages.SUCCESS)

    @admin.action(description="Delete selected presets", permissions=["manage"])
    def delete_plans(self, request: HttpRequest, queryset: QuerySet[SavedPlan]) -> None:
        chosen = list(queryset)
        for saved in chosen:
            plans.delete_plan(saved.collection, saved.name, actor=request.user)
        self.message_user(request, f"{len(chosen)} presets deleted.", messages.SUCCESS)


def _as_json(value: object) -> SafeString:
    return format_html("<pre>{}</pre>", json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True))


def _lines(runs: QuerySet[QueryRun]) -> Iterator[str]:
    for run in runs.defer(None).select_related("user").iterator(chunk_size=EXPORT_BATCH):
        yield encode(Run.from_orm(run)) + "\n"
