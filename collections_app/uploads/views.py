"""Documents in: files in one request or in many small ones, or a list of addresses."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext
from pydantic import ValidationError

from collections_app.access.document_access import resolve
from collections_app.access.rules import READ, WRITE, needs
from collections_app.collections.forms import UploadForm
from collections_app.collections.views import find_collection
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError, error_response
from collections_app.http.form_fields import MetadataField
from collections_app.http.page_requests import PageRequest, field_of, is_part, refuse, render_page, submit_form
from collections_app.http.validation import describe_problems
from collections_app.jobs.batches import batch_progress
from collections_app.jobs.views import active_jobs
from collections_app.models import Collection, IngestBatch
from collections_app.sources.source_jobs import submit_urls
from collections_app.sources.views import UrlsForm
from collections_app.uploads.api import PlanAnswer, UploadPlanRequest, plan_of
from collections_app.uploads.archives import preview_uploads
from collections_app.uploads.folder_sync import commit_sync
from collections_app.uploads.plan import UploadPlan
from collections_app.uploads.services import UploadOutcome, close_batch, find_batch, open_batch, submit_uploads
from ragd.errors import InvalidInput, RagdError

PARTS = {
    "upload-results": "collections/parts/upload_results.html",
    "upload-state": "collections/parts/upload_state.html",
}


@needs(WRITE, methods="GET POST")
def upload(request: PageRequest, name: str) -> HttpResponse:
    """Files in, one line per file out. A script sends them in small requests and asks for the lines alone.

    Where no tags or metadata are typed, a document that is replaced keeps its own. ?batch= shows how far an upload is.
    """
    collection = find_collection(name)
    form = UploadForm(request.POST or None, request.FILES or None)
    field_of(form, "metadata", MetadataField).complete_in(name)
    outcomes: list[UploadOutcome] = []
    shown = _batch_of(collection, request.GET.get("batch", ""))
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            data = form.cleaned_data
            try:
                batch = find_batch(collection, data["batch"]) if data["batch"] else None
                outcomes = submit_uploads(
                    collection,
                    data["uploads"],
                    form.options(resolve(collection, form.stated_access())),
                    doc_ids=request.POST.getlist("doc_ids"),
                    choices=request.POST.getlist("choices"),
                    batch=batch,
                    actor=request.user,
                )
                status, shown = 200, outcomes[0].batch if outcomes else None
            except (ServiceError, RagdError) as error:
                if request.htmx and getattr(error, "status", 0) == 429:
                    return error_response(request, error)  # the script waits and sends again
                status = refuse(form, error)
    context = {
        "collection": collection,
        "form": form,
        "outcomes": outcomes,
        "tab": "documents",
        "limit_mb": settings.RAGD_MAX_DOCUMENT_MB,
        "progress": batch_progress([shown])[0] if shown else None,
    } | active_jobs(collection)
    status = 200 if is_part(request, PARTS) else status
    return render_page(request, "collections/upload.html", context, parts=PARTS, status=status)


def _batch_of(collection: Collection, batch_id: str) -> IngestBatch | None:
    """None for "". Http404 for one that is not of this collection."""
    if not batch_id:
        return None
    try:
        return find_batch(collection, batch_id)
    except ServiceError as error:
        raise Http404(error.message) from None


@needs(WRITE, methods="POST")
def plan(request: PageRequest, name: str) -> HttpResponse:
    """What files with these hashes would do, as JSON. The body is that of documents-plan."""
    collection = find_collection(name)
    try:
        upload_plan = plan_of(collection, UploadPlanRequest.model_validate_json(request.body))
    except ValidationError as error:
        message, field = describe_problems([dict(problem) for problem in error.errors(include_url=False)])
        return error_response(request, InvalidInput(message, field=field))
    except (ServiceError, RagdError) as error:
        return error_response(request, error)
    return JsonResponse(PlanAnswer.from_orm(upload_plan).dict())


@needs(WRITE, methods="POST")
def members(request: PageRequest, name: str) -> HttpResponse:
    """What the files inside an archive would do, as JSON; the archive is looked into and not kept."""
    collection = find_collection(name)
    form = UploadForm(request.POST, request.FILES)
    if not form.is_valid():
        return error_response(request, InvalidInput("one archive and its labels were expected", field="uploads"))
    doc_ids = request.POST.getlist("doc_ids")
    try:
        options = form.options(resolve(collection, form.stated_access()))
        upload_plan = preview_uploads(collection, form.cleaned_data["uploads"], options, doc_ids=doc_ids)
    except (ServiceError, RagdError) as error:
        return error_response(request, error)
    return JsonResponse(PlanAnswer.from_orm(upload_plan).dict())


@needs(READ, WRITE, methods="POST")
def begin(request: PageRequest, name: str) -> HttpResponse:
    """Open the batch that many small requests add to; JSON with its id and the address that shows how far it is."""
    collection = find_collection(name)
    kind = request.POST.get("kind", "")
    if kind not in (IngestBatch.Kind.UPLOAD, IngestBatch.Kind.FOLDER, IngestBatch.Kind.SYNC):
        return error_response(request, InvalidInput(f"kind must be upload, folder or sync, not {kind!r}", field="kind"))
    batch = open_batch(collection, kind=kind, label=request.POST.get("label", ""), actor=request.user)
    return JsonResponse(
        {"batch": str(batch.pk), "address": f"{reverse('collections:upload', args=[name])}?batch={batch.pk}"}
    )


@needs(READ, WRITE, methods="POST")
def finish(request: PageRequest, name: str) -> HttpResponse:
    """Close a batch; that of a sync deletes the documents that are named. JSON with what went and what stayed."""
    collection = find_collection(name)
    try:
        body: Any = json.loads(request.body)
        batch = find_batch(collection, str(body["batch"]))
        doomed = [str(doc_id) for doc_id in body.get("delete", [])]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return error_response(request, InvalidInput('a JSON object with "batch" and "delete" was expected'))
    except ServiceError as error:
        return error_response(request, error)
    try:
        if batch.kind != IngestBatch.Kind.SYNC:
            close_batch(batch)
            return JsonResponse({"deleted": [], "kept": {}})
        done = commit_sync(collection, batch, doomed, actor=request.user)
    except (ServiceError, RagdError) as error:
        return error_response(request, error)
    return JsonResponse({"deleted": done.deleted, "kept": done.kept})


LINES_SHOWN = 500


@needs(WRITE, methods="GET POST")
def fetch_urls(request: PageRequest, name: str) -> HttpResponse:
    """Addresses in; a look at what would be done, or the batch that does it."""
    collection = find_collection(name)
    form = UrlsForm(request.POST or None, request.FILES or None)
    field_of(form, "metadata", MetadataField).complete_in(name)
    plan: UploadPlan | None = None

    def submit() -> HttpResponse:
        nonlocal plan
        plan = submit_urls(
            collection,
            form.entries(),
            form.options(resolve(collection, form.stated_access())),
            dry_run="go" not in request.POST,
            actor=request.user,
        )
        if plan.batch is None:
            return page(200)
        sent = counted(len(plan.to_send), gettext("document,documents"))
        messages.success(request, gettext("%(documents)s queued.") % {"documents": sent})
        return redirect("collections:batch", collection.name, plan.batch.pk)

    def page(status: int) -> HttpResponse:
        lines = plan.lines if plan else []
        context = {
            "collection": collection,
            "form": form,
            "tab": "documents",
            "adding": "urls",
            "plan": plan,
            "lines": lines[:LINES_SHOWN],
            "hidden_lines": max(0, len(lines) - LINES_SHOWN),
        }
        return render_page(request, "collections/urls.html", context | active_jobs(collection), status=status)

    response, status = submit_form(request, form, submit)
    return response or page(status)
