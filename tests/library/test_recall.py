"""The recall probe: the index against the exact scan."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest
from django.db import connection as django_connection

from ragd.errors import InvalidInput
from ragd.insight.recall import probe_recall
from ragd.search.vector_search import SET_HNSW
from ragd.store.indexing import index
from ragd.store.store import Store, execute, fetch_all
from tests.builders import make_chunks

WORDS = [
    "amber", "brook", "cedar", "dune", "ember", "fern", "grove", "heath", "iris", "jade", "kelp", "lark", "moss",
    "north", "oak", "pine", "quay", "reed", "sage", "tern",
]  # fmt: skip


@pytest.fixture
def store(make_store: Any) -> Store:
    """300 chunks of three words each, behind an HNSW index."""
    store: Store = make_store(exact_threshold=10)
    texts = [f"{WORDS[n % 20]} {WORDS[n // 20]} {WORDS[(n * 7) % 20]}" for n in range(300)]
    index([chunk for n in range(0, 300, 10) for chunk in make_chunks(f"d{n}", *texts[n : n + 10])], store)
    store.build_vector_index()
    return store


def test_an_index_that_finds_everything_has_recall_one(store: Store) -> None:
    heard: list[tuple[int, int]] = []
    probe = probe_recall(store, k=5, queries=8, ef_search=300, keep_every=4, on_query=lambda *told: heard.append(told))
    assert (probe.k, probe.ef_search, probe.chunk_count) == (5, 300, 300)
    assert (probe.plain.mean, probe.plain.lowest, probe.plain.queries, probe.plain.selectivity) == (1.0, 1.0, 8, 1.0)
    assert (probe.filtered.mean, probe.filtered.queries, probe.filtered.selectivity) == (1.0, 8, 0.25)
    assert heard == [(number, 16) for number in range(1, 17)]


def test_a_poor_index_is_found_out(store: Store) -> None:
    """Two links per row and a beam of one: most nearest neighbours are missed, and the probe says so."""
    collection = store.collection
    execute(store.connection, f"DROP INDEX {collection.vector_index}")
    execute(
        store.connection,
        f"CREATE INDEX {collection.vector_index} ON {collection.partition} "
        f"USING hnsw ((embedding::{collection.vector_cast}) vector_cosine_ops) WITH (m = 2, ef_construction = 4)",
    )
    execute(store.connection, "SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off")
    probe = probe_recall(store, k=1, queries=60)
    assert probe.plain.mean is not None and probe.plain.mean < 1.0
    assert probe.plain.lowest == 0.0


def test_without_an_index_there_is_nothing_to_probe(make_store: Any) -> None:
    store = make_store()
    index(make_chunks("a", "one two"), store)
    with pytest.raises(InvalidInput, match="has no HNSW index"):
        probe_recall(store)


@pytest.mark.parametrize("wrong", [{"k": 0}, {"queries": 0}, {"keep_every": 0}])
def test_wrong_numbers_are_named(store: Store, wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(wrong))} must be at least 1, not 0"):
        probe_recall(store, **wrong)  # type: ignore[arg-type]


def test_a_filter_that_leaves_fewer_rows_than_k_is_measured_on_those(store: Store) -> None:
    probe = probe_recall(store, k=5, queries=5, keep_every=150, ef_search=300)
    assert probe.filtered.queries == 5
    assert probe.filtered.mean == 1.0


def test_rows_that_were_replaced_and_not_vacuumed_widen_the_beam(connection: psycopg.Connection[Any]) -> None:
    settings = {"scan_order": "strict_order", "scan_tuples": "20000", "plans": "auto"}

    def beam(ef_search: str, chunks: str = "replaced") -> str:
        fetch_all(connection, "SELECT pg_stat_clear_snapshot()")
        execute(connection, SET_HNSW, settings | {"ef_search": ef_search, "chunks": chunks})
        found: str = fetch_all(connection, "SELECT current_setting('hnsw.ef_search')")[0][0]
        return found

    assert beam("51", "no_such_table") == "51"
    values, names = django_connection.get_connection_params(), ("host", "port", "user", "password", "dbname")
    with psycopg.connect(**{name: values.get(name) for name in names}, autocommit=True) as writer:
        try:
            writer.execute("CREATE TABLE replaced (id integer) WITH (autovacuum_enabled = off)")
            writer.execute("INSERT INTO replaced SELECT generate_series(1, 100); SELECT pg_stat_force_next_flush()")
            assert beam("51") == "51"
            writer.execute("DELETE FROM replaced WHERE id <= 20; SELECT pg_stat_force_next_flush()")
            assert [beam("50"), beam("999")] == [str(math.ceil(50 * 1.25)), "1000"]
            writer.execute("DELETE FROM replaced WHERE id <= 90; SELECT pg_stat_force_next_flush()")
            assert beam("50") == "100"
        finally:
            writer.execute("DROP TABLE IF EXISTS replaced")
