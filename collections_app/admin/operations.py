"""Workers, endpoints, operations and kept answers in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from collections_app.admin.base import MANAGE, ReadOnlyAdmin, page_link
from collections_app.models import IdempotencyRecord, Operation, Provider, Report, WorkerHeartbeat
from collections_app.services.collections.invariant_check import request_check


@admin.register(Operation)
class OperationAdmin(ReadOnlyAdmin):
    list_display = (
        "kind", "subject", "shown_state", "findings", "result", "error", "created_by", "created_at", "finished_at",
    )  # fmt: skip
    list_filter = ("kind", "state")
    search_fields = ("subject", "created_by", "error")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("check_everything",)

    @admin.display(description="result")
    def result(self, operation: Operation) -> SafeString:
        return page_link("show", "collections:operation", operation.pk)

    @admin.action(description="Check everything that is stored", permissions=[MANAGE])
    def check_everything(self, request: HttpRequest, _: object) -> None:
        request_check(actor=request.user)
        self.message_user(request, "Everything is being checked.")


@admin.register(Provider)
class ProviderAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("name", "failures", "open_until", "error", "failed_at")
    search_fields = ("name", "error")


@admin.register(Report)
class ReportAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("name", "made_at")


@admin.register(WorkerHeartbeat)
class WorkerHeartbeatAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("name", "host", "pid", "job", "jobs_done", "memory_mb", "started_at", "beat_at")
    list_filter = ("host",)
    search_fields = ("name",)


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("key", "owner", "status", "created_at")
    list_filter = ("status",)
    search_fields = ("key",)
    ordering = ("-created_at", "-id")
    exclude = ("response",)
