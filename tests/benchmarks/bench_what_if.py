"""What a preview of a change costs: golden questions asked as the index is and as it would be.

Run: python -m tests.benchmarks.bench_what_if [CHUNKS]      (20000)

A collection of CHUNKS made-up chunks (128 dimensions, a lexical index, documents of ten chunks, exact search) and 200
questions with their vectors. Supposed are: one document hidden, a hundred hidden, one deleted, a hundred deleted, and
ten chunks of one document said anew. Each is asked of all questions (hybrid, k = 12); printed is the time of all of it,
making the change up included, per question and beside a plain search, and in how many questions something changed.
Embedding is left out. Target: 200 questions within 4 seconds, which is how long a preview on a page may take.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from ragd import RetrievePlan, index, retrieve
from ragd.insight.what_if import Supposed, WhatIf
from ragd.store.schema import apply_schema
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.types import Chunk
from tests.benchmarks.bench_collections import DIMS, database, make_chunks, settle
from tests.benchmarks.growth import MODEL, GivenEmbedder, make_queries

QUESTIONS = 200
PER_DOCUMENT = 10
BATCH = 2_000
PLAN = RetrievePlan(k=12)
TARGET_S = 4.0


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    embedder = GivenEmbedder(make_queries(QUESTIONS, DIMS), DIMS)
    with tempfile.TemporaryDirectory() as folder, database(Path(folder)) as connection:
        apply_schema(connection)
        create_collection(connection, name="asked", embed_model=MODEL, embed_dims=DIMS, language="simple")
        store = Store(connection, "asked", embedder)
        anew = fill(connection, store, count)
        settle(connection)
        alone = [search(connection, store, question) for question in embedder.vectors]
        print(f"a plain search: median {statistics.median(alone):.2f} ms over {count} chunks")
        hundred = tuple(f"d{number:06}" for number in range(100))
        slowest = max(
            measure(connection, store, embedder, "1 document hidden", Supposed(hidden_documents=hundred[:1])),
            measure(connection, store, embedder, "100 documents hidden", Supposed(hidden_documents=hundred)),
            measure(connection, store, embedder, "1 document deleted", Supposed(gone_documents=hundred[:1])),
            measure(connection, store, embedder, "100 documents deleted", Supposed(gone_documents=hundred)),
            measure(
                connection, store, embedder, "1 document said anew", Supposed(gone_documents=hundred[:1], added=anew)
            ),
        )
        met = "met" if slowest <= TARGET_S else "MISSED"
        print(
            f"target {QUESTIONS} questions, the slowest change: {slowest:.2f} s, at most {TARGET_S:g} s wanted: {met}"
        )


def fill(connection: psycopg.Connection[Any], store: Store, count: int) -> tuple[Chunk, ...]:
    """Write the chunks; returns what one document would say instead."""
    source = make_chunks()
    anew = tuple(
        Chunk("d000000", number, text, 0, len(text), embedding=vector)
        for number, (text, vector) in enumerate(islice(source, PER_DOCUMENT))
    )
    for base in range(0, count, BATCH):
        rows = islice(source, min(BATCH, count - base))
        index(
            [
                Chunk(f"d{place // PER_DOCUMENT:06}", place % PER_DOCUMENT, text, 0, len(text), embedding=vector)
                for place, (text, vector) in enumerate(rows, base)
            ],
            store,
        )
        connection.commit()
    return anew


def search(connection: psycopg.Connection[Any], store: Store, question: str) -> float:
    began = time.perf_counter()
    retrieve(question, PLAN, store)
    connection.commit()
    return (time.perf_counter() - began) * 1000


def measure(
    connection: psycopg.Connection[Any], store: Store, embedder: GivenEmbedder, name: str, supposed: Supposed
) -> float:
    """Seconds for all questions."""
    began = time.perf_counter()
    what_if = WhatIf(store, supposed)
    what_if.prepare(embedder.vectors, PLAN)
    made_up_ms = (time.perf_counter() - began) * 1000
    changed = 0
    for question, vector in embedder.vectors.items():
        now, then = what_if.compare(question, PLAN, vector)
        changed += [each.key for each in now] != [each.key for each in then]
    connection.rollback()
    took_s = time.perf_counter() - began
    print(
        f"{name:24} {took_s:6.2f} s, {took_s * 1000 / QUESTIONS:6.2f} ms a question, {made_up_ms:7.1f} ms to make up;"
        f" {changed} of {QUESTIONS} find something else",
        flush=True,
    )
    return took_s


if __name__ == "__main__":
    main()
