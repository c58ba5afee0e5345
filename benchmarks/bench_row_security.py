"""Retrieval as the bound role beside retrieval without row-level security, per path and by how much one may read.

Run: python -m benchmarks.bench_row_security [--rows 100000] [--queries 40]

Every document has an access list, so that no shortcut helps: three people may read all of them, a tenth and a
thousandth. The same question is asked by the owner, whom row-level security does not bind, over all rows, over a
tenth and over a thousandth, and by each person, in turn, on one connection; medians, and the ratio of a person's to
the owner's over the same rows. Recall is that of the ten nearest against the exact answer over these rows. A last
column asks in a collection of which nothing is restricted, as somebody who may read it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import psycopg

from benchmarks.bench_peers import running_database
from benchmarks.vectors import Given
from collections_app.access.context import Access, bind
from collections_app.access.permissions import GIVEN, Role, group_principal
from ragd import RetrievePlan, index
from ragd.search.lexical_search import read_query, scanned_rows
from ragd.search.retrieval import retrieve_detailed
from ragd.search.vector_search import read_state, vector_candidates
from ragd.store.postings import build_postings
from ragd.store.store import Store, execute
from ragd.store.tables import create_collection
from ragd.types import Chunk
from ragd_site.postgresql.row_security import protect

DIMS = 384
PER_DOCUMENT = 5
ASKED = 200
K = 10
VOCABULARY = [f"word{number}" for number in range(3_000)]
GROUPS = {"100 %": 1.0, "10 %": 0.1, "0.1 %": 0.001}
UNRESTRICTED = "nothing restricted"  # another collection
OWNER = "owner, "
PLANS: dict[str, RetrievePlan] = {
    "vector, exact": RetrievePlan(mode="vector", k=K, exact="always"),
    "vector, HNSW": RetrievePlan(mode="vector", k=K, exact="never"),
    "vector, auto": RetrievePlan(mode="vector", k=K),
    "keyword, packed": RetrievePlan(mode="lexical", k=K),
    "hybrid, auto": RetrievePlan(mode="hybrid", k=K),
}
LISTS = """
INSERT INTO document_access (collection_id, doc_id, access)
SELECT %(collection)s, doc_id, array_remove(ARRAY[0, %(all)s,
       CASE WHEN n %% 10 = 0 THEN %(tenth)s ELSE 0 END, CASE WHEN n %% 1000 = 0 THEN %(thousandth)s ELSE 0 END], NULL)
FROM (SELECT 'd' || n AS doc_id, n FROM generate_series(0, %(count)s - 1) AS n) AS names
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=40)
    arguments = parser.parse_args()
    with running_database() as (url, _), psycopg.connect(url) as connection:
        protect(connection)
        connection.commit()
        asked = make_vectors(ASKED, 2)
        narrowed = load(connection, "narrowed", arguments.rows, asked, narrowed=True)
        free = load(connection, "free", arguments.rows, asked, narrowed=False)
        embedder = Given(asked)
        compare(connection, cases_of(connection, narrowed, free, embedder), embedder, arguments.queries)


def make_vectors(count: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    axes = np.random.default_rng(99).normal(size=(24, DIMS))
    vectors = generator.normal(size=(count, 24)) @ axes + 0.4 * generator.normal(size=(count, DIMS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def load(connection: psycopg.Connection[Any], name: str, rows: int, asked: Any, *, narrowed: bool) -> int:
    """A collection with an HNSW index and packed postings; its id."""
    began = time.perf_counter()
    collection = create_collection(connection, name=name, embed_model="given", embed_dims=DIMS)
    if narrowed:
        principals = dict(zip(("all", "tenth", "thousandth"), map(group_principal, (1, 2, 3)), strict=True))
        values = {"collection": collection, "count": rows // PER_DOCUMENT} | principals
        execute(connection, LISTS, values)
    words, vectors = random.Random(5), make_vectors(rows, 1)
    weights = [1 / (place + 5) for place in range(len(VOCABULARY))]
    chunks = []
    for number in range(rows):
        text = " ".join(words.choices(VOCABULARY, weights, k=40))
        doc_id, place = f"d{number // PER_DOCUMENT}", number % PER_DOCUMENT
        chunks.append(Chunk(doc_id, place, text, 0, len(text), embedding=vectors[number]))
    store = Store(connection, collection, Given(asked))
    index(chunks, store)
    connection.commit()
    store.build_vector_index()
    build_postings(store)
    connection.commit()
    connection.autocommit = True
    connection.execute(f"VACUUM ANALYZE {store.collection.partition}")
    connection.execute("VACUUM ANALYZE documents, document_access, chunk_terms, chunk_segments, chunk_postings")
    connection.autocommit = False
    print(f"{name}: {rows:,} chunks in {time.perf_counter() - began:.0f} s", flush=True)
    return collection


@dataclass(frozen=True)
class Case:
    """Who asks where. access: the setting ragd.access, "" for the owner; readable: the owner's principals and share of
    the chunks, to find the same rows as a person by the same statements."""

    collection: int
    access: str = ""
    readable: tuple[Any, float | None] | None = None

    def open(self, connection: psycopg.Connection[Any], embedder: Given) -> Store:
        store = Store(connection, self.collection, embedder)
        if self.readable:
            store.principals, store.readable_share = self.readable
        return store


def cases_of(connection: psycopg.Connection[Any], narrowed: int, free: int, embedder: Given) -> dict[str, Case]:
    """Each person behind the owner with the same rows."""
    cases = {}
    for place, name in enumerate(GROUPS, 1):
        person = Case(narrowed, setting(narrowed, place))
        with as_person(connection, person.access):
            store = person.open(connection, embedder)
        cases |= {OWNER + name: Case(narrowed, readable=(store.principals, store.readable_share)), name: person}
    return cases | {OWNER + UNRESTRICTED: Case(free), UNRESTRICTED: Case(free, setting(free, 1))}


def compare(connection: psycopg.Connection[Any], cases: dict[str, Case], embedder: Given, queries: int) -> None:
    chance = random.Random(7)
    took: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    recalls: dict[str, list[float]] = defaultdict(list)
    for turn in range(queries):
        query = f"{chance.randrange(ASKED)} {' '.join(chance.choices(VOCABULARY[:600], k=4))}"
        for name, case in cases.items():
            with as_person(connection, case.access):
                for path, plan in PLANS.items():
                    store = case.open(connection, embedder)
                    found, seconds = timed(partial(retrieve_detailed, query, plan, store))
                    if turn:  # the first warms up
                        took[path][name].append(seconds)
                    if path == "vector, HNSW":
                        recalls[name].append(recall(case.open(connection, embedder), embedder, query, found.candidates))
                _, seconds = timed(scanning(case.open(connection, embedder), query))
                if turn:
                    took["keyword, rows"][name].append(seconds)
    tell(took, recalls)


def setting(collection: int, group: int) -> str:
    access = Access(collections={collection: GIVEN[Role.ASKER]}, principals=(1, group_principal(group)), user_id=1)
    return access.setting


class as_person:
    def __init__(self, connection: psycopg.Connection[Any], access: str) -> None:
        self.connection, self.access = connection, access

    def __enter__(self) -> None:
        bind(self.connection, self.access)
        self.connection.commit()

    def __exit__(self, *_: object) -> None:
        self.connection.rollback()
        bind(self.connection, "")
        self.connection.commit()


def scanning(store: Store, query: str) -> Callable[[], Any]:
    """Keyword search that scores every row with one of the words, as in collections without packed postings."""
    plan = PLANS["keyword, packed"]
    words = read_query(query, store, read_state(plan, store))
    execute(store.connection, "SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")
    return lambda: scanned_rows(words, plan, store)


def recall(store: Store, embedder: Given, query: str, found: Any) -> float:
    plan = PLANS["vector, exact"]
    exact = {each.key for each in vector_candidates(embedder.embed_query(query), plan, store, True, rows=K)}
    return len(exact & {each.key for each in found}) / max(1, len(exact))


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    result = act()
    return result, time.perf_counter() - began


def tell(took: dict[str, dict[str, list[float]]], recalls: dict[str, list[float]]) -> None:
    people = [*GROUPS, UNRESTRICTED]
    print("\nmedian ms, owner and person (ratio)\n" + " " * 18 + "".join(f"{name:>24}" for name in people))
    for path, cases in took.items():
        cells = []
        for name in people:
            owner, person = (statistics.median(cases[each]) for each in (OWNER + name, name))
            cells.append(f"{owner * 1000:7.1f} {person * 1000:7.1f} ({person / owner:4.2f})")
        print(f"{path:18}" + "".join(f"{cell:>24}" for cell in cells), flush=True)
    print(f"{'recall@10, HNSW':18}" + "".join(f"{statistics.mean(recalls[name]):24.3f}" for name in people))
    print("targets: exact at most 1.15, HNSW at most 2, recall at least 0.95")


if __name__ == "__main__":
    main()
