"""The playground: one query, every stage of its ranking, or two plans side by side. Its address gives it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext

from collections_app.access.rules import ASK, READ, WRITE, needs
from collections_app.collections.views import find_collection
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, read_uuid, refuse, render_page
from collections_app.index.services import complete_versions
from collections_app.index.stores import open_store
from collections_app.models import Collection
from ragd import telemetry
from ragd.errors import RagdError
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.plans.forms import PlaygroundForm, SavePlanForm
from retrieval_app.plans.services import save_plan
from retrieval_app.playground.collection_map import map_of_request
from retrieval_app.playground.presenters import (
    View,
    compare_finals,
    describe_row,
    same_as_run,
    search_payload,
    show_stages,
    write_calls,
)
from retrieval_app.playground.ranking import RetrievalRecorder, explain
from retrieval_app.runs.presenters import describe_run
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest

RECENT = 6
RECENT_READ = 60
PREFIXES = {"A": None, "B": "b"}


@dataclass
class Side:
    """One plan and, when there is a query and the plan is sound, what it made of it."""

    name: str
    form: PlaygroundForm
    run: QueryRun | None = None
    explanation: dict[str, Any] | None = None
    answer_href: str = ""


@needs(ASK, methods="GET")
def playground(request: PageRequest, name: str) -> HttpResponse:
    """?q= and the fields of the plan; ab=on and b-* for a second plan; rows=all, analyze=on; run= a stored run.

    map: the map of the collection instead, with the question and the hits of that run."""
    collection = find_collection(name)
    if "map" in request.GET:
        context = map_of_request(collection, read_uuid(request.GET["map"]))
        return render_page(request, "retrieval/map.html", context, parts={"map": "retrieval/parts/map.html"})
    if (query := _without_blanks(request.GET)) is not None:
        return redirect(f"{request.path}?{query.urlencode()}" if query else request.path)
    return _render(request, collection, request.GET)


@needs(READ, WRITE, methods="POST")
def save(request: PageRequest, name: str) -> HttpResponse:
    """Keep plan A of the address that the form came from under a name; back to it, or to the form with its error."""
    collection = find_collection(name)
    params = QueryDict(request.POST.get("address", ""))
    form = SavePlanForm(request.POST, collection=collection)
    side = _sides(collection, params)[0]
    if form.is_valid() and side.form.is_valid():
        data = form.cleaned_data
        try:
            stored = save_plan(
                collection, data["name"], side.form.chosen().plan, is_default=data["is_default"] or None,
                actor=request.user,
            )  # fmt: skip
        except (ServiceError, RagdError) as error:
            refuse(form, error)
        else:
            messages.success(request, gettext("The preset %(name)s was saved.") % {"name": stored.name})
            return redirect(f"{_address(collection)}?{urlencode({'q': params.get('q', ''), 'plan': stored.name})}")
    return _render(request, collection, params, save_form=form, status=422)


@needs(ASK, methods="GET")
def row(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """One chunk of the ranking: its text with the query's words, and the arithmetic of every stage. Keeps no run."""
    collection = find_collection(name)
    (side, *_), query = _sides(collection, request.GET), request.GET.get("q", "").strip()
    back = f"{_address(collection)}?{request.GET.urlencode()}"
    if not query or not side.form.is_valid():
        return redirect(back)
    try:
        explanation = explain(collection, query, side.form.chosen().plan, **side.form.over)
    except (ServiceError, RagdError):
        return redirect(back)
    detail = describe_row(explanation, f"{doc_id}#{index}")
    if detail is None:
        raise Http404("the chunk is in no list of this ranking, and none lost it")
    context = {"collection": collection, "query": query, "back": back, "row": detail, "explanation": explanation}
    return render_page(request, "retrieval/playground_row.html", context)


@needs(ASK, methods="GET")
def answer(request: PageRequest, name: str) -> HttpResponse:
    """The answer from plan A of the address, beside its ranking. Keeps a run of its own."""
    collection = find_collection(name)
    (side, *_), query = _sides(collection, request.GET), request.GET.get("q", "").strip()
    back = f"{_address(collection)}?{request.GET.urlencode()}"
    if not query or not side.form.is_valid():
        return redirect(back)
    context: dict[str, Any] = {"collection": collection, "query": query, "back": back}
    try:
        with telemetry.environment(telemetry.PLAYGROUND):
            run = query_pipeline.ask(_request(request, collection, query, side))
        context |= describe_run(run)
    except (ServiceError, RagdError) as error:
        context["error"] = str(error)
    return render_page(request, "retrieval/playground_answer.html", context)


def _request(request: PageRequest, collection: Collection, query: str, side: Side) -> QueryRequest:
    chosen = side.form.chosen()
    return QueryRequest(
        collection, query, chosen.plan, QueryRun.Channel.PAGE, plan_name=chosen.name, user=request.user,
        quotes_on_failure=True, **side.form.over,
    )  # fmt: skip


def _address(collection: Collection) -> str:
    return reverse("retrieval:playground", args=[collection.name])


def _without_blanks(params: QueryDict) -> QueryDict | None:
    """The parameters that say something; None when all do."""
    stored = params.copy()
    for name in [name for name, value in params.items() if not str(value).strip()]:
        del stored[name]
    return stored if len(stored) < len(params) else None


def _sides(collection: Collection, params: QueryDict) -> list[Side]:
    saved = list(SavedPlan.objects.of(collection).by_name())
    rerankers = sorted(open_store(collection).rerankers)
    versions = complete_versions(collection)
    return [
        Side(
            name,
            PlaygroundForm(
                params, collection=collection, saved=saved, rerankers=rerankers, versions=versions,
                prefix=PREFIXES[name],
            ),
        )
        for name in (("A", "B") if params.get("ab") else ("A",))
    ]  # fmt: skip


def _render(
    request: PageRequest,
    collection: Collection,
    params: QueryDict,
    *,
    save_form: SavePlanForm | None = None,
    status: int = 200,
) -> HttpResponse:
    sides = _sides(collection, params)
    query = params.get("q", "").strip()
    if query:
        for side in sides:
            status = _look(request, collection, query, side, bool(params.get("analyze"))) or status
    view = View(_address(collection), params, collection.name)
    for side in sides:
        side.answer_href = view.answer_href(side.name)
    context = {
        "collection": collection,
        "tab": "playground",
        "q": params.get("q", ""),
        "params": params,
        "sides": sides,
        "view": view,
        "address": params.urlencode(),
        "exact_href": view.with_values(exact="always"),
        "index_href": view.with_values(exact="never"),
        "all_rows_href": view.with_values(rows="all"),
        "save_form": save_form or SavePlanForm(collection=collection),
        "saving": save_form is not None,
        "plan_open": bool(params.get("ab")) and not any(name.startswith("b-") for name in params),
    }
    if all(side.explanation for side in sides) and query:
        context |= _show(request, view, sides)
    elif not query:
        context["recent"] = _asked_lately(collection)
    return render_page(request, "retrieval/playground.html", context, status=status)


def _asked_lately(collection: Collection) -> list[QueryRun]:
    """The last queries of the collection, newest first, each once: a link opens the query, not the run's plan."""
    by_query: dict[str, QueryRun] = {}
    for run in QueryRun.objects.of_collection(collection.name).for_lists()[:RECENT_READ]:
        by_query.setdefault(run.query, run)
    return list(by_query.values())[:RECENT]


def _look(request: PageRequest, collection: Collection, query: str, side: Side, analyze: bool) -> int | None:
    """Search by the side's plan, keep the run, explain it. The status of a refusal, which the form then shows."""
    if not side.form.is_valid():
        return 422
    recorder = RetrievalRecorder()
    try:
        with telemetry.environment(telemetry.PLAYGROUND):
            side.run = query_pipeline.search(_request(request, collection, query, side), retrieve=recorder)
        side.explanation = recorder.explain(collection, analyze=analyze)
    except (ServiceError, RagdError) as error:
        return refuse(side.form, error)
    return None


def _show(request: PageRequest, view: View, sides: list[Side]) -> dict[str, Any]:
    first = sides[0]
    explanations = [side.explanation or {} for side in sides]
    shown = show_stages(view, explanations)
    base = request.build_absolute_uri("/").rstrip("/")
    moment = first.form.cleaned_data["as_of"]
    as_of = {"as_of": moment.isoformat()} if moment else {}
    payload = search_payload(explanations[0]["query"], first.form.cleaned_data["plan"], first.form.stated() | as_of)
    return {
        "shown": shown,
        "explanation": explanations[0],
        "run": first.run,
        "comparison": compare_finals(*explanations) if len(explanations) == 2 else None,
        "calls": write_calls(base, first.form.collection.name, payload),
        "origin": same_as_run(view.params.get("run", ""), explanations[0]),
    }
