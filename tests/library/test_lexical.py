"""The lexical list: statistics and rankings against a BM25 in plain Python, postings against scoring everything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragd.search import lexical_search, pruned_search
from ragd.search.pruned_search import BLOCK, _Search, at_least, kth_largest, pruned_rows
from ragd.search.retrieval import retrieve, retrieve_detailed
from ragd.store import postings
from ragd.store.indexing import delete_document_chunks, index
from ragd.store.postings import build_postings, read_segments, refresh_weights
from ragd.store.store import Store, bake_length, execute, fetch_all
from ragd.store.tables import drop_collection, languages
from ragd.types import Candidate, Filters, RetrievePlan
from tests.builders import make_chunks, read

STORED = """
SELECT s.chunk_count, s.length_total,
       (SELECT coalesce(jsonb_object_agg(term, chunk_count), '{}')::text FROM chunk_terms
        WHERE collection_id = %(id)s AND chunk_count <> 0)
FROM chunk_stats s WHERE s.collection_id = %(id)s
"""
COUNTED = """
SELECT (SELECT count(*) FROM chunks WHERE collection_id = %(id)s),
       (SELECT coalesce(sum(cardinality(positions)), 0) FROM chunks, unnest(fts) WHERE collection_id = %(id)s),
       (SELECT coalesce(jsonb_object_agg(term, held), '{}')::text
        FROM (SELECT ragd_term(lexeme) AS term, count(*) AS held FROM chunks, unnest(fts)
              WHERE collection_id = %(id)s GROUP BY 1) AS terms)
"""
PACKED = """
SELECT count(*), sum(length(postings)) FROM chunk_postings p JOIN chunk_segments s ON s.id = p.segment_id
WHERE s.collection_id = %(id)s
"""

LEXICAL = RetrievePlan(mode="lexical", k=5, candidate_pool=5)
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu"]
NAMES = count()

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
documents = st.tuples(st.sampled_from("abcdef"), st.lists(texts, max_size=4), st.sampled_from([(), ("t",)]))
queries = st.lists(st.sampled_from([*WORDS, "yak"]), min_size=1, max_size=5).map(" ".join)


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Postings as those of a large collection, of a few chunks."""
    for name, value in (("POSTINGS_MIN", 6), ("SEGMENT_MAX", 16), ("TAIL_MAX", 3), ("COMMON_MIN", 3), ("BUCKETS", 2)):
        monkeypatch.setattr(postings, name, value)
    monkeypatch.setattr(lexical_search, "POSTINGS_MIN", 0)
    monkeypatch.setattr(pruned_search, "GROUP_MIN", 0)
    yield


class PlainBm25:
    """BM25 as docs/retrieval.md defines it, over {(doc_id, chunk_index): words}."""

    def __init__(self, chunks: dict[tuple[str, int], list[str]]) -> None:
        self.chunks = {key: Counter(words) for key, words in chunks.items()}
        self.held = Counter(word for words in self.chunks.values() for word in words)
        total = sum(words.total() for words in self.chunks.values())
        self.mean = bake_length(total / len(self.chunks)) if self.chunks else 1.0

    def score(self, key: tuple[str, int], query: str) -> float:
        words, score = self.chunks[key], 0.0
        for word in query.split():
            idf = math.log(1 + (len(self.chunks) - self.held[word] + 0.5) / (self.held[word] + 0.5))
            norm = 1.2 * (0.25 + 0.75 * words.total() / self.mean)
            score += idf * words[word] * 2.2 / (words[word] + norm)
        return score

    def check(self, found: list[Candidate], query: str, pool: int) -> None:
        """`found` is the head of the ranking: right scores in falling order, equal ones by key, nothing left out."""
        scores = {key: score for key in self.chunks if (score := self.score(key, query)) > 0}
        assert len(found) == min(pool, len(scores))
        for candidate in found:
            assert candidate.score == pytest.approx(scores.pop(candidate.key), rel=1e-5)
        for left_out, score in scores.items():
            assert score <= found[-1].score * (1 + 1e-5), left_out
        for before, after in pairwise(found):
            assert (-before.score, before.key) < (-after.score, after.key)


def write(store: Store, chunks: dict[tuple[str, int], list[str]], doc_id: str, texts: list[str], tags: Any) -> None:
    for key in [key for key in chunks if key[0] == doc_id]:
        del chunks[key]
    if texts:
        index(make_chunks(doc_id, *texts, tags=tags), store)
    else:
        delete_document_chunks([doc_id], store)
    chunks |= {(doc_id, number): text.split() for number, text in enumerate(texts)}


def scanned(query: str, plan: RetrievePlan, store: Store) -> list[Candidate]:
    """The same ranking with every matching chunk scored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical_search, "POSTINGS_MIN", 10**9)
        return retrieve(query, plan, store)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(documents, min_size=1, max_size=10), query=queries)
def test_statistics_and_rankings_stay_right_whatever_is_written(
    make_store: Any, operations: list[Any], query: str
) -> None:
    store = make_store(f"plain{next(NAMES)}", language="simple")
    chunks: dict[tuple[str, int], list[str]] = {}
    for doc_id, contents, tags in operations:
        write(store, chunks, doc_id, contents, tags)
    assert read(store, STORED) == read(store, COUNTED)
    PlainBm25(chunks).check(retrieve(query, LEXICAL, store), query, 5)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(documents, min_size=6, max_size=24), query=queries)
def test_postings_rank_as_scoring_everything_does(
    make_store: Any, small_segments: None, operations: list[Any], query: str
) -> None:
    store = make_store(f"packed{next(NAMES)}", language="simple")
    chunks: dict[tuple[str, int], list[str]] = {}
    for doc_id, contents, tags in operations:
        write(store, chunks, doc_id, contents, tags)
        found = retrieve(query, LEXICAL, store)
        assert found == scanned(query, LEXICAL, store)
        PlainBm25(chunks).check(found, query, 5)
    for filters in (Filters(tags_any=("t",)), Filters(tags_all=("none",)), Filters(metadata={"a": 1})):
        plan = RetrievePlan(mode="lexical", k=5, candidate_pool=5, filters=filters)
        assert retrieve(query, plan, store) == scanned(query, plan, store)
    segments = read_segments(store)
    assert sum(segment.size for segment in segments) <= 16 * len(segments)
    assert all(before.last_id < after.first_id for before, after in pairwise(segments))


def test_a_large_collection_is_packed_as_it_grows_and_searched_by_its_postings(
    make_store: Any, small_segments: None
) -> None:
    store = make_store(language="simple")
    index([chunk for number in range(5) for chunk in make_chunks(f"a{number}", "red fish")], store)
    assert read_segments(store) == []
    for number in range(40):
        index(make_chunks(f"b{number:02}", "red fish " + "blue " * (number % 4), tags=(f"t{number}",)), store)
    segments = read_segments(store)
    assert 2 < len(segments) < 10
    newest = max(segment.last_id for segment in segments)
    tail = len(read(store, f"SELECT FROM chunks WHERE collection_id = %(id)s AND id > {newest}"))
    assert tail < 3
    assert sum(segment.size for segment in segments) + tail == 45
    assert rows(store, "blue") is not None
    assert [found.key for found in retrieve("blue", LEXICAL, store)] == [(f"b{n:02}", 0) for n in (3, 7, 11, 15, 19)]


def rows(store: Store, word: str, plan: RetrievePlan = LEXICAL) -> Any:
    """What the postings give for one word of weight 1."""
    ((term, held),) = fetch_all(
        store.connection,
        "SELECT term, chunk_count FROM chunk_terms WHERE term = ragd_term(%(word)s) AND collection_id = %(id)s",
        {"word": word, "id": store.collection.id},
    )
    return pruned_rows({term: 1.0}, {term: held}, f"{{{term}:1}}/1000000000", plan, store)


def test_postings_of_deleted_chunks_are_packed_away(make_store: Any, small_segments: None) -> None:
    store = make_store(language="simple")
    index([chunk for number in range(60) for chunk in make_chunks(f"d{number:02}", "fish")], store)
    before = sum(segment.size for segment in read_segments(store))
    for number in range(50):
        delete_document_chunks([f"d{number:02}"], store)
    after = sum(segment.size for segment in read_segments(store))
    assert (before, after < 20) == (60, True)
    assert [found.key for found in retrieve("fish", LEXICAL, store)] == [(f"d{n}", 0) for n in range(50, 55)]


def test_disabled_chunks_at_the_top_make_room_for_the_next(make_store: Any, small_segments: None) -> None:
    store = make_store(language="simple")
    index([chunk for n in range(60) for chunk in make_chunks(f"d{n:02}", "fish " * (60 - n) + "x " * n)], store)
    execute(store.connection, f"UPDATE {store.collection.partition} SET enabled = false WHERE doc_id < 'd40'")
    found = retrieve("fish", LEXICAL, store)
    assert [candidate.key for candidate in found] == [(f"d{number}", 0) for number in range(40, 45)]
    assert len(rows(store, "fish")) == 5


def test_another_mean_length_packs_anew(make_store: Any, small_segments: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(language="simple")
    index([chunk for number in range(10) for chunk in make_chunks(f"d{number}", "fish pond")], store)
    monkeypatch.setattr("ragd.store.chunk_writer.REBAKE_LIMIT", 0)
    index([chunk for number in range(10) for chunk in make_chunks(f"e{number}", "fish " * 9 + "lake")], store)
    stale = retrieve("fish", LEXICAL, store)
    assert refresh_weights(store) is True
    assert refresh_weights(store) is False
    fresh = retrieve("fish", LEXICAL, store)
    assert fresh == scanned("fish", LEXICAL, store)
    assert [found.score for found in fresh] != [found.score for found in stale]
    chunks = {(f"d{n}", 0): ["fish", "pond"] for n in range(10)} | {
        (f"e{n}", 0): ["fish"] * 9 + ["lake"] for n in range(10)
    }
    PlainBm25(chunks).check(fresh, "fish", 5)


def test_segments_that_are_replaced_during_a_search_are_read_again(
    make_store: Any, small_segments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(language="simple")
    index([chunk for n in range(20) for chunk in make_chunks(f"d{n:02}", "fish " * (n + 1))], store)
    expected = rows(store, "fish")
    reads = []

    def read_and_replace(store: Store) -> Any:
        found = read_segments(store)
        if not reads:
            postings.drop_postings(store)
            build_postings(store)
        reads.append(len(found))
        return found

    monkeypatch.setattr("ragd.search.pruned_search.read_segments", read_and_replace)
    assert rows(store, "fish") == expected
    assert len(reads) == 2


def test_segments_that_go_between_two_groups_of_words_are_missed(make_store: Any, small_segments: None) -> None:
    store = make_store(language="simple")
    index([chunk for n in range(20) for chunk in make_chunks(f"d{n:02}", "fish " * (n + 1) + "eel")], store)
    ((fish, eel),) = fetch_all(store.connection, "SELECT ragd_term('fish'), ragd_term('eel')")
    vector = f"{{{min(fish, eel)}:1,{max(fish, eel)}:1}}/1000000000"
    search = _Search(read_segments(store), {fish: 2.0, eel: 1.0}, {fish: 20, eel: 20}, vector, LEXICAL, store, False)
    search._read_group()
    search._rescore(np.arange(3))
    assert search.is_whole()
    postings.drop_postings(store)
    build_postings(store)
    search._read_group()
    search._rescore(np.arange(0))
    assert not search.is_whole()


def test_the_postings_leave_with_their_collection(make_store: Any, small_segments: None) -> None:
    store = make_store(language="simple")
    index([chunk for number in range(9) for chunk in make_chunks(f"d{number}", "fish")], store)
    assert read(store, PACKED)[0][0] > 0
    drop_collection(store.connection, store.collection.id)
    assert read(store, PACKED) == [(0, None)]


def test_the_kth_largest_and_those_above_it_of_few_and_of_many_values() -> None:
    values = np.zeros(640, dtype=np.float32)

    def kth(wanted: int) -> float:
        return kth_largest(values, values.reshape(-1, BLOCK).max(axis=1), wanted)

    assert kth(3) == 0.0
    values[[5, 6, 7, 600]] = (4, 3, 2, 1)
    assert [kth(wanted) for wanted in (1, 2, 4, 5, 700)] == [4, 3, 1, 0, 0]
    values[5] = -np.inf
    assert kth(2) == 2
    assert at_least(values, values.reshape(-1, BLOCK).max(axis=1), 1.0).tolist() == [6, 7, 600]


def test_every_configuration_that_the_server_ships_indexes_and_finds(make_store: Any) -> None:
    known = languages(make_store().connection)
    assert {"simple", "english", "german", "arabic", "tamil"} <= set(known)
    for language in known:
        store = make_store(f"in_{language}", language=language)
        index(make_chunks("a", "Zephyr 2026") + make_chunks("b", "Other words"), store)
        assert [found.key for found in retrieve("zephyr", LEXICAL, store)] == [("a", 0)], language
        assert [found.key for found in retrieve("2026", LEXICAL, store)] == [("a", 0)], language


@pytest.mark.parametrize("query", ["the and of", "unheard", "'); DROP TABLE chunks; --", "& | ! <->", "🙂"])
def test_nothing_is_found_for_stop_words_and_unknown_words(make_store: Any, query: str) -> None:
    store = make_store()
    index(make_chunks("a", "the cat and the dog of the house"), store)
    detail = retrieve_detailed(query, LEXICAL, store)
    assert detail.candidates == []
    assert detail.short_result is not None
    assert detail.short_result.reason == "no_match"
