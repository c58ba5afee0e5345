"""What a golden question may expect, found by searching its collection (no run is stored, no span is kept) and ticked
by a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.urls import reverse
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest
from collections_app.index.stores import open_store
from collections_app.models import Collection, Document
from evaluation_app.golden.expectations import EXCERPT_CHARS, find_drifts, read_status
from evaluation_app.golden.questions import Golden
from ragd import retrieve
from ragd.errors import RagdError
from ragd.types import Candidate, RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import build_plan

UNKEPT = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(0))
FOUND_CHUNKS, FOUND_DOCUMENTS = 8, 5
CHOSEN_MAX = 400
EXPECTED = ("expected_doc_ids", "expected_chunks")
Chosen = dict[str, list[str]]


@contextmanager
def unkept_spans() -> Iterator[None]:
    """What runs inside belongs to a trace that is not sampled: a look ahead is no traffic."""
    with use_span(NonRecordingSpan(UNKEPT)):
        yield


def look(collection: Collection, text: str, k: int) -> list[Candidate]:
    """The best k chunks by the collection's default plan without its filters; [] for a blank text. Raises RagdError."""
    if not text.strip():
        return []
    plan = build_plan(collection, k=k, tags_any=[], tags_all=[], metadata={}, compress="none", rerank="none")
    return look_by(collection, text, plan)


def look_by(collection: Collection, text: str, plan: RetrievePlan) -> list[Candidate]:
    """The same by a plan of the caller's."""
    with unkept_spans(), transaction.atomic():
        return retrieve(text, plan, open_store(collection))


def documents_named(collection: Collection, text: str, limit: int) -> list[Document]:
    """Documents whose id or title holds the text, by id; [] for a blank text."""
    words = text.replace("\x00", "").strip()
    if not words:
        return []
    rows = Document.objects.filter(collection=collection).only("doc_id", "title", "enabled", "collection_id")
    records = rows.filter(doc_id__icontains=words) | rows.filter(title__icontains=words)
    return list(records.order_by("doc_id")[:limit])


@dataclass(frozen=True, slots=True)
class ChunkMatch:
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
    chunks: Sequence[ChunkMatch] = ()
    documents: Sequence[tuple[str, str, bool]] = ()
    problem: str = ""


def read_chosen(request: PageRequest) -> Chosen:
    """What is ticked in the form: ids under the names of the fields of `Golden`."""
    return {name: list(dict.fromkeys(request.POST.getlist(name)[:CHOSEN_MAX])) for name in EXPECTED}


def chosen_context(collection_name: str, chosen: Chosen, marks: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What is ticked, with what became of it, for the part that shows the boxes. marks: of the question's chunks."""
    ticked = Golden("any", tuple(chosen["expected_doc_ids"]), tuple(chosen["expected_chunks"]))
    status = read_status(collection_name, [ticked])
    drifts = find_drifts(collection_name, [marks or {}])[0]
    of_chunks = status.of(Golden("any", (), ticked.expected_chunks), drifts)
    return {
        "expected_docs": [status.documents[doc_id] for doc_id in chosen["expected_doc_ids"]],
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
            ChunkMatch(
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
        ChunkMatch(
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
