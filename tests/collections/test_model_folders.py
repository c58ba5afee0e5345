"""Folders and prompts as the embedding models of collections."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.db import connection

import ragd
from collections_app.collections.invariants import check_invariants
from collections_app.collections.services import create_collection, default_model, resolve_model
from collections_app.endpoints.model_folders import open_folder
from collections_app.endpoints.providers import provider_name
from collections_app.endpoints.registry import SPARSE, list_models
from collections_app.index.stores import embedder_for, open_store
from collections_app.models import (
    ApiKey,
    Chunk,
    Collection,
    Document,
    IdempotencyRecord,
    IndexVersion,
    IndexVersionDocument,
    IngestJob,
    Status,
    Upload,
)
from ragd.errors import DimensionMismatch, EmbedderError, InvalidInput
from ragd.models.folder_embedder import FolderEmbedder, SparseEncoder
from ragd.models.prompts import PROMPT_PRESETS, PromptedEmbedder, Prompts
from ragd.types import RetrievePlan
from tests.builders import WordEmbedder, make_chunks
from tests.fakes.openai_server import OpenAIServer
from tests.model_folders import WIDTH, write_folder, write_graph, write_sparse_folder
from tests.refusals import raises_with

pytestmark = pytest.mark.django_db
TEXTS = ("the red sea", "a house of stone", "storm light")
VECTORS = RetrievePlan(mode="vector", k=3)


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    """The one folder of the server, its default model."""
    made = write_folder(tmp_path / "tiny", model={"matryoshka_dims": [4]})
    settings.RAGD_EMBED_PATH, settings.RAGD_EMBED_MODEL = str(made), ""
    return made


def filled(**options: Any) -> Collection:
    collection = create_collection(name="notes", **options)
    ragd.index(make_chunks("a", *TEXTS), open_store(collection))
    return collection


def found(collection: Collection) -> list[str]:
    return [item.content for item in ragd.retrieve("a house", VECTORS, open_store(collection))]


def test_the_first_folder_is_the_default_and_collections_keep_its_checksum(folder: Path) -> None:
    made = FolderEmbedder(folder)
    assert default_model() == (made.model, WIDTH)
    collection = filled()
    assert (collection.embed_model, collection.embed_dims) == (made.model, WIDTH)
    assert provider_name(collection.embed_model) == ""
    scores = np.asarray(made.embed(TEXTS), dtype=np.float64) @ np.asarray(made.embed_query("a house"))
    assert found(collection) == [TEXTS[place] for place in np.argsort(-scores)]
    assert embedder_for(made.model, WIDTH) is embedder_for(made.model, WIDTH)


def test_names_that_resolve_to_a_folder(folder: Path, tmp_path: Path, settings: Any) -> None:
    identity = FolderEmbedder(folder).model
    assert resolve_model("tiny", None) == (identity, WIDTH)
    assert resolve_model(identity, 4) == (identity, 4)
    assert embedder_for(identity, 4).dims == len(embedder_for(identity, 4).embed_query("sea")) == 4
    with pytest.raises(DimensionMismatch):
        resolve_model("tiny", 5)
    with pytest.raises(InvalidInput, match=identity):
        resolve_model("tiny@" + "0" * 12, None)
    other = FolderEmbedder(write_folder(tmp_path / "other" / "tiny", seed=8))
    settings.RAGD_EMBED_PATH = os.pathsep.join([str(folder), str(other.path)])
    with pytest.raises(InvalidInput) as refused:
        resolve_model("tiny", None)
    assert identity in refused.value.message
    assert other.model in refused.value.message
    assert resolve_model(other.model, None) == (other.model, WIDTH)
    settings.RAGD_EMBED_MODEL = "all-MiniLM-L6-v2"
    assert default_model() == resolve_model(None, None) == ("all-MiniLM-L6-v2", 384)


def test_a_folder_that_cannot_be_read_refuses_a_collection_with_what_to_add(folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").unlink()
    with raises_with(InvalidInput, match="has no 1_Pooling", field="embed_model"):
        create_collection(name="notes")
    assert default_model()[0] == ""
    assert not Collection.objects.exists()


def test_a_changed_folder_mixes_nothing_and_works_again_when_it_is_back(folder: Path, settings: Any) -> None:
    collection = filled()
    before, expected = found(collection), collection.embed_model.rpartition("@")[2]
    graph = folder / "onnx" / "model.onnx"
    original = graph.read_bytes()
    write_graph(graph, seed=8)
    now = open_folder(str(folder)).checksum[:12]
    for ask in (lambda: found(collection), lambda: ragd.index(make_chunks("b", "oak"), open_store(collection))):
        with raises_with(EmbedderError, kind="changed_model") as caught:
            ask()
        assert expected in caught.value.message
        assert now in caught.value.message
    assert create_collection(name="newer").embed_model == f"tiny@{now}"
    kept = embedder_for(collection.embed_model, WIDTH)
    graph.write_bytes(original)
    assert found(collection) == before
    assert len(kept.embed_query("sea")) == WIDTH  # what was handed out meanwhile looks again
    settings.RAGD_EMBED_PATH = ""
    with pytest.raises(EmbedderError) as caught:
        found(collection)
    assert (caught.value.kind, expected in caught.value.message) == ("changed_model", True)


def test_prompts_reach_the_endpoint_and_are_part_of_the_name(embeddings: OpenAIServer, settings: Any) -> None:
    plain = create_collection(name="plain")
    settings.RAGD_EMBED_PROMPTS = "e5"
    prompts = PROMPT_PRESETS["e5"].prompts
    collection = filled()
    assert collection.embed_model == f"text-embedding-3-small+{prompts.digest}"
    found(collection)
    sent = [(request.body["model"], text) for request in embeddings.requests for text in request.body["input"]]
    wanted = [f"passage: {text}" for text in TEXTS] + ["query: a house"]
    assert sent == [("text-embedding-3-small", text) for text in wanted]
    embedder_for(plain.embed_model, plain.embed_dims).embed_query("a house")
    assert embeddings.requests[-1].body["input"] == ["a house"]
    settings.RAGD_EMBED_QUERY_PROMPT = "Q: "
    assert resolve_model(None, None)[0] == Prompts("Q: ", "passage: ").identity("text-embedding-3-small")
    assert len(found(collection)) == 3  # a preset is known by its digest
    with raises_with(EmbedderError, kind="not_configured"):
        embedder_for("text-embedding-3-small+00000000", 32).embed_query("a")


def test_a_long_text_has_the_prompt_before_each_piece() -> None:
    inner = WordEmbedder()
    inner.window = 5
    embedder = PromptedEmbedder(inner, Prompts("ask ", "read this "))
    assert embedder.model == f"words+{embedder.prompts.digest}"
    [vector] = embedder.embed(["one two three four five six"])
    assert inner.embedded == ["read this one two three", "read this four five six"]
    first, second = inner._vector(inner.embedded[0]), inner._vector(inner.embedded[1])
    assert np.allclose(vector, (first + second) / np.linalg.norm(first + second), atol=1e-6)
    assert np.array_equal(embedder.embed_query("one"), inner._vector("ask one"))
    assert (embedder.embed([]), embedder.count_tokens("one two"), embedder.count_tokens("")) == ([], 4, 0)


def test_a_collection_whose_keywords_a_sparse_encoder_reads(folder: Path, tmp_path: Path, settings: Any) -> None:
    sparse = write_sparse_folder(tmp_path / "tiny-sparse")
    settings.RAGD_SPARSE_PATH = str(sparse)
    encoder = SparseEncoder(sparse)
    collection = filled(language=encoder.model)
    assert collection.language == encoder.model
    asked = encoder.query_terms("a house")
    scores = [
        sum(asked[term] * terms.get(term, 0.0) for term in asked) for terms in encoder.encode([f"\n{t}" for t in TEXTS])
    ]
    lexical = ragd.retrieve("a house", RetrievePlan(mode="lexical", k=3), open_store(collection))
    assert [item.content for item in lexical] == [TEXTS[place] for place in np.argsort([-score for score in scores])]
    assert len(ragd.retrieve("a house", RetrievePlan(mode="hybrid", k=3), open_store(collection))) == 3
    broken = {finding["rule"] for finding in check_invariants(collection).report["findings"]}
    assert not broken & {"statistics", "document frequencies", "keyword index"}
    settings.RAGD_SPARSE_PATH = os.pathsep.join([str(sparse), str(tmp_path / "gone")])
    entry, missing = [entry for entry in list_models() if entry.purpose == SPARSE]
    assert (entry.identity, entry.state, entry.window) == (encoder.model, "ready", encoder.window)
    assert (entry.collections, entry.size_bytes) == ([collection.name], encoder.size_bytes)
    assert (missing.state, missing.collections) == ("missing", []) and "modules.json" in missing.note
    settings.RAGD_SPARSE_PATH = ""
    with pytest.raises(EmbedderError, match=encoder.checksum[:12]):
        ragd.retrieve("a house", RetrievePlan(mode="hybrid", k=3), open_store(collection))


COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
# what Django calls a type -> what the catalogue does
NAMES = {"timestamp with time zone": "timestamp with time zone", "varchar": "character varying", "serial": "integer"}


@pytest.mark.parametrize(
    "model",
    [
        Collection, Document, Chunk, ApiKey, Upload, IngestJob, Status, IdempotencyRecord, IndexVersion,
        IndexVersionDocument,
    ],
)  # fmt: skip
def test_the_model_is_what_the_catalogue_holds(model: type) -> None:
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS, [model._meta.db_table])  # type: ignore[attr-defined]
        live = {name: (kind, required) for name, kind, required in cursor.fetchall()}
    fields = model._meta.local_concrete_fields  # type: ignore[attr-defined]
    declared = {}
    for field in fields:
        kind = field.db_type(connection).split(" COLLATE")[0].replace("varchar", "character varying")
        declared[field.column] = (kind, not field.null)
    assert declared == live
