"""When the extractive answerer should abstain, and how well it picks sentences.

Run: python -m benchmarks.bench_answering     (needs RAGD_DATA/scifact; and ragbench, with pyarrow)

Abstention: two collections are asked each other's questions. SciFact claims have evidence in SciFact and none in this
project's documentation, the golden questions of the documentation the other way round. Choice: RAGBench says for each
question which sentences of its documents are relevant. Retrieval is by cosine, in memory; no database is needed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scifact import SciFact, load_scifact
from ragd import Candidate, ChunkPolicy, bind, chunk
from ragd.models.embedding import LocalEmbedder
from retrieval_app.answers.extractive_answerer import EVIDENCE_MIN, SOURCES_READ, ExtractiveAnswerer, Sentence
from tests.server import DATA, ROOT

QUESTIONS = 100
OTHER_DOCUMENTS = 700
RAGBENCH_QUESTIONS = 40
THRESHOLDS = (0.30, 0.34, EVIDENCE_MIN, 0.38, 0.40, 0.42, 0.46, 0.50)


@dataclass(frozen=True)
class Passages:
    """Candidates without scores and their unit vectors, one row each."""

    candidates: list[Candidate]
    vectors: np.ndarray


def embed_passages(embedder: LocalEmbedder, documents: Sequence[tuple[str, str, str]]) -> Passages:
    policy = ChunkPolicy().fitted(embedder.window)
    chunks = [item for key, title, text in documents for item in bind(chunk(text, policy), doc_id=key, title=title)]
    candidates = [
        Candidate(
            item.doc_id, item.chunk_index, item.content, 0.0, start=item.start, end=item.end, context=item.context
        )
        for item in chunks
    ]
    return Passages(candidates, np.asarray(embedder.embed([item.embed_text for item in chunks]), dtype=np.float32))


def find(embedder: LocalEmbedder, question: str, passages: Passages) -> list[Candidate]:
    cosines = passages.vectors @ np.asarray(embedder.embed_query(question), dtype=np.float32)
    return [passages.candidates[place] for place in np.argsort(-cosines, kind="stable")[:SOURCES_READ]]


def evidence(answerer: ExtractiveAnswerer, questions: Sequence[str], passages: Passages) -> np.ndarray:
    found = []
    for question in questions:
        ranked = answerer.rank_sentences(question, find(answerer.embedder, question, passages))  # type: ignore[arg-type]
        found.append(max((sentence.evidence for sentence in ranked), default=0.0))
    return np.asarray(found)


def load_documentation() -> list[tuple[str, str, str]]:
    return [(path.name, path.stem, path.read_text(encoding="utf-8")) for path in sorted((ROOT / "docs").glob("*.md"))]


def load_golden() -> list[str]:
    lines = (ROOT / "evaluation_app" / "sample" / "golden.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["question"] for line in lines if (row := json.loads(line))["expected_doc_ids"]]


def choose_documents(data: SciFact, queries: Sequence[str]) -> list[tuple[str, str, str]]:
    """Those that are judged for the queries, and others up to OTHER_DOCUMENTS, by a fixed draw."""
    wanted = {doc_id for query in queries for doc_id in data.judged[query]}
    others = [document for document in data.documents if document[0] not in wanted]
    return [document for document in data.documents if document[0] in wanted] + random.Random(1).sample(
        others, OTHER_DOCUMENTS
    )


def measure_abstention(answerer: ExtractiveAnswerer, embedder: LocalEmbedder) -> None:
    data = load_scifact()
    queries = sorted(data.queries, key=int)[:QUESTIONS]
    claims, golden = [data.queries[query] for query in queries], load_golden()
    scifact = embed_passages(embedder, choose_documents(data, queries))
    documentation = embed_passages(embedder, load_documentation())
    own = (evidence(answerer, claims, scifact), evidence(answerer, golden, documentation))
    foreign = (evidence(answerer, claims, documentation), evidence(answerer, golden, scifact))
    print("Abstention: share of questions that get an answer")
    print(f"{'least evidence':>15} {'own: claims':>12} {'golden':>8} {'foreign: claims':>16} {'golden':>8}")
    for threshold in THRESHOLDS:
        shares = [float((values >= threshold).mean()) for values in (*own, *foreign)]
        mark = "  <- used" if threshold == EVIDENCE_MIN else ""
        print(f"{threshold:15.2f} {shares[0]:12.3f} {shares[1]:8.3f} {shares[2]:16.3f} {shares[3]:8.3f}{mark}")
    area = auc(np.concatenate(own), np.concatenate(foreign))
    print(f"questions: {len(claims)} claims, {len(golden)} golden; area under the ROC curve {area:.3f}")


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """How often a question of one's own has more evidence than a foreign one; ties count half."""
    above, equal = positive[:, None] > negative, positive[:, None] == negative
    return float(above.mean() + equal.mean() / 2)


def load_ragbench(path: Path) -> list[dict[str, Any]]:
    """One row per question, by a fixed draw."""
    import pyarrow.parquet

    columns = ["question", "documents_sentences", "all_relevant_sentence_keys"]
    rows = pyarrow.parquet.read_table(path, columns=columns).to_pylist()
    random.Random(5).shuffle(rows)
    return list({row["question"]: row for row in rows if row["all_relevant_sentence_keys"]}.values())[
        :RAGBENCH_QUESTIONS
    ]


def judge_choice(answerer: ExtractiveAnswerer, row: dict[str, Any]) -> tuple[float, float, float]:
    """(relevant share of all sentences, is the best one relevant, relevant share of the best three)."""
    relevant = set(row["all_relevant_sentence_keys"])
    sources, keys = [], {}
    for number, sentences in enumerate(row["documents_sentences"]):
        texts = [text for _, text in sentences]
        sources.append(Candidate(str(number), 0, "\n\n".join(texts), 0.0))
        position = 0
        for key, text in sentences:
            keys[number, position] = key
            position += len(text) + 2
    cosines = np.asarray(answerer.embedder.embed([source.content for source in sources])) @ np.asarray(
        answerer.embedder.embed_query(row["question"])
    )
    order = [int(place) for place in np.argsort(-cosines, kind="stable")]
    ranked = answerer.rank_sentences(row["question"], [sources[place] for place in order][:SOURCES_READ])
    hits = [float(_key_of(sentence, order, keys) in relevant) for sentence in ranked[:3]] or [0.0]
    return len(relevant) / max(1, len(keys)), hits[0], sum(hits) / len(hits)


def _key_of(sentence: Sentence, order: Sequence[int], keys: dict[tuple[int, int], str]) -> str:
    """The labelled sentence in which the quoted one begins."""
    number = order[sentence.source]
    starts = [start for document, start in keys if document == number and start <= sentence.start]
    return keys[number, max(starts)]


def measure_choice(answerer: ExtractiveAnswerer) -> None:
    folder = DATA / "ragbench"
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        print("Choice of sentences: left out, pyarrow is not installed")
        return
    print("Choice of sentences (RAGBench): share that is labelled relevant")
    print(f"{'set':12} {'questions':>9} {'all':>6} {'best':>6} {'best 3':>7}")
    for path in sorted(folder.glob("*/validation.parquet")):
        scores = np.asarray([judge_choice(answerer, row) for row in load_ragbench(path)])
        base, first, three = scores.mean(axis=0)
        print(f"{path.parent.name:12} {len(scores):9} {base:6.2f} {first:6.2f} {three:7.2f}", flush=True)


def main() -> None:
    embedder = LocalEmbedder()
    answerer = ExtractiveAnswerer(embedder, evidence_min=0.0)
    measure_abstention(answerer, embedder)
    measure_choice(answerer)


if __name__ == "__main__":
    main()
