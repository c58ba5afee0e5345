"""BEIR SciFact through a whole server: nDCG@10 of lexical, vector and hybrid search, and how long a hybrid one takes.

Run: python -m benchmarks.bench_scifact     (needs RAGD_DATA/scifact)
A document scores as its best chunk; POOL chunks are asked for. pytrec_eval, where it is installed, must give the same
figures. Times are of the library call, of the service, and over HTTP with 1 and 8 clients; everything is on this
machine, so the clients take their share of its processors too.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.scifact import (
    COLLECTION,
    JsonClient,
    SciFact,
    check_with_trec_eval,
    in_threads,
    ingest,
    load_scifact,
    mean_ndcg,
    mean_recall,
    timed,
)
from tests.server import Server, running_server

POOL = 100
TARGETS = {"lexical": 0.68, "vector": 0.64, "hybrid": 0.70}
WARM_UP = 20
PER_CLIENT = 100


def rank_documents(server: Server, data: SciFact, mode: str) -> dict[str, list[str]]:
    """query id -> document ids, best chunk first."""

    def search(client: JsonClient, query_id: str) -> tuple[str, list[str]]:
        results = client.search(data.queries[query_id], mode=mode, k=POOL, candidate_pool=POOL)["results"]
        return query_id, list(dict.fromkeys(result["doc_id"] for result in results))

    return dict(in_threads(server, search, list(data.queries), 1))


def measure_quality(server: Server, data: SciFact) -> bool:
    """Whether each mode reaches its target, as pytrec_eval counts too."""
    print(f"{'mode':10} {'nDCG@10':>8} {'recall@100':>11}  pytrec_eval ({len(data.queries)} queries)")
    passed = True
    for mode, target in TARGETS.items():
        rankings = rank_documents(server, data, mode)
        score, recall = mean_ndcg(rankings, data), mean_recall(rankings, data)
        checked = check_with_trec_eval(rankings, data, score)
        print(f"{mode:10} {score:8.4f} {recall:11.4f}  {checked:11} (target: at least {target:.2f})")
        passed = passed and score >= target and not checked.startswith("DIFFERS")
    return passed


def measure(call: Callable[[str], object], queries: Sequence[str]) -> list[float]:
    """Milliseconds of each call, after a warm-up."""
    for query in queries[:WARM_UP]:
        call(query)
    return [timed(call, query) for query in queries]


def report(name: str, took_ms: Sequence[float], *, seconds: float | None = None) -> None:
    ordered = sorted(took_ms)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    rate = f"{len(ordered) / seconds:8.1f} /s" if seconds else ""
    print(f"{name:34} {statistics.median(ordered):9.2f} ms {last:9.2f} ms {len(ordered):6} {rate}", flush=True)


def measure_in_process(server: Server, queries: Sequence[str]) -> None:
    """The same database from this process: the library alone, then with plan, run and spans as a channel calls it."""
    os.environ |= {
        "RAGD_VAR": str(server.var),
        "DJANGO_SETTINGS_MODULE": "ragd_site.settings",
        "RAGD_LOG_LEVEL": "WARNING",
    }
    import django

    django.setup()
    from django.db import transaction

    from collections_app.collections.services import get_collection
    from collections_app.index.stores import open_store
    from ragd import retrieve
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search import query_pipeline
    from retrieval_app.search.query_pipeline import QueryRequest

    collection = get_collection(COLLECTION)
    store = open_store(collection)
    plan = build_plan(collection)
    embedder = store.embedder
    assert embedder is not None

    def call_library(query: str) -> None:
        with transaction.atomic():
            retrieve(query, plan, store)

    report("embedding the query alone", measure(embedder.embed_query, queries))
    report("library: retrieve()", measure(call_library, queries))
    report(
        "service: search(), run stored",
        measure(lambda query: query_pipeline.search(QueryRequest(collection, query, plan, channel="cli")), queries),
    )


def measure_http(server: Server, data: SciFact, clients: int) -> None:
    queries = list(data.queries.values())
    asked = [queries[number % len(queries)] for number in range(max(len(queries), clients * PER_CLIENT))]
    list(in_threads(server, lambda client, query: client.search(query), queries[:WARM_UP], clients))

    def search(client: JsonClient, query: str) -> float:
        return timed(lambda text: client.search(text), query)

    began = time.perf_counter()
    took_ms = list(in_threads(server, search, asked, clients))
    report(f"HTTP, {clients} client{'s' if clients > 1 else ''}", took_ms, seconds=time.perf_counter() - began)


def main() -> None:
    data = load_scifact()
    with running_server() as server:
        took_s = ingest(server, data)
        chunks = server.call("GET", "/v1/collections/scifact/statistics")["chunks"]
        print(
            f"{len(data.documents)} documents, {chunks} chunks, ingested in {took_s:.0f} s; {os.cpu_count()} processors"
        )
        passed = measure_quality(server, data)
        print(f"{'hybrid search, k 12, pool 50':34} {'median':>12} {'99th':>12} {'calls':>6}")
        measure_in_process(server, list(data.queries.values()))
        for clients in (1, 8):
            measure_http(server, data, clients)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
