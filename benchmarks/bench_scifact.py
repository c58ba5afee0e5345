"""Retrieval quality on BEIR SciFact through the HTTP API: nDCG@10 of lexical, vector and hybrid search.

Run: python -m benchmarks.bench_scifact     (needs RAGD_DATA/scifact)
A document scores as its best chunk; POOL chunks are asked for. nDCG has linear gain as in trec_eval, and pytrec_eval,
where it is installed, must give the same figures.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from benchmarks.scifact import JsonClient, SciFact, in_threads, ingest, load_scifact
from tests.server import Server, running_server

POOL = 100
DEPTH = 10
TARGETS = {"lexical": 0.68, "vector": 0.64, "hybrid": 0.70}


def ndcg(ranked: Sequence[str], judged: Mapping[str, int], depth: int = DEPTH) -> float:
    """Linear gain over log2(rank + 1), divided by the best that the judgements allow. 0.0 when nothing is relevant."""
    gain = sum(judged.get(doc_id, 0) / math.log2(rank + 1) for rank, doc_id in enumerate(ranked[:depth], 1))
    best = sorted(judged.values(), reverse=True)[:depth]
    ideal = sum(value / math.log2(rank + 1) for rank, value in enumerate(best, 1))
    return gain / ideal if ideal else 0.0


def rank_documents(server: Server, data: SciFact, mode: str) -> dict[str, list[str]]:
    """query id -> document ids, best chunk first."""

    def search(client: JsonClient, query_id: str) -> tuple[str, list[str]]:
        results = client.search(data.queries[query_id], mode=mode, k=POOL, candidate_pool=POOL)["results"]
        return query_id, list(dict.fromkeys(result["doc_id"] for result in results))

    return dict(in_threads(server, search, list(data.queries), 1))


def check_with_trec_eval(rankings: Mapping[str, Sequence[str]], data: SciFact, own: float) -> str:
    try:
        import pytrec_eval
    except ImportError:
        return "not installed"
    run = {key: {doc_id: 1000.0 - place for place, doc_id in enumerate(ranked)} for key, ranked in rankings.items()}
    scores = pytrec_eval.RelevanceEvaluator(data.judged, {f"ndcg_cut_{DEPTH}"}).evaluate(run)
    theirs = sum(row[f"ndcg_cut_{DEPTH}"] for row in scores.values()) / len(data.queries)
    return "agrees" if abs(theirs - own) < 1e-9 else f"DIFFERS: {theirs:.4f}"


def main() -> None:
    data = load_scifact()
    failed = False
    with running_server() as server:
        took_s = ingest(server, data)
        chunks = server.call("GET", "/v1/collections/scifact/statistics")["chunks"]
        print(f"{len(data.documents)} documents, {chunks} chunks, ingested in {took_s:.0f} s")
        print(f"{'mode':10} {'nDCG@10':>8} {'recall@100':>11}  pytrec_eval ({len(data.queries)} queries)")
        for mode, target in TARGETS.items():
            rankings = rank_documents(server, data, mode)
            score = sum(ndcg(rankings[key], data.judged[key]) for key in data.queries) / len(data.queries)
            recall = sum(
                len(set(rankings[key]) & set(data.judged[key])) / len(data.judged[key]) for key in data.queries
            )
            checked = check_with_trec_eval(rankings, data, score)
            recall /= len(data.queries)
            print(f"{mode:10} {score:8.4f} {recall:11.4f}  {checked:11} (target: at least {target:.2f})")
            failed = failed or score < target or checked.startswith("DIFFERS")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
