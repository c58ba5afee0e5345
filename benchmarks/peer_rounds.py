"""What bench_peers.py measures, system by system."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector

from benchmarks.peers import PeerProcess
from benchmarks.scifact import load_scifact, ndcg
from ragd import RetrievePlan, index, retrieve
from ragd.search.candidates import passing, scope
from ragd.search.lexical_search import LEXICAL, read_query
from ragd.search.vector_search import VECTOR_INDEXED, vector_parameter
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.types import Chunk

DIMS = 384
K, POOL = 12, 50
BEAM = POOL + 1  # what retrieve() asks for: the pool and one row more, to see a tie at its edge
PER_DOCUMENT = 10
TURN = 25
WARM_UP = 20
EMBEDDED_AT_ONCE = 500

Loaded = dict[str, tuple[float, int, float]]  # seconds, rows, seconds of the rows that came later
Peers = Mapping[str, PeerProcess]

SETTINGS = """
SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'strict_order', true),
       set_config('hnsw.max_scan_tuples', '100000', true)
"""

NEAREST = """
SELECT id, doc_id, chunk_index, content, tags, metadata, 1 - ((embedding::vector(384)) <=> %(vector)s::vector(384))
FROM {table} WHERE enabled ORDER BY (embedding::vector(384)) <=> %(vector)s::vector(384) LIMIT 12
"""

COLUMNS = """collection_id, doc_id, chunk_index, content, start_char, end_char, context, tags, metadata, token_count,
revision, enabled, embedding, fts, lexical"""


@dataclass(slots=True)
class Searched:
    """Milliseconds of each query; quality is a mean over the queries."""

    took_ms: list[float] = field(default_factory=list)
    found: list[list[Any]] = field(default_factory=list)
    quality: float = 0.0


class LookUp:
    """An embedder that only knows given vectors."""

    model, dims, window, system = "given", DIMS, None, "benchmark"
    server_address = server_port = None

    def __init__(self, texts: Sequence[str], vectors: Any) -> None:
        self.vectors = dict(zip(texts, vectors, strict=True))

    def embed(self, texts: Sequence[str]) -> list[Any]:
        return [self.vectors[text] for text in texts]

    def embed_query(self, text: str) -> Any:
        return self.vectors[text]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def read(folder: Path, name: str) -> tuple[list[str], Any]:
    return json.loads((folder / f"{name}.json").read_text()), np.load(folder / f"{name}.npy")


def open_store(connection: psycopg.Connection[Any], name: str, embedder: LookUp, *, hybrid: bool) -> Store:
    create_collection(connection, name=name, embed_model="given", embed_dims=DIMS, hybrid_enabled=hybrid)
    connection.commit()
    return Store(connection, name, embedder)


def chunks_of(texts: Sequence[str], vectors: Any, first: int, count: int) -> list[Chunk]:
    """Documents of ten chunks; the last may be shorter."""
    return [
        Chunk(f"d{(number - first) // PER_DOCUMENT + first:07}", (number - first) % PER_DOCUMENT, texts[number], 0,
              len(texts[number]), embedding=vectors[number])
        for number in range(first, first + count)
    ]  # fmt: skip


def number_of(doc_id: str, chunk_index: int, rows: int) -> int:
    """The row that a chunk of chunks_of(..., 0, rows) or of the rows after it was made of."""
    document = int(doc_id[1:])
    first = rows if document >= rows else 0
    return first + (document - first) * PER_DOCUMENT + chunk_index


def measure_load(
    connection: psycopg.Connection[Any], peers: Peers, folder: Path, arguments: argparse.Namespace
) -> Loaded:
    texts, vectors = read(folder, "random")
    queries, asked = read(folder, "asked")
    rows, more = arguments.rows, arguments.more
    found: Loaded = {}
    kinds = [("ragd", False), ("ragd, with words (hybrid)", True)]
    for name, hybrid in kinds if "words" in arguments.only.split(",") else kinds[:1]:
        store = open_store(connection, "plain" if not hybrid else "words", LookUp(queries, asked), hybrid=hybrid)
        chunks, rest = chunks_of(texts, vectors, 0, rows), chunks_of(texts, vectors, rows, more)
        began = time.perf_counter()
        index(chunks, store)
        connection.commit()
        indexed = time.perf_counter()
        store.build_vector_index()
        connection.commit()
        seconds = time.perf_counter() - began
        print(f"{name}: index() {indexed - began:.1f} s, HNSW build {seconds - (indexed - began):.1f} s", flush=True)
        rows_file = copy_out(connection, store, folder / "rows.copy")
        began = time.perf_counter()
        index(rest, store)
        connection.commit()
        found[name] = (seconds, rows, time.perf_counter() - began)
        label = "bare COPY, then the indexes" + (", words parsed before" if hybrid else "")
        found[label] = load_bare(connection, store, rows_file, rows, more)
    analyze(connection)
    for name, peer in peers.items():
        peer.ask("create", table="vectors_" + name, dims=DIMS, beam=BEAM, pool=POOL, hybrid=False)
        seconds = peer.ask("add", data="random", first=0, count=arguments.peer_rows)["seconds"]
        later = peer.ask("add", data="random", first=arguments.peer_rows, count=more)["seconds"]
        found[name] = (seconds, arguments.peer_rows, later)
        print(f"{name}: {arguments.peer_rows / seconds:.0f} rows/s", flush=True)
    analyze(connection)
    return found


def copy_out(connection: psycopg.Connection[Any], store: Store, path: Path) -> Path:
    """The table's rows as binary COPY gives them, so that the bare load spends nothing on making them."""
    copy_to(connection, f"{store.collection.partition} ({COLUMNS})", path)
    return path


def copy_to(connection: psycopg.Connection[Any], rows: str, path: Path) -> None:
    sql = f"COPY {rows} TO STDOUT (FORMAT BINARY)"
    with connection.cursor() as cursor, path.open("wb") as file, cursor.copy(sql) as copy:
        for piece in copy:
            file.write(piece)
    connection.commit()


def load_bare(
    connection: psycopg.Connection[Any], store: Store, rows_file: Path, rows: int, more: int
) -> tuple[float, int, float]:
    """A table of the same columns without any index, COPY, then the indexes that a partition has; then COPY of more."""
    connection.execute("DROP TABLE IF EXISTS bare")
    connection.execute(
        "CREATE TABLE bare (LIKE chunks INCLUDING DEFAULTS INCLUDING STORAGE) WITH (toast_tuple_target = 4080)"
    )
    connection.execute("ALTER TABLE bare ALTER id SET DEFAULT nextval(pg_get_serial_sequence('chunks', 'id'))")
    connection.commit()
    began = time.perf_counter()
    copy_in(connection, rows_file)
    for statement in (
        "ALTER TABLE bare ADD PRIMARY KEY (collection_id, id), ADD UNIQUE (collection_id, doc_id, chunk_index)",
        "CREATE INDEX ON bare USING gin (tags)",
        "CREATE INDEX ON bare USING gin (fts) WITH (gin_pending_list_limit = 512)",
        f"CREATE INDEX ON bare USING hnsw ((embedding::vector({DIMS})) vector_cosine_ops)",
    ):
        connection.execute(statement)
    connection.commit()
    seconds = time.perf_counter() - began
    rest = rows_file.with_suffix(".more")
    copy_to(connection, f"(SELECT {COLUMNS} FROM {store.collection.partition} ORDER BY id DESC LIMIT {more})", rest)
    began = time.perf_counter()
    copy_in(connection, rest)
    connection.commit()
    took = time.perf_counter() - began
    connection.execute("DROP TABLE bare")
    connection.commit()
    return seconds, rows, took


def copy_in(connection: psycopg.Connection[Any], path: Path) -> None:
    sql = f"COPY bare ({COLUMNS}) FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, path.open("rb") as file, cursor.copy(sql) as copy:
        while piece := file.read(1 << 20):
            copy.write(piece)


def analyze(connection: psycopg.Connection[Any]) -> None:
    connection.commit()
    connection.autocommit = True
    connection.execute("VACUUM ANALYZE")
    connection.autocommit = False


def take_turns(
    calls: Mapping[str, Callable[[int], Any]], peers: Peers, data: str, count: int, hybrid: bool
) -> dict[str, Searched]:
    """Every system answers all the queries, a few at a time, after a warm-up."""
    found = {name: Searched() for name in (*calls, *peers)}
    for call in calls.values():
        for number in range(min(WARM_UP, count)):
            call(number)
    for peer in peers.values():
        peer.ask("search", data=data, first=0, count=min(WARM_UP, count), k=K, hybrid=hybrid)
    for first in range(0, count, TURN):
        numbers = range(first, min(first + TURN, count))
        for name, call in calls.items():  # a turn each, as the peers have theirs, who find what they need in the caches
            for number in numbers:
                began = time.perf_counter()
                answer = call(number)
                found[name].took_ms.append((time.perf_counter() - began) * 1000)
                found[name].found.append(answer)
        for name, peer in peers.items():
            answers = peer.ask("search", data=data, first=first, count=len(numbers), k=K, hybrid=hybrid)
            found[name].took_ms += answers["took_ms"]
            found[name].found += answers["found"]
    return found


def measure_vector(
    connection: psycopg.Connection[Any], peers: Peers, folder: Path, arguments: argparse.Namespace
) -> dict[str, Searched]:
    """Peers with fewer rows than ours are asked too, and their recall is against what they hold."""
    _, vectors = read(folder, "random")
    queries, asked = read(folder, "asked")
    store = Store(connection, "plain", LookUp(queries, asked), exact_threshold=0)
    plan = RetrievePlan(mode="vector", k=K, candidate_pool=POOL)
    with psycopg.connect(connection.info.dsn, password=connection.info.password, context=connection) as other:
        register_vector(other)
        nearest = NEAREST.format(table=store.collection.partition)

        def bare(number: int) -> Any:
            with other.transaction():
                other.execute(SETTINGS, (str(BEAM),))
                return other.execute(nearest, {"vector": Vector(asked[number])}).fetchall()

        def ours(number: int) -> Any:
            with connection.transaction():
                return retrieve(queries[number], plan, store)

        connection.commit()
        found = take_turns({"ragd": ours, "bare SQL": bare}, peers, "asked", len(queries), hybrid=False)
    rows = arguments.rows
    found["ragd"].found = [
        [number_of(item.doc_id, item.chunk_index, rows) for item in each] for each in found["ragd"].found
    ]
    found["bare SQL"].found = [[number_of(row[1], row[2], rows) for row in each] for each in found["bare SQL"].found]
    for name, each in found.items():
        held = vectors[: (arguments.peer_rows if name in peers else rows) + arguments.more]
        shares = [
            len(set(answer) & set(np.argsort(-(held @ asked[number]), kind="stable")[:K].tolist())) / K
            for number, answer in enumerate(each.found)
        ]
        each.quality = sum(shares) / len(shares)
    return found


def measure_hybrid(
    connection: psycopg.Connection[Any], peers: Peers, folder: Path, arguments: argparse.Namespace
) -> dict[str, Searched]:
    data = load_scifact()
    titles, bodies = {key: title for key, title, _ in data.documents}, {key: text for key, _, text in data.documents}
    ids = [key for key, _, _ in data.documents]
    texts = [f"{titles[key]}\n{bodies[key]}" for key in ids]
    asked_ids = list(data.queries)[: arguments.queries]
    asked = [data.queries[key] for key in asked_ids]
    vectors = embedded_texts(texts + asked)
    for name, its_texts, its_vectors in (
        ("scifact", texts, vectors[: len(texts)]),
        ("questions", asked, vectors[len(texts) :]),
    ):
        np.save(folder / f"{name}.npy", its_vectors)
        (folder / f"{name}.json").write_text(json.dumps(its_texts))
    store = open_store(connection, "scifact", LookUp(asked, vectors[len(texts) :]), hybrid=True)
    store.exact_threshold = 0
    index(
        [
            Chunk(key, 0, bodies[key], 0, len(bodies[key]), context=titles[key], embedding=vector)
            for key, vector in zip(ids, vectors, strict=False)
        ],
        store,
    )
    connection.commit()
    store.build_vector_index()
    analyze(connection)
    for name, peer in peers.items():
        peer.ask("create", table="scifact_" + name, dims=DIMS, beam=BEAM, pool=POOL, hybrid=True)
        peer.ask("add", data="scifact", first=0, count=len(texts))
    analyze(connection)
    plan = RetrievePlan(mode="hybrid", k=K, candidate_pool=POOL)
    statements = [bare_statements(question, plan, store) for question in asked]
    connection.commit()

    def ours(number: int) -> Any:
        with connection.transaction():
            return retrieve(asked[number], plan, store)

    with psycopg.connect(connection.info.dsn, password=connection.info.password, context=connection) as other:

        def bare(number: int) -> Any:
            with other.transaction():
                other.execute(SETTINGS, (str(BEAM),))
                return [other.execute(text, params).fetchall() for text, params in statements[number]]

        found = take_turns({"ragd": ours, "two bare statements": bare}, peers, "questions", len(asked), hybrid=True)
    found["ragd"].found = [[item.doc_id for item in each] for each in found["ragd"].found]
    for name, each in found.items():
        if name == "two bare statements":
            each.quality = float("nan")
            continue
        answers = [[ids[item] if isinstance(item, int) else item for item in answer] for answer in each.found]
        scores = [ndcg(answer, data.judged[key]) for key, answer in zip(asked_ids, answers, strict=True)]
        each.quality = sum(scores) / len(scores)
    return found


def bare_statements(question: str, plan: RetrievePlan, store: Store) -> list[tuple[str, Any]]:
    """The two lists as SQL alone gives them, with their parameters: the nearest rows of the HNSW index, and every row
    with a word of the question scored and sorted."""
    names = {"chunks": store.collection.partition, "passing": passing(plan, store)}
    nearest = VECTOR_INDEXED.format(**names, cast=store.collection.vector_cast, rows=plan.pool)
    assert store.embedder is not None
    vector = vector_parameter(store.embedder.embed_query(question), store)
    query = read_query(question, store, store.state())
    words = {"weights": query.vector, "words": query.words}
    shared = scope(plan, store)
    return [(nearest, shared | {"vector": vector}), (LEXICAL.format(**names), shared | words)]


def embedded_texts(texts: Sequence[str]) -> Any:
    """Vectors of the local embedder, kept in files: they take minutes, and a stopped run goes on from there."""
    from ragd.models.embedding import LocalEmbedder

    embedder = LocalEmbedder()
    digest = hashlib.sha256("\0".join([embedder.model, *texts]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ragd-benchmarks" / f"vectors-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    pieces = []
    for first in range(0, len(texts), EMBEDDED_AT_ONCE):
        path = cache / f"{first}.npy"
        if not path.exists():
            print(f"embedding texts {first} to {first + EMBEDDED_AT_ONCE} of {len(texts)}", flush=True)
            np.save(path, np.asarray(embedder.embed(list(texts[first : first + EMBEDDED_AT_ONCE])), dtype=np.float32))
        pieces.append(np.load(path))
    return np.concatenate(pieces)
