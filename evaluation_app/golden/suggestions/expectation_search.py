"""What a golden question may expect, found by searching its collection and ticked by a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest
from collections_app.models import Collection
from evaluation_app.golden.expectation_status import EXCERPT_CHARS, read_status
from evaluation_app.golden.expected_chunks import find_drifts
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.suggestions.trial_search import documents_named, look
from ragd.errors import RagdError
from retrieval_app.models import QueryRun

FOUND_CHUNKS, FOUND_DOCUMENTS = 8, 5
CHOSEN_MAX = 400
EXPECTED = ("expected_doc_ids", "expected_chunks")
Chosen = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """What the search finds: a document and one chunk of it, each to be ticked. rank: from 1."""

    rank: int
    doc_id: str
    key: str
    title: str
    excerpt: str
    href: str
    score: float
    has_doc: bool
    has_chunk: bool


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """chunks: by rank. documents: whose name holds the words. problem: why there was no search, "" for none."""

    text: str
    chunks: Sequence[FoundChunk] = ()
    documents: Sequence[tuple[str, str, bool]] = ()
    problem: str = ""


def read_chosen(request: PageRequest) -> Chosen:
    """What is ticked in the form: ids under the names of the fields of `Golden`."""
    return {name: list(dict.fromkeys(request.POST.getlist(name)[:CHOSEN_MAX])) for name in EXPECTED}


def chosen_context(collection_name: str, chosen: Chosen, marks: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What is ticked, with what became of it, for the part that shows the boxes. marks: of the question's chunks."""
    ticked = Golden("any", tuple(chosen["expected_doc_ids"]), tuple(chosen["expected_chunks"]))
    standing = read_status(collection_name, [ticked])
    drifts = find_drifts(collection_name, [marks or {}])[0]
    of_chunks = standing.of(Golden("any", (), ticked.expected_chunks), drifts)
    return {
        "expected_docs": [standing.documents[doc_id] for doc_id in chosen["expected_doc_ids"]],
        "expected_chunks": of_chunks,
        "can_keep": any(item.state == "other" for item in of_chunks),
    }


def find_expected(collection_name: str, text: str, chosen: Chosen) -> SearchOutcome:
    """What the collection's search finds for the text, and documents that are called so."""
    collection = Collection.objects.live().filter(name=collection_name).first()
    if collection is None:
        return SearchOutcome(text, problem=f"The collection {collection_name} is deleted.")
    named = [
        (row.doc_id, row.name, row.doc_id in chosen["expected_doc_ids"])
        for row in documents_named(collection, text, FOUND_DOCUMENTS)
    ]
    try:
        candidates = look(collection, text, FOUND_CHUNKS)
    except (ServiceError, RagdError) as error:
        return SearchOutcome(text, documents=named, problem=describe(error)[1]["error"]["message"])
    chunks = []
    for rank, item in enumerate(candidates, 1):
        key = f"{item.doc_id}#{item.chunk_index}"
        chunks.append(
            FoundChunk(
                rank=rank,
                doc_id=item.doc_id,
                key=key,
                title=" › ".join((item.context or item.doc_id).split(" > ")),
                excerpt=" ".join(item.content.split())[:EXCERPT_CHARS],
                href=reverse("collections:chunk", args=[collection.name, item.chunk_index, item.doc_id]),
                score=item.unit_score,
                has_doc=item.doc_id in chosen["expected_doc_ids"],
                has_chunk=key in chosen["expected_chunks"],
            )
        )
    return SearchOutcome(text, chunks, named)


def retrieved_of(run: QueryRun, chosen: Chosen) -> SearchOutcome:
    """The run's own results instead of a new search."""
    chunks = [
        FoundChunk(
            rank=item["rank"],
            doc_id=item["doc_id"],
            key=f"{item['doc_id']}#{item['chunk_index']}",
            title=" › ".join((item["context"] or item["doc_id"]).split(" > ")),
            excerpt=" ".join(item["content"].split())[:EXCERPT_CHARS],
            href=reverse("collections:chunk", args=[run.collection_name, item["chunk_index"], item["doc_id"]]),
            score=float(item.get("unit_score") or 0.0),
            has_doc=item["doc_id"] in chosen["expected_doc_ids"],
            has_chunk=f"{item['doc_id']}#{item['chunk_index']}" in chosen["expected_chunks"],
        )
        for item in run.results
    ]
    return SearchOutcome("", chunks)
