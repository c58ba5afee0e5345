"""Hybrid search at measured fusion weights beside each of its lists, and what the built-in reranker adds: nDCG@10.

Run: python -m benchmarks.bench_list_weights [--model multilingual-e5-small] [--most 150] [--rerank] [set ...]
A set is "cranfield" or "scifact" (RAGD_DATA), or a language of benchmarks/multilingual.py (downloaded once).

Documents of a language are indexed without their titles, which are the queries. Printed are each list alone, both at
weights of 1 and at the measured ones with a 95 % bootstrap interval over the queries, and with --rerank the measured
order as the built-in reranker leaves it. Hybrid may not be more than 0.005 below the best of the first three.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import ragd
from benchmarks.bench_scifact import ndcg
from benchmarks.cranfield import load_cranfield
from benchmarks.multilingual import LANGUAGES, load
from benchmarks.scifact import SciFact, load_scifact
from ragd.insight.list_weights import CHUNKS, embed_probes, make_probes, measure_list_weights
from ragd.models.embedding import LocalEmbedder
from ragd.models.multilingual_e5 import MODEL, MultilingualE5Embedder
from ragd.models.reranking import LateInteraction
from ragd.search.fusion import fuse
from ragd.store.indexing import embed_chunks
from ragd.store.tables import apply_schema, create_collection
from ragd.types import Candidate, Chunk, ChunkPolicy, Embedder, RetrievePlan
from ragd_site import embedded

ALLOWED = 0.005
DRAWS = 2000
ENGLISH = {"cranfield": load_cranfield, "scifact": load_scifact}
EVEN = {"vector": 1.0, "lexical": 1.0}


@dataclass(frozen=True)
class JudgedSet:
    name: str
    language: str
    data: SciFact

    def gains(self, rankings: Mapping[str, Sequence[Candidate]]) -> list[float]:
        """nDCG@10 of each query; a document scores as its best chunk."""
        return [
            ndcg(list(dict.fromkeys(found.doc_id for found in ranked)), self.data.judged[query])
            for query, ranked in rankings.items()
        ]


def load_set(name: str) -> JudgedSet:
    if name in ENGLISH:
        return JudgedSet(name, "en", ENGLISH[name]())
    its = load([name])[name]
    return JudgedSet(
        name,
        name,
        SciFact(
            [(document.id, "", document.text) for document in its.documents],
            {query.relevant: query.text for query in its.queries},
            {query.relevant: {query.relevant: 1} for query in its.queries},
        ),
    )


def chunks_of(judged: JudgedSet, embedder: Embedder) -> list[Chunk]:
    policy = ChunkPolicy().fitted(embedder.window)
    return [
        replace(chunk, attributes={**chunk.attributes, "language": judged.language})
        for doc_id, title, text in judged.data.documents
        if text.strip()
        for chunk in ragd.bind(ragd.chunk(text, policy), doc_id=doc_id, title=title)
    ]


def interval(gains: Sequence[float]) -> tuple[float, float]:
    drawn = np.random.default_rng(1).integers(0, len(gains), (DRAWS, len(gains)))
    low, high = np.percentile(np.asarray(gains)[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def measure(
    connection: Any, judged: JudgedSet, embedder: Embedder, most: int, reranker: LateInteraction | None
) -> bool:
    """Print one set; returns whether hybrid at measured weights is good enough."""
    chunks = list(embed_chunks(chunks_of(judged, embedder), embedder))
    create_collection(
        connection, name=judged.name, embed_model=embedder.model, embed_dims=embedder.dims, language="auto"
    )
    store = ragd.Store(connection, judged.name, embedder)
    ragd.index(chunks, store)
    probes = make_probes(chunks[:: max(1, len(chunks) // CHUNKS)][:CHUNKS])
    measured = measure_list_weights(probes, *embed_probes(probes, embedder), store)
    weights = dict(measured.weights) if measured else EVEN
    queries = dict(list(judged.data.queries.items())[:most])
    found = {key: ragd.retrieve_detailed(text, RetrievePlan(k=50), store).lists for key, text in queries.items()}
    fused = {
        name: {key: fuse(lists, "rrf", {"weights": pair}) for key, lists in found.items()}
        for name, pair in (("even", EVEN), ("measured", weights))
    }
    means = {
        name: float(np.mean(judged.gains({key: lists[name] for key, lists in found.items()})))
        for name in ("lexical", "vector")
    } | {"even": float(np.mean(judged.gains(fused["even"])))}
    gains = judged.gains(fused["measured"])
    low, high = interval(gains)
    hybrid = float(np.mean(gains))
    reranked = ""
    if reranker is not None:
        orders = {key: ragd.rerank(queries[key], ranked, reranker) for key, ranked in fused["measured"].items()}
        reranked = f"{np.mean(judged.gains(orders)):9.3f}"
    connection.rollback()
    lost = max(means.values()) - hybrid
    print(
        f"{judged.name:10} {len(found):5} {means['lexical']:8.3f} {means['vector']:8.3f} {means['even']:8.3f}"
        f" {hybrid:8.3f} [{low:.3f} {high:.3f}] {weights['vector']:g}:{weights['lexical']:<3g} {-lost:+7.3f}"
        f"{reranked}{' MISSED' if lost > ALLOWED else ''}",
        flush=True,
    )
    return lost <= ALLOWED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[*ENGLISH, *LANGUAGES])
    parser.add_argument("--model", choices=(LocalEmbedder.model, MODEL), default=LocalEmbedder.model)
    parser.add_argument("--most", type=int, default=300, help="queries per set")
    parser.add_argument("--rerank", action="store_true", help="also rerank what the measured weights give")
    options = parser.parse_args()
    embedder: Embedder = MultilingualE5Embedder() if options.model == MODEL else LocalEmbedder()
    reranker = LateInteraction(cached_windows=10_000) if options.rerank else None
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as scratch:
        Path(scratch).chmod(0o755)
        folder = Path(scratch) / "var"
        connection = embedded.connect(embedded.ensure_running(folder, fsync=False))
        try:
            connection.autocommit = False
            apply_schema(connection)
            connection.commit()
            print(f"{embedder.model}: nDCG@10, the difference is to the best of the first three")
            print("set      queries  lexical   vector      1:1 measured               weights  difference reranked")
            kept = [measure(connection, load_set(name), embedder, options.most, reranker) for name in options.sets]
        finally:
            connection.close()
            embedded.stop(folder)
    print(f"no more than {ALLOWED} below the best: {sum(kept)} of {len(kept)} sets (target: all)")


if __name__ == "__main__":
    main()
