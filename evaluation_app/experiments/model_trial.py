"""Try one candidate: model, dimensions and the type of the vectors.

The sample is chunked and embedded by it, indexed out of sight, and every question is searched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from django.conf import settings
from django.db import connection, transaction

from collections_app.endpoints.prices import find_cost
from collections_app.endpoints.providers import EndpointWaitsError, ingest_embedder
from collections_app.endpoints.registry import embedding_models
from collections_app.index.builder import cut_document
from collections_app.index.measurements import probes_of
from collections_app.index.services import Target, check_embedder, resolve_target
from collections_app.jobs.leases import interruptible
from collections_app.models import Collection, Document
from evaluation_app.golden.questions import Golden, unkept_spans
from evaluation_app.scoring.contributions import retrieval_scores
from ragd.errors import InvalidInput
from ragd.insight.list_weights import embed_probes, measure_list_weights
from ragd.models.prompts import split_identity
from ragd.normalization import normalize
from ragd.search.retrieval import retrieve
from ragd.store.indexing import index
from ragd.store.store import Store, execute, fetch_all
from ragd.store.tables import IndexVersionSpec, create_collection, scratch_schema
from ragd.types import VECTOR_TYPES, Chunk, Embedder, Mode, RetrievePlan, Vector

CANDIDATES_MAX = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """One index: every vector of the model cut to `embed_dims`, its HNSW index over `vector_type`."""

    embed_model: str
    embed_dims: int
    vector_type: str = "vector"

    @property
    def label(self) -> str:
        """Name, dimensions and, where it is not the default, the type."""
        parts = [self.embed_model, f"{self.embed_dims}", *([self.vector_type] if self.vector_type != "vector" else [])]
        return " · ".join(parts)

    @property
    def written(self) -> str:
        """As `parse_candidate` reads it."""
        return f"{self.embed_model}:{self.embed_dims}:{self.vector_type}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def target(self, collection: Collection) -> Target:
        """What an index version of it would be: the collection's own settings otherwise."""
        return resolve_target(collection, self.as_dict())


def current_candidate(collection: Collection) -> Candidate:
    """The one that serves."""
    return Candidate(collection.embed_model, collection.embed_dims, collection.vector_type)


def other_models(collection: Collection) -> list[str]:
    """The embedding models that are set up besides the collection's own, by the names that an index is made with."""
    return [entry.index_name for entry in embedding_models() if entry.identity != collection.embed_model]


def read_candidates(collection: Collection, stated: Sequence[Mapping[str, Any]]) -> list[Candidate]:
    """The collection's own and what is stated, each once, the own one first; every model has embedded a text.

    stated: {"embed_model", "embed_dims"?, "vector_type"?}, what is missing as in `resolve_target`. Raises InvalidInput
    for none or too many, and what `resolve_target` and `check_embedder` raise.
    """
    found = [current_candidate(collection)]
    for values in stated:
        spec = resolve_target(collection, {name: value for name, value in values.items() if value}).spec
        candidate = Candidate(spec.embed_model, spec.embed_dims, spec.vector_type)
        if candidate not in found:
            found.append(candidate)
    if len(found) < 2:
        raise InvalidInput("choose at least one model besides the collection's own", field="models")
    if len(found) > CANDIDATES_MAX:
        raise InvalidInput(f"at most {CANDIDATES_MAX} models are compared at once, not {len(found)}", field="models")
    for candidate in found:
        check_embedder(candidate.target(collection))
    return found


def parse_candidate(text: str) -> dict[str, Any]:
    """NAME[:DIMENSIONS][:vector|halfvec], as the command line and the page's field take it; a name may hold colons.

    Raises InvalidInput where there is no name.
    """
    name, values = text.strip(), dict[str, Any]()
    head, _, last = name.rpartition(":")
    if last in VECTOR_TYPES:
        name, values["vector_type"] = head, last
        head, _, last = name.rpartition(":")
    if last.isascii() and last.isdigit():
        name, values["embed_dims"] = head, int(last)
    if not name:
        raise InvalidInput(f"expected NAME, NAME:DIMENSIONS or NAME:DIMENSIONS:halfvec, not {text!r}", field="models")
    return {"embed_model": name} | values


T = TypeVar("T")

DOCUMENTS_AT_ONCE = 200
INDEXED_ROWS = 2_000  # whose vector index is built to measure its size
MODES: tuple[Mode, ...] = ("vector", "lexical", "hybrid")
WAIT_MAX_S = 600.0  # for an endpoint that is not to be asked now

INSERT_DOCUMENTS = """
INSERT INTO documents (collection_id, doc_id) SELECT %(collection)s, unnest(%(doc_ids)s::text[])
"""
TABLE_BYTES = """
SELECT pg_table_size(%(partition)s::regclass), count(*) FROM {chunks}
"""
COPY_VECTORS = """
CREATE TABLE {table} AS SELECT embedding::{cast} AS embedding FROM {chunks} ORDER BY id LIMIT {most:d}
"""
INDEX_VECTORS = "CREATE INDEX {table}_index ON {table} USING hnsw (embedding {ops})"
INDEX_BYTES = "SELECT pg_relation_size('{table}_index'), count(*) FROM {table}"


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one candidate. ndcg, recall: mode -> the value of each question, in order, by the chosen k.

    ms_per_chunk: of embedding alone. bytes_per_chunk: of the table and of a vector index over it, as measured on the
    sample. tokens: of all chunks by the model's own count. cost_usd: what the provider asks for them, None without a
    price. query_ms: the median of embedding and searching one question by the experiment's mode. weights: of the lists
    that hybrid search fused.
    """

    label: str
    chunks: int
    embed_s: float
    ms_per_chunk: float
    tokens: int
    cost_usd: float | None
    bytes_per_chunk: float
    query_ms: float
    weights: dict[str, float]
    ndcg: dict[str, list[float]]
    recall: dict[str, list[float]]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class TrialEmbedder:
    """A candidate's embedder, which waits for an endpoint and embeds each question once.

    is_half: vectors are rounded to 16-bit floats, as a halfvec index holds them.
    """

    def __init__(self, inner: Embedder, *, is_half: bool) -> None:
        self.inner, self.is_half = inner, is_half
        self.model, self.dims, self.window, self.system = inner.model, inner.dims, inner.window, inner.system
        self.questions: dict[str, Vector] = {}

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """As the inner one. Raises LeaseLostError too, when the run was cancelled."""
        return [self._rounded(vector) for vector in wait_for(lambda: self.inner.embed(texts))]

    def embed_query(self, text: str) -> Vector:
        if text not in self.questions:
            self.questions[text] = self._rounded(wait_for(lambda: self.inner.embed_query(text)))
        return self.questions[text]

    def count_tokens(self, text: str) -> int:
        return self.inner.count_tokens(text)

    def _rounded(self, vector: Vector) -> Vector:
        return cast(Vector, np.asarray(vector, dtype=np.float16).astype(np.float32)) if self.is_half else vector


def wait_for(ask: Callable[[], T]) -> T:
    """What `ask` gives. An EndpointWaitsError is waited for and asked again, for WAIT_MAX_S at most."""
    ends = time.monotonic() + WAIT_MAX_S
    while True:
        try:
            with interruptible():
                return ask()
        except EndpointWaitsError as error:
            wait_s = error.retry_after_s or 1.0
            if time.monotonic() + wait_s > ends:
                raise
        with interruptible():
            time.sleep(wait_s)


@dataclass(frozen=True, slots=True)
class Questions:
    """What a candidate is asked: questions with what they expect, the mode that counts, and k of its measures."""

    questions: Sequence[Golden]
    mode: str
    k: int


def try_candidate(
    collection: Collection,
    candidate: Candidate,
    doc_ids: Sequence[str],
    asked: Questions,
    *,
    advance: Callable[[int, int], object],
    stated: RetrievePlan | None = None,
) -> Trial:
    """Chunk, embed, index, search. Nothing of it stays: the index stands in a schema that is rolled back.

    stated: the collection's default plan, None where it has none. Its fusion holds; else the lists are fused by weights
    that are measured on the sample as those of an index version are on all of it. advance(done, total): chunks that
    have a vector. Raises what chunking, the model and the database raise, and LeaseLostError where the work was
    cancelled.
    """
    target = candidate.target(collection)
    spec = target.spec
    inner = ingest_embedder(spec.embed_model, spec.embed_dims)
    embedder = TrialEmbedder(inner, is_half=spec.vector_type == "halfvec")
    chunks = list(_chunks(collection, doc_ids, target))
    began = time.perf_counter()
    vectors = _embed(chunks, embedder, advance)
    embed_s = time.perf_counter() - began
    tokens = sum(embedder.count_tokens(chunk.embed_text) for chunk in chunks)
    cost = find_cost(embedder.system, split_identity(spec.embed_model)[0], tokens, 0, 0)
    asked_s = [_embed_question(golden, embedder) for golden in asked.questions]
    probes = probes_of(chunks) if asked.mode == "hybrid" and stated is None else []
    probe_chunks, probe_vectors = embed_probes(probes, embedder)
    plan = stated or RetrievePlan()
    with transaction.atomic(), scratch_schema(connection), unkept_spans():
        store = fill(collection, spec, chunks, vectors)
        bytes_per_chunk = measure_size(store)
        measured = measure_list_weights(probes, probe_chunks, probe_vectors, store)
        if measured is not None:
            plan = replace(plan, weights=measured.weights)
        store.use_embedder(embedder)
        ndcg, recall, searched_s = _search(store, asked, plan)
    return Trial(
        candidate.label,
        len(chunks),
        round(embed_s, 3),
        round(1000 * embed_s / max(len(chunks), 1), 3),
        tokens,
        cost.total if cost else None,
        round(bytes_per_chunk, 1),
        round(1000 * float(np.median(np.add(asked_s, searched_s))), 2),
        dict(plan.weights),
        ndcg,
        recall,
    )


def _embed_question(golden: Golden, embedder: Embedder) -> float:
    """As `retrieve` asks for its vector; the seconds that it took."""
    began = time.perf_counter()
    embedder.embed_query(normalize(golden.question).strip())
    return time.perf_counter() - began


def _chunks(collection: Collection, doc_ids: Sequence[str], target: Target) -> Iterator[Chunk]:
    spec = target.spec
    as_target = Collection(
        embed_model=spec.embed_model, embed_dims=spec.embed_dims, chunk_policy=dict(target.chunk_policy)
    )
    for first in range(0, len(doc_ids), DOCUMENTS_AT_ONCE):
        rows = Document.objects.filter(collection=collection, doc_id__in=doc_ids[first : first + DOCUMENTS_AT_ONCE])
        for document in rows.order_by("doc_id"):
            yield from cut_document(collection, document, as_target, spec.policy).chunks


def _embed(chunks: Sequence[Chunk], embedder: Embedder, advance: Callable[[int, int], object]) -> list[Vector]:
    vectors: list[Vector] = []
    size = settings.RAGD_EMBED_BATCH_SIZE
    advance(0, len(chunks))
    for first in range(0, len(chunks), size):
        vectors += embedder.embed([chunk.embed_text for chunk in chunks[first : first + size]])
        advance(len(vectors), len(chunks))
    return vectors


def fill(collection: Collection, spec: IndexVersionSpec, chunks: Sequence[Chunk], vectors: Sequence[Vector]) -> Store:
    """The collection with these chunks alone, in the schema that is first on the search path."""
    pk = create_collection(
        connection,
        name=collection.name,
        embed_model=spec.embed_model,
        embed_dims=spec.embed_dims,
        hybrid_enabled=True,
        language=spec.language,
        policy=spec.policy,
        vector_type=spec.vector_type,
        placement="local",
    )
    store = Store(connection, pk)
    doc_ids = sorted({chunk.doc_id for chunk in chunks})
    execute(connection, INSERT_DOCUMENTS, {"collection": pk, "doc_ids": doc_ids})
    ready = [replace(chunk, embedding=vector) for chunk, vector in zip(chunks, vectors, strict=True)]
    index(ready, store)
    return store


def measure_size(store: Store) -> float:
    """Bytes of a chunk in the table and in a vector index, that of the first rows standing for all."""
    info = store.collection
    names = {
        "chunks": info.partition,
        "table": f"{info.partition}_sized",
        "cast": info.vector_cast,
        "ops": info.vector_ops,
        "most": INDEXED_ROWS,
    }
    ((table_bytes, rows),) = fetch_all(store.connection, TABLE_BYTES.format(**names), {"partition": info.partition})
    execute(store.connection, COPY_VECTORS.format(**names))
    execute(store.connection, INDEX_VECTORS.format(**names))
    ((index_bytes, indexed),) = fetch_all(store.connection, INDEX_BYTES.format(**names))
    return float(table_bytes / max(rows, 1) + index_bytes / max(indexed, 1))


def _search(
    store: Store, asked: Questions, plan: RetrievePlan
) -> tuple[dict[str, list[float]], dict[str, list[float]], list[float]]:
    """nDCG and recall by mode, and the seconds of each search by the mode that counts."""
    ndcg: dict[str, list[float]] = {each: [] for each in MODES}
    recall: dict[str, list[float]] = {each: [] for each in MODES}
    took: list[float] = []
    mode, k = asked.mode, asked.k
    for golden in asked.questions:
        for each in MODES:
            began = time.perf_counter()
            # a document stands where its best chunk does, so k documents may need many more chunks
            wanted = RetrievePlan(
                mode=each, k=5 * k, candidate_pool=10 * k, weights=plan.weights, rrf_k=plan.rrf_k, exact="always"
            )
            result = retrieve(golden.question, wanted, store)
            if each == mode:
                took.append(time.perf_counter() - began)
            scores = retrieval_scores([f"{item.doc_id}#{item.chunk_index}" for item in result], golden, k)
            ndcg[each].append(round(scores[f"ndcg@{k}"].value or 0.0, 6))
            recall[each].append(round(scores[f"recall@{k}"].value or 0.0, 6))
    return ndcg, recall, took
