"""Kill -9 at random moments while documents are ingested, and compare afterwards with what there should be.

The server is the real one under its supervisor; the embedder is a stub on the loopback with a fixed latency, so that
the ingest lasts as long as the killing. Used by the test (a few kills) and the benchmark (all of them).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
import requests

import ragd
from ragd.types import ChunkPolicy
from ragd_site import embedded
from tests.fakes.openai_server import OpenAIServer, hashed_vector
from tests.server import Server, running_server

COLLECTION = "kept"
MODEL, DIMS = "text-embedding-3-small", 64
POLICY = {"kind": "structure", "target_tokens": 40, "overlap_tokens": 5, "max_chars": 400}
FILES_PER_REQUEST = 10
PATIENCE_S = 180.0
WHOLE = 0.3  # of the kills hit a worker or web server whole, the others one process of it
Pending = tuple[float, list[tuple[str, int]]]  # since when these jobs, at these attempts, are cut off
PLAIN = (
    "water", "kettle", "boils", "tea", "cup", "morning", "river", "stone", "bread", "table", "garden", "music",
    "harbour", "lamp", "winter", "letter",
)  # fmt: skip

STATES = "SELECT state, count(*) FROM ingest_jobs WHERE collection_id = %s AND kind = 'file' GROUP BY state"
HELD = """
SELECT id::text, attempts, split_part(worker, ':', 2)::int FROM ingest_jobs
WHERE collection_id = %s AND state = 'running' AND worker <> ''
"""
PICKED_UP = """
SELECT count(*) FROM ingest_jobs j
JOIN unnest(%s::uuid[], %s::int[]) AS was (id, attempts) ON was.id = j.id
WHERE j.attempts > was.attempts OR j.state = 'succeeded'
"""
STORED = """
SELECT doc_id, chunk_index, content, start_char, end_char, context, embedding::text FROM chunks
WHERE collection_id = %s ORDER BY doc_id, chunk_index
"""


@dataclass
class Tally:
    """What was done and how long it took to be made good. pick_up_s: from the kill of a worker until its jobs ran."""

    kills: int = 0
    cut_off: int = 0  # jobs that ran at the moment of a kill
    pick_up_s: list[float] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    took_s: float = 0.0
    attempts: int = 0  # the most that a job took
    wrong: list[str] = field(default_factory=list)


def make_documents(count: int, seed: int) -> list[tuple[str, bytes]]:
    """(name, text) of 5 to 60 sentences in paragraphs, different each, the same for the same seed."""
    draw = random.Random(seed)
    documents = []
    for number in range(count):
        sentences = [f"{' '.join(draw.choices(PLAIN, k=9))} {number}.".capitalize() for _ in range(draw.randint(5, 60))]
        breaks = [draw.choice((" ", " ", "\n\n")) for _ in sentences]
        text = "".join(sentence + pause for sentence, pause in zip(sentences, breaks, strict=True)).strip()
        documents.append((f"text-{number:04}.txt", text.encode()))
    return documents


@dataclass
class Latency:
    """How long the stub thinks about each request, also in the middle of a run."""

    s: float = 0.0


@contextmanager
def server_under_fire(latency: Latency, **variables: str) -> Iterator[Server]:
    """A server whose embedder is the stub, with the collection made."""
    stub = OpenAIServer(dims=DIMS).start()
    answer = stub.answer
    begun = threading.Event()

    def answer_late(request: Any) -> Any:
        if begun.is_set():
            time.sleep(latency.s)
        return answer(request)

    stub.answer = answer_late  # type: ignore[method-assign]
    stub._server.handle_error = lambda *_: None  # killed workers break off their requests
    endpoint = {
        "EMBED_BASE_URL": stub.base_url,
        "EMBED_API_KEY": str(stub.api_key),
        "RAGD_EMBED_MODEL": MODEL,
        "RAGD_EMBED_DIMS": str(DIMS),
    }
    try:
        with running_server(**endpoint, **variables) as server:
            server.call("POST", "/v1/collections", {"name": COLLECTION, "chunk_policy": POLICY, "hybrid_enabled": True})
            begun.set()
            yield server
    finally:
        stub.stop()


def connect(server: Server) -> psycopg.Connection[Any]:
    """To the server's own database, however often it must be asked."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        cluster = embedded.read_cluster(server.var)
        try:
            if cluster is None:
                raise psycopg.OperationalError("there is no cluster")
            return psycopg.connect(cluster.url, autocommit=True, connect_timeout=5)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def ask(server: Server, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows, also when the database is being killed meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with connect(server) as connection:
                return connection.execute(sql.encode(), values).fetchall()
        except psycopg.Error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def collection_id(server: Server) -> int:
    ((found,),) = ask(server, "SELECT id FROM collections WHERE name = %s", COLLECTION)
    return int(found)


def upload_all(server: Server, documents: Sequence[tuple[str, bytes]], *, slowly: bool = False) -> None:
    """In requests of ten files; one that gets no answer is sent again under the same Idempotency-Key.

    slowly: so that it lasts as long as the kills of the web server.
    """
    for first in range(0, len(documents), FILES_PER_REQUEST):
        files = [("files", document) for document in documents[first : first + FILES_PER_REQUEST]]
        key, deadline = uuid.uuid4().hex, time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, "the upload was never accepted"
            with contextlib.suppress(requests.RequestException):
                answer = requests.post(
                    f"{server.url}/v1/collections/{COLLECTION}/documents",
                    files=files,
                    headers={"Authorization": f"Bearer {server.key}", "Idempotency-Key": key},
                    timeout=30,
                )
                if answer.status_code == 202:
                    time.sleep(1.0 if slowly else 0.0)
                    break
                assert answer.status_code in (409, 500, 502, 503), answer.text
            time.sleep(0.3)


def kill_worker(server: Server, draw: random.Random) -> list[int]:
    """The whole worker at once, one time in three, or one of its processes. Each kill returns the pids that it hit."""
    family = sorted(pid for pid, line in server.processes().items() if "celery" in line)
    return kill_all(family if draw.random() < WHOLE or len(family) < 2 else [draw.choice(family[1:])])


def kill_web(server: Server, draw: random.Random) -> list[int]:
    family = sorted(pid for pid, line in server.processes().items() if "gunicorn" in line)
    return kill_all(family if draw.random() < WHOLE or len(family) < 2 else [draw.choice(family[1:])])


def kill_database(server: Server, _draw: random.Random) -> list[int]:
    cluster = embedded.read_cluster(server.var)
    pid = embedded.postmaster_pid(cluster.data) if cluster else None
    return kill_all([pid] if pid else [])


def kill_all(pids: Sequence[int]) -> list[int]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return list(pids)


def fire(
    server: Server,
    kill: Callable[[Server, random.Random], list[int]],
    kills: int,
    pauses_s: tuple[float, float],
    draw: random.Random,
    tally: Tally,
    *,
    at_work: bool = False,
) -> None:
    """Kill so often, each after a pause of random length; note what was cut off and when that ran again.

    at_work: not before a job runs.

    A pause begins when worker, web server and database are all up again: the supervisor waits longer with each death.
    """
    owner = collection_id(server)
    pending: list[Pending] = []
    for _ in range(kills):
        deadline = time.monotonic() + PATIENCE_S
        while not is_up(server) and time.monotonic() < deadline:
            pending = settle(server, pending, tally)
            time.sleep(0.2)
        resume = time.monotonic() + draw.uniform(*pauses_s)
        while time.monotonic() < resume:
            pending = settle(server, pending, tally)
            time.sleep(0.1)
        while not (held := ask(server, HELD, owner)) and at_work and time.monotonic() < deadline:
            time.sleep(0.1)
        hit = kill(server, draw)
        tally.kills += bool(hit)
        cut_off = [(job, attempts) for job, attempts, pid in held if pid in hit or kill is kill_database]
        tally.cut_off += len(cut_off)
        if cut_off and kill is kill_worker:
            pending.append((time.monotonic(), cut_off))
    deadline = time.monotonic() + PATIENCE_S
    while pending and time.monotonic() < deadline:
        pending = settle(server, pending, tally)
        time.sleep(0.2)
    tally.wrong += [f"{len(jobs)} jobs that were cut off never ran again" for _, jobs in pending]


def is_up(server: Server) -> bool:
    """Whether the worker has its processes and the web server answers, which needs the database."""
    lines = server.processes().values()
    if sum("celery" in line for line in lines) < 2:
        return False
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{server.url}/v1/health", timeout=5):
        return True
    return False


def settle(server: Server, pending: list[Pending], tally: Tally) -> list[Pending]:
    """Those that have not run again yet; of the others the time that it took is noted."""
    left = []
    for since, jobs in pending:
        ids, attempts = [job for job, _ in jobs], [attempt for _, attempt in jobs]
        if ask(server, PICKED_UP, ids, attempts) == [(len(jobs),)]:
            tally.pick_up_s.append(time.monotonic() - since)
        else:
            left.append((since, jobs))
    return left


def wait_until_done(server: Server, count: int, tally: Tally) -> None:
    owner, deadline = collection_id(server), time.monotonic() + PATIENCE_S
    while True:
        tally.states = dict(ask(server, STATES, owner))
        if tally.states.get("succeeded", 0) >= count and not {"queued", "running"} & set(tally.states):
            break
        if time.monotonic() > deadline:
            tally.wrong.append(f"after {PATIENCE_S:.0f} s jobs were still {json.dumps(tally.states)}")
            break
        time.sleep(0.3)
    ((tally.attempts,),) = ask(server, "SELECT max(attempts) FROM ingest_jobs WHERE collection_id = %s", owner)


def compare(server: Server, documents: Sequence[tuple[str, bytes]], tally: Tally) -> None:
    """Every document once, with exactly the chunks and vectors that chunking its text afresh gives."""
    owner = collection_id(server)
    rows = ask(server, "SELECT doc_id, text, title FROM documents WHERE collection_id = %s", owner)
    found = {doc_id: (text, title) for doc_id, text, title in rows}
    if sorted(row[0] for row in rows) != sorted(name for name, _ in documents):
        tally.wrong.append(f"{len(rows)} documents instead of {len(documents)}")
    stored: dict[str, list[tuple[Any, ...]]] = {}
    for doc_id, *chunk in ask(server, STORED, owner):
        stored.setdefault(doc_id, []).append(tuple(chunk))
    policy = read_policy(server)
    for name, data in documents:
        text, title = found.get(name, ("", ""))
        if text != ragd.document_text(data.decode()):
            tally.wrong.append(f"{name} has another text")
        fresh = ragd.bind(ragd.chunk(data.decode(), policy), doc_id=name, title=title)
        tally.wrong += differences(name, fresh, stored.pop(name, []))
    tally.wrong += [f"{name} has chunks and is no document" for name in stored]


def read_policy(server: Server) -> ChunkPolicy:
    """That of the collection; the first answers after the database came back may be 503."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ChunkPolicy.from_dict(server.call("GET", f"/v1/collections/{COLLECTION}")["chunk_policy"])
        except (RuntimeError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def differences(name: str, fresh: Sequence[ragd.Chunk], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """What is wrong with the stored chunks of one document."""
    expected = [(chunk.chunk_index, chunk.content, chunk.start, chunk.end, chunk.context) for chunk in fresh]
    if [row[:5] for row in rows] != expected:
        return [f"{name} has {len(rows)} chunks that are not the {len(expected)} of its text"]
    for row, chunk in zip(rows, fresh, strict=True):
        vector = np.asarray(json.loads(row[5]), dtype=np.float32)
        if not np.allclose(vector, hashed_vector(chunk.embed_text, DIMS), atol=1e-6):
            return [f"{name} has a vector that is not of its chunk {row[0]}"]
    return []
