"""What the pages show of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from collections_app.models import Collection
from ragd.search.codes import list_weights
from ragd.types import HOP_LISTS
from retrieval_app.answerers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.citations.answer_html import render_answer
from retrieval_app.citations.places import is_written, path_of
from retrieval_app.citations.support import count_support, mark_support
from retrieval_app.models import QueryRun
from retrieval_app.pages.calibration import describe_correction
from retrieval_app.pages.excerpts import mark_words
from retrieval_app.pages.plan_forms import address_of_run

UNCITED_SHOWN = 3
STAGES = ("embed_query", "vector", "lexical", "fuse", "hops", "rerank", "compress", "first_token", "answer", "total")


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One result as it is shown. ranks: (list name, rank or None, raw score or None) in the order of the lists.

    excerpt: what was cited of it, else its text. marker: of the answer, None where it is
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
    question: str = ""

    @property
    def excerpt_html(self) -> SafeString:
        """The excerpt in short, with the words of the question marked."""
        return mark_words(self.excerpt, self.question)

    @property
    def gain(self) -> int | None:
        return None if self.before is None else self.before - int(self.result["rank"])


def describe_run(run: QueryRun, *, lives: bool | None = None) -> dict[str, Any]:
    """What the parts of a run's page show. A run outlives its collection; then nothing links into it.

    lives: whether its collection is there; None: that is looked up.
    """
    sentences = [sentence for sentence in run.sentences if sentence["text"].strip()]
    if lives is None:
        lives = Collection.objects.live().filter(name=run.collection_name).exists()
    rows = _source_rows(run)
    contents = {_chunk_of(result): f"{result['context']} {result['content']}" for result in run.results}
    texts = {each["marker"]: contents.get(_chunk_of(each), "") for each in run.sources}
    marks = mark_support(run.answer or "", run.sentences, texts)
    is_quoted = run.answerer == ExtractiveAnswerer.model  # quotations need no marks
    return {
        "run": run,
        "collection_lives": lives,
        "playground_href": address_of_run(run) if lives else "",
        "answer_html": render_answer(
            run.answer or "",
            run.citations,
            partial(draw_citation, run, lives),
            () if is_quoted else [(mark.end, draw_support(mark.support)) for mark in marks],
        ),
        "support": count_support(marks),
        "timings": sorted(run.timings_ms.items(), key=_stage_order),
        "rows": rows,
        **_fold(rows, is_search=run.kind == QueryRun.Kind.SEARCH),
        "list_names": _list_names(run),
        "sentence_total": len(sentences),
        "cited_sentences": sum(bool(sentence["markers"]) for sentence in sentences),
        "quoted_sentences": sum(sentence["supported"] is True for sentence in sentences),
    } | describe_correction(run, lives)


def _fold(rows: list[SourceRow], *, is_search: bool) -> dict[str, list[SourceRow]]:
    """first_rows: what an answer cites, else the first few, of a search all; more_rows: the others, each by rank."""
    cited = [row for row in rows if row.cited]
    first = rows if is_search else cited or rows[:UNCITED_SHOWN]
    return {"first_rows": first, "more_rows": [row for row in rows if row not in first]}


def _stage_order(timing: tuple[str, float]) -> tuple[int, str]:
    stage = timing[0]
    return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage)


def draw_citation(run: QueryRun, links: bool, citation: Mapping[str, Any]) -> SafeString:
    values = {"citation": citation, "href": _cited_href(run, citation) if links else ""}
    return render_to_string("retrieval/parts/citation.html", values)


def draw_support(support: str) -> SafeString:
    return render_to_string("retrieval/parts/support.html", {"support": support})


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
        name = result.get("collection") or run.collection_name
        chunk = reverse("collections:chunk", args=[name, result["chunk_index"], result["doc_id"]])
        document = reverse("collections:document", args=[name, result["doc_id"]])
        query = _place_query(result, {"start": start, "end": end}, source["excerpt"] if source else "")
        rows.append(
            SourceRow(
                result=result,
                title=" › ".join((path_of(result["context"]) or result["doc_id"]).split(" > ")),
                excerpt=source["excerpt"] if source else result["content"],
                href=f"{document}?{query}&chunk={result['chunk_index']}#cited",
                chunk_href=f"{chunk}?{query}",
                cited=_chunk_of(result) in markers,
                marker=markers.get(_chunk_of(result)),
                place=(source or result).get("place") or result["page"],
                ranks=positions,
                arithmetic=_arithmetic(run, positions) if "fused" in ranks else "",
                before=_rank_before(ranks),
                question=run.query,
            )
        )
    return rows


def _chunk_of(record: Mapping[str, Any]) -> tuple[str, str, int]:
    return record.get("collection", ""), record["doc_id"], record["chunk_index"]


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
    result: Mapping[str, Any] = next((item for item in run.results if _chunk_of(item) == _chunk_of(citation)), {})
    source: Mapping[str, Any] = next((item for item in run.sources if item["marker"] == citation["marker"]), {})
    name = source.get("collection") or run.collection_name
    address = reverse("collections:document", args=[name, citation["doc_id"]])
    place = _place_query(result, citation, citation["quote"])
    return f"{address}?{place}&chunk={citation['chunk_index']}#cited"


def _place_query(result: Mapping[str, Any], place: Mapping[str, Any], quote: str) -> str:
    """The cited place as the pages of documents and chunks take it. quoted: where it stands in a chunk that a person
    wrote, whose text the document does not have."""
    query = f"start={place['start']}&end={place['end']}&revision={result.get('revision', 1)}"
    if quote and is_written(result.get("attributes", {})) and (at := result["content"].find(quote)) >= 0:
        query += f"&quoted={at}-{at + len(quote)}-{crc32(quote.encode()):08x}"
    return query
