from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest

from evaluation_app.conformance import request_run
from evaluation_app.curation.admin import register_admin as register_curation_admin
from evaluation_app.golden.admin import register_admin
from evaluation_app.models import ConformanceResult, Span, SpanWriter
from evaluation_app.runs.admin import register_admin as register_runs_admin
from evaluation_app.scoring.admin import register_admin as register_scoring_admin

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class ReadOnlyAdmin(Base):
    """Rows that the server wrote about itself: to be looked at, not changed."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


@admin.register(Span)
class SpanAdmin(ReadOnlyAdmin):
    list_display = ("started_at", "name", "kind", "collection", "duration_ms", "status_code", "trace_id")
    list_filter = ("status_code", "kind", "service", "collection")
    search_fields = ("name__startswith", "=trace_id", "=span_id")
    ordering = ("-started_at", "-id")
    show_full_result_count = False
    date_hierarchy = None

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        rows = super().get_queryset(request)
        is_list = getattr(request.resolver_match, "url_name", "") == "evaluation_app_span_changelist"
        return rows.defer("attributes", "events", "links", "words") if is_list else rows

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


@admin.register(SpanWriter)
class SpanWriterAdmin(ReadOnlyAdmin):
    list_display = ("name", "written", "lost", "last_error", "updated_at")
    search_fields = ("name",)


@admin.register(ConformanceResult)
class ConformanceResultAdmin(ReadOnlyAdmin):
    list_display = ("started_at", "state", "spec_version", "database_version", "cases", "failed_rules", "started_by")
    list_filter = ("passed", "spec_version")
    ordering = ("-started_at", "-id")
    actions = ("try_again",)

    @admin.action(description="Run the checks again", permissions=["view"])
    def try_again(self, request: HttpRequest, queryset: models.QuerySet[models.Model]) -> None:
        request_run(request.user)
        self.message_user(request, "Check started; reload in a moment.")


register_admin()
register_runs_admin()
register_scoring_admin()
register_curation_admin()
