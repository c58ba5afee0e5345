"""Stored token vectors: one pass of the model, their size, and that no score depends on whether they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import psycopg
import pytest
from django.db import connection as django_connection

from ragd.models import late_interaction, minilm
from ragd.models.embedding import LocalEmbedder, LocalTokenEmbedder
from ragd.models.late_interaction import (
    BYTES_MAX,
    HEADER_BYTES,
    SIGNS_MIN,
    LateInteraction,
    encode_texts,
    read_letters,
    unpack,
)
from ragd.search import retrieval
from ragd.search.retrieval import retrieve_detailed, with_rows
from ragd.store.indexing import delete_document_chunks, index, index_stream
from ragd.store.store import Store
from ragd.store.tables import (
    IndexVersionSpec,
    create_collection,
    create_index_version,
    drop_collection,
    open_index_version,
)
from ragd.types import RetrievePlan
from tests.builders import make_chunks, read

QUERY = "How do I stop the pump from leaking oil? E4711"
TEXTS = {
    "canteen": "The canteen opens at noon and serves soup.",
    "seal": "Replace the worn seal: this ends oil leaks at the pump. See E4711.",
    "past": "Pumps were invented long ago.",
    "prices": "Oil prices rose again.",
    "chinese": "更换磨损的密封件可以阻止泵漏油。",
    "long": "A pump that leaks oil wants a new seal, and a clean shaft. " * 60,
}
PLANS = (
    {"mode": "hybrid"}, {"mode": "vector"}, {"mode": "lexical"}, {"mode": "hybrid", "hops": 2},
)  # fmt: skip


def make_store(connection: Any, name: str = "tokens", **options: Any) -> Store:
    embedder = LocalTokenEmbedder()
    create_collection(connection, name=name, embed_model=embedder.model, embed_dims=embedder.dims)
    return Store(connection, name, embedder, rerankers={"builtin": LateInteraction(**options)})


def fill_store(store: Store) -> None:
    index([chunk for name, text in TEXTS.items() for chunk in make_chunks(name, text, context=name)], store)


@pytest.fixture
def store(connection: Any) -> Store:
    made = make_store(connection)
    fill_store(made)
    return made


def scores(store: Store, query: str = QUERY, **plan: Any) -> list[tuple[Any, float, bool]]:
    found = retrieve_detailed(query, RetrievePlan(**{"k": 6, "rerank": "builtin"} | plan), store)
    return [(each.key, each.score, "reranked" in each.ranks) for each in found.candidates]


def forbid_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(texts: list[str], *_: Any) -> list[bytes]:
        assert not texts, f"encoded {texts}"
        return []

    monkeypatch.setattr(late_interaction, "encode_texts", refuse)


def test_one_pass_gives_means_and_tokens_to_the_same_bit() -> None:
    model = minilm.open_model()
    windows = [window for text in TEXTS.values() for window in model.split_windows(model.tokenize(text))]
    encoded = model.encode(windows, 2)
    assert len(encoded) == len(windows) > len(TEXTS)
    for window, mean, (of_both, tokens) in zip(windows, model.mean_vectors(windows, 1), encoded, strict=True):
        assert np.array_equal(of_both, mean) and np.array_equal(tokens, model.token_vectors(window))
    both = LocalTokenEmbedder().embed_with_tokens(list(TEXTS.values()))
    vectors = LocalEmbedder(threads=1).embed(list(TEXTS.values()))
    assert all(np.array_equal(vector, own) for (vector, _), own in zip(both, vectors, strict=True))


def test_what_is_packed_depends_on_the_text_alone() -> None:
    texts = [*TEXTS.values(), "\ud800", "\u200b"]
    together = encode_texts(texts, 2)
    assert together == [encode_texts([text], 1)[0] for text in texts]
    assert together[:-2] == [tokens for _, tokens in LocalTokenEmbedder().embed_with_tokens(texts[:-2])]
    assert len(set(together[:-1])) == len(texts) - 1 and encode_texts([], 1) == []


@pytest.mark.parametrize("text", ["x", "🦀" * 300, "word " * 6400, "\u200b", " ".join(f"{n:x}" for n in range(9000))])
def test_no_text_takes_more_than_8_kb(text: str) -> None:
    text = text[:32_000]
    ((vector, packed),) = LocalTokenEmbedder().embed_with_tokens([text])
    tokens = unpack(packed)
    assert len(packed) <= BYTES_MAX == 8000
    assert len(tokens.signs) == len(tokens.factors) >= 1 and SIGNS_MIN <= tokens.signs.shape[1] <= 384
    assert set(np.unique(tokens.signs)) == {-1.0, 1.0} and np.isfinite(tokens.factors).all()
    assert np.abs(tokens.mean - np.asarray(vector)).max() <= np.abs(vector).max() / 254 + 1e-6
    assert set(tokens.ids) <= set(minilm.open_model().tokenize(text).tolist())
    (letters,) = minilm.open_model().count_letters([text])
    assert read_letters(packed) == read_letters(packed[:HEADER_BYTES]) == letters


def test_scores_are_the_same_whether_vectors_are_stored_or_made(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = list(product((QUERY, "oil pump"), PLANS))
    with monkeypatch.context() as patch:
        forbid_encoding(patch)
        stored = [scores(store, query, **plan) for query, plan in cases]
    for found in stored:
        assert len(found) > 1 and any(reranked for _, _, reranked in found)
    store.connection.execute(f"UPDATE {store.collection.partition} SET tokens = NULL WHERE doc_id <> 'prices'")
    for _ in range(2):  # made, then from the cache
        assert [scores(store, query, **plan) for query, plan in cases] == stored


def test_only_those_that_are_read_are_fetched_whole(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(connection, depth=2)
    fill_store(store)
    forbid_encoding(monkeypatch)
    found = retrieve_detailed("oil pump", RetrievePlan(k=6, rerank="builtin"), store)
    sizes = [len(each.tokens or b"") for each in found.fused]
    assert min(sizes[:2]) > HEADER_BYTES and sizes[2:] == [HEADER_BYTES] * (len(TEXTS) - 2)
    plain = retrieve_detailed("oil pump", RetrievePlan(k=6), store)
    assert [each.tokens for each in plain.candidates] == [None] * 6


def test_the_parts_of_an_explanation_are_those_of_the_scores(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_encoding(monkeypatch)
    reranker = store.rerankers["builtin"]
    assert isinstance(reranker, LateInteraction)
    found = with_rows(retrieve_detailed(QUERY, RetrievePlan(k=6, rerank="builtin"), store), store)
    by_key = {each.key: each.score for each in found.reranked if "reranked" in each.ranks}
    read_ones = [each for each in found.fused if each.key in by_key]
    for candidate, parts in zip(read_ones, reranker.explain_candidates(QUERY, read_ones), strict=True):
        assert sum(part["share"] for part in parts) == pytest.approx(by_key[candidate.key], abs=1e-6)


def test_vectors_go_and_change_with_their_chunks(store: Store) -> None:
    index(make_chunks("seal", "Quite another text about soup.", context="seal"), store)
    index(make_chunks("prices", TEXTS["prices"], context="prices", tags=("new",)), store)
    delete_document_chunks(["past"], store)
    rows = dict(read(store, "SELECT doc_id, tokens FROM chunks"))
    assert rows.keys() == TEXTS.keys() - {"past"}
    assert rows["seal"] == encode_texts(["seal\nQuite another text about soup."], 1)[0]
    assert rows["prices"] == encode_texts([f"prices\n{TEXTS['prices']}"], 1)[0]
    store.use_embedder(LocalEmbedder())
    index(make_chunks("seal", "A text that is stored without them.", context="seal"), store)
    assert dict(read(store, "SELECT doc_id, tokens FROM chunks"))["seal"] is None
    assert len(scores(store)) == len(TEXTS) - 1


def test_another_index_version_has_its_own(store: Store) -> None:
    made = store.collection
    number = create_index_version(store.connection, made.id, made.embed_dims)
    spec = IndexVersionSpec(made.embed_model, made.embed_dims, True, "english", made.policy)
    other = open_index_version(store.connection, "tokens", number, spec, LocalTokenEmbedder())
    index_stream(make_chunks("seal", TEXTS["seal"], context="seal"), other)
    (packed,) = encode_texts([f"seal\n{TEXTS['seal']}"], 1)
    assert read(other, "SELECT tokens FROM chunks") == [(packed,)]


@pytest.fixture
def two_connections(db: None) -> Iterator[list[psycopg.Connection[Any]]]:
    values = django_connection.get_connection_params()
    own = {name: values.get(name) for name in ("host", "port", "user", "password", "dbname")}
    with psycopg.connect(**own) as reader, psycopg.connect(**own) as writer:
        yield [reader, writer]
        reader.rollback()
        writer.rollback()
        for (pk,) in writer.execute("SELECT id FROM collections WHERE name = 'race'").fetchall():
            drop_collection(writer, pk)
        writer.commit()


def test_a_text_that_changes_during_a_search_is_scored_by_its_own_vectors(
    two_connections: list[psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = two_connections
    fill_store(make_store(writer, "race"))
    writer.commit()
    store = Store(reader, "race", LocalEmbedder(), rerankers={"builtin": LateInteraction()})
    lexical_candidates = retrieval.lexical_candidates

    def list_and_change(*args: Any, **kwargs: Any) -> Any:
        listed = lexical_candidates(*args, **kwargs)
        written = Store(writer, "race", LocalTokenEmbedder())
        index(make_chunks("seal", "Soup for everybody, from noon on.", context="seal"), written)
        index(make_chunks("prices", "A seal ends oil leaks.", context="prices"), written)
        writer.commit()
        return listed

    monkeypatch.setattr(retrieval, "lexical_candidates", list_and_change)
    found = retrieve_detailed("oil pump", RetrievePlan(k=6, rerank="builtin"), store)
    read_ones = [each for each in found.candidates if "reranked" in each.ranks]
    assert len(read_ones) >= 3
    assert all(each.tokens == encode_texts([each.text], 1)[0] for each in found.candidates)
