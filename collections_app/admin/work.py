"""Jobs, batches and files in the admin."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from collections_app.admin.base import ReadOnlyAdmin, list_link
from collections_app.models import IngestBatch, IngestJob, Upload
from collections_app.services.documents.orphans import drop_unneeded_uploads
from collections_app.services.jobs.cancellation import cancel_batch, cancel_job
from collections_app.services.jobs.retries import retry_batch, retry_job
from collections_app.templatetags.interface import counted


@admin.register(IngestJob)
class IngestJobAdmin(ReadOnlyAdmin):
    list_display = (
        "doc_id", "kind", "collection", "state", "stage", "progress", "attempts", "error_type", "created_at",
        "finished_at",
    )  # fmt: skip
    list_filter = ("state", "kind", "stage", "error_type", "collection")
    list_select_related = ("collection",)
    search_fields = ("doc_id", "source", "error")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("retry", "cancel")

    def get_queryset(self, request: HttpRequest) -> QuerySet[IngestJob]:
        return IngestJob.objects.filter(collection__deleted_at__isnull=True)

    @admin.display(description="chunks")
    def progress(self, job: IngestJob) -> str:
        return f"{job.chunks_done} of {job.chunks_total}" if job.chunks_total else "–"

    @admin.action(description="Retry the selected jobs", permissions=["manage"])
    def retry(self, request: HttpRequest, rows: QuerySet[IngestJob]) -> None:
        self.do_each(request, rows, lambda job: retry_job(job, actor=request.user), "queued again")

    @admin.action(description="Cancel the selected jobs", permissions=["manage"])
    def cancel(self, request: HttpRequest, rows: QuerySet[IngestJob]) -> None:
        self.do_each(request, rows, lambda job: cancel_job(job, actor=request.user), "cancelled")


@admin.register(IngestBatch)
class IngestBatchAdmin(ReadOnlyAdmin):
    list_display = (
        "label", "kind", "collection", "jobs_shown", "submitted", "unchanged", "skipped", "rejected", "deleted", "open",
        "created_by", "created_at",
    )  # fmt: skip
    list_filter = ("kind", "open", "collection")
    list_select_related = ("collection",)
    search_fields = ("label", "created_by")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("retry_failed", "cancel")

    def get_queryset(self, request: HttpRequest) -> QuerySet[IngestBatch]:
        return IngestBatch.objects.filter(collection__deleted_at__isnull=True)

    @admin.display(description="jobs")
    def jobs_shown(self, batch: IngestBatch) -> SafeString:
        return list_link("ingestjob", batch.submitted, batch__id__exact=batch.pk)

    @admin.action(description="Retry what failed of the selected batches", permissions=["manage"])
    def retry_failed(self, request: HttpRequest, rows: QuerySet[IngestBatch]) -> None:
        queued = sum(retry_batch(batch, actor=request.user) for batch in rows)
        self.message_user(request, f"{counted(queued, 'job')} queued again.", messages.SUCCESS)

    @admin.action(description="Cancel what is left of the selected batches", permissions=["manage"])
    def cancel(self, request: HttpRequest, rows: QuerySet[IngestBatch]) -> None:
        ended = sum(cancel_batch(batch, actor=request.user) for batch in rows)
        self.message_user(request, f"{counted(ended, 'job')} cancelled.", messages.SUCCESS)


@admin.register(Upload)
class UploadAdmin(ReadOnlyAdmin):
    list_display = ("name", "doc_id", "collection", "media_type", "size_bytes", "created_at")
    list_filter = ("collection", "media_type")
    list_select_related = ("collection",)
    search_fields = ("name", "doc_id", "sha256")
    ordering = ("-created_at", "-id")
    exclude = ("content",)
    actions = ("drop_unneeded",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Upload]:
        return Upload.objects.listed().filter(collection__deleted_at__isnull=True)

    @admin.action(description="Delete those that no document and no job needs", permissions=["manage"])
    def drop_unneeded(self, request: HttpRequest, rows: QuerySet[Upload]) -> None:
        gone = drop_unneeded_uploads(list(rows), actor=request.user)
        self.message_user(request, f"{counted(gone, 'file')} deleted; the others are needed.", messages.SUCCESS)
