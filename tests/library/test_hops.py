"""Hops: names of what was found are looked for in turn, by rules alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ragd.search.hops import HOP_WEIGHT, Bridge, Mention, find_mentions, holds, list_weights, names_in, usage_in, weigh
from ragd.search.retrieval import retrieve, retrieve_detailed
from ragd.store.indexing import index
from ragd.store.store import Store
from ragd.types import Candidate, Filters, RetrievePlan
from tests.builders import make_chunks

TEXTS = {
    "engine": "The Zorka Engine is a small motor for boats. It is built by Halden Works since 1950.",
    "works": "Halden Works was founded by Mira Stroem. The firm has a hall at the harbour.",
    "mira": "Mira Stroem studied chemistry in Bergen and was fond of sailing.",
    "other": "A motor for boats needs fuel. The engine is cleaned every year by its owner.",
    "more": "Engines of boats are loud. Who makes an engine quiet, makes many friends.",
    "last": "The company of rowers meets in the evening and makes music for the harbour.",
}
QUESTION = "Who founded the company that makes the Zorka Engine?"


def candidate(name: str, content: str, context: str = "") -> Candidate:
    return Candidate(doc_id=name, chunk_index=0, content=content, score=1.0, context=context)


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        ("The pump is built by Halden Works in Oslo.", ["Halden Works", "Oslo"]),
        ("Press the `Start` button of “Blue Hall” first.", ["Start", "Blue Hall"]),
        ("then set RAGD_MAX_MB or maxSize, see [Scopes](keys.md).", ["RAGD_MAX_MB", "maxSize", "Scopes"]),
        ("A paper gasket is a ring.", ["paper gasket"]),
        ("It is of no use.", []),
        ("he met Anna and Bert there", ["Anna and Bert", "Anna", "Bert"]),
        ("Nothing is 4096 here, nor \"17\".", []),
    ],
)  # fmt: skip
def test_names_of_a_sentence(sentence: str, names: list[str]) -> None:
    assert [name for name in names_in(sentence) if name != "Nothing"] == names


def test_the_first_word_of_a_sentence_is_a_name_where_other_sentences_write_it_so() -> None:
    pool = [candidate("a", "Oslo lies at the sea. Trains to Oslo run late, and among them the last.")]
    usage = usage_in(pool)
    assert names_in("Oslo lies far.", usage) == ["Oslo"] and names_in("Winter lies far.", usage) == []
    assert names_in("Among Zorka they met.", usage) == ["Zorka"]
    assert names_in("Kalle Zorka met them.", usage) == ["Kalle Zorka"]


def test_mentions_leave_out_the_question_and_share_says_how_near_they_are_to_it() -> None:
    seeds = [candidate(name, TEXTS[name]) for name in ("engine", "other")]
    found = {each.text: each for each in find_mentions(QUESTION, seeds, seeds)}
    assert "Zorka Engine" not in found and found["Halden Works"].key == ("engine", 0)
    assert 0 < found["Halden Works"].share <= 1
    assert find_mentions(QUESTION, [], []) == []


def test_weights_are_rarity_times_share_by_place_and_ties_go_by_name() -> None:
    first, second = ("a", 0), ("b", 0)
    mentions = [Mention("Beta", first, 0.5), Mention("Alpha", first, 0.5), Mention("Gone", first, 1.0)]
    mentions += [Mention("Beta", second, 1.0), Mention("Once", second, 1.0), Mention("Light", second, 0.1)]
    rarity = {"beta": 2.0, "alpha": 2.0, "gone": 2.0, "once": 0.0, "light": 2.0}
    beta = 2.0 / 2**0.5
    assert weigh(mentions, rarity, ["gone"]) == [Bridge("Beta", ("b", 0), beta), Bridge("Alpha", ("a", 0), 1.0)]
    assert weigh(mentions[:2], rarity) == [Bridge("Alpha", ("a", 0), 1.0), Bridge("Beta", ("a", 0), 1.0)]
    assert weigh([], {}) == []


def test_a_name_is_held_as_whole_words() -> None:
    assert holds("the halden works.", "halden works") and not holds("halden worksheet", "halden works")


def test_a_list_of_a_hop_counts_as_all_of_the_first_retrieval_and_a_little_less() -> None:
    assert list_weights(["vector", "lexical", "hop2"], {"vector": 2.0})["hop2"] == 3 * HOP_WEIGHT
    assert list_weights(["vector", "hop2"], {"vector": 0.0})["hop2"] == HOP_WEIGHT


@pytest.fixture
def store(make_store: Any) -> Store:
    return fill(make_store())


def fill(made: Store) -> Store:
    index([chunk for name, text in TEXTS.items() for chunk in make_chunks(name, text)], made)
    return made


@pytest.mark.parametrize("mode", ["vector", "lexical", "hybrid"])
def test_the_second_document_is_found_by_the_name_that_the_first_brings_in(store: Store, mode: Any) -> None:
    plan = RetrievePlan(mode=mode, k=3, hops=2)
    found = retrieve_detailed("Zorka Engine", plan, store)
    assert "works" in {each.doc_id for each in found.candidates}
    link = found.links["works", 0]
    assert (link.hop, link.term, link.doc_id, link.chunk_index) == (2, "Halden Works", "engine", 0)
    assert {each.key for each in found.lists["hop2"]} == set(found.links) and len(found.links) <= 2
    assert retrieve("Zorka Engine", plan, store) == found.candidates


def test_a_third_hop_goes_on_from_the_second(store: Store) -> None:
    plan = RetrievePlan(mode="lexical", k=3, hops=3)
    found = retrieve_detailed("Which motor is named Zorka?", plan, store)
    terms = {link.hop: (link.term, link.doc_id) for link in found.links.values()}
    assert terms == {2: ("Halden Works", "engine"), 3: ("Mira Stroem", "works")}
    assert [each.doc_id for each in found.candidates[:3]].count("mira") <= 1
    assert {name: [each.doc_id for each in found.lists[name]] for name in ("hop2", "hop3")} == {
        "hop2": ["works"], "hop3": ["mira"],
    }  # fmt: skip


def test_filters_and_disabled_chunks_hold_for_hops(store: Store) -> None:
    plan = RetrievePlan(mode="lexical", k=4, hops=2, filters=Filters(tags_any=("none",)))
    assert retrieve_detailed(QUESTION, plan, store).links == {}
    store.connection.cursor().execute(f"UPDATE {store.collection.partition} SET enabled = false WHERE doc_id = 'works'")
    assert ("works", 0) not in retrieve_detailed(QUESTION, replace(plan, filters=Filters()), store).links


def test_a_collection_without_keyword_search_has_hops_too(make_store: Any) -> None:
    store = fill(make_store(hybrid_enabled=False))
    found = retrieve_detailed("Zorka Engine", RetrievePlan(mode="vector", k=2, hops=2), store)
    assert [(link.term, key) for key, link in found.links.items()] == [("Halden Works", ("works", 0))]


def test_one_hop_changes_neither_the_plan_nor_the_result(store: Store) -> None:
    plain = RetrievePlan(mode="hybrid", k=4)
    assert "hops" not in plain.as_dict() and RetrievePlan.from_dict({"hops": 1}).hash == RetrievePlan().hash
    assert replace(plain, hops=2).hash != plain.hash
    found = retrieve_detailed(QUESTION, plain, store)
    assert found.links == {} and "hop2" not in found.lists and "hops" not in found.timings_ms
