"""What a collection's search finds for a text, without a run being stored and without a span being kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from collections_app.models import Collection, Document
from collections_app.stores import open_store
from ragd import retrieve
from ragd.types import Candidate, RetrievePlan
from retrieval_app.runs.plans import build_plan

UNKEPT = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(0))


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
