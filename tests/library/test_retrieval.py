"""retrieve(): lists, filters, exact and approximate search, short results.
The list of chunks that hold a number or a code of the query, beside the two of a hybrid search.
Hops: names of what was found are looked for in turn, by rules alone.
RetrievePlan: what it refuses, and which plans are one and the same.
The recall probe: the index against the exact scan."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import psycopg
import pytest
from django.db import connection as django_connection

from ragd.errors import InvalidInput
from ragd.insight.recall import probe_recall
from ragd.search import retrieval, vector_search
from ragd.search.fusion import fuse
from ragd.search.hops import (
    HOP_WEIGHT,
    Bridge,
    Mention,
    add_codes,
    codes_of,
    find_mentions,
    holds,
    list_weights,
    names_in,
    usage_in,
    weigh,
    weights_of,
)
from ragd.search.lexical_search import read_query
from ragd.search.retrieval import retrieve, retrieve_detailed, with_rows
from ragd.search.vector_search import SET_HNSW
from ragd.store.indexing import delete_document_chunks, index
from ragd.store.store import Store, execute, fetch_all
from ragd.types import Candidate, Filters, RetrievePlan, sort_key
from tests.builders import make_chunks
from tests.refusals import raises_with


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
def store_of_hops(make_store: Any) -> Store:
    return fill(make_store())


def fill(made: Store) -> Store:
    index([chunk for name, text in TEXTS.items() for chunk in make_chunks(name, text)], made)
    return made


@pytest.mark.parametrize("mode", ["vector", "lexical", "hybrid"])
def test_the_second_document_is_found_by_the_name_that_the_first_brings_in(store_of_hops: Store, mode: Any) -> None:
    plan = RetrievePlan(mode=mode, k=3, hops=2)
    found = retrieve_detailed("Zorka Engine", plan, store_of_hops)
    assert "works" in {each.doc_id for each in found.candidates}
    link = found.links["works", 0]
    assert (link.hop, link.term, link.doc_id, link.chunk_index) == (2, "Halden Works", "engine", 0)
    assert {each.key for each in found.lists["hop2"]} == set(found.links) and len(found.links) <= 2
    assert retrieve("Zorka Engine", plan, store_of_hops) == found.candidates


def test_a_third_hop_goes_on_from_the_second(store_of_hops: Store) -> None:
    plan = RetrievePlan(mode="lexical", k=3, hops=3)
    found = retrieve_detailed("Which motor is named Zorka?", plan, store_of_hops)
    terms = {link.hop: (link.term, link.doc_id) for link in found.links.values()}
    assert terms == {2: ("Halden Works", "engine"), 3: ("Mira Stroem", "works")}
    assert [each.doc_id for each in found.candidates[:3]].count("mira") <= 1
    assert {name: [each.doc_id for each in found.lists[name]] for name in ("hop2", "hop3")} == {
        "hop2": ["works"], "hop3": ["mira"],
    }  # fmt: skip


def test_filters_and_disabled_chunks_hold_for_hops(store_of_hops: Store) -> None:
    plan = RetrievePlan(mode="lexical", k=4, hops=2, filters=Filters(tags_any=("none",)))
    assert retrieve_detailed(QUESTION, plan, store_of_hops).links == {}
    store_of_hops.connection.cursor().execute(
        f"UPDATE {store_of_hops.collection.partition} SET enabled = false WHERE doc_id = 'works'"
    )
    assert ("works", 0) not in retrieve_detailed(QUESTION, replace(plan, filters=Filters()), store_of_hops).links


def test_a_collection_without_keyword_search_has_hops_too(make_store: Any) -> None:
    store_of_hops = fill(make_store(hybrid_enabled=False))
    found = retrieve_detailed("Zorka Engine", RetrievePlan(mode="vector", k=2, hops=2), store_of_hops)
    assert [(link.term, key) for key, link in found.links.items()] == [("Halden Works", ("works", 0))]


def test_one_hop_changes_neither_the_plan_nor_the_result(store_of_hops: Store) -> None:
    plain = RetrievePlan(mode="hybrid", k=4)
    assert "hops" not in plain.as_dict() and RetrievePlan.from_dict({"hops": 1}).hash == RetrievePlan().hash
    assert replace(plain, hops=2).hash != plain.hash
    found = retrieve_detailed(QUESTION, plain, store_of_hops)
    assert found.links == {} and "hop2" not in found.lists and "hops" not in found.timings_ms


def candidate_of_codes(name: str, content: str = "") -> Candidate:
    return Candidate(doc_id=name, chunk_index=0, content=content, score=1.0, tags=(), metadata={})


def test_codes_are_words_with_a_digit_and_three_characters() -> None:
    text = "Where is AK-0201234, part B7 of v2.1/x, from 2019? And 2019, 12 and abc."
    assert codes_of(text) == ["AK-0201234", "v2.1/x", "2019"]
    assert codes_of("价格2019年") == ["2019"] and codes_of("") == []


def test_a_chunk_with_the_code_passes_one_in_the_middle_of_both_lists() -> None:
    rows = [candidate_of_codes(f"{number:02}", f"| AK-{number:03} | 12 |") for number in range(20)]
    lists = {"vector": rows[1:10], "lexical": [rows[0], *rows[1:]]}
    plan = RetrievePlan()
    with_codes = add_codes("price of ak-000", lists, plan)
    assert [each.key for each in with_codes["codes"]] == [("00", 0)] and set(with_codes["codes"][0].ranks) == {"codes"}
    best = fuse(with_codes, params={"weights": weights_of(with_codes, plan)})[0]
    assert best.key == ("00", 0) and best.score == pytest.approx(2 / 61)
    assert {name: place.rank for name, place in best.ranks.items()} == {"lexical": 1, "codes": 1, "fused": 1}
    assert fuse(lists)[0].key == ("01", 0)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("price of AK-000", RetrievePlan(weights={"codes": 0})),
        ("price of AK-000", RetrievePlan(weights={"lexical": 0})),
        ("price of AK", RetrievePlan()),  # no digit
        ("price of AK-00", RetrievePlan()),  # a part of codes alone
        ("which have 12", RetrievePlan()),  # too short
        ("which cost 123", RetrievePlan()),  # in too many
    ],
)
def test_no_list_where_no_code_decides(text: str, plan: RetrievePlan) -> None:
    rows = [candidate_of_codes(f"{number:02}", f"| AK-{number:03} | 12 | 123 |") for number in range(4)]
    assert add_codes(text, {"vector": rows, "lexical": rows}, plan).keys() == {"vector", "lexical"}
    assert weights_of(("vector", "lexical"), plan).keys() == {"vector", "lexical"}


def test_one_list_alone_stays_as_it_is() -> None:
    rows = [candidate_of_codes("a", "AK-000")]
    assert add_codes("AK-000", {"lexical": rows}, RetrievePlan()) == {"lexical": rows}


def test_the_weight_is_part_of_the_plan_where_it_is_stated() -> None:
    plain, off = RetrievePlan(), RetrievePlan(weights={"codes": 0})
    assert RetrievePlan(weights={"codes": 1}).hash == plain.hash != off.hash
    assert off.weights == {"vector": 1.0, "lexical": 1.0, "codes": 0.0}
    assert RetrievePlan.from_dict(off.as_dict()) == off
    for wrong in ({"codes": -1}, {"words": 1}, {"vector": 0, "lexical": 0}):
        with raises_with(InvalidInput, field="weights"):
            RetrievePlan(weights=wrong)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("weights", {"weights": {"vector": 1, "bm25": 1}}),
        ("weights", {"weights": {"vector": 0, "lexical": 0}}),
        ("weights", {"weights": {"vector": -1}}),
        ("weights", {"weights": {"vector": True}}),
        ("weights", {"weights": {"lexical": math.inf}}),
        ("weights", {"weights": {"lexical": math.nan}}),
        ("weights", {"weights": {"lexical": "2"}}),
        ("weights", {"weights": {"vector": 1e308, "lexical": 1e308}}),
        ("weights", {"weights": {"vector": 5e-324, "lexical": 0}}),
        ("weights", {"weights": [1, 1]}),
        ("rerank", {"rerank": " "}),
        ("rerank", {"rerank": 3}),
        ("compress", {"compress": "summary"}),
        ("compress", {"compress": ""}),
        ("token_budget", {"token_budget": 100}),
        ("token_budget", {"token_budget": 0, "compress": "sentences"}),
        ("token_budget", {"token_budget": 1.5, "compress": "window"}),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field: str, values: dict[str, Any]) -> None:
    with raises_with(InvalidInput, match=field, field=field):
        RetrievePlan(**values)


def test_a_weight_for_a_list_that_the_mode_does_not_make_is_fine() -> None:
    assert RetrievePlan(mode="vector", weights={"lexical": 2}).weights == {"vector": 1.0, "lexical": 2.0}


def test_plans_that_mean_the_same_have_the_same_hash() -> None:
    plain = RetrievePlan()
    for weights in ({}, {"vector": 1}, {"lexical": 1.0, "vector": 1}):
        assert RetrievePlan(weights=weights).hash == plain.hash
    assert RetrievePlan(weights={"vector": 0}).hash == RetrievePlan(weights={"lexical": 1, "vector": 0.0}).hash
    assert RetrievePlan(weights={"vector": 0}).hash != plain.hash


def test_a_plan_comes_back_from_its_own_form() -> None:
    plan = RetrievePlan(weights={"vector": 2}, rerank="builtin", compress="window", token_budget=90)
    assert RetrievePlan.from_dict(plan.as_dict()) == plan


WORDS = [
    "amber", "brook", "cedar", "dune", "ember", "fern", "grove", "heath", "iris", "jade", "kelp", "lark", "moss",
    "north", "oak", "pine", "quay", "reed", "sage", "tern",
]  # fmt: skip


@pytest.fixture
def store_of_words(make_store: Any) -> Store:
    """300 chunks of three words each, behind an HNSW index."""
    store_of_words: Store = make_store(exact_threshold=10)
    texts = [f"{WORDS[n % 20]} {WORDS[n // 20]} {WORDS[(n * 7) % 20]}" for n in range(300)]
    index([chunk for n in range(0, 300, 10) for chunk in make_chunks(f"d{n}", *texts[n : n + 10])], store_of_words)
    store_of_words.build_vector_index()
    return store_of_words


def test_an_index_that_finds_everything_has_recall_one(store_of_words: Store) -> None:
    heard: list[tuple[int, int]] = []
    probe = probe_recall(
        store_of_words, k=5, queries=8, ef_search=300, keep_every=4, on_query=lambda *told: heard.append(told)
    )
    assert (probe.k, probe.ef_search, probe.chunk_count) == (5, 300, 300)
    assert (probe.plain.mean, probe.plain.lowest, probe.plain.queries, probe.plain.selectivity) == (1.0, 1.0, 8, 1.0)
    assert (probe.filtered.mean, probe.filtered.queries, probe.filtered.selectivity) == (1.0, 8, 0.25)
    assert heard == [(number, 16) for number in range(1, 17)]


def test_a_poor_index_is_found_out(store_of_words: Store) -> None:
    """Two links per row and a beam of one: most nearest neighbours are missed, and the probe says so."""
    collection = store_of_words.collection
    execute(store_of_words.connection, f"DROP INDEX {collection.vector_index}")
    execute(
        store_of_words.connection,
        f"CREATE INDEX {collection.vector_index} ON {collection.partition} "
        f"USING hnsw ((embedding::{collection.vector_cast}) vector_cosine_ops) WITH (m = 2, ef_construction = 4)",
    )
    execute(store_of_words.connection, "SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off")
    probe = probe_recall(store_of_words, k=1, queries=60)
    assert probe.plain.mean is not None and probe.plain.mean < 1.0
    assert probe.plain.lowest == 0.0


def test_without_an_index_there_is_nothing_to_probe(make_store: Any) -> None:
    store_of_words = make_store()
    index(make_chunks("a", "one two"), store_of_words)
    with pytest.raises(InvalidInput, match="has no HNSW index"):
        probe_recall(store_of_words)


@pytest.mark.parametrize("wrong", [{"k": 0}, {"queries": 0}, {"keep_every": 0}])
def test_wrong_numbers_are_named(store_of_words: Store, wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(wrong))} must be at least 1, not 0"):
        probe_recall(store_of_words, **wrong)  # type: ignore[arg-type]


def test_a_filter_that_leaves_fewer_rows_than_k_is_measured_on_those(store_of_words: Store) -> None:
    probe = probe_recall(store_of_words, k=5, queries=5, keep_every=150, ef_search=300)
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
