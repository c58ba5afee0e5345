"""Disable one document and ask the same questions again: whether it did harm is seen in the comparison."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404, render_page
from collections_app.models import Collection, Document
from collections_app.services.documents.bulk_changes import BulkChange, change_documents
from collections_app.services.governance import audit
from evaluation_app.golden.addresses import address_or_none
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.lifecycle import start_run
from evaluation_app.scoring.run_settings import RunSettings
from ragd.errors import RagdError
from ragd.types import RetrievePlan


@require_http_methods(["GET", "POST"])
def run_without(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    """doc_id= names the document. A GET asks, a POST disables it and starts the run again, which it leads to."""
    run = get_object_or_404(EvaluationRun.objects.select_related("golden_set"), pk=pk)
    collection = find_or_404(Collection.objects.live(), name=run.collection_name)
    provided = request.POST if request.method == "POST" else request.GET
    document = find_or_404(collection.documents.listed(), doc_id=provided.get("doc_id", ""))
    if request.method == "POST":
        try:
            return redirect(disable_and_run(run, document, actor=request.user))
        except (ServiceError, RagdError) as error:
            messages.error(request, error.message)
            return redirect(run)
    context = {
        "run": run,
        "collection": collection,
        "document": document,
        "expected_by": run.items.filter(golden__expected_doc_ids__contains=[document.doc_id]).count(),
        "impact_href": address_or_none("evaluation:impact", collection.name),
    }
    return render_page(request, "evaluation/dashboard/run_without.html", context)


@transaction.atomic
def disable_and_run(run: EvaluationRun, document: Document, *, actor: audit.Actor = None) -> EvaluationRun:
    """A new run by the same plan and settings, held against `run`, after the document was disabled.

    Raises ServiceError 409 "set_gone" where the golden set was deleted, and what `start_run` raises; then the document
    stays as it was.
    """
    if run.golden_set is None:
        raise ServiceError(
            f"the golden set {run.set_name!r} of this run was deleted, so it cannot be asked again",
            type="set_gone",
            status=409,
        )
    change_documents(document.collection, BulkChange("disable"), [document.doc_id], actor=actor)
    return start_run(
        run.golden_set,
        plan=RetrievePlan.from_dict(run.plan),
        plan_name=run.plan_name,
        settings=RunSettings.from_dict(run.settings),
        name=f"without {document.doc_id}"[:200],
        purpose=EvaluationRun.Purpose.FIX,
        thresholds=run.thresholds,
        base_run=run,
        actor=actor,
    )
