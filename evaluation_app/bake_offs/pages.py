"""Bake-offs in the browser: begun, followed, and the winner built as a new index version."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from collections_app.domain.identity import can_be_stored
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    page_of,
    render_page,
    submit_form,
)
from collections_app.models import Collection
from collections_app.services.collections.collections import get_collection
from collections_app.services.generations.generations import start_generation
from evaluation_app.bake_offs.candidates import Candidate
from evaluation_app.bake_offs.forms import BakeOffForm
from evaluation_app.bake_offs.lifecycle import cancel_bake_off, start_bake_off
from evaluation_app.bake_offs.standings import Standing, find_measured, rank, winner_of
from evaluation_app.models import BakeOff

PER_PAGE = 20


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the ranking. low, high, dot: places on the axis in percent."""

    standing: Standing
    number: int
    low: float
    high: float
    dot: float


@require_http_methods(["GET", "POST"])
def bake_offs(request: PageRequest) -> HttpResponse:
    """The form for another one and those that there are, newest first. collection=NAME chooses the collection."""
    names = list(Collection.objects.live().by_name().values_list("name", flat=True))
    requested = request.GET.get("collection", "")
    chosen = requested if requested in names else next(iter(names), "")
    rows = BakeOff.objects.filter(collection_name=requested) if requested else BakeOff.objects.all()
    context: dict[str, Any] = {
        "names": names,
        "chosen": chosen,
        "requested": requested,
        "page": page_of(request, rows.defer("questions", "doc_ids"), PER_PAGE),
    }
    if not chosen:
        return render_page(request, "evaluation/bake_offs/bake_offs.html", context)
    collection = get_collection(chosen)
    posted = request.POST if request.method == "POST" else None
    initial = {"models": request.GET.get("models", "")}
    form = BakeOffForm(posted, collection=collection, initial=initial)
    context |= {"collection": collection, "form": form}

    def save() -> HttpResponse:
        started = start_bake_off(collection, actor=request.user, **form.chosen())
        return redirect(started)

    response, status = submit_form(request, form, save)
    return response or render_page(request, "evaluation/bake_offs/bake_offs.html", context, status=status)


@require_GET
def show_bake_off(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    """How far it is, and what the finished models reach."""
    bake_off = find_or_404(BakeOff.objects.all(), pk=pk)
    standings = rank(bake_off)
    tried = 1 if bake_off.stage else 0  # which the bar shows
    context = {
        "bake_off": bake_off,
        "lines": _lines(standings),
        "winner": winner_of(standings),
        "waiting": [Candidate(**values).label for values in bake_off.candidates[len(bake_off.results) + tried :]],
        "percent": 100 * bake_off.done // bake_off.total if bake_off.total else 0,
        "has_collection": Collection.objects.live().filter(name=bake_off.collection_name).exists(),
    }
    parts = {"bake-off": "evaluation/bake_offs/standings.html"}
    return render_page(request, "evaluation/bake_offs/bake_off.html", context, parts=parts)


@require_GET
def measured(request: PageRequest, name: str) -> HttpResponse:
    """Part of the form of a new index version: what a change of vectors gains or loses, by the last bake-off with it.

    embed_model, embed_dims, vector_type: the change, as `Candidate` has them.
    """
    collection = find_or_404(Collection.objects.live(), name=name)
    try:
        candidate = Candidate(
            request.GET["embed_model"], int(request.GET["embed_dims"]), request.GET.get("vector_type", "vector")
        )
    except (KeyError, ValueError) as error:
        raise Http404("embed_model and embed_dims are needed") from error
    if not can_be_stored(candidate.embed_model + candidate.vector_type):
        raise Http404("no model has such a name")
    context = {
        "collection": collection,
        "candidate": candidate,
        "found": find_measured(collection, candidate),
        "query": urlencode({"collection": name, "models": candidate.written}),
    }
    return render_page(request, "evaluation/bake_offs/measured.html", context)


@require_POST
def cancel(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    bake_off = find_or_404(BakeOff.objects.all(), pk=pk)
    with RefusalMessages(request):
        cancel_bake_off(bake_off, request.user)
        messages.success(request, gettext("Bake-off cancelled. Finished models are shown."))
    return redirect(bake_off)


@require_POST
def build(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    """number: a candidate, which becomes the next index version; the quality gate decides whether it is activated."""
    bake_off = find_or_404(BakeOff.objects.all(), pk=pk)
    number = request.POST.get("number", "")
    if not number.isdigit() or int(number) >= len(bake_off.candidates):
        messages.error(request, gettext("Choose one of the models."))
        return redirect(bake_off)
    with RefusalMessages(request):
        collection = get_collection(bake_off.collection_name)
        generation = start_generation(collection, bake_off.candidates[int(number)], actor=request.user)
        messages.success(request, gettext("Building index version %(number)s.") % {"number": generation.number})
        return redirect("collections:generations", collection.name)
    return redirect(bake_off)


def _lines(standings: list[Standing]) -> list[Line]:
    """With their intervals on an axis from 0 to 1."""
    return [
        Line(each, each.number, 100 * each.ndcg.low, 100 * each.ndcg.high, 100 * each.ndcg.mean) for each in standings
    ]
