"""Ask a question, and what the pages of a run show of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods
from django_htmx.http import push_url

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, refuse, render_page
from collections_app.models import Collection
from ragd.errors import RagdError
from ragd.search.codes import list_weights
from ragd.types import HOP_LISTS
from retrieval_app.citations.answer_html import render_answer, shorten_passage
from retrieval_app.citations.places import path_of
from retrieval_app.models import QueryRun
from retrieval_app.pages.calibration import describe_correction
from retrieval_app.pages.forms import AskForm, initial_of
from retrieval_app.pages.playground import address_of_run
from retrieval_app.runs import query_pipeline

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
        "rows": _source_rows(run),
        "list_names": _list_names(run),
        "sentence_total": len(sentences),
        "cited_sentences": sum(bool(sentence["markers"]) for sentence in sentences),
        "quoted_sentences": sum(sentence["supported"] is True for sentence in sentences),
    } | describe_correction(run, lives)


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
