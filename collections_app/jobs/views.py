"""Jobs and uploads of a collection: the strip and the lines that follow the work, lists, one of each, retry, cancel."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django_htmx.http import trigger_client_event

from collections_app.access.rules import READ, WRITE, needs
from collections_app.collections.views import find_collection
from collections_app.domain.formats import counted
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    next_address,
    page_of,
    render_page,
    run_action,
)
from collections_app.jobs.batches import batch_jobs, batch_progress, find_batches
from collections_app.jobs.models import ACTIVE_STATES, TROUBLED_STATES
from collections_app.jobs.queue import jobs_ahead
from collections_app.jobs.recovery import cancel_job, cancel_jobs, lasting_errors, retry_job, retry_jobs
from collections_app.models import Collection, Document, IngestBatch, IngestJob
from collections_app.uploads.services import dismiss_job, replace_file, unlock_file
from ragd.errors import InvalidInput

Act = Callable[..., Any]
JOBS_PER_PAGE = 50
STRIP_ROWS = 1
LINES_AT_ONCE = 60  # as many as the script asks for: their ids fit into one address
VIEWS = (
    ("", gettext_lazy("Uploads")),
    ("all", gettext_lazy("All files")),
    ("active", gettext_lazy("In progress")),
    ("failed", gettext_lazy("Failed")),
    ("quarantined", gettext_lazy("Quarantined")),
    ("succeeded", gettext_lazy("Succeeded")),
    ("cancelled", gettext_lazy("Cancelled")),
)
BATCHES_PER_PAGE = 20
WHOLE_ACTS = {"retry": retry_jobs, "cancel": cancel_jobs}  # of a batch, of a collection
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


@needs(READ, WRITE, methods="GET")
def strip(request: PageRequest, name: str) -> HttpResponse:
    """The jobs strip alone, for polling. When work ended since the last look (`before`), the table is told."""
    collection = find_collection(name)
    context: dict[str, Any] = {"collection": collection, "is_part": True, **active_jobs(collection)}
    response = render_page(request, "collections/parts/jobs_strip.html", context)
    before = request.GET.get("before", "")
    if before.isdecimal() and int(before) > context["active_total"]:
        trigger_client_event(response, "documents-changed", after="swap")
    return response


@needs(READ, WRITE, methods="GET")
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


@needs(READ, WRITE, methods="GET POST")
def uploads(request: PageRequest, name: str) -> HttpResponse:
    """The uploads, or the files in a state=: all, active or one of the states. POST with do=retry what failed, or
    do=cancel all that waits and runs."""
    collection = find_collection(name)
    if request.method == "POST":
        back = reverse("collections:uploads", args=[name])
        return run_action(request, changing(WHOLE_ACTS, collection, actor=request.user), back)
    state = request.GET.get("state", "")
    state = state if state in dict(VIEWS) else ""
    context: dict[str, Any] = {"collection": collection, "tab": "uploads", "view": state, "views": VIEWS}
    context |= IngestJob.objects.filter(collection=collection).aggregate(
        active_total=Count("pk", filter=Q(state__in=ACTIVE_STATES)),
        failed_total=Count("pk", filter=Q(state="failed") & ~Q(error_type__in=lasting_errors())),
    )
    context |= _list_files(request, collection, state) if state else _list_batches(request, collection)
    parts = {name: f"collections/parts/{name}.html" for name in ("batches", "jobs")}
    return render_page(request, "collections/uploads.html", context, parts=parts)


def _list_files(request: PageRequest, collection: Collection, state: str) -> dict[str, Any]:
    rows = IngestJob.objects.filter(collection=collection).listed().newest()
    if state in IngestJob.State.values:
        rows = rows.filter(state=state)
    elif state == "active":
        rows = rows.active()
    return {"page": page_of(request, rows, JOBS_PER_PAGE)}


def _list_batches(request: PageRequest, collection: Collection) -> dict[str, Any]:
    page = page_of(request, find_batches(collection), BATCHES_PER_PAGE)
    progresses = batch_progress(list(page))
    return {"page": page, "progresses": progresses, "is_active": any(each.is_active for each in progresses)}


def changing(acts: Mapping[str, Act], *target: Any, actor: User) -> dict[str, Callable[[], str]]:
    """What may be done with the jobs of the target, each told by how many jobs it was, or by the name of the one."""

    def run(action: str) -> str:
        count = acts[action](*target, actor=actor)
        jobs = counted(count, gettext("job,jobs")) if isinstance(count, int) else _name_of(*target)
        return CHANGED[action] % {"jobs": jobs}

    return {action: partial(run, action) for action in acts}


def _name_of(job: IngestJob) -> str:
    return gettext("Job %(name)s") % {"name": job.doc_id or job.get_kind_display()}


@needs(READ, WRITE, methods="GET POST")
@sensitive_post_parameters("password")
def job(request: PageRequest, name: str, job_id: uuid.UUID) -> HttpResponse:
    """POST with do=retry, cancel or dismiss; with a file or a password it runs again with that."""
    collection = find_collection(name)
    if request.method == "POST":
        return _change_job(request, collection, job_id)
    jobs = IngestJob.objects.listed().select_related("upload", "batch").defer("upload__content")
    result = get_object_or_404(jobs, collection=collection, pk=job_id)
    context = {
        "collection": collection,
        "job": result,
        "can_cancel": result.state in ACTIVE_STATES,
        "ahead": jobs_ahead(result),
        "has_document": Document.objects.filter(collection=collection, doc_id=result.doc_id).exists(),
    }
    return render_page(request, "collections/job.html", context, parts={"detail": "collections/parts/job.html"})


def _change_job(request: PageRequest, collection: Collection, job_id: uuid.UUID) -> HttpResponse:
    target = get_object_or_404(IngestJob.objects.listed(), collection=collection, pk=job_id)
    back = reverse("collections:job", args=[collection.name, job_id])
    if "do" in request.POST:
        acts = {"retry": retry_job, "cancel": cancel_job, "dismiss": dismiss_job}
        return run_action(request, changing(acts, target, actor=request.user), back)
    with RefusalMessages(request):
        if file := request.FILES.get("file"):
            replace_file(target, file, actor=request.user)
        elif "password" in request.POST:
            unlock_file(target, request.POST["password"], actor=request.user)
        else:
            raise InvalidInput("choose the file that replaces it", field="file")
        messages.success(request, gettext("%(name)s is processed again.") % {"name": target.doc_id})
    return redirect(next_address(request, back))


@needs(READ, WRITE, methods="GET POST")
def batch(request: PageRequest, name: str, batch_id: uuid.UUID) -> HttpResponse:
    """One upload and its documents, what failed first. POST with do=retry what failed of it, or do=cancel."""
    collection = find_collection(name)
    result = get_object_or_404(IngestBatch, collection=collection, pk=batch_id)
    if request.method == "POST":
        back = reverse("collections:batch", args=[name, batch_id])
        return run_action(request, changing(WHOLE_ACTS, result, actor=request.user), back)
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
