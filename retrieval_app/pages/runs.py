"""Ask a question, and look at what was asked."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Count
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import push_url

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, RefusalMessages, page_of, refuse, render_page
from collections_app.models import Collection
from ragd.errors import RagdError
from ragd.search.codes import list_weights
from ragd.types import HOP_LISTS
from retrieval_app.citations.answer_html import render_answer, shorten_passage
from retrieval_app.citations.places import path_of
from retrieval_app.models import QueryRun
from retrieval_app.models.runs import QueryRunQuerySet
from retrieval_app.pages.calibration import describe_correction
from retrieval_app.pages.forms import ALL, AskForm, RunFilterForm, initial_of
from retrieval_app.pages.playground import address_of_run
from retrieval_app.runs import query_pipeline
from retrieval_app.runs.replay import Replayed, search_again
from retrieval_app.runs.run_log import RunLog, send_log
from retrieval_app.runs.score_filter import offered_measures, scored

RUNS_PER_PAGE = 50
SCORE_FILTERS = ("measure", "score_below", "score_above")
SELDOM_FILTERS = ("max_ms", "min_cost", "max_cost", "door", "since", "until", *SCORE_FILTERS)
RECENT_QUESTIONS = 6
STAGES = ("embed_query", "vector", "lexical", "fuse", "hops", "rerank", "compress", "first_token", "answer", "total")
ASK_PARTS = {"ask": "retrieval/parts/ask.html"}


@require_http_methods(["GET", "POST"])
def ask(request: PageRequest) -> HttpResponse:
    """The question and, with ?run=, what came of it. A POST makes a run and leads to its address."""
    collections = list(Collection.objects.live().by_name())
    if request.method == "POST":
        return _make_run(request, collections)
    run = _run_of(request)
    initial = initial_of(run) if run else _initial(request, collections)
    form = AskForm(initial=initial, collections=collections)
    context = {"form": form, "collections": collections} | (
        describe_run(run) if run else {"recent": _recent_questions(request)}
    )
    response = render_page(request, "retrieval/ask.html", context, parts=ASK_PARTS)
    return push_url(response, address_of_answer(run)) if run and request.htmx else response


def _recent_questions(request: PageRequest) -> list[QueryRun]:
    """What this person asked last, to be opened again without being asked again."""
    runs = QueryRun.objects.filter(user=request.user, kind=QueryRun.Kind.ASK).exclude(status=QueryRun.Status.ERROR)
    return list(runs.for_lists()[:RECENT_QUESTIONS])


def _make_run(request: PageRequest, collections: list[Collection]) -> HttpResponse:
    form = AskForm(request.POST, collections=collections)
    run, status, failed = None, 422, None
    if form.is_valid():
        data = form.cleaned_data
        act = query_pipeline.search if request.POST.get("do") == "search" else query_pipeline.ask
        try:
            chosen = form.chosen()
            run = act(
                data["collection"],
                data["query"],
                chosen.plan,
                door=QueryRun.Door.PAGE,
                plan_name=chosen.name,
                user=request.user,
                as_of=data["as_of"],
            )
            status = 200
        except (ServiceError, RagdError) as error:
            status, failed = refuse(form, error), describe(error)[1].get("run_id")
    if run is not None and run.pk and not request.htmx:
        return redirect(address_of_answer(run))
    context = {"form": form, "collections": collections, "failed_run": failed} | (describe_run(run) if run else {})
    response = render_page(request, "retrieval/ask.html", context, parts=ASK_PARTS, status=status)
    return push_url(response, address_of_answer(run)) if run is not None and run.pk else response


def address_of_answer(run: QueryRun) -> str:
    return f"{reverse('retrieval:ask')}?run={run.pk}"


def _run_of(request: PageRequest) -> QueryRun | None:
    try:
        requested = uuid.UUID(request.GET.get("run", ""))
    except ValueError:
        return None
    return get_object_or_404(QueryRun, pk=requested)


def _initial(request: PageRequest, collections: list[Collection]) -> dict[str, Any]:
    """The collection that the address names, else the one that this person used last, else the first."""
    names = [collection.name for collection in collections]
    chosen = request.GET.get("collection", "")
    if chosen not in names:
        last = QueryRun.objects.filter(user=request.user, collection_name__in=names).newest_first()
        chosen = last.values_list("collection_name", flat=True).first() or next(iter(names), "")
    return {"collection": chosen, "query": request.GET.get("q", "")}


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One result as it is shown. ranks: (list name, rank or None, raw score or None) in the order of the lists.

    excerpt: what was cited of it, else how its text begins, in one line. marker: of the answer, None where it is
    not cited. before: its rank before it was reranked.
    """

    result: dict[str, Any]
    title: str
    excerpt: str
    href: str
    chunk_href: str
    cited: bool
    ranks: list[tuple[str, int | None, float | None]]
    arithmetic: str
    place: str | None
    marker: int | None = None
    before: int | None = None

    @property
    def gain(self) -> int | None:
        return None if self.before is None else self.before - int(self.result["rank"])


def describe_run(run: QueryRun) -> dict[str, Any]:
    """What the parts of a run's page show. A run outlives its collection; then nothing links into it."""
    sentences = [sentence for sentence in run.sentences if sentence["text"].strip()]
    lives = Collection.objects.live().filter(name=run.collection_name).exists()
    return {
        "run": run,
        "collection_lives": lives,
        "playground_href": address_of_run(run) if lives else "",
        "answer_html": render_answer(run.answer or "", run.citations, partial(draw_citation, run, lives)),
        "timings": sorted(run.timings_ms.items(), key=_stage_order),
        "longest": _longest_stage(run),
        "rows": _source_rows(run),
        "list_names": _list_names(run),
        "sentence_total": len(sentences),
        "cited_sentences": sum(bool(sentence["markers"]) for sentence in sentences),
        "quoted_sentences": sum(sentence["supported"] is True for sentence in sentences),
    } | describe_correction(run, lives)


def _longest_stage(run: QueryRun) -> tuple[str, float] | None:
    """(stage, ms) of the stage that took longest; None for a run that reached none."""
    stages = [(took, stage) for stage, took in run.timings_ms.items() if stage != "total"]
    return max(stages)[::-1] if stages else None


def _stage_order(timing: tuple[str, float]) -> tuple[int, str]:
    stage = timing[0]
    return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage)


def draw_citation(run: QueryRun, links: bool, citation: Mapping[str, Any]) -> SafeString:
    values = {"citation": citation, "href": _cited_href(run, citation) if links else ""}
    return render_to_string("retrieval/parts/citation.html", values)


def _list_names(run: QueryRun) -> list[str]:
    names = ("vector", "lexical", "codes", *HOP_LISTS)
    return [name for name in names if any(name in result["ranks"] for result in run.results)]


def _source_rows(run: QueryRun) -> list[SourceRow]:
    names = _list_names(run)
    # a passage may have been withheld from the answerer, so a marker is no rank
    markers = {_chunk_of(citation): citation["marker"] for citation in run.citations}
    excerpts = {_chunk_of(source): source for source in run.sources if source["cited"]}
    rows = []
    for result in run.results:
        source = excerpts.get(_chunk_of(result))
        start, end = (source["excerpt_start"], source["excerpt_end"]) if source else (result["start"], result["end"])
        ranks = result["ranks"]
        positions = [(name, *_rank_and_score(ranks.get(name))) for name in names]
        chunk = reverse("collections:chunk", args=[run.collection_name, result["chunk_index"], result["doc_id"]])
        rows.append(
            SourceRow(
                result=result,
                title=" › ".join((path_of(result["context"]) or result["doc_id"]).split(" > ")),
                excerpt=shorten_passage(source["excerpt"] if source else result["content"]),
                href=_document_href(run, result["doc_id"], start, end, result["revision"]),
                chunk_href=f"{chunk}?start={start}&end={end}&revision={result['revision']}",
                cited=_chunk_of(result) in markers,
                marker=markers.get(_chunk_of(result)),
                place=(source or result).get("place") or result["page"],
                ranks=positions,
                arithmetic=_arithmetic(run, positions) if "fused" in ranks else "",
                before=_rank_before(ranks),
            )
        )
    return rows


def _chunk_of(record: Mapping[str, Any]) -> tuple[str, int]:
    return record["doc_id"], record["chunk_index"]


def _rank_and_score(results: dict[str, Any] | None) -> tuple[int | None, float | None]:
    return (results["rank"], results["score"]) if results else (None, None)


def _rank_before(ranks: Mapping[str, Mapping[str, Any]]) -> int | None:
    """Of a reranked result: its place in the list that the reranker was given."""
    if "reranked" not in ranks:
        return None
    provided = next((ranks[name] for name in ("fused", "vector", "lexical") if name in ranks), None)
    return int(provided["rank"]) if provided else None


def _arithmetic(run: QueryRun, locations: list[tuple[str, int | None, float | None]]) -> str:
    """The sum that fused the ranks."""
    rrf_k, weights = run.plan.get("rrf_k"), list_weights(run.lists, run.plan.get("weights", {}))
    terms = [f"{weights[name]:g} / ({rrf_k} + {rank})" for name, rank, _ in locations if rank is not None]
    return " + ".join(terms)


def _cited_href(run: QueryRun, citation: Mapping[str, Any]) -> str:
    revision = next((item["revision"] for item in run.results if _chunk_of(item) == _chunk_of(citation)), 1)
    return _document_href(run, citation["doc_id"], citation["start"], citation["end"], revision)


def _document_href(run: QueryRun, doc_id: str, start: int, end: int, revision: int) -> str:
    """The document's page with the place marked and scrolled to."""
    address = reverse("collections:document", args=[run.collection_name, doc_id])
    return f"{address}?start={start}&end={end}&revision={revision}#cited"


def _read_filter(request: PageRequest) -> tuple[RunFilterForm, dict[str, Any]]:
    """The filter that the address holds, and its values by field; None for what is wrong, or is as it is anyway."""
    form = RunFilterForm(request.GET)
    form.is_valid()
    values = {name: form.cleaned_data.get(name) for name in form.fields}
    return form, values | ({"environment": None} if values["environment"] == QueryRun.Environment.PRODUCTION else {})


def _filtered_runs(values: Mapping[str, Any]) -> QueryRunQuerySet:
    """The rows of a filter of the page: of production unless it names another environment, or all."""
    environment = values["environment"] or QueryRun.Environment.PRODUCTION
    by_column = {name: value for name, value in values.items() if name not in SCORE_FILTERS}
    runs = QueryRun.objects.filtered(**{**by_column, "environment": None if environment == ALL else environment})
    measure, below, above = (values[name] for name in SCORE_FILTERS)
    return runs.filter(scored(measure, below, above)) if measure else runs


def _other_environments(values: dict[str, Any]) -> list[tuple[str, int, str]]:
    """(label, runs, address) of the environments with runs that match, where the filter's own has none."""
    rows = _filtered_runs(values | {"environment": ALL}).order_by().values_list("environment")
    counts = dict(rows.annotate(Count("pk")))
    return [
        (str(label), counts[name], _address_of_filter(values | {"environment": name}))
        for name, label in QueryRun.Environment.choices
        if name in counts
    ]


@require_GET
def list_runs(request: PageRequest) -> HttpResponse:
    form, values = _read_filter(request)
    address = _address_of_filter(values)
    page = page_of(request, _filtered_runs(values).for_lists(), RUNS_PER_PAGE)
    context = {
        "form": form,
        "page": page,
        "others": () if page.paginator.count else _other_environments(values),
        "is_filtered": bool(address),
        "run_filter": address,
        "models": QueryRun.objects.recent_models(),
        "measures": offered_measures(),
        "opens_more": any(values[name] not in (None, "") or name in form.errors for name in SELDOM_FILTERS),
        "collections": Collection.objects.live().by_name(),
    }
    return render_page(request, "retrieval/runs.html", context, parts={"runs": "retrieval/parts/runs.html"})


@require_GET
def download_log(request: PageRequest) -> HttpResponseBase:
    """What the runs' page lists, all of its pages, as JSON Lines: the address holds the same filter."""
    _, values = _read_filter(request)
    with RefusalMessages(request):
        return send_log(request, RunLog(_filtered_runs(values)))
    return redirect(f"{reverse('retrieval:runs')}?{request.GET.urlencode()}")


@require_GET
def show_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    run = get_object_or_404(QueryRun.objects.select_related("user"), pk=run_id)
    before = QueryRun.objects.filter(pk=run.replay_of).first() if run.replay_of else None
    replay = {"replay": Replayed(before, run)} if before else {}
    return render_page(request, "retrieval/run.html", describe_run(run) | _beside(request, run) | replay)


def _beside(request: PageRequest, run: QueryRun) -> dict[str, Any]:
    """The runs before and after it in the list that the address filters. run_filter: that filter as it stands there."""
    _, values = _read_filter(request)
    newer, older = _filtered_runs(values | {"environment": values["environment"] or run.environment}).beside(run)
    return {"newer": newer, "older": older, "run_filter": _address_of_filter(values)}


def _address_of_filter(requested: Mapping[str, Any]) -> str:
    """ "?status=error" of what is set; "" where nothing is. Times as ISO 8601."""
    stated = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in requested.items()}
    selected = {name: value for name, value in stated.items() if value not in (None, "")}
    return f"?{urlencode(selected)}" if selected else ""


@require_POST
def replay_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """Run the stored plan and question again; the new run's page says what differs."""
    run = get_object_or_404(QueryRun, pk=run_id)
    try:
        again = search_again(run, door=QueryRun.Door.PAGE, user=request.user)
    except (ServiceError, RagdError) as error:
        messages.error(request, gettext("Replay failed: %(message)s") % {"message": error.message})
        return redirect(run)
    return redirect(again if again.pk else run)
