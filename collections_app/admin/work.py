"""Jobs, batches and files in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from collections_app.admin.base import ERASE, CollectionRowsAdmin, list_link, row_action
from collections_app.admin.uploading import ADD_DOCUMENTS, outcomes_of
from collections_app.http.page_requests import page_of
from collections_app.models import IngestBatch, IngestJob, Upload
from collections_app.services.documents.orphans import drop_unneeded_uploads
from collections_app.services.jobs.batches import batch_jobs, batch_progress
from collections_app.services.jobs.cancellation import cancel_batch, cancel_job
from collections_app.services.jobs.retries import retry_batch, retry_job

FILES_PER_PAGE = 100


@admin.register(IngestJob)
class IngestJobAdmin(CollectionRowsAdmin):
    list_display = (
        "doc_id", "kind", "collection", "state", "stage", "progress", "attempts", "error_type", "created_at",
        "finished_at",
    )  # fmt: skip
    list_filter = ("state", "kind", "stage", "error_type", "collection")
    search_fields = ("doc_id", "source", "error")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("retry", "cancel")

    @admin.display(description="chunks")
    def progress(self, job: IngestJob) -> str:
        return f"{job.chunks_done} of {job.chunks_total}" if job.chunks_total else "–"

    retry = row_action("Retry the selected jobs", lambda job, user: retry_job(job, actor=user), "queued again")
    cancel = row_action("Cancel the selected jobs", lambda job, user: cancel_job(job, actor=user), "cancelled")


@admin.register(IngestBatch)
class IngestBatchAdmin(CollectionRowsAdmin):
    list_display = (
        "label", "kind", "collection", "jobs_shown", "submitted", "unchanged", "skipped", "rejected", "deleted", "open",
        "created_by", "created_at",
    )  # fmt: skip
    list_filter = ("kind", "open", "collection")
    search_fields = ("label", "created_by")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("retry_failed", "cancel")

    change_form_template = "admin/collections_app/ingestbatch/change_form.html"
    fields = ("label", "kind", "collection", "created_by", "created_at")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may upload sees what became of a batch."""
        return super().has_view_permission(request, obj) or (obj is not None and request.user.has_perm(ADD_DOCUMENTS))

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """With the progress of its files, those that failed first, and what needed no job."""
        batch = kwargs["obj"]
        (context["progress"],) = batch_progress([batch])
        context["jobs"] = page_of(request, batch_jobs(batch), FILES_PER_PAGE)
        context["outcomes"] = outcomes_of(request, batch)
        return super().render_change_form(request, context, *args, **kwargs)

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        return [("Open", reverse("collections:batch", args=[obj.collection.name, obj.pk]))]

    @admin.display(description="jobs")
    def jobs_shown(self, batch: IngestBatch) -> SafeString:
        return list_link("ingestjob", batch.submitted, batch__id__exact=batch.pk)

    retry_failed = row_action(
        "Retry what failed of the selected batches",
        lambda batch, user: retry_batch(batch, actor=user),
        "queued again",
        noun="job",
    )
    cancel = row_action(
        "Cancel what is left of the selected batches",
        lambda batch, user: cancel_batch(batch, actor=user),
        "cancelled",
        noun="job",
    )


@admin.register(Upload)
class UploadAdmin(CollectionRowsAdmin):
    internal = True
    list_display = ("name", "doc_id", "collection", "media_type", "size_bytes", "created_at")
    list_filter = ("collection", "media_type")
    search_fields = ("name", "doc_id", "sha256")
    ordering = ("-created_at", "-id")
    exclude = ("content",)
    actions = ("drop_unneeded",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).listed()

    @admin.action(description="Delete those that no document and no job needs", permissions=[ERASE])
    def drop_unneeded(self, request: HttpRequest, rows: QuerySet[Upload]) -> None:
        gone = drop_unneeded_uploads(list(rows), actor=request.user)
        self.tell(request, gone, "file", "deleted; the others are needed")
