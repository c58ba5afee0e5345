"""The rounds of bench_curation, over a database that is there and a Django that is set up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from django.db import connection

import ragd
from collections_app.models import Collection, Document
from collections_app.services.collections.collections import create_collection
from collections_app.services.collections.deletion import delete_collection
from collections_app.services.documents.bulk_changes import BulkChange, change_documents
from collections_app.services.documents.documents import get_document
from collections_app.services.documents.revision_diff import compare_revisions
from collections_app.services.indexing import ingestion
from collections_app.services.indexing.ingestion import Draft, ingest
from collections_app.services.indexing.revisions import keep_revision
from collections_app.services.indexing.stored_documents import find_stored
from collections_app.stores import open_store
from ragd.store.store import fetch_all
from ragd.types import Chunk, ChunkPolicy

INDEXED_SHARE = 10  # one document in so many is changed with the vector index
DIMS = 384
NAME = "bench-curation"


def timed(label: str, work: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    made = work()
    print(f"{label:<58}{time.perf_counter() - began:8.2f} s", flush=True)
    return made


def fill(collection: Collection, count: int) -> list[str]:
    """Documents with one chunk each, written at once."""
    names = [f"d{number:05}" for number in range(count)]
    texts = [f"document {number} speaks of subject {number % 97} and of {number % 31}" for number in range(count)]
    Document.objects.bulk_create(
        Document(collection=collection, doc_id=name, text=text, size_chars=len(text), chunk_policy={}, tags=["bench"])
        for name, text in zip(names, texts, strict=True)
    )
    vectors = np.random.default_rng(1).standard_normal((count, DIMS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    chunks = [
        Chunk(name, 0, text, 0, len(text), ("bench",), {}, "", vector)
        for name, text, vector in zip(names, texts, vectors, strict=True)
    ]
    ragd.index(chunks, open_store(collection))
    return names


def many(collection: Collection, count: int) -> None:
    names = timed(f"{count:,} documents made", lambda: fill(collection, count))
    changes = {
        "add a tag to all": BulkChange("add_tags", tags=("new",)),
        "set a metadata field of all": BulkChange("set_metadata", key="team", value="search"),
        "disable all": BulkChange("disable"),
        "archive all": BulkChange("archive"),
        "unarchive all": BulkChange("unarchive"),
    }
    for label, change in changes.items():
        outcome = timed(label, lambda change=change: change_documents(collection, change, names))
        assert outcome.count("changed", "unchanged") == count, outcome.counts
    timed("vector index built", lambda: open_store(collection).build_vector_index())
    few = names[: count // INDEXED_SHARE]
    timed(
        f"add a tag to {len(few):,}, with the vector index",
        lambda: change_documents(collection, BulkChange("add_tags", tags=("newer",)), few),
    )


def large(collection: Collection, chars: int) -> None:
    words = [f"word{number % 5003}" for number in range(chars // 9)]
    text = " ".join(words)
    policy = ChunkPolicy("words", 120, 20, 4000)

    def store(content: str) -> Any:
        before = find_stored(collection, "large")
        return ingest(collection, Draft("large", content), policy, before=before)

    timed(f"one document of {len(text) / 1e6:.0f} MB stored", lambda: store(text))
    stored = find_stored(collection, "large")
    assert stored is not None
    timed("  its revision kept (the statement alone)", lambda: keep_revision(collection, stored, "large", text="other"))
    timed("  one word changed at its end", lambda: store(f"{text} end"))
    size = "SELECT coalesce(sum(pg_column_size(r.text) + pg_column_size(r.chunks)), 0) FROM document_revisions r"
    print(f"{'  the revision takes':<58}{int(fetch_all(connection, size)[0][0]) / 1e6:8.2f} MB")
    document = get_document(collection, "large")
    found = timed("  its chunks compared with the next", lambda: compare_revisions(document, 1, 2))
    print(f"  {dict(found.chunks.counts)}")


class _Constant:
    """Vectors without a model, so that the rest is measured."""

    model, dims, window, system = "all-MiniLM-L6-v2", DIMS, None, "ragd.bench"
    server_address, server_port = None, None

    def embed(self, texts: Any) -> Any:
        return np.full((len(texts), DIMS), 1 / DIMS**0.5, np.float32)

    def embed_query(self, text: str) -> Any:
        return self.embed([text])[0]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def run(documents: int, large_mb: int) -> None:
    ingestion.ingest_embedder = lambda *_: _Constant()  # type: ignore[assignment]
    collection = create_collection(name=NAME)
    many(collection, documents)
    timed("all of it deleted", lambda: delete_collection(collection))
    large(create_collection(name=f"{NAME}-large"), large_mb * 1_000_000)
