"""What a score is made of: shares that add up to it, the words of a query, where a text holds them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.insight.score_parts import cosine_parts, find_words, query_words, word_shares, written_forms
from ragd.search.retrieval import retrieve_detailed
from ragd.store.indexing import index
from ragd.store.store import Store
from ragd.types import RetrievePlan
from tests.builders import make_chunks


@pytest.fixture
def store(make_store: Any) -> Store:
    store: Store = make_store()
    index(
        make_chunks(
            "pumps", "The pump pumps water, and pumping is loud.", "Two pumps. One pump-house.", context="Pumps"
        )
        + make_chunks("water", "Water is wet.", "Nothing of the kind.")
        + make_chunks("sea", "The sea holds salt water."),
        store,
    )
    return store


def test_the_shares_of_the_words_are_the_bm25_score(store: Store) -> None:
    query = "Is the pumping of water, water, loud or xylophone?"
    found = retrieve_detailed(query, RetrievePlan(mode="lexical"), store).candidates
    words = query_words(query, store, store.state())
    shares = word_shares(words, [item.chunk_id for item in found if item.chunk_id], store)
    assert len(found) == 4
    for item in found:
        parts = shares[item.chunk_id or 0]
        assert math.fsum(part.share for part in parts) == pytest.approx(item.score, rel=1e-6)
        for part in parts:
            assert part.share == part.repeats * part.idf * part.weight
    assert [part.lexeme for part in shares[found[0].chunk_id or 0]] == ["pump", "water", "loud"]


def test_the_words_of_a_query_say_what_each_counts(store: Store) -> None:
    words = {
        item.word: item for item in query_words("Is the pumping of water, water or xylophone?", store, store.state())
    }
    assert {word: (item.lexeme, item.repeats, item.chunks) for word, item in words.items()} == {
        "pumping": ("pump", 1, 2),
        "water": ("water", 2, 3),
        "xylophone": ("xylophon", 1, 0),
        "Is": ("", 1, 0),
        "the": ("", 1, 0),
        "of": ("", 1, 0),
        "or": ("", 1, 0),
    }
    assert words["pumping"].idf == pytest.approx(math.log(1 + 3.5 / 2.5))
    assert words["xylophone"].idf == pytest.approx(math.log(1 + 5.5 / 0.5))
    assert [words[word].counts for word in ("xylophone", "pumping", "the")] == [True, True, False]


def test_a_compound_is_told_apart_from_its_parts(store: Store) -> None:
    words = query_words("the pump-house", store, store.state())
    assert [(item.word, item.lexeme) for item in words if item.lexeme] == [
        ("pump-house", "pump-house"), ("pump", "pump"), ("house", "hous"),
    ]  # fmt: skip


def test_a_chunk_without_the_words_has_no_shares(store: Store) -> None:
    words = query_words("pump", store, store.state())
    hits = {item.chunk_id for item in retrieve_detailed("pump", RetrievePlan(mode="lexical"), store).candidates}
    everything = retrieve_detailed("pump", RetrievePlan(mode="vector"), store).candidates
    shares = word_shares(words, [item.chunk_id or 0 for item in everything], store)
    assert len(shares) == 5
    assert {chunk_id for chunk_id, parts in shares.items() if parts} == hits


def test_the_parts_of_a_cosine_give_the_score(store: Store) -> None:
    vector = store.embedder.embed_query("salt water") if store.embedder else []
    found = retrieve_detailed("salt water", RetrievePlan(mode="vector"), store).candidates
    parts = cosine_parts(vector, [item.chunk_id or 0 for item in found], store)
    for item in found:
        part = parts[item.chunk_id or 0]
        assert part.cosine == item.score
        assert part.dot / (part.query_length * part.chunk_length) == pytest.approx(item.score, abs=1e-6)


def test_written_forms_are_found_in_the_text(store: Store) -> None:
    found = retrieve_detailed("pump water", RetrievePlan(mode="lexical"), store).candidates
    words = query_words("pump water", store, store.state())
    forms = written_forms(words, [item.chunk_id or 0 for item in found], store)
    assert forms == {
        "pump": "pump", "pumps": "pump", "pumping": "pump", "Pumps": "pump", "Water": "water", "water": "water",
    }  # fmt: skip
    text = "The pump pumps water, and pumping is loud."
    places = find_words(text, forms)
    assert [(text[start:end], lexeme) for start, end, lexeme in places] == [
        ("pump", "pump"), ("pumps", "pump"), ("water", "water"), ("pumping", "pump"),
    ]  # fmt: skip


def test_nothing_is_explained_of_nothing(make_store: Any) -> None:
    plain = make_store(hybrid_enabled=False)
    assert query_words("pump", plain, plain.state()) == []
    assert word_shares([], [1], plain) == {1: []}
    assert written_forms([], [1], plain) == {}
    assert cosine_parts([1.0] * 32, [], plain) == {}
    assert find_words("pump", {}) == []


def test_a_word_is_found_only_where_it_stands_alone() -> None:
    forms = {"pump": "pump", "pump-house": "pump-hous", "c++": "c"}
    text = "pump, pumped; mypump pump_1 (pump) pump-house c++ x"
    assert [text[start:end] for start, end, _ in find_words(text, forms)] == [
        "pump", "pump", "pump", "pump-house", "c++",
    ]  # fmt: skip
    assert [start for start, *_ in find_words(text, forms)][2] == text.index("(pump)") + 1


@given(
    st.text(alphabet="ab .-é", max_size=30),
    st.dictionaries(st.text(alphabet="abé", min_size=1, max_size=3), st.just("x"), max_size=4),
)
def test_found_words_are_slices_in_order(text: str, forms: dict[str, str]) -> None:
    end = 0
    for start, stop, lexeme in find_words(text, forms):
        assert end <= start < stop <= len(text)
        assert text[start:stop] in forms and lexeme == "x"
        end = stop
