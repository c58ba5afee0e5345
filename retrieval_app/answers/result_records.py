"""Candidates and sources as the plain records that runs keep and every channel gives out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ragd.search.hops import Link
from ragd.types import Candidate
from retrieval_app.answers.citations import Citation, is_written, page_of, path_of, place_in_document, place_of

EXCERPT_CHARS = 320


def chunk_key(candidate: Candidate) -> str:
    return f"{candidate.doc_id}#{candidate.chunk_index}"


def result_dict(candidate: Candidate, rank: int, link: Link | None = None) -> dict[str, Any]:
    """One result. rank starts at 1; start and end are characters of the document; page is None where there is none.

    "link" is there for a chunk that a hop found: {hop, term, doc_id, chunk_index}, the term and where it was read.
    """
    metadata = dict(candidate.metadata)
    result = {
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "content": candidate.content,
        "score": candidate.score,
        "score_kind": candidate.score_kind,
        "unit_score": candidate.unit_score,
        "rank": rank,
        "ranks": {
            name: {"rank": list_rank.rank, "score": list_rank.score} for name, list_rank in candidate.ranks.items()
        },
        "start": candidate.start,
        "end": candidate.end,
        "page": page_of(candidate.attributes),
        "place": place_of(candidate).label,
        "title": title_of(candidate),
        "context": candidate.context,
        "metadata": metadata,
        "attributes": dict(candidate.attributes),
        "tags": list(candidate.tags),
        "revision": candidate.revision,
    }
    return result | ({"link": asdict(link)} if link else {}) | _elsewhere(candidate)


def _elsewhere(candidate: Candidate) -> dict[str, str]:
    """Only of a chunk of another collection than the run's."""
    return {"collection": candidate.collection} if candidate.collection else {}


def with_spans(results: Sequence[dict[str, Any]], spans: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every result with the spans that compress() kept of it, by position: {start, end, content, score, tokens}.

    content == document_text[start:end], but of a chunk that a person wrote: there the place is the chunk's. [] for a
    result of which nothing fitted the budget.
    """
    selected: dict[int, list[dict[str, Any]]] = {result["rank"]: [] for result in results}
    written = {result["rank"]: result for result in results if is_written(result["attributes"])}
    for span in spans:
        named = {name: span[name] for name in ("start", "end", "content", "score")}
        if span["rank"] in written:
            named |= {name: written[span["rank"]][name] for name in ("start", "end")}
        selected[span["rank"]].append(named | {"tokens": span["tokens_after"]})
    return [result | {"spans": selected[result["rank"]]} for result in results]


def source_dict(marker: int, candidate: Candidate, citations: Sequence[Citation]) -> dict[str, Any]:
    """One source of an answer. excerpt is document_text[excerpt_start:excerpt_end]: what was cited, else how it begins.

    Of a chunk that a person wrote, excerpt is its own text, and the place that of the chunk (attribute "overlay").
    t_start and t_end (seconds) are there where the input had them.
    """
    own = [citation for citation in citations if citation.marker == marker]
    first, last = _excerpt_span(candidate, own)
    start, end = place_in_document(candidate, first, last)
    place = place_of(candidate, first, last) if own else place_of(candidate)
    source = {
        "marker": marker,
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "title": title_of(candidate),
        "excerpt": candidate.content[first:last],
        "excerpt_start": start,
        "excerpt_end": end,
        "start": candidate.start,
        "end": candidate.end,
        "page": place.page,
        "place": place.label,
        "cells": place.cells,
        "attributes": dict(candidate.attributes),
        "score": candidate.score,
        "revision": candidate.revision,
        "cited": bool(own),
    }
    times = {name: candidate.attributes.get(name) for name in ("t_start", "t_end")}
    return source | {name: value for name, value in times.items() if value is not None} | _elsewhere(candidate)


def title_of(candidate: Candidate) -> str:
    """The first part of the context: the document's title, or the topmost heading of a document without one; "" where
    there is neither."""
    return path_of(candidate.context).partition(" > ")[0]


def _excerpt_span(candidate: Candidate, citations: Sequence[Citation]) -> tuple[int, int]:
    """What of the content stands for it: what was cited, else how it begins."""
    cited = [_span_of(candidate, citation) for citation in citations if citation.match != "chunk"]
    if cited:
        start, end = min(start for start, _ in cited), max(end for _, end in cited)
        return (start, end) if end - start <= EXCERPT_CHARS * 2 else cited[0]
    content = candidate.content
    if len(content) <= EXCERPT_CHARS:
        return 0, len(content)
    cut = content.rfind(" ", EXCERPT_CHARS // 2, EXCERPT_CHARS)
    return 0, cut if cut > 0 else EXCERPT_CHARS


def _span_of(candidate: Candidate, citation: Citation) -> tuple[int, int]:
    """Where in the content the citation's quotation stands."""
    if is_written(candidate.attributes):
        start = candidate.content.find(citation.quote)
        return start, start + len(citation.quote)
    return citation.start - candidate.start, citation.end - candidate.start
