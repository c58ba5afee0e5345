"""The exact scan through the compact index: the rows, scores and order of comparing every vector, or no answer."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from ragd.search import vector_search
from ragd.search.candidates import fill
from ragd.search.retrieval import retrieve, retrieve_detailed
from ragd.search.vector_search import COMPACT_ERROR, BinaryVector, read_state, vector_candidates, vector_list
from ragd.store.indexing import delete_document_chunks, index
from ragd.store.store import Store, execute, fetch_all
from ragd.types import Candidate, Filters, RetrievePlan
from tests.builders import make_chunks

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "koi", "lion"]
DISTANCES = """
SELECT 1 + (l2_normalize(a)::halfvec({dims}) <#> l2_normalize(b)::halfvec({dims})), a <=> b
FROM (SELECT %(a)s::vector AS a, %(b)s::vector AS b) AS pair
"""


@pytest.fixture
def compact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small collections are searched as larger ones are."""
    monkeypatch.setattr(vector_search, "COMPACT_MIN", 1)
    monkeypatch.setattr(vector_search, "COMPACT_MORE", 5)


def filled(store: Store, documents: int = 60) -> Store:
    generator = np.random.default_rng(4)
    for number in range(documents):
        words = " ".join(WORDS[place] for place in generator.integers(0, len(WORDS), 9))
        index(make_chunks(f"d{number:02}", words, tags=("odd",) if number % 2 else ()), store)
    return store


def both(store: Store, plan: RetrievePlan, text: str) -> tuple[list[Candidate], list[Candidate]]:
    assert store.embedder is not None
    vector = store.embedder.embed_query(text)
    state = read_state(plan, store)
    listed, exact = vector_list(vector, plan, store, state)
    assert exact is True
    return listed, vector_candidates(vector, plan, store, True)


@pytest.mark.parametrize("filters", [Filters(), Filters(tags_any=("odd",)), Filters(tags_any=("none",))])
def test_it_gives_what_comparing_every_vector_gives(make_store: Any, compact: None, filters: Filters) -> None:
    store = filled(make_store())
    execute(store.connection, f"UPDATE {store.collection.partition} SET enabled = false WHERE doc_id = 'd07'")
    plan = RetrievePlan("vector", 4, candidate_pool=8, filters=filters)
    for text in ("ant bee", "koi", "fox gnu hen ibis", "lion lion cat"):
        listed, scanned = both(store, plan, text)
        assert [(each.key, each.score, each.ranks) for each in listed] == [
            (each.key, each.score, each.ranks) for each in scanned
        ]
        assert len(listed) == (0 if filters.tags_any == ("none",) else 8)
        assert "d07" not in {each.doc_id for each in listed}


def test_it_is_asked_and_no_row_of_the_table_is_compared(
    make_store: Any, compact: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(make_store())
    plan = RetrievePlan("vector", 3, candidate_pool=3)
    expected = retrieve("ant bee cat", plan, store)
    monkeypatch.setattr(vector_search, "vector_candidates", None)
    assert retrieve("ant bee cat", plan, store) == expected


def test_many_that_are_alike_are_all_compared(make_store: Any, compact: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store()
    for number in range(30):
        index(make_chunks(f"d{number:02}", "ant bee"), store)
    scan = Mock(wraps=vector_candidates)
    monkeypatch.setattr(vector_search, "vector_candidates", scan)
    found = retrieve_detailed("ant bee", RetrievePlan("vector", 4, candidate_pool=8), store)
    assert [each.doc_id for each in found.lists["vector"]] == [f"d{number:02}" for number in range(8)]
    assert scan.call_count == 1


@pytest.mark.parametrize("dims", [2, 384, 4000])
def test_half_precision_is_not_further_off_than_is_allowed_for(connection: Any, dims: int) -> None:
    generator = np.random.default_rng(dims)
    worst = 0.0
    # between two neighbours of half precision, all rounded the same way; random; and of very unequal sizes
    halfway = np.full(dims, 1 + 2.0**-11 - 1e-6, dtype=np.float32)
    pairs = [(halfway, halfway), (halfway, -halfway)]
    for scale in (0.0, 3.0, 9.0):
        sizes = np.exp(generator.normal(size=(8, dims)) * scale).astype(np.float32)
        shape = sizes * generator.choice([-1, 1], (8, dims))
        pairs += [(each, each + generator.normal(size=dims).astype(np.float32) * 1e-3) for each in shape]
        pairs += list(zip(shape, shape[::-1], strict=True))
    for a, b in pairs:
        values = {"a": str(a.tolist()), "b": str(b.tolist())}
        ((half, exact),) = fetch_all(connection, DISTANCES.format(dims=dims), values)
        worst = max(worst, abs(half - exact))
    assert 0 < worst < COMPACT_ERROR


def test_vectors_of_one_dimension_have_none(make_store: Any, compact: None) -> None:
    store = make_store(dims=1)
    index(make_chunks("a", "ant", "bee"), store)
    assert store.state().compact_index is False
    assert len(retrieve("ant", RetrievePlan("vector", 2), store)) == 2


@pytest.mark.parametrize(("threshold", "kept"), [(10, False), (20_000, True)])
def test_it_goes_where_the_hnsw_index_takes_its_place(make_store: Any, threshold: int, kept: bool) -> None:
    store = filled(make_store(exact_threshold=threshold), 12)
    assert store.state().compact_index is True
    store.build_vector_index()
    state = store.state()
    assert (state.vector_index, state.compact_index) == (True, kept)


def test_a_chunk_that_went_meanwhile_is_left_out(make_store: Any) -> None:
    store = filled(make_store(), 5)
    whole = retrieve_detailed("ant bee cat", RetrievePlan("hybrid", 5), store).candidates
    delete_document_chunks([whole[1].doc_id], store)
    rows = fill(whole, store)
    assert [each.key for each in rows] == [each.key for each in whole if each is not whole[1]]
    assert (rows[0].content, rows[0].score) == (whole[0].content, whole[0].score)
    assert fill([], store) == []


def test_a_binary_vector_reads_as_its_numbers() -> None:
    assert str(BinaryVector([0.5, -1.0])) == "[0.5,-1.0]"
