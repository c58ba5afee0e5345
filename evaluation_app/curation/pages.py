"""What golden questions say on the pages of chunks, documents, collections and generations, and the promotion gate."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404, refuse, render_page
from collections_app.models import Chunk, Document, Generation
from collections_app.services.generations.generation_states import generation_states
from collections_app.services.generations.generations import activate_generation, get_generation
from collections_app.views.collections import find_collection
from evaluation_app.curation.expectations import expectations_of
from evaluation_app.curation.forms import GateForm, OverruleForm
from evaluation_app.curation.gate_settings import find_gate, remove_gate, set_gate
from evaluation_app.curation.latest_runs import latest_of
from evaluation_app.models import GoldenSet
from ragd.errors import RagdError


@require_GET
def golden_of_document(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The golden questions that expect a document, and what its chunks were worth."""
    collection = find_collection(name)
    document = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    context = {"collection": collection, "document": document, "told": expectations_of(collection, doc_id)}
    parts = {"golden-of": "evaluation/curation/parts/expected.html"}
    return render_page(request, "evaluation/curation/expected.html", context, parts=parts)


@require_GET
def golden_of_chunk(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """The golden questions that expect a chunk, and what it was worth."""
    collection = find_collection(name)
    document = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    chunk = find_or_404(Chunk.objects.light(), collection=collection, doc_id=doc_id, chunk_index=index)
    context = {
        "collection": collection,
        "document": document,
        "chunk": chunk,
        "told": expectations_of(collection, doc_id, index),
    }
    parts = {"golden-of-chunk": "evaluation/curation/parts/expected.html"}
    return render_page(request, "evaluation/curation/expected.html", context, parts=parts)


@require_GET
def last_evaluation(request: PageRequest) -> HttpResponse:
    """The last evaluations beside their baselines; ?collection= names one collection, else all."""
    requested = request.GET.get("collection", "").replace("\x00", "")
    context: dict[str, Any] = {
        "latest": latest_of([requested] if requested else None),
        "of": requested,
        "has_questions": GoldenSet.objects.filter(**({"collection_name": requested} if requested else {})).exists(),
    }
    parts = {"last-evaluation": "evaluation/curation/parts/latest.html"}
    return render_page(request, "evaluation/curation/latest.html", context, parts=parts)


@require_http_methods(["GET", "POST"])
def gate_settings(request: PageRequest, name: str) -> HttpResponse:
    """What golden questions must say of a generation of the collection before it serves."""
    collection = find_collection(name)
    gate = find_gate(collection)
    form = GateForm(request.POST or None, collection=collection, gate=gate)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            data = form.cleaned_data
            try:
                if not data["set"]:
                    remove_gate(collection, actor=request.user)
                    messages.success(request, "Quality gate disabled.")
                else:
                    fields = {field: data[field] for field in ("measure", "k", "margin")}
                    made = set_gate(collection, data["set"], **fields, actor=request.user)
                    messages.success(
                        request,
                        f"Quality gate saved: {made.measure}@{made.k} on {made.set_name}, "
                        f"allowed regression {made.margin:g}.",
                    )
                return redirect("evaluation:gate", name)
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
    context = {
        "collection": collection,
        "tab": "generations",
        "form": form,
        "gate": gate,
        "sets": GoldenSet.objects.filter(collection_name=name).exists(),
        "judged": Generation.objects.filter(collection=collection).exclude(gate_state="").order_by("-number")[:20],
    }
    return render_page(request, "evaluation/curation/gate.html", context, status=status)


@require_http_methods(["GET", "POST"])
def gate_report(request: PageRequest, name: str, number: int) -> HttpResponse:
    """What the gate compared for one generation, question by question; a POST lets it serve nevertheless."""
    collection = find_collection(name)
    try:
        result = get_generation(collection, number)
    except ServiceError as error:
        raise Http404(error.message) from error
    form = OverruleForm(request.POST or None)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                activate_generation(result, overrule=form.cleaned_data["reason"], actor=request.user)
                messages.success(request, f"Index version {result.number} is activated as soon as it is up to date.")
                return redirect("collections:generations", name)
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
    report = result.gate_report
    states = {state.generation.pk: state for state in generation_states(collection)}
    context = {
        "collection": collection,
        "tab": "generations",
        "generation": result,
        "standing": states[result.pk],
        "report": report,
        "form": form,
        "can_overrule": result.gate_state == "held" and result.state in ("ready", "retired"),
        "set_id": _set_id(report),
    }
    return render_page(request, "evaluation/curation/gate_report.html", context, status=status)


def _set_id(report: dict[str, Any]) -> int | None:
    """Of the set that was asked, while it is there."""
    set_id = report.get("set_id")
    return set_id if set_id and GoldenSet.objects.filter(pk=set_id).exists() else None
