"""BEIR SciFact: what it holds, how it gets into a server through the HTTP API, and how good a ranking of it is."""

from __future__ import annotations

import csv
import http.client
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from tests.server import Server, need_data

COLLECTION = "scifact"
INGEST_THREADS = 2

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class SciFact:
    """documents: (id, title, text). queries: id -> text, those of one split. judged: query id -> relevant ids."""

    documents: list[tuple[str, str, str]]
    queries: dict[str, str]
    judged: dict[str, dict[str, int]]


def load_scifact(split: str = "test") -> SciFact:
    """The documents with the queries of one split, "train" (809) or "test" (300)."""
    folder = need_data("scifact")
    judged: dict[str, dict[str, int]] = {}
    with (folder / "qrels" / f"{split}.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            judged.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    documents = [(row["_id"], row["title"], row["text"]) for row in read_lines(folder / "corpus.jsonl")]
    queries = {row["_id"]: row["text"] for row in read_lines(folder / "queries.jsonl") if row["_id"] in judged}
    return SciFact(documents, queries, judged)


def ingest(server: Server, data: SciFact) -> float:
    """Every document by its own PUT; the seconds that took."""
    began = time.monotonic()
    server.call("POST", "/v1/collections", {"name": COLLECTION, "hybrid_enabled": True})

    done = itertools.count(1)

    def put(client: JsonClient, document: tuple[str, str, str]) -> None:
        doc_id, title, text = document
        client.call("PUT", f"/v1/collections/{COLLECTION}/documents/{quote(doc_id)}", {"title": title, "content": text})
        if (number := next(done)) % 1000 == 0:
            print(f"  {number} documents after {time.monotonic() - began:.0f} s", flush=True)

    list(in_threads(server, put, data.documents, INGEST_THREADS))
    return time.monotonic() - began


class JsonClient:
    """One kept connection to the server."""

    def __init__(self, server: Server) -> None:
        parts = urlsplit(server.url)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=300)
        self.headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any) -> Any:
        """The decoded answer. A kept connection that the server has closed meanwhile is opened again, once."""
        try:
            answer, text = self._send(method, path, body)
        except (ConnectionError, http.client.RemoteDisconnected):
            self.connection.close()
            answer, text = self._send(method, path, body)
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
        return json.loads(text)

    def _send(self, method: str, path: str, body: Any) -> tuple[http.client.HTTPResponse, bytes]:
        self.connection.request(method, path, json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        return answer, answer.read()

    def search(self, query: str, **plan: Any) -> Any:
        return self.call("POST", f"/v1/collections/{COLLECTION}/search", {"query": query, **plan})


def in_threads(server: Server, work: Callable[[JsonClient, T], R], items: Sequence[T], threads: int) -> Iterator[R]:
    """work(client, item) of every item, in order, by so many threads with a connection each."""
    shares = [items[number::threads] for number in range(threads)]

    def run(share: Sequence[T]) -> list[R]:
        client = JsonClient(server)
        return [work(client, item) for item in share]

    if threads == 1:
        client = JsonClient(server)
        yield from (work(client, item) for item in items)
        return
    with ThreadPoolExecutor(threads) as pool:
        for results in pool.map(run, shares):
            yield from results


def read_lines(path: Any) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def ndcg(ranked: Sequence[str], judged: Mapping[str, int], depth: int = 10) -> float:
    """Linear gain over log2(rank + 1), divided by the best that the judgements allow. 0.0 when nothing is relevant."""
    gain = sum(judged.get(doc_id, 0) / math.log2(rank + 1) for rank, doc_id in enumerate(ranked[:depth], 1))
    best = sorted(judged.values(), reverse=True)[:depth]
    ideal = sum(value / math.log2(rank + 1) for rank, value in enumerate(best, 1))
    return gain / ideal if ideal else 0.0


def check_with_trec_eval(rankings: Mapping[str, Sequence[str]], data: SciFact, own: float) -> str:
    try:
        import pytrec_eval
    except ImportError:
        return "not installed"
    run = {key: {doc_id: 1000.0 - place for place, doc_id in enumerate(ranked)} for key, ranked in rankings.items()}
    scores = pytrec_eval.RelevanceEvaluator(data.judged, {"ndcg_cut_10"}).evaluate(run)
    theirs = sum(row["ndcg_cut_10"] for row in scores.values()) / len(data.queries)
    return "agrees" if abs(theirs - own) < 1e-9 else f"DIFFERS: {theirs:.4f}"


def timed(call: Callable[..., object], *arguments: object) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    call(*arguments)
    return (time.perf_counter() - began) * 1000


def mean_ndcg(rankings: Mapping[str, Sequence[str]], data: SciFact) -> float:
    return sum(ndcg(rankings[key], data.judged[key]) for key in data.queries) / len(data.queries)


def mean_recall(rankings: Mapping[str, Sequence[str]], data: SciFact, depth: int = 100) -> float:
    found = (len(set(rankings[key][:depth]) & set(data.judged[key])) / len(data.judged[key]) for key in data.queries)
    return sum(found) / len(data.queries)
