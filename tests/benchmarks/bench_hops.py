"""Questions that need two documents: how often both are among the first k, with one hop and with two.

Run: python -m tests.benchmarks.bench_hops [--size 100] [--k 12] [--only development]

The corpora and questions are those of `tests.benchmarks.hop_questions`: generated people, places, companies and
products, and the sample's own documentation. The rule was settled on the development sets alone; the held-out sets
have other names, other sentences and other questions. Intervals are of 95 %, by a bootstrap over the questions. The
last lines are of questions that one document answers, and of the time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

import ragd
from ragd.models.embedding import LocalEmbedder
from ragd.search.retrieval import retrieve
from ragd.store.schema import apply_schema
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.types import ChunkPolicy, Mode, RetrievePlan
from ragd_site import embedded
from tests.benchmarks.hop_questions import DEVELOPMENT, HELD_OUT, document_questions, make_corpus

MODES: tuple[Mode, ...] = ("lexical", "vector", "hybrid")
SAMPLES = 2_000
TARGET = 0.9
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "evaluation_app/sample/golden.jsonl"
Question = tuple[str, tuple[str, ...]]


def load(connection: Any, name: str, documents: Mapping[str, tuple[str, str]], embedder: Any) -> Store:
    create_collection(connection, name=name, embed_model=embedder.model, embed_dims=embedder.dims)
    store = Store(connection, name, embedder)
    policy = ChunkPolicy().fitted(embedder.window)
    with connection.cursor() as cursor:
        rows = [(store.collection.id, doc_id) for doc_id in documents]
        cursor.executemany("INSERT INTO documents (collection_id, doc_id) VALUES (%s, %s)", rows)
    chunks = [
        chunk
        for doc_id, (title, text) in documents.items()
        for chunk in ragd.bind(ragd.chunk(text, policy), doc_id=doc_id, title=title)
    ]
    ragd.index(chunks, store)
    connection.commit()
    return store


def hits(
    store: Store, questions: Sequence[Question], plan: RetrievePlan, *, any_of: bool = False
) -> tuple[list[float], list[float]]:
    """(1 for each question whose documents are among the results, all or any_of them, else 0; milliseconds of each)."""
    found, took = [], []
    for text, needed in questions:
        began = time.perf_counter()
        result = {candidate.doc_id for candidate in retrieve(text, plan, store)}
        took.append((time.perf_counter() - began) * 1000)
        found.append(float(bool(result & set(needed)) if any_of else set(needed) <= result))
    return found, took


def interval(values: Sequence[float]) -> tuple[float, float]:
    draw = np.random.default_rng(7)
    means = draw.choice(np.array(values), size=(SAMPLES, len(values))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def measure(
    name: str,
    store: Store,
    questions: Sequence[Question],
    k: int,
    target: float | None = None,
    *,
    any_of: bool = False,
) -> None:
    for mode in MODES:
        plan = RetrievePlan(mode=mode, k=k)
        one, one_ms = hits(store, questions, plan, any_of=any_of)
        two, two_ms = hits(store, questions, replace(plan, hops=2), any_of=any_of)
        low, high = interval(two)
        gain_low, gain_high = interval([after - before for before, after in zip(one, two, strict=True)])
        ratio = statistics.median(two_ms) / statistics.median(one_ms)
        aim = f" (target: at least {target})" if target and mode == "hybrid" else ""
        print(
            f"{name:<24} {mode:<8} {len(questions):>4}  {statistics.fmean(one):.3f} -> {statistics.fmean(two):.3f}"
            f" [{low:.3f} {high:.3f}]  difference [{gain_low:+.3f} {gain_high:+.3f}]"
            f"  {statistics.median(one_ms):.1f} -> {statistics.median(two_ms):.1f} ms, ratio {ratio:.2f}{aim}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100, help="of each kind of thing in a generated corpus")
    parser.add_argument("--k", type=int, default=12)
    parser.add_argument("--only", choices=("development", "held out"))
    options = parser.parse_args()
    embedder = LocalEmbedder()
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    sample = {path.relative_to(ROOT).as_posix(): (path.stem, path.read_text()) for path in files}
    rows = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    golden = [(row["question"], tuple(row["expected_doc_ids"])) for row in rows if row.get("match", "any") == "any"]
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as scratch:
        Path(scratch).chmod(0o755)
        folder = Path(scratch) / "var"
        with psycopg.connect(embedded.ensure_running(folder, fsync=False).url) as connection:
            apply_schema(connection)
            connection.commit()
            print(f"share of questions with all their documents among the first {options.k}, 1 hop -> 2 hops")
            docs = load(connection, "docs", sample, embedder)
            for kind, words in (("development", DEVELOPMENT), ("held out", HELD_OUT)):
                if options.only not in (None, kind):
                    continue
                made = make_corpus(words, options.size, seed=len(kind))
                store = load(connection, kind, made.documents, embedder)
                target = TARGET if kind == "held out" else None
                measure(f"{kind}, two", store, [q for q in made.questions if len(q[1]) == 2], options.k, target)
                measure(f"{kind}, one", store, [q for q in made.questions if len(q[1]) == 1], options.k)
                measure(f"{kind}, sample, two", docs, document_questions(sample, kind), options.k)
            measure("sample, golden", docs, [q for q in golden if q[1]], options.k, any_of=True)
        embedded.stop(folder)


if __name__ == "__main__":
    main()
