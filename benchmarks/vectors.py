"""Vectors for benchmarks, and collections of them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import psycopg

from ragd import index
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.types import Chunk

DIMS = 384
INNER_DIMS = 32
NOISE = 0.25
SHARES = {"half": 0.5, "tenth": 0.1, "hundredth": 0.01, "thousandth": 0.001}


class Given:
    """An embedder whose query "7" or "7 words" is the seventh of the given vectors."""

    model, dims, window, system = "given", DIMS, None, "benchmark"
    server_address = server_port = None

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def embed(self, texts: Any) -> Any:
        raise NotImplementedError("the chunks bring their vectors")

    def embed_query(self, text: str) -> Any:
        return self.asked[int(text.split()[0])]

    def count_tokens(self, text: str) -> int:
        return 1


def make_vectors(kind: str, count: int, seed: int) -> Any:
    """Unit vectors, float32. "random": every direction alike, which no index can search well. "structured": points of
    a space of 32 dimensions with noise in all 384, nearer to what embedding models give."""
    generator = np.random.default_rng(seed)
    if kind == "random":
        vectors = generator.normal(size=(count, DIMS))
    else:
        axes = np.random.default_rng(99).normal(size=(INNER_DIMS, DIMS)) / np.sqrt(INNER_DIMS)
        vectors = generator.normal(size=(count, INNER_DIMS)) @ axes + NOISE * generator.normal(size=(count, DIMS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def load(connection: psycopg.Connection[Any], name: str, vectors: Any, asked: Any) -> Store:
    """A collection of one chunk per vector with its HNSW index, tagged by SHARES: at random, and as "near ..." by its
    place along one direction, so that the filter and the vectors tell of each other."""
    create_collection(connection, name=name, embed_model="given", embed_dims=DIMS, hybrid_enabled=False)
    store = Store(connection, name, Given(asked))
    drawn = np.random.default_rng(3).random((len(vectors), len(SHARES)))
    places = (vectors @ make_vectors("structured", 1, seed=4)[0]).argsort().argsort() / len(vectors)
    names = [*SHARES, *(f"near {tag}" for tag in SHARES)]
    held = np.hstack([drawn, np.repeat(places[:, None], len(SHARES), axis=1)]) < [*SHARES.values()] * 2
    tags = [tuple(tag for tag, hit in zip(names, row, strict=True) if hit) for row in held]
    began = time.perf_counter()
    index(
        [
            Chunk(f"d{number:07}", 0, f"chunk {number}", 0, 1, tags=tags[number], embedding=vector)
            for number, vector in enumerate(vectors)
        ],
        store,
    )
    connection.commit()
    indexed = time.perf_counter()
    store.build_vector_index()
    connection.commit()
    built = time.perf_counter()
    print(f"{name}: {len(vectors):,} chunks in {indexed - began:.1f} s, HNSW in {built - indexed:.1f} s", flush=True)
    connection.autocommit = True
    connection.execute(f"VACUUM ANALYZE {store.collection.partition}")
    connection.autocommit = False
    return store
