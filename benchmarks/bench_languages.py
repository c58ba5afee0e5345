"""Keyword search in twenty languages, before and after: nDCG@10 of known items, and what detection costs.

`python -m benchmarks.bench_languages [LANGUAGE ...]` reads the sets of `multilingual` (downloaded at the first
run), indexes each language into a collection of its own three times and asks every query in lexical mode: with the
text search configuration `english`, which was the default; with `simple`; and with `auto`. Then it does the same with
all languages in one collection. A document's language is what is found of its text. Every query has one relevant
document, so nDCG@10 is 1 / log2(rank + 1). Chunks are the documents whole, up to 8,000 characters. Nothing is fitted
on these sets but the confidence from which a found language is believed (ragd/text/languages.py).

`python -m benchmarks.bench_languages --english` asks SciFact and Cranfield (RAGD_DATA) instead: with the language
stated, with the one that is found document by document, and with FOREIGN documents stated to be in other languages.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg

import ragd
from benchmarks.bench_peers import running_database
from benchmarks.bench_scifact import ndcg
from benchmarks.cranfield import load_cranfield
from benchmarks.multilingual import LANGUAGES, LanguageSet, load
from benchmarks.scifact import load_scifact
from ragd.store.store import Store
from ragd.store.tables import apply_schema, create_collection
from ragd.text.languages import AUTO, configuration_of, detect_language, indexed_pairs, own_language, split_runs
from ragd.types import Chunk, RetrievePlan

CONFIGURATIONS = ("english", "simple", AUTO)
TARGETED = ("zh", "ja", "th")
TARGET = 0.1  # that nDCG@10 gains over the better of the two configurations without `auto`
K = 10
FOREIGN = (5, 100)
CHUNK_CHARS = 8_000
VECTOR = (1.0, 0.0, 0.0)


def main() -> None:
    if sys.argv[1:] == ["--english"]:
        measure_english()
        return
    chosen = sys.argv[1:] or LANGUAGES
    sets = load(chosen)
    measure_detection(sets)
    print(f"{'nDCG@10, lexical':<18}{'documents':>10}" + "".join(f"{name:>9}" for name in CONFIGURATIONS))
    with running_database() as (url, _), psycopg.connect(url) as connection:
        apply_schema(connection)
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
            measure_lengths(connection, sets)
        measure_ingest(connection, sets)


def measure_english() -> None:
    """What documents that are taken for ones of another language cost a collection in one language."""
    sets = {"scifact": load_scifact(), "cranfield": load_cranfield()}
    print(f"{'nDCG@10, lexical':<18}{'stated':>9}{'found':>9}{'others':>9}" + "".join(f"{n:>6} odd" for n in FOREIGN))
    with running_database() as (url, _), psycopg.connect(url) as connection:
        apply_schema(connection)
        for name, data in sets.items():
            texts = [(key, title, text) for key, title, text in data.documents if text.strip()]
            found: dict[str, str] = {}
            counts: Counter[str] = Counter()
            for key, title, text in texts:
                found[key] = detect_language(f"{title}\n{text}", own_language(counts))
                counts[configuration_of(found[key])] += 1
            others = sum(configuration_of(language) != "english" for language in found.values())
            drawn = random.Random(1).sample([key for key, *_ in texts], max(FOREIGN))
            variants = [dict.fromkeys(found, "en"), found]
            variants += [variants[0] | dict(zip(drawn[:n], ["fr", "de", "es"] * n, strict=False)) for n in FOREIGN]
            scores = []
            for number, languages in enumerate(variants):
                create_collection(connection, name=f"{name}{number}", embed_model="given", embed_dims=3, language=AUTO)
                store = Store(connection, f"{name}{number}")
                chunks = [
                    Chunk(key, 0, text, 0, len(text), context=title, embedding=VECTOR,
                          attributes={"language": languages[key]})
                    for key, title, text in texts
                ]  # fmt: skip
                ragd.index(chunks, store)
                plan = RetrievePlan(mode="lexical", k=K)
                scores.append(
                    statistics.fmean(
                        ndcg([item.doc_id for item in ragd.retrieve(query, plan, store)], data.judged[key])
                        for key, query in data.queries.items()
                    )
                )
                connection.rollback()
            first, second, *rest = scores
            print(f"{name:<18}{first:>9.4f}{second:>9.4f}{others:>9}" + "".join(f"{each:>10.4f}" for each in rest))


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


def measure_lengths(connection: psycopg.Connection[Any], sets: Mapping[str, LanguageSet]) -> None:
    """Single characters and pairs make a text as long as it has characters, twice: what BM25 takes for its length."""
    print("length in words of the index, for 100 characters of text:")
    figures = []
    for language, its in sets.items():
        text = " ".join(document.text for document in its.documents)
        rest, runs = split_runs(text)
        words = len(rest.split()) + sum(len(indexed_pairs(run)) for run in runs)
        figures.append(f"{language} {100 * words / len(text):.0f}")
    print("  " + ", ".join(figures))


def measure_ingest(connection: psycopg.Connection[Any], sets: Mapping[str, LanguageSet]) -> None:
    """Documents that are indexed in a second with their vectors given: the analysis and the write alone."""
    whole = [chunk for its in sets.values() for chunk in chunks_of(its)]
    for language in CONFIGURATIONS:
        create_collection(connection, name=f"speed-{language}", embed_model="given", embed_dims=3, language=language)
        began = time.perf_counter()
        ragd.index(whole, Store(connection, f"speed-{language}"))
        print(f"indexed by {language}: {len(whole) / (time.perf_counter() - began):.0f} documents/s")
        connection.rollback()


if __name__ == "__main__":
    main()
