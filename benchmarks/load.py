"""Clients that search, ask and upload at once, and what a server under them uses: for bench_load."""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from tests.fakes.openai_server import OpenAIServer
from tests.server import Server, running_server

COLLECTION = "docs"
SHARES = {"search": 0.7, "ask": 0.2, "upload": 0.1}
SAMPLE_S = 5.0
PAUSE_S = 0.005  # between two words of the model
ANSWER = "A document is cut into chunks of about equal size [1]. Each one keeps its place [2]. " * 3
QUESTIONS = (
    "How is a document cut into chunks?", "What is reciprocal rank fusion?", "How long are spans kept?",
    "How do I make an API key?", "What does the reranker do?", "How are ties decided?", "What is an index version?",
    "Which formats are read?", "How is a collection deleted?", "What does a golden question hold?",
)  # fmt: skip


@dataclass
class Tally:
    """times_s: of answered requests, by kind. waited: answers 429 and 503 with Retry-After. errors: all others."""

    times_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    waited: int = 0
    errors: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def percentile(self, kind: str, share: float) -> float:
        times = sorted(self.times_s[kind])
        return times[min(len(times) - 1, int(share * len(times)))] * 1000 if times else float("nan")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of all processes of the server: resident MB, open files and sockets; and connections of its database."""

    at_s: float
    memory_mb: float
    handles: int
    connections: int


class Client:
    """One connection that is kept. Raises nothing: what is wrong is counted."""

    def __init__(self, server: Server, tally: Tally, number: int) -> None:
        self.server, self.tally, self.draw, self.number = server, tally, random.Random(number), number
        self.host = urlsplit(server.url).netloc
        self.connection = http.client.HTTPConnection(self.host, timeout=60)
        self.sent = 0

    def step(self) -> None:
        kind = self.draw.choices(list(SHARES), list(SHARES.values()))[0]
        question = self.draw.choice(QUESTIONS)
        self.sent += 1
        if kind == "search":
            self._send(kind, "POST", f"/v1/collections/{COLLECTION}/search", {"query": question, "k": 8})
        elif kind == "ask":
            self._send(kind, "POST", f"/v1/collections/{COLLECTION}/ask", {"query": question, "k": 5}, streams=True)
        else:
            text = f"# Note {self.number}\n\n" + f"{question} Written {self.sent} times by client {self.number}. " * 20
            path = f"/v1/collections/{COLLECTION}/documents/note-{self.number}-{self.sent % 5}"
            self._send(kind, "PUT", path, {"title": f"Note {self.number}", "content": text})

    def _send(self, kind: str, method: str, path: str, body: Any, *, streams: bool = False) -> None:
        headers = {"Authorization": f"Bearer {self.server.key}", "Content-Type": "application/json"}
        if streams:
            headers["Accept"] = "text/event-stream"
        began = time.monotonic()
        try:
            self.connection.request(method, path, json.dumps(body), headers)
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            with self.tally.lock:
                self.tally.errors.append(f"{kind}: {type(error).__name__}: {error}")
            return
        took = time.monotonic() - began
        retry_after = answer.headers.get("Retry-After")
        with self.tally.lock:
            if answer.status < 300 and not (streams and b"event: final" not in text):
                self.tally.times_s[kind].append(took)
                return
            if answer.status in (429, 503) and retry_after:
                self.tally.waited += 1
            else:
                self.tally.errors.append(f"{kind}: {answer.status} {text[:200]!r}")
                return
        time.sleep(min(float(retry_after), 5.0))


def add_documents(server: Server) -> None:
    """A collection of ragd's documentation."""
    server.call("POST", "/v1/collections", {"name": COLLECTION, "hybrid_enabled": True})
    for path in sorted(Path("docs").glob("*.md"))[:20]:
        body = {"title": path.stem, "content": path.read_text()}
        server.call("PUT", f"/v1/collections/{COLLECTION}/documents/{path.stem}", body)


@contextmanager
def loaded_server(**variables: str) -> Iterator[Server]:
    """A server with ragd's documentation and a chat model on the loopback."""
    model = OpenAIServer(api_key=None).start()
    model.chat_reply = lambda messages: ANSWER
    model.pause = lambda sent: time.sleep(PAUSE_S)
    try:
        with running_server(LLM_BASE_URL=model.base_url, **variables) as server:
            add_documents(server)
            for question in QUESTIONS:
                server.call("POST", f"/v1/collections/{COLLECTION}/search", {"query": question})
            yield server
    finally:
        model.stop()


def press(server: Server, clients: int, seconds: float) -> tuple[Tally, list[Usage]]:
    """So many clients for so long, each as fast as it is answered, with samples of what the server uses."""
    tally, stopping, usages = Tally(), threading.Event(), list[Usage]()
    began = time.monotonic()

    def work(number: int) -> None:
        client = Client(server, tally, number)
        while not stopping.is_set():
            client.step()
        client.connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        while (passed := time.monotonic() - began) < seconds:
            usages.append(read_usage(server, passed))
            time.sleep(min(SAMPLE_S, max(0.05, seconds - passed)))
        usages.append(read_usage(server, time.monotonic() - began))
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    return tally, usages


def read_usage(server: Server, at_s: float) -> Usage:
    memory_kb = handles = 0
    for pid, line in server.processes().items():
        if "postgres" in line.partition(" ")[0]:
            continue
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            handles += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        memory_kb += sum(int(row.split()[1]) for row in status.splitlines() if row.startswith(("RssAnon", "RssShmem")))
    with psycopg.connect(server.database_url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
    return Usage(at_s, memory_kb / 1024, handles, int(row[0]) if row else 0)


def print_tally(tally: Tally, seconds: float) -> None:
    print(f"\n{'':8} {'answered':>9} {'per s':>7} {'median':>10} {'95th':>10} {'99th':>10}")
    for kind in SHARES:
        median, high, highest = (tally.percentile(kind, share) for share in (0.5, 0.95, 0.99))
        count = len(tally.times_s[kind])
        print(f"{kind:8} {count:9,} {count / seconds:7.1f} {median:7.0f} ms {high:7.0f} ms {highest:7.0f} ms")
    total = sum(map(len, tally.times_s.values()))
    print(f"{'all':8} {total:9,} {total / seconds:7.1f}   told to wait (429, 503 with Retry-After): {tally.waited:,}")
    print(f"errors: {len(tally.errors)}, target 0")
    for error in dict.fromkeys(tally.errors[:20]):
        print(f"    {error}")
