"""A learned-sparse document encoder from a folder: equal to NumPy, queries without a model, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragd.errors import EmbedderError
from ragd.models import folder_embedder
from ragd.models.folder_embedder import SparseEncoder, encoder_named, is_sparse_model, list_encoders, use_folders
from tests.model_folders import WORDS, sparse_weights, write_graph, write_json, write_sparse_folder

SPECIAL = 4  # the first words
TEXTS = ["the red sea", "a house of stone and iron"]


def as_array(terms: Any) -> Any:
    return np.array([terms.get(word, 0.0) for word in WORDS])


def expect(weights: Any) -> Any:
    return np.concatenate([np.zeros(SPECIAL), weights[SPECIAL:]])


@pytest.mark.parametrize("form", ["router", "router-json", "idf"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("strategy", ["max", "sum"])
def test_the_terms_of_a_text(tmp_path: Path, strategy: str, activation: str, form: str) -> None:
    folder = write_sparse_folder(tmp_path / "tiny", strategy=strategy, activation=activation, form=form)
    encoder = SparseEncoder(folder)
    for text, terms in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        assert np.abs(as_array(terms) - expect(sparse_weights(text, strategy, activation))).max() < 1e-6
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
    assert np.abs(as_array(terms) - expect(joined)).max() < 1e-6
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
        with pytest.raises(EmbedderError) as caught:
            encoder_named(encoder.model)
        assert caught.value.kind == "changed_model"
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
    with pytest.raises(EmbedderError) as caught:
        SparseEncoder(folder)
    assert caught.value.kind == "damaged_model"
    assert said in caught.value.message


def test_a_graph_without_logits_is_refused_at_the_first_text(tmp_path: Path) -> None:
    folder = write_sparse_folder(tmp_path / "tiny")
    write_graph(folder / "document_0_MLMTransformer" / "onnx" / "model.onnx")
    with pytest.raises(EmbedderError, match="gives no logits"):
        SparseEncoder(folder).encode(["sea"])
