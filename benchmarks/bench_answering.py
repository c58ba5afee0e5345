"""Answers that quote: is the gold text in the first quotation, in the answer, and what is refused; in eight languages.

python -m benchmarks.bench_answering [--split tune] [--fit] [language ...]. A line of `answer_questions.jsonl` is a
paragraph with questions and gold spans, split by document. The test split and en, de, es, ru, hi were written for this,
in parallel (CC0); zh to tune is from CMRC 2018 (CC BY-SA 4.0), ja from JaQuAD (CC BY-SA 3.0), ar from ARCD (MIT).
Each question is asked as it is, and with its paragraph left out, which must be refused. small: the paragraphs of a
language; large: beside the pages of `benchmarks.multilingual`. English is searched hybrid, the others by keywords
alone. --fit prints the weights of `retrieval_app/answers/quoting.toml` as the tune split gives them; those in use were
fitted on half of it and on 480 questions of CMRC, JaQuAD, ARCD and TQuAD, half of RAGBench's hagrid, 200 of hotpotqa.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from scipy.optimize import minimize  # type: ignore[import-untyped]

import ragd
from benchmarks import multilingual
from benchmarks.bench_peers import running_database
from evaluation_app.judges.feature_model import fit_logistic
from ragd import Candidate, ChunkPolicy, RetrievePlan, Store, bind, chunk
from ragd.models.embedding import LocalEmbedder
from ragd.store.tables import create_collection
from ragd.text.languages import AUTO, detect_language
from retrieval_app.answers.extractive_answerer import (
    CERTAINTY,
    EVIDENCE_MIN,
    MODEL,
    ORDER,
    SOURCES_READ,
    ExtractiveAnswerer,
    count_words,
)

QUESTIONS = Path(__file__).with_name("answer_questions.jsonl")
LANGUAGES, HELP = ("en", "de", "es", "ru", "hi", "zh", "ar", "ja"), ("en", "de", "es", "ru", "hi")
CURVE = (0.05, 0.1, 0.15, 0.2, EVIDENCE_MIN, 0.3, 0.35, 0.4, 0.5, 0.6)
RIDGE = 0.02


@dataclass(frozen=True)
class Question:
    """document: left out for the question without an answer. results: of the search, best first."""

    text: str
    gold: str
    document: str
    split: str
    results: tuple[Candidate, ...] = ()

    def sources(self, *, is_answerable: bool) -> list[Candidate]:
        return [each for each in self.results if is_answerable or each.doc_id != self.document][:SOURCES_READ]

    def is_held(self, quotation: str) -> bool:
        return " ".join(self.gold.split()) in " ".join(quotation.split())


def load(languages: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, str]], list[Question]]]:
    """(name, documents as (id, text), questions) of each set."""
    for language in languages:
        own = [row for row in map(json.loads, QUESTIONS.open(encoding="utf-8")) if row["language"] == language]
        documents = [(row["document"], row["text"]) for row in own]
        questions = [
            Question(text, gold, row["document"], row["split"]) for row in own for text, gold in row["questions"]
        ]
        yield f"{language} small", documents, questions
        if language in HELP:
            pages = multilingual.load([language])[language].documents
            yield f"{language} large", documents + [(page.id, page.text) for page in pages], questions


def search(
    connection: psycopg.Connection[Any], name: str, documents: Sequence[tuple[str, str]], embedder: LocalEmbedder
) -> Store:
    is_english, model = name.startswith("en"), embedder.model
    create_collection(connection, name=name, embed_model=model, embed_dims=384 if is_english else 3, language=AUTO)
    store = Store(connection, name, embedder=embedder if is_english else None)
    chunks = [
        replace(each, attributes={**each.attributes, "language": detect_language(text)})
        for doc_id, text in documents
        for each in bind(chunk(text, ChunkPolicy().fitted(embedder.window)), doc_id=doc_id)
    ]
    vectors = embedder.embed([each.embed_text for each in chunks]) if is_english else [(1.0, 0.0, 0.0)] * len(chunks)
    ragd.index([replace(each, embedding=vector) for each, vector in zip(chunks, vectors, strict=True)], store)
    return store


def measure(name: str, questions: Sequence[Question], answerer: ExtractiveAnswerer) -> str:
    """Print the set's row; what is returned is its curve."""
    (first, whole, words, certain, uncertain), began = ([], [], [], [], []), time.perf_counter()
    for question in questions:
        draft = answerer.answer(question.text, question.sources(is_answerable=True))
        held = [question.is_held(each.quote) for each in draft.checked.citations]
        certain.append(draft.evidence or 0.0)
        is_answered = certain[-1] >= EVIDENCE_MIN
        first.append(is_answered and held[:1] == [True])
        whole.append(is_answered and any(held))
        words += [sum(count_words(each.quote) for each in draft.checked.citations)] * is_answered
        uncertain.append(answerer.answer(question.text, question.sources(is_answerable=False)).evidence or 0.0)
    took = 500 * (time.perf_counter() - began) / len(questions)
    low, high = np.array(certain), np.array(uncertain)
    shares = "".join(map(_interval, (first, whole, low < EVIDENCE_MIN, high >= EVIDENCE_MIN)))
    print(f"{name:10}{len(questions):>5}{shares}{np.mean(words):>6.0f}{took:>5.0f}", flush=True)
    return f"{name:10}" + "".join(f"{(low < each).mean():>6.2f}/{(high >= each).mean():.2f}" for each in CURVE)


def _interval(values: Any) -> str:
    draws = np.random.default_rng(0).choice(np.asarray(values, float), (1000, len(values))).mean(axis=1)
    return f"  {np.mean(values):.3f} [{np.quantile(draws, 0.025):.2f}, {np.quantile(draws, 0.975):.2f}]"


def order_loss(weights: np.ndarray, *parts: tuple[np.ndarray, np.ndarray]) -> float:
    """How unlikely the right sentences are. parts: of each question (what was measured, which are right)."""
    scores = [(measured @ weights, right) for measured, right in parts]
    lost = [np.logaddexp.reduce(each) - np.logaddexp.reduce(each[right]) for each, right in scores]
    return float(np.mean(lost) + RIDGE * weights @ weights / 2)


def fit(sets: dict[str, list[Question]], answerer: ExtractiveAnswerer) -> None:
    """English with the meaning and without it; small sets also with few passages."""
    kept = []
    for name, questions in sets.items():
        for index, question in enumerate(questions):
            for right in (True, False):
                whole = question.sources(is_answerable=right)
                few = [] if "small" not in name else whole[: 1 + index % 3]
                few = few if not right or any(each.doc_id == question.document for each in few) else []
                for sources in filter(None, (whole, few)):
                    for answerer.words_only in (False, True) if name.startswith("en") else (True,):
                        sentences, weighing = answerer.read(question.text, sources)
                        gold = np.array([right and question.is_held(each.text) for each in sentences], dtype=bool)
                        kept.append((f"{name} {answerer.words_only} {sources is few}", right, weighing, gold))
    for kind, bare in (("words", True), ("meaning", False)):
        groups = [row for row in kept if (row[2].cosines is None) == bare and row[0].endswith("False") and row[3].any()]
        scale = np.maximum(np.vstack([row[2].order for row in groups]).std(axis=0), 1e-9)
        parts = tuple((row[2].order / scale, row[3]) for row in groups)
        weights = minimize(order_loss, np.zeros(len(ORDER)), parts, method="L-BFGS-B").x / scale
        MODEL["order"][kind] = weights.round(4).tolist()
        print(kind, MODEL["order"][kind])
    kept = [row for row in kept if row[2].places]
    rows = np.array([row[2].features() for row in kept])
    model = fit_logistic(CERTAINTY, rows, [row[1] for row in kept], ridge=RIDGE * len(kept) / 4)
    values = np.array(model.coefficients) / model.scales
    print("weights", values.round(4).tolist(), "intercept", round(model.intercept - float(values @ model.means), 4))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("languages", nargs="*", default=LANGUAGES)
    parser.add_argument("--split", choices=("test", "tune"), default="test")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    split, embedder, sets = "tune" if options.fit else options.split, LocalEmbedder(), {}
    with running_database() as (url, _), psycopg.connect(url) as connection:
        for name, documents, questions in load(options.languages):
            store = search(connection, name, documents, embedder)
            plan = RetrievePlan(mode="hybrid" if name.startswith("en") else "lexical", k=SOURCES_READ + 8)
            asked = (each for each in questions if each.split == split)
            sets[name] = [replace(each, results=tuple(ragd.retrieve(each.text, plan, store))) for each in asked]
    answerer = ExtractiveAnswerer(embedder, evidence_min=0.0)
    if options.fit:
        fit(sets, answerer)
        return
    print(f"{'set':10}{'':5}{'in the first part':>19}{'in the answer':>19}{'refused':>19}{'false':>19} words   ms")
    curves = [measure(name, questions, answerer) for name, questions in sets.items()]
    print("\nrefused of the answerable / answered of the others, from the least certainty on")
    print(f"{'':10}" + "".join(f"{each:>11}" for each in CURVE), *curves, sep="\n")


if __name__ == "__main__":
    main()
