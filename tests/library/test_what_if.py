"""What a change would do to retrieval equals what it does, list by list, once it is made."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ragd.errors import InvalidInput, LexicalDisabled
from ragd.insight import what_if
from ragd.insight.what_if import Supposed, WhatIf, suppose_chunks
from ragd.search.retrieval import retrieve
from ragd.store.indexing import delete_document_chunks, index
from ragd.store.store import Store, execute, fetch_all
from ragd.types import Chunk, Filters, RetrievePlan
from tests.builders import make_chunks

WORDS = ["key", "lock", "door", "house", "garden", "tree", "river", "stone", "bridge", "road", "night", "light"]
QUERIES = ("key of the house", "river stone bridge", "night", "garden tree road light key")
PLANS = (
    RetrievePlan(k=4, candidate_pool=6),
    RetrievePlan(mode="vector", k=5),
    RetrievePlan(mode="lexical", k=5, candidate_pool=5),
    RetrievePlan(k=3, candidate_pool=8, filters=Filters(tags_any=("even",))),
)


def texts(chance: random.Random, count: int, longest: int = 9) -> list[str]:
    return [" ".join(chance.choices(WORDS, k=chance.randint(2, longest))) for _ in range(count)]


def fill(store: Store, chance: random.Random) -> dict[str, list[Chunk]]:
    documents = {}
    for number in range(12):
        tags = ("even",) if number % 2 == 0 else ("odd",)
        documents[f"d{number:02d}"] = make_chunks(f"d{number:02d}", *texts(chance, chance.randint(1, 6)), tags=tags)
    index([chunk for chunks in documents.values() for chunk in chunks], store)
    return documents


def found(store: Store, query: str, plan: RetrievePlan) -> list[tuple[Any, ...]]:
    return [(each.key, each.content, round(each.score, 6)) for each in retrieve(query, plan, store)]


def supposed_and_made(store: Store, supposed: Supposed, make: Any) -> int:
    """Compare each query and plan; returns in how many of them something changed."""
    embedder = store.embedder
    assert embedder is not None
    whole = WhatIf(store, supposed)
    compared, before = {}, {}
    for query in QUERIES:
        for plan in PLANS:
            before[query, plan.hash] = found(store, query, plan)
            compared[query, plan.hash] = whole.compare(query, plan, embedder.embed_query(query))
    make()
    changed = 0
    for query in QUERIES:
        for plan in PLANS:
            now, then = (
                [(each.key, each.content, round(each.score, 6)) for each in side] for side in compared[query, plan.hash]
            )
            assert now == before[query, plan.hash]
            assert then == found(store, query, plan), (query, plan)
            changed += now != then
    return changed


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_documents_that_are_hidden_or_deleted(make_store: Any, seed: int) -> None:
    store, chance = make_store(language="simple"), random.Random(seed)
    documents = fill(store, chance)
    hidden, gone = (chance.sample(sorted(documents), 3) for _ in range(2))

    def hide() -> None:
        sql = f"UPDATE {store.collection.partition} SET enabled = false WHERE doc_id = ANY(%(ids)s)"
        execute(store.connection, sql, {"ids": hidden})

    assert supposed_and_made(store, Supposed(hidden_documents=tuple(hidden)), hide)
    assert supposed_and_made(store, Supposed(gone_documents=tuple(gone)), lambda: delete_document_chunks(gone, store))


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_chunks_that_are_edited_added_disabled_and_dropped(make_store: Any, seed: int) -> None:
    store, chance = make_store(language="simple"), random.Random(seed)
    documents = fill(store, chance)
    others: list[Chunk] = []
    for name in ("d00", "d01", "d02"):
        made = make_chunks(name, *texts(chance, chance.randint(1, 8), 30), tags=documents[name][0].tags)
        others += [*made[:-1], replace(made[-1], enabled=chance.random() < 0.5)]
    kept = documents["d03"]
    others += [replace(kept[0], enabled=False), *kept[1:]]
    supposed = suppose_chunks(others, store)
    assert supposed.hidden == (("d03", 0),) and supposed.documents == ("d00", "d01", "d02", "d03")
    assert supposed_and_made(store, supposed, lambda: index(others, store))
    # the chunk is let in again: its row has the vector
    back = suppose_chunks(kept, store)
    assert [each.chunk_index for each in back.added] == [0] and back.gone == (("d03", 0),)
    supposed_and_made(store, back, lambda: index(kept, store))


def test_another_mean_length_weighs_every_word_anew(make_store: Any) -> None:
    store, chance = make_store(language="simple"), random.Random(7)
    fill(store, chance)
    long = make_chunks("d00", *texts(chance, 12, 60), tags=("even",))
    whole = WhatIf(store, suppose_chunks(long, store))
    assert whole.counted.length_baked > whole.state.length_baked * 1.2
    assert supposed_and_made(store, suppose_chunks(long, store), lambda: index(long, store))


def test_a_large_collection_reads_its_postings(make_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ragd.store.postings", "ragd.search.lexical_search", "ragd.insight.what_if"):
        monkeypatch.setattr(f"{module}.POSTINGS_MIN", 10)
    monkeypatch.setattr(what_if, "REBAKE_LIMIT", 0)
    monkeypatch.setattr("ragd.store.chunk_writer.REBAKE_LIMIT", 0)
    store, chance = make_store(language="simple"), random.Random(8)
    documents = fill(store, chance)
    assert fetch_all(store.connection, "SELECT count(*) FROM chunk_segments WHERE collection_id = %(collection_id)s",
                     store.scope) != [(0,)]  # fmt: skip
    gone = sorted(documents)[::3]
    assert supposed_and_made(store, Supposed(gone_documents=tuple(gone)), lambda: delete_document_chunks(gone, store))


def test_through_the_vector_index(make_store: Any) -> None:
    store, chance = make_store(language="simple", exact_threshold=5), random.Random(10)
    documents = fill(store, chance)
    store.build_vector_index()
    hidden = tuple(sorted(documents)[:4])

    def hide() -> None:
        sql = f"UPDATE {store.collection.partition} SET enabled = false WHERE doc_id = ANY(%(ids)s)"
        execute(store.connection, sql, {"ids": list(hidden)})

    assert supposed_and_made(store, Supposed(hidden_documents=hidden), hide)


class Backwards:
    """Puts last what was first."""

    name = "backwards"

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return [float(place) for place in range(len(texts))]


def test_a_reranker_orders_both_sides(make_store: Any) -> None:
    store, chance = make_store(language="simple"), random.Random(11)
    documents = fill(store, chance)
    store.rerankers = {"backwards": Backwards()}
    plan = RetrievePlan(k=3, candidate_pool=6, rerank="backwards")
    gone = sorted(documents)[:5]
    vector = store.embedder.embed_query(QUERIES[0])
    now, then = WhatIf(store, Supposed(gone_documents=tuple(gone))).compare(QUERIES[0], plan, vector)
    assert [each.key for each in now] == [each.key for each in retrieve(QUERIES[0], plan, store)]
    delete_document_chunks(gone, store)
    assert [each.key for each in then] == [each.key for each in retrieve(QUERIES[0], plan, store)]
    with pytest.raises(InvalidInput, match="there is no reranker 'other'"):
        WhatIf(store, Supposed()).compare(QUERIES[0], replace(plan, rerank="other"), vector)


def test_a_mode_that_the_store_cannot_serve_is_refused(make_store: Any) -> None:
    store = make_store(hybrid_enabled=False)
    index(make_chunks("a", "one two", "three"), store)
    with pytest.raises(LexicalDisabled):
        WhatIf(store, Supposed()).compare("one", RetrievePlan(), store.embedder.embed_query("one"))
    vector, plan = store.embedder.embed_query("one"), RetrievePlan(mode="vector", k=2)
    supposed = suppose_chunks(make_chunks("a", "one", "two three"), store)
    _, then = WhatIf(store, supposed).compare("one", plan, vector)
    assert [each.content for each in then] == ["one", "two three"]


def test_nothing_supposed_changes_nothing_and_leaves_nothing_behind(make_store: Any) -> None:
    store = make_store(language="simple")
    documents = fill(store, random.Random(9))
    same = suppose_chunks(documents["d04"], store)
    assert same == Supposed()
    assert supposed_and_made(store, same, lambda: None) == 0
    WhatIf(store, Supposed(added=(replace(documents["d05"][0], embedding=[1.0] * 32),)))
    sql = "SELECT count(*) FROM pg_class WHERE relname = %(name)s AND relnamespace = 'public'::regnamespace"
    assert fetch_all(store.connection, sql, {"name": f"chunks_c{store.collection.id}_g0"}) == [(0,)]


def test_a_chunk_without_a_vector_is_refused(make_store: Any) -> None:
    store = make_store()
    with pytest.raises(InvalidInput, match="has no vector"):
        WhatIf(store, Supposed(added=tuple(make_chunks("a", "one"))))
    with pytest.raises(InvalidInput, match="needs the vector"):
        WhatIf(store, Supposed()).compare("one", RetrievePlan(), None)


def test_many_questions_are_found_in_one_pass_as_by_a_scan_each(make_store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(what_if, "PREPARED_MIN", 1)
    store, chance = make_store(language="simple"), random.Random(11)
    documents = fill(store, chance)
    index(make_chunks("twin", *(chunk.content for chunk in documents["d03"])), store)  # equal vectors: ties
    embedder = store.embedder
    assert embedder is not None
    vectors = {query: embedder.embed_query(query) for query in QUERIES}
    for supposed in (Supposed(), Supposed(hidden_documents=("d01", "d03")), Supposed(gone_documents=("d02", "twin"))):
        for plan in PLANS:
            scanning, prepared = WhatIf(store, supposed), WhatIf(store, supposed)
            prepared.prepare(vectors, plan)
            assert (prepared.near is not None) == (plan.mode != "lexical" and not plan.filters)
            for query, vector in vectors.items():
                assert prepared.compare(query, plan, vector) == scanning.compare(query, plan, vector)


def prepare_one(store: Any, query: str, plan: RetrievePlan) -> tuple[WhatIf, list[float]]:
    fill(store, random.Random(12))
    prepared, vector = WhatIf(store, Supposed()), store.embedder.embed_query(query)
    prepared.prepare({query: vector}, plan)
    return prepared, vector


def test_a_chunk_that_goes_after_the_pass_is_made_up_for(make_store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(what_if, "PREPARED_MIN", 1)
    store, plan, query = make_store(language="simple"), PLANS[1], QUERIES[0]
    prepared, vector = prepare_one(store, query, plan)
    first = retrieve(query, plan, store)[0]
    delete_document_chunks(first.doc_id, store)
    now, _ = prepared.compare(query, plan, vector)
    assert [each.key for each in now] == [each.key for each in retrieve(query, plan, store)]


def test_a_question_is_prepared_as_it_is_written(make_store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(what_if, "PREPARED_MIN", 1)
    plan, query = PLANS[1], f" {QUERIES[0]}\n"
    prepared, vector = prepare_one(make_store(language="simple"), query, plan)
    monkeypatch.setattr(what_if, "vector_candidates", None)  # no scan
    assert prepared.compare(query, plan, vector)[0]


def test_vectors_and_scores_are_held_within_the_limit(make_store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(what_if, "PREPARED_MIN", 1)
    store, chance = make_store(language="simple"), random.Random(15)
    fill(store, chance)
    prepared = WhatIf(store, Supposed())
    vectors = {f"question {number}": [1.0] * store.collection.embed_dims for number in range(100)}
    rows = prepared.state.chunk_count
    for most, is_prepared in ((4 * rows * (store.collection.embed_dims + 100), True), (4 * rows * 100, False)):
        monkeypatch.setattr(what_if, "PREPARED_BYTES_MAX", most)
        prepared.prepare(vectors, PLANS[1])
        assert (prepared.near is not None) == is_prepared


def test_few_questions_are_not_prepared(make_store: Any) -> None:
    assert prepare_one(make_store(language="simple"), QUERIES[0], PLANS[1])[0].near is None
