from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import psycopg
import pytest

from ragd.search import retrieval, vector_search
from ragd.search.lexical_search import read_query
from ragd.search.retrieval import retrieve, retrieve_detailed, with_rows
from ragd.store.indexing import delete_document_chunks, index
from ragd.store.store import Store, execute, fetch_all
from ragd.types import Candidate, Filters, RetrievePlan, sort_key
from tests.builders import make_chunks


def keys(store: Store, query: str, **plan: Any) -> list[tuple[str, int]]:
    return [candidate.key for candidate in retrieve(query, RetrievePlan(**plan), store)]


@pytest.fixture
def store(make_store: Any) -> Store:
    store: Store = make_store()
    index(
        make_chunks("cats", "the cat sat", "a cat and a dog", tags=("pets", "cats"), metadata={"lang": "en", "n": 1})
        + make_chunks("dogs", "the dog barked", tags=("pets",), metadata={"lang": "de", "list": [1, 2]})
        + make_chunks("fish", "fish swim in the sea", tags=("sea",)),
        store,
    )
    return store


def test_a_unit_score_counts_a_word_that_no_chunk_holds(make_store: Any) -> None:
    """So that no score tells whether one holds it."""
    store = make_store(language="simple")
    index(
        make_chunks("a", "red red blue") + make_chunks("b", "red green green green") + make_chunks("c", "pink"), store
    )
    first = retrieve("red blue unknown", RetrievePlan(mode="lexical"), store)[0]
    red, blue, unknown = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5), math.log(1 + 3.5 / 0.5)
    assert first.unit_score == pytest.approx(first.score / ((red + blue + unknown) * 2.2), rel=1e-6)


def test_title_is_searched_but_not_content(make_store: Any) -> None:
    store = make_store()
    index(make_chunks("a", "plain words", context="Zebra handbook"), store)
    (found,) = retrieve("zebra", RetrievePlan(mode="lexical"), store)
    assert (found.content, found.context) == ("plain words", "Zebra handbook")


def test_more_than_two_thousand_dimensions_are_indexed_as_halfvec(make_store: Any) -> None:
    store = make_store(dims=2001, exact_threshold=0)
    index(make_chunks("a", "one", "two", "three"), store)
    assert store.build_vector_index() is True
    assert keys(store, "two", mode="vector", exact="never")[0] == ("a", 1)


def test_disabled_chunks_are_not_retrieved(store: Store) -> None:
    execute(store.connection, f"UPDATE {store.collection.partition} SET enabled = false WHERE doc_id = 'cats'")
    assert "cats" not in {doc_id for doc_id, _ in keys(store, "cat", mode="hybrid")}


def test_short_results_name_their_reason(store: Store) -> None:
    filtered = retrieve_detailed("cat", RetrievePlan(filters=Filters(tags_any=("sea",))), store).short_result
    small = retrieve_detailed("cat", RetrievePlan(mode="vector"), store).short_result
    unmatched = retrieve_detailed("cat", RetrievePlan(mode="lexical"), store).short_result
    pets = Filters(tags_any=("pets",))
    passing = retrieve_detailed("cat", RetrievePlan(mode="lexical", k=3, filters=pets), store).short_result
    too_few = retrieve_detailed("cat", RetrievePlan(mode="lexical", k=4, filters=pets), store).short_result
    assert [(item.reason, item.asked, item.got) for item in (filtered, small, unmatched, passing, too_few) if item] == [
        ("filters", 12, 1), ("collection_small", 12, 4), ("no_match", 12, 2), ("no_match", 3, 2), ("filters", 4, 2),
    ]  # fmt: skip
    assert retrieve_detailed("cat", RetrievePlan(mode="vector", k=2), store).short_result is None


def test_the_index_gives_what_the_scan_gives(make_store: Any) -> None:
    store = make_store(exact_threshold=10)
    index(
        [chunk for number in range(120) for chunk in make_chunks(f"d{number:03}", f"word{number} word{number % 7}")],
        store,
    )
    assert store.build_vector_index() is True
    assert store.build_vector_index() is False
    scanned = retrieve_detailed("word3", RetrievePlan(mode="vector", k=60, exact="always"), store)
    indexed = retrieve_detailed("word3", RetrievePlan(mode="vector", k=60, exact="never"), store)
    assert (scanned.exact, indexed.exact) == (True, False)
    assert len(indexed.candidates) == 60
    overlap = {item.key for item in scanned.candidates[:12]} & {item.key for item in indexed.candidates[:12]}
    assert len(overlap) == 12
    assert retrieve_detailed("word3", RetrievePlan(mode="vector"), store).exact is False


def test_a_filter_that_leaves_few_is_compared_exactly_in_one_reading(make_store: Any) -> None:
    store = make_store(exact_threshold=10)
    tagged = [("few",) * (n % 12 == 0) + ("many",) * (n % 2 == 0) for n in range(120)]
    index([c for n, tags in enumerate(tagged) for c in make_chunks(f"d{n:03}", f"word{n % 7} x", tags=tags)], store)
    store.build_vector_index()
    for tag, exact, passing in (("few", True, 10), ("many", False, 60), ("none", True, 0)):
        plan = RetrievePlan(mode="vector", k=12, filters=Filters(tags_any=(tag,)))
        found = retrieve_detailed("word3", plan, store)
        scanned = retrieve_detailed("word3", replace(plan, exact="always"), store)
        assert (found.exact, len(found.candidates)) == (exact, min(12, passing))
        if exact:
            assert found.candidates == scanned.candidates
            assert retrieve("word3", plan, store) == scanned.candidates


def filtered_store(make_store: Any) -> Store:
    """600 chunks, one in three tagged "third", one in sixty "rare", and an HNSW index."""
    store: Store = make_store(exact_threshold=0)
    index(
        [
            chunk
            for number in range(600)
            for chunk in make_chunks(
                f"d{number:03}",
                f"word{number} word{number % 7} word{number % 11}",
                tags=("third",) * (number % 3 == 0) + ("rare",) * (number % 60 == 0),
            )
        ],
        store,
    )
    assert store.build_vector_index() is True
    return store


@pytest.mark.parametrize("tag", ["third", "rare"])
def test_the_index_gives_what_the_scan_gives_under_filters(make_store: Any, tag: str) -> None:
    store = filtered_store(make_store)
    for setting in ("enable_seqscan", "enable_bitmapscan"):
        execute(store.connection, f"SET LOCAL {setting} = off")  # a table this small would not be searched by its index
    plan = {"mode": "vector", "k": 10, "filters": Filters(tags_any=(tag,))}
    scanned = retrieve_detailed("word3 word4", RetrievePlan(**plan, exact="always"), store)
    indexed = retrieve_detailed("word3 word4", RetrievePlan(**plan, exact="never"), store)
    assert indexed.exact is False
    assert [item.score for item in indexed.candidates] == pytest.approx([item.score for item in scanned.candidates])
    assert [item.ranks["vector"].rank for item in indexed.candidates] == list(range(1, 11))
    assert [sort_key(item) for item in indexed.candidates] == sorted(sort_key(item) for item in indexed.candidates)


def test_the_rows_that_are_read_later_belong_to_the_ranks(make_store: Any) -> None:
    store, query = filtered_store(make_store), "word3 word4"
    texts = {number: f"word{number} word{number % 7} word{number % 11}" for number in range(600)}
    for exact, mode, k in product(("always", "never"), ("vector", "lexical", "hybrid"), (1, 5, 60)):
        plan = RetrievePlan(mode=mode, k=k, exact=exact)
        found = retrieve_detailed(query, plan, store)
        whole = with_rows(found, store)
        assert retrieve(query, plan, store) == found.candidates == whole.candidates == whole.reranked[:k]
        assert [places(each) for each in found.lists.values()] == [places(each) for each in whole.lists.values()]
        assert places(found.fused) == places(whole.fused)
        for column in (found.candidates, whole.fused, *whole.lists.values()):
            assert all(each.content == texts[int(each.doc_id[1:])] for each in column)


def places(candidates: list[Candidate]) -> list[tuple[Any, ...]]:
    return [(each.key, each.chunk_id, each.score, each.score_kind, each.unit_score, each.ranks) for each in candidates]


def test_a_row_that_goes_during_a_search_makes_room_for_the_next(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = RetrievePlan(mode="hybrid", k=2)
    before = [each.key for each in retrieve_detailed("cat dog", plan, store).fused]
    read, gone = retrieval.lexical_candidates, before[0][0]

    def read_and_lose(*args: Any, **kwargs: Any) -> list[Candidate]:
        listed = read(*args, **kwargs)
        assert delete_document_chunks([gone], store) > 0
        return listed

    monkeypatch.setattr(retrieval, "lexical_candidates", read_and_lose)
    found = retrieve("cat dog", plan, store)
    assert [each.key for each in found] == [key for key in before if key[0] != gone][:2]
    assert all(each.content for each in found)


def test_the_state_of_another_question_says_nothing_of_its_words(store: Store) -> None:
    of_cat = store.state(for_words=True, question="cat")
    assert [(each.lexeme, each.chunks) for each in of_cat.terms or []] == [("cat", 2)]
    for text, words in (("dog sea", ["dog", "sea"]), ("cat", ["cat"]), ("the", [])):
        for state in (of_cat, store.state(for_words=True, question=text), store.state()):
            assert read_query(text, store, state).lexemes == words


def test_a_short_result_through_the_index_says_whether_more_would_pass(make_store: Any, monkeypatch: Any) -> None:
    store = filtered_store(make_store)
    for setting in ("enable_seqscan", "enable_bitmapscan"):
        execute(store.connection, f"SET LOCAL {setting} = off")
    few = RetrievePlan(mode="vector", k=11, exact="never", filters=Filters(tags_any=("rare",)))
    short = retrieve_detailed("word3", few, store).short_result
    assert short is not None and (short.reason, short.got) == ("filters", 10)
    monkeypatch.setattr(vector_search, "SCAN_TUPLES_MAX", 1)
    monkeypatch.setattr(vector_search, "FILTERED_BEAM_MIN", 0)
    stopped = RetrievePlan(mode="vector", k=10, exact="never", filters=Filters(tags_any=("rare",)))
    short = retrieve_detailed("word3", stopped, store).short_result
    assert short is not None and short.reason == "approximate" and short.got < 10


def test_a_vector_means_the_same_as_text_and_in_binary(make_store: Any) -> None:
    store = make_store()
    vector = [0.1, -2.5e-7, 1.0] + [0.0] * 29
    binary = vector_search.BinaryVector(vector)
    assert str(binary) == vector_search.vector_text([float(value) for value in np.float32(vector)])
    sent = vector_search.vector_parameter(vector, store)
    assert isinstance(sent, vector_search.BinaryVector) is isinstance(store.connection, psycopg.Connection)
    ((same,),) = fetch_all(
        store.connection,
        "SELECT %(sent)s::vector = %(text)s::vector",
        {"sent": sent, "text": vector_search.vector_text(vector)},
    )
    assert same is True
