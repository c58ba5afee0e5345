"""Keyword search by a sparse encoder: the encoder's own scores, alike on every path, and no model for a query.
A learned-sparse document encoder from a folder: equal to NumPy, queries without a model, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragd.errors import EmbedderError, InvalidInput
from ragd.insight.score_parts import query_words
from ragd.models import folder_embedder
from ragd.models.folder_embedder import SparseEncoder, encoder_named, is_sparse_model, list_encoders, use_folders
from ragd.search import lexical_search, pruned_search
from ragd.search.retrieval import retrieve
from ragd.store import postings
from ragd.store.analysis import read_question, text_words
from ragd.store.indexing import delete_document_chunks, index
from ragd.store.postings import read_segments, refresh_weights
from ragd.store.store import Store
from ragd.store.tables import languages
from ragd.types import Candidate, RetrievePlan
from tests.builders import make_chunks, read
from tests.model_folders import WORDS, sparse_weights, write_graph, write_json, write_sparse_folder
from tests.refusals import raises_with

LEXICAL = RetrievePlan(mode="lexical", k=50)
QUERY = "stone of the river"
STATISTICS = """
SELECT s.length_total, s.length_baked,
       s.chunk_count = (SELECT count(*) FROM chunks c WHERE c.collection_id = s.collection_id),
       (SELECT coalesce(jsonb_object_agg(term, chunk_count), '{}')::text FROM chunk_terms
        WHERE collection_id = s.collection_id AND chunk_count <> 0)
       = (SELECT coalesce(jsonb_object_agg(term, held), '{}')::text
          FROM (SELECT ragd_term(lexeme) AS term, count(*) AS held FROM chunks, unnest(fts)
                WHERE collection_id = s.collection_id GROUP BY 1) AS terms)
FROM chunk_stats s WHERE s.collection_id = %(id)s
"""


@pytest.fixture
def encoder(tmp_path: Path) -> Iterator[SparseEncoder]:
    """The one encoder of this process."""
    folder = write_sparse_folder(tmp_path / "tiny-sparse", weights={"of": 0.25, "stone": 3.0, "river": 2.0, "'": 1.0})
    before = list(folder_embedder._folders)
    use_folders(lambda: [str(folder)])
    yield list_encoders()[0]
    folder_embedder._folders[:] = before


@pytest.fixture
def store(make_store: Callable[..., Store], encoder: SparseEncoder) -> Store:
    return make_store(language=encoder.model)


def texts_of(documents: int) -> dict[str, str]:
    chance = np.random.default_rng(3)
    return {f"d{number:02}": " ".join(chance.choice(WORDS[6:], 3 + number % 9)) for number in range(documents)}


def fill(store: Store, texts: dict[str, str]) -> None:
    for doc_id, text in texts.items():
        index(make_chunks(doc_id, text), store)


def expect(texts: dict[str, str], encoder: SparseEncoder, query: str) -> list[tuple[str, float]]:
    """The dot products of the encoder's terms, best first."""
    asked = encoder.query_terms(query)
    made = dict(zip(texts, encoder.encode([f"\n{text}" for text in texts.values()]), strict=True))
    scores = {doc_id: sum(asked[t] * terms.get(t, 0.0) for t in asked) for doc_id, terms in made.items()}
    return sorted(((doc_id, score) for doc_id, score in scores.items() if score > 0), key=lambda pair: (-pair[1], pair))


def check(found: list[Candidate], expected: list[tuple[str, float]]) -> None:
    assert [item.score for item in found] == pytest.approx([score for _, score in expected], rel=1e-5)
    assert {item.doc_id for item in found} == {doc_id for doc_id, _ in expected}


def test_scores_are_the_encoders_own(store: Store, encoder: SparseEncoder) -> None:
    texts = texts_of(12)
    fill(store, texts)
    expected = expect(texts, encoder, QUERY)
    assert len(expected) > 3
    check(retrieve(QUERY, LEXICAL, store), expected)
    assert retrieve("lamp", LEXICAL, store) == []  # a token without weight
    assert all(0 < item.unit_score <= 1 for item in retrieve(QUERY, LEXICAL, store))


def test_every_path_gives_the_same_rows_and_statistics_follow(
    store: Store, encoder: SparseEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("POSTINGS_MIN", 6), ("SEGMENT_MAX", 16), ("TAIL_MAX", 3), ("COMMON_MIN", 3), ("BUCKETS", 2)):
        monkeypatch.setattr(postings, name, value)
    monkeypatch.setattr(pruned_search, "GROUP_MIN", 0)
    texts = texts_of(30)
    fill(store, texts)
    for gone in ("d03", "d11", "d12"):
        delete_document_chunks(gone, store)
        del texts[gone]
    texts["d05"] = "stone stone river"
    fill(store, {"d05": texts["d05"]})
    assert read_segments(store)
    assert read(store, STATISTICS) == [(0, 1.0, True, True)]
    assert not refresh_weights(store)
    plan = RetrievePlan(mode="lexical", k=5)
    scanned = retrieve(QUERY, plan, store)
    check(scanned, expect(texts, encoder, QUERY)[:5])
    monkeypatch.setattr(lexical_search, "POSTINGS_MIN", 0)
    assert retrieve(QUERY, plan, store) == scanned


def test_a_query_opens_no_graph(store: Store, encoder: SparseEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, {"a": "stone and river"})
    monkeypatch.setattr("ragd.models.graph_folder.GraphFolder.open", None)
    assert [item.doc_id for item in retrieve(QUERY, LEXICAL, store)] == ["a"]
    words = {word.lexeme: word.idf for word in query_words(QUERY, store, store.state())}
    assert words["stone"] == pytest.approx(2 * words["river"] * 3 / 4)
    assert text_words(["river of sea"], ["river", "stone"], read_question(QUERY, store), store) == [(1, "river", 1)]


def test_an_encoder_that_is_gone_or_unknown_is_refused(store: Store, encoder: SparseEncoder, make_store: Any) -> None:
    fill(store, {"a": "stone and river"})
    assert languages(store.connection)[-1] == encoder.model
    use_folders(list)
    with raises_with(EmbedderError, kind="changed_model"):
        retrieve(QUERY, LEXICAL, store)
    with pytest.raises(EmbedderError):
        index(make_chunks("b", "sea"), store)
    with raises_with(InvalidInput, field="language"):
        make_store("other", language=encoder.model)


SPECIAL = 4  # the first words
TEXTS = ["the red sea", "a house of stone and iron"]


def as_array(terms: Any) -> Any:
    return np.array([terms.get(word, 0.0) for word in WORDS])


def expect_of_sparse_encoder(weights: Any) -> Any:
    return np.concatenate([np.zeros(SPECIAL), weights[SPECIAL:]])


@pytest.mark.parametrize("form", ["router", "router-json", "idf"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("strategy", ["max", "sum"])
def test_the_terms_of_a_text(tmp_path: Path, strategy: str, activation: str, form: str) -> None:
    folder = write_sparse_folder(tmp_path / "tiny", strategy=strategy, activation=activation, form=form)
    encoder = SparseEncoder(folder)
    for text, terms in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        assert (
            np.abs(as_array(terms) - expect_of_sparse_encoder(sparse_weights(text, strategy, activation))).max() < 1e-6
        )
        assert min(terms.values()) > 0
        assert list(terms.values()) == sorted(terms.values(), reverse=True)
    query = encoder.query_terms("Sea sea of stone nothing")
    assert query == pytest.approx({word: 1 + WORDS.index(word) / 10 for word in ("sea", "of", "stone", "[UNK]")})


def test_a_query_needs_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SparseEncoder(write_sparse_folder(tmp_path / "tiny", weights={"sea": 2.5, "red": 0.0}))
    monkeypatch.setattr("ragd.models.graph_folder.GraphFolder.open", None)
    assert encoder.query_terms("the red sea") == {"sea": 2.5}


@pytest.mark.parametrize("strategy", ["max", "sum"])
def test_a_long_text_joins_the_terms_of_its_windows(tmp_path: Path, strategy: str) -> None:
    encoder = SparseEncoder(write_sparse_folder(tmp_path / "tiny", strategy=strategy), threads=3)
    halves = ["sea red oak wave storm lamp iron glass river stone", "bird light the a of sea sea red oak oak"]
    [terms, blank] = encoder.encode([" ".join(halves), " "])
    parts = np.stack([sparse_weights(half, strategy) for half in halves])
    joined = parts.max(axis=0) if strategy == "max" else parts.sum(axis=0)
    assert np.abs(as_array(terms) - expect_of_sparse_encoder(joined)).max() < 1e-6
    assert blank == {}
    alone = SparseEncoder(encoder.root, threads=1)
    assert alone.encode([" ".join(halves)]) == [terms]


def test_only_the_heaviest_terms_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SparseEncoder(write_sparse_folder(tmp_path / "tiny"))
    [every] = encoder.encode(["the red sea"])
    monkeypatch.setattr(folder_embedder, "TERMS_MAX", 3)
    [kept] = SparseEncoder(encoder.root).encode(["the red sea"])
    assert list(kept.items()) == list(every.items())[:3]


def test_encoders_are_found_by_name_and_checksum(tmp_path: Path) -> None:
    folder = write_sparse_folder(tmp_path / "tiny")
    before = list(folder_embedder._folders)
    use_folders(lambda: [str(folder)])
    try:
        [encoder] = list_encoders()
        assert encoder_named(encoder.model) is list_encoders()[0] is encoder
        assert is_sparse_model(encoder.model)
        assert not is_sparse_model("english")
        write_graph(folder / "document_0_MLMTransformer" / "onnx" / "model.onnx", outputs=["logits"], seed=8)
        with raises_with(EmbedderError, kind="changed_model") as caught:
            encoder_named(encoder.model)
        assert encoder.model.rpartition("@")[2] in caught.value.message
        assert list_encoders()[0].model.rpartition("@")[2] in caught.value.message
        with pytest.raises(EmbedderError):
            encoder.query_terms("sea")
    finally:
        folder_embedder._folders[:] = before


def router(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "router_config.json").read_text())
        write_json(folder / "router_config.json", config | changes)

    return change


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "modules.json").unlink(), "no modules.json"),
        (router(structure={"query": [], "document": []}), "reads documents with no module"),
        (router(structure={"query": ["document_0_MLMTransformer"], "document": []}), "SPLADE-doc"),
        (lambda folder: write_json(folder / "document_1_SpladePooling/config.json", {}), "pooling_strategy ''"),
        (lambda folder: (folder / "query_0_SparseStaticEmbedding/model.safetensors").unlink(), "idf.json"),
        (lambda folder: (folder / "document_0_MLMTransformer/onnx/model.onnx").unlink(), "fill-mask"),
        (lambda folder: write_json(folder / "document_0_MLMTransformer/sentence_bert_config.json", {}), "window"),
    ],
)
def test_what_the_folder_does_not_say_is_refused(tmp_path: Path, spoil: Callable[[Path], Any], said: str) -> None:
    folder = write_sparse_folder(tmp_path / "tiny")
    SparseEncoder(folder)
    spoil(folder)
    with raises_with(EmbedderError, kind="damaged_model") as caught:
        SparseEncoder(folder)
    assert said in caught.value.message


def test_a_graph_without_logits_is_refused_at_the_first_text(tmp_path: Path) -> None:
    folder = write_sparse_folder(tmp_path / "tiny")
    write_graph(folder / "document_0_MLMTransformer" / "onnx" / "model.onnx")
    with pytest.raises(EmbedderError, match="gives no logits"):
        SparseEncoder(folder).encode(["sea"])
