"""Attempts of a collection: what was asked for in one go, how far it is, what failed of it."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from collections_app.http.page_requests import PageRequest, next_address, page_of, render_page
from collections_app.models import IngestBatch
from collections_app.services.jobs.batches import batch_jobs, batch_progress, find_batches
from collections_app.services.jobs.cancellation import cancel_batch
from collections_app.services.jobs.retries import retry_batch
from collections_app.views.collections import find_collection
from collections_app.views.jobs import JOBS_PER_PAGE, answer_changed

BATCHES_PER_PAGE = 20


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
    context = {
        "collection": collection,
        "batch": result,
        "progress": progress,
        "page": page_of(request, batch_jobs(result), JOBS_PER_PAGE),
    }
    return render_page(request, "collections/batch.html", context, parts={"batch": "collections/parts/batch.html"})


@require_POST
def change_batch(request: PageRequest, name: str, batch_id: uuid.UUID, action: str) -> HttpResponse:
    """Retry what failed of it, or cancel what waits and runs."""
    target = get_object_or_404(IngestBatch, collection=find_collection(name), pk=batch_id)
    act, message = {"retry": (retry_batch, "queued for retry"), "cancel": (cancel_batch, "cancelled")}[action]
    answer_changed(request, lambda: act(target, actor=request.user), message)
    return redirect(next_address(request, reverse("collections:batch", args=[name, batch_id])))
