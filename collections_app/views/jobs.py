"""Jobs and uploads of a collection: the strip and the lines that follow the work, lists, one of each, retry, cancel."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import trigger_client_event

from collections_app.domain.formats import counted
from collections_app.http.page_requests import PageRequest, RefusalMessages, next_address, page_of, render_page
from collections_app.models import Collection, Document, IngestBatch, IngestJob
from collections_app.models.jobs import ACTIVE_STATES, TROUBLED_STATES
from collections_app.services.jobs.batches import batch_jobs, batch_progress, find_batches
from collections_app.services.jobs.cancellation import cancel_batch, cancel_collection_jobs, cancel_job
from collections_app.services.jobs.queue import jobs_ahead
from collections_app.services.jobs.retries import lasting_errors, retry_batch, retry_collection_jobs, retry_job
from collections_app.services.uploads.replacements import dismiss_job, replace_file, unlock_file
from collections_app.views.collections import find_collection
from ragd.errors import InvalidInput

JOBS_PER_PAGE = 50
STRIP_ROWS = 4
LINES_AT_ONCE = 60  # as many as the script asks for: their ids fit into one address
STATE_LINKS = (
    ("", gettext_lazy("All")),
    ("active", gettext_lazy("In progress")),
    ("failed", gettext_lazy("Failed")),
    ("quarantined", gettext_lazy("Quarantined")),
    ("succeeded", gettext_lazy("Succeeded")),
    ("cancelled", gettext_lazy("Cancelled")),
)
BATCHES_PER_PAGE = 20
CHANGED = {
    "retry": gettext_lazy("%(jobs)s queued for retry."),
    "cancel": gettext_lazy("%(jobs)s cancelled."),
    "dismiss": gettext_lazy("%(jobs)s dismissed."),
}


def active_jobs(collection: Collection) -> dict[str, Any]:
    """What the strip shows: jobs that run, and how many wait, run and have failed."""
    counts = IngestJob.objects.filter(collection=collection).aggregate(
        queued=Count("pk", filter=Q(state="queued")),
        running=Count("pk", filter=Q(state="running")),
        failed=Count("pk", filter=Q(state__in=TROUBLED_STATES)),
    )
    running = IngestJob.objects.filter(collection=collection, state="running").order_by("started_at", "id")[:STRIP_ROWS]
    return {
        "running_jobs": running if counts["running"] else [],
        "job_counts": counts,
        "active_total": counts["queued"] + counts["running"],
    }


@require_GET
def strip(request: PageRequest, name: str) -> HttpResponse:
    """The jobs strip alone, for polling. When work ended since the last look (`before`), the table is told."""
    collection = find_collection(name)
    context: dict[str, Any] = {"collection": collection, "is_part": True, **active_jobs(collection)}
    response = render_page(request, "collections/parts/jobs_strip.html", context)
    before = request.GET.get("before", "")
    if before.isdecimal() and int(before) > context["active_total"]:
        trigger_client_event(response, "documents-changed", after="swap")
    return response


@require_GET
def lines(request: PageRequest, name: str) -> HttpResponse:
    """The lines of an upload as its jobs (?job=, repeated) stand now, for polling; one that is gone has no line."""
    collection = find_collection(name)
    requested = [job_id for text in request.GET.getlist("job")[:LINES_AT_ONCE] if (job_id := _read_id(text))]
    jobs = IngestJob.objects.filter(collection=collection, pk__in=requested).order_by("created_at", "id")
    context = {"collection": collection, "jobs": jobs}
    return render_page(request, "collections/parts/upload_lines.html", context)


def _read_id(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


@require_GET
def list_jobs(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    state = request.GET.get("state", "")
    rows = IngestJob.objects.filter(collection=collection).listed().newest()
    if state == "active":
        rows = rows.active()
    elif state in IngestJob.State.values:
        rows = rows.filter(state=state)
    else:
        state = ""
    context = {
        "collection": collection,
        "tab": "jobs",
        "page": page_of(request, rows, JOBS_PER_PAGE),
        "job_state": state,
        "states": STATE_LINKS,
        "work_view": "documents",
        **_totals(collection),
    }
    return render_page(request, "collections/jobs.html", context, parts={"jobs": "collections/parts/jobs.html"})


def _totals(collection: Collection) -> dict[str, int]:
    """What the buttons over the list act on."""
    return IngestJob.objects.filter(collection=collection).aggregate(
        active_total=Count("pk", filter=Q(state__in=ACTIVE_STATES)),
        failed_total=Count("pk", filter=Q(state="failed") & ~Q(error_type__in=lasting_errors())),
    )


@require_GET
def job(request: PageRequest, name: str, job_id: uuid.UUID) -> HttpResponse:
    collection = find_collection(name)
    jobs = IngestJob.objects.listed().select_related("upload", "batch").defer("upload__content")
    result = get_object_or_404(jobs, collection=collection, pk=job_id)
    context = {
        "collection": collection,
        "job": result,
        "tab": "jobs",
        "can_cancel": result.state in ACTIVE_STATES,
        "ahead": jobs_ahead(result),
        "has_document": Document.objects.filter(collection=collection, doc_id=result.doc_id).exists(),
    }
    return render_page(request, "collections/job.html", context, parts={"detail": "collections/parts/job.html"})


@require_POST
def change_job(request: PageRequest, name: str, job_id: uuid.UUID, action: str) -> HttpResponse:
    """Retry, cancel or dismiss one job, then back to where the button was."""
    target = get_object_or_404(IngestJob.objects.listed(), collection=find_collection(name), pk=job_id)
    act = {"retry": retry_job, "cancel": cancel_job, "dismiss": dismiss_job}[action]
    with RefusalMessages(request):
        act(target, actor=request.user)
        jobs = gettext("Job %(name)s") % {"name": target.doc_id or target.get_kind_display()}
        messages.success(request, CHANGED[action] % {"jobs": jobs})
    return redirect(next_address(request, reverse("collections:jobs", args=[name])))


@sensitive_post_parameters("password")
@require_POST
def mend_job(request: PageRequest, name: str, job_id: uuid.UUID) -> HttpResponse:
    """Run a job whose file failed again: with the file that was chosen, else with the password that was typed."""
    target = get_object_or_404(IngestJob.objects.listed(), collection=find_collection(name), pk=job_id)
    with RefusalMessages(request):
        if file := request.FILES.get("file"):
            replace_file(target, file, actor=request.user)
        elif "password" in request.POST:
            unlock_file(target, request.POST["password"], actor=request.user)
        else:
            raise InvalidInput("choose the file that replaces it", field="file")
        messages.success(request, gettext("%(name)s is processed again.") % {"name": target.doc_id})
    return redirect(next_address(request, reverse("collections:job", args=[name, job_id])))


@require_POST
def change_jobs(request: PageRequest, name: str, action: str) -> HttpResponse:
    """Retry what failed in the collection, or cancel all that waits and runs."""
    collection = find_collection(name)
    act = {"retry": retry_collection_jobs, "cancel": cancel_collection_jobs}[action]
    answer_changed(request, lambda: act(collection, actor=request.user), action)
    return redirect(next_address(request, reverse("collections:jobs", args=[name])))


def answer_changed(request: PageRequest, change: Callable[[], int], action: str) -> None:
    """Do it, and tell how many jobs it was, or why not. action: a key of CHANGED."""
    with RefusalMessages(request):
        messages.success(request, CHANGED[action] % {"jobs": counted(change(), gettext("job,jobs"))})


@require_GET
def list_batches(request: PageRequest, name: str) -> HttpResponse:
    collection = find_collection(name)
    page = page_of(request, find_batches(collection), BATCHES_PER_PAGE)
    progresses = batch_progress(list(page))
    context: dict[str, Any] = {
        "collection": collection,
        "tab": "jobs",
        "work_view": "attempts",
        "page": page,
        "progresses": progresses,
        "is_active": any(progress.is_active for progress in progresses),
    }
    return render_page(
        request, "collections/batches.html", context, parts={"batches": "collections/parts/batches.html"}
    )


@require_GET
def batch(request: PageRequest, name: str, batch_id: uuid.UUID) -> HttpResponse:
    """One attempt and its documents, what failed first."""
    collection = find_collection(name)
    result = get_object_or_404(IngestBatch, collection=collection, pk=batch_id)
    (progress,) = batch_progress([result])
    jobs = batch_jobs(result)
    unpacked = Q(kind=IngestJob.Kind.ARCHIVE, state=IngestJob.State.SUCCEEDED)
    context = {
        "collection": collection,
        "batch": result,
        "progress": progress,
        "page": page_of(request, jobs.exclude(unpacked), JOBS_PER_PAGE),
        "archives": jobs.filter(unpacked),
    }
    return render_page(request, "collections/batch.html", context, parts={"batch": "collections/parts/batch.html"})


@require_POST
def change_batch(request: PageRequest, name: str, batch_id: uuid.UUID, action: str) -> HttpResponse:
    """Retry what failed of it, or cancel what waits and runs."""
    target = get_object_or_404(IngestBatch, collection=find_collection(name), pk=batch_id)
    act = {"retry": retry_batch, "cancel": cancel_batch}[action]
    answer_changed(request, lambda: act(target, actor=request.user), action)
    return redirect(next_address(request, reverse("collections:batch", args=[name, batch_id])))
