"""Answers that quote: is the gold text in the first quotation, in the answer, and what is refused; in eight languages.

python -m benchmarks.bench_answering [--split tune] [--fit] [language ...]. A line of `answer_questions.jsonl` is a
paragraph with questions and gold spans, split by document. The test split and en, de, es, ru, hi were written for this,
in parallel (CC0); zh to tune is from CMRC 2018 (CC BY-SA 4.0), ja from JaQuAD (CC BY-SA 3.0), ar from ARCD (MIT).
Each question is asked as it is, and with its paragraph left out, which must be refused. small: the paragraphs of a
language; large: beside the pages of `benchmarks.multilingual`. English is searched hybrid and by keywords, the others
by keywords; e5: all hybrid with multilingual-e5-small, which reads the sentences too. --fit fits the weights of
`retrieval_app/answers/quoting.toml` on the tune split alone, prints what it refuses and answers at each threshold in
documents that were left out of the fit, and says whether the weights come out.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import numpy as np
import psycopg
from scipy.optimize import minimize  # type: ignore[import-untyped]

import benchmarks.without_database  # noqa: F401  (for its effect)
import ragd
from benchmarks import multilingual
from benchmarks.bench_peers import running_database
from evaluation_app.judges.feature_model import fit_logistic
from ragd import Candidate, ChunkPolicy, RetrievePlan, Store, bind, chunk
from ragd.models.embedding import LocalEmbedder
from ragd.models.multilingual_e5 import MultilingualE5Embedder
from ragd.store.tables import create_collection
from ragd.text.languages import AUTO, detect_language
from ragd.types import Embedder, Mode
from retrieval_app.answers.extractive_answerer import EVIDENCE_MIN, SOURCES_READ, ExtractiveAnswerer, count_words
from retrieval_app.answers.question import MODEL
from retrieval_app.answers.question_match import CERTAINTY, ORDER, Weighing

QUESTIONS = Path(__file__).with_name("answer_questions.jsonl")
LANGUAGES, HELP = ("en", "de", "es", "ru", "hi", "zh", "ar", "ja"), ("en", "de", "es", "ru", "hi")
CURVE = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6)
HYBRID = ("en small", "en large")
E5 = " e5"  # at the end of a set's name
RIDGE, RIDGE_CERTAINTY = 0.1, 0.05
FOLDS = 6
DECIMALS = 3  # of the weights: what is below differs between machines


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
        yield f"{language} small{E5}", documents, questions


@cache
def answerer_of(name: str) -> ExtractiveAnswerer:
    """For the set of this name, or another that ends the same."""
    embedder = MultilingualE5Embedder() if name.endswith(E5) else LocalEmbedder()
    return ExtractiveAnswerer(embedder, evidence_min=0.0)


def search(
    connection: psycopg.Connection[Any], name: str, documents: Sequence[tuple[str, str]], embedder: Embedder
) -> Store:
    is_embedded, model = name in HYBRID or name.endswith(E5), embedder.model
    create_collection(connection, name=name, embed_model=model, embed_dims=384 if is_embedded else 3, language=AUTO)
    store = Store(connection, name, embedder=embedder if is_embedded else None)
    chunks = [
        replace(each, attributes={**each.attributes, "language": detect_language(text)})
        for doc_id, text in documents
        for each in bind(chunk(text, ChunkPolicy().fitted(embedder.window)), doc_id=doc_id)
    ]
    vectors = embedder.embed([each.embed_text for each in chunks]) if is_embedded else [(1.0, 0.0, 0.0)] * len(chunks)
    ragd.index([replace(each, embedding=vector) for each, vector in zip(chunks, vectors, strict=True)], store)
    return store


def retrieve(questions: Sequence[Question], mode: Mode, store: Store) -> list[Question]:
    plan = RetrievePlan(mode=mode, k=SOURCES_READ + 8)
    return [replace(each, results=tuple(ragd.retrieve(each.text, plan, store))) for each in questions]


def measure(name: str, questions: Sequence[Question]) -> str:
    """Print the set's row; what is returned is its curve."""
    answerer = answerer_of(name)
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
    print(f"{name:16}{len(questions):>5}{shares}{np.mean(words):>6.0f}{took:>5.0f}", flush=True)
    return _curve(name, low, high)


def _interval(values: Any) -> str:
    draws = np.random.default_rng(0).choice(np.asarray(values, float), (1000, len(values))).mean(axis=1)
    return f"  {np.mean(values):.3f} [{np.quantile(draws, 0.025):.2f}, {np.quantile(draws, 0.975):.2f}]"


def order_loss(weights: np.ndarray, *parts: tuple[np.ndarray, np.ndarray]) -> float:
    """How unlikely the right sentences are. parts: of each question (what was measured, which are right)."""
    scores = [(measured @ weights, right) for measured, right in parts]
    lost = [np.logaddexp.reduce(each) - np.logaddexp.reduce(each[right]) for each, right in scores]
    return float(np.mean(lost) + RIDGE * weights @ weights / 2)


@dataclass(frozen=True)
class Row:
    """A question over its passages. right: one of them answers. gold: bool per sentence, whether it holds the answer.
    fold: of its document's subject. is_whole: over all that was found, not a few of it."""

    name: str
    right: bool
    weighing: Weighing
    gold: np.ndarray
    fold: int
    is_whole: bool


def read_rows(sets: dict[str, list[Question]], kind: str) -> list[Row]:
    """kind: "words", all languages without an encoder; "meaning", English with the bundled one; "multilingual". Small
    sets also with few passages. A question whose answer stands in another passage too is not taken for one without an
    answer."""
    rows = []
    for name, questions in sets.items():
        is_meant = {"words": name not in HYBRID, "meaning": name.startswith("en"), "multilingual": True}[kind]
        if not is_meant or name.endswith(E5) != (kind == "multilingual"):
            continue
        answerer = answerer_of(name)
        answerer.words_only = kind == "words"
        for index, question in enumerate(questions):
            fold = crc32(question.document.partition("/")[0].encode()) % FOLDS
            for right in (True, False):
                whole = question.sources(is_answerable=right)
                few = whole[: 1 + index % 3] if "small" in name else []
                few = few if not right or any(each.doc_id == question.document for each in few) else []
                for sources in (whole, few) if few else (whole,):
                    sentences, weighing = answerer.read(question.text, sources)
                    gold = np.array([question.is_held(each.text) for each in sentences], dtype=bool)
                    if weighing.places and (right or not gold.any()):
                        rows.append(Row(name, right, weighing, gold & right, fold, sources is whole))
    return rows


def fit_order(rows: Sequence[Row], kind: str) -> list[float]:
    """At least 0 each: what is measured speaks for a sentence, also where sentences are of another kind than here."""
    width = len(ORDER) - 2 * (kind == "words")
    chosen = [(row, sorted(row.weighing.tokens) or slice(None)) for row in rows if row.right and row.is_whole]
    used = [(row.weighing.order[read, :width], row.gold[read]) for row, read in chosen if row.gold[read].any()]
    scale = np.maximum(np.vstack([measured for measured, _ in used]).std(axis=0), 1e-9)
    parts = tuple((measured / scale, right) for measured, right in used)
    bounds, exact = [(0.0, None)] * width, {"ftol": 1e-12}
    weights = minimize(order_loss, np.zeros(width), parts, "L-BFGS-B", bounds=bounds, options=exact).x / scale
    return [*map(float, weights.round(DECIMALS)), *[0.0] * (len(ORDER) - width)]


def fit_certainty(rows: Sequence[Row]) -> tuple[np.ndarray, float]:
    """(weights, intercept)."""
    table = np.array([row.weighing.features() for row in rows])
    right = [row.right for row in rows]
    model = fit_logistic(CERTAINTY, table, right, ridge=RIDGE_CERTAINTY * len(rows) / 4)
    weights = (np.array(model.coefficients) / model.scales).round(DECIMALS)
    return weights, round(model.intercept - float(weights @ model.means), DECIMALS)


def fit(sets: dict[str, list[Question]]) -> None:
    """First the order by words, which chooses what an encoder reads; then its order; then the certainty of each."""
    known, weights = deepcopy(MODEL), cast(dict[str, Any], MODEL)
    for kind in ("words", "meaning", "multilingual"):
        rows = read_rows(sets, kind)
        weights["order"][kind] = fit_order(rows, kind)
        values, intercept = fit_certainty(rows)
        weights["certainty"][kind] = {"intercept": intercept, "weights": values.tolist()}
        print(kind, MODEL["order"][kind], MODEL["certainty"][kind], *held_out_curves(rows), sep="\n")
    print("the weights of quoting.toml come out" if known == MODEL else "quoting.toml has other weights")


def held_out_curves(rows: Sequence[Row]) -> Iterator[str]:
    """The curve of each set by certainties of fits that left out the question's subject."""
    fits = [fit_certainty([row for row in rows if row.fold != fold]) for fold in range(FOLDS)]
    for name in dict.fromkeys(row.name for row in rows):
        sides: dict[bool, list[float]] = {True: [], False: []}
        for row in rows:
            if row.name == name and row.is_whole:
                values, intercept = fits[row.fold]
                sides[row.right].append(1 / (1 + math.exp(-float(row.weighing.features() @ values) - intercept)))
        yield _curve(name, np.array(sides[True]), np.array(sides[False]))


def _curve(name: str, low: np.ndarray, high: np.ndarray) -> str:
    return f"{name:16}" + "".join(f"{(low < each).mean():>6.2f}/{(high >= each).mean():.2f}" for each in CURVE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("languages", nargs="*", default=LANGUAGES)
    parser.add_argument("--split", choices=("test", "tune"), default="test")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    split, sets = "tune" if options.fit else options.split, {}
    with running_database() as (url, _), psycopg.connect(url) as connection:
        for name, documents, questions in load(options.languages):
            store = search(connection, name, documents, answerer_of(name).embedder)
            asked = [each for each in questions if each.split == split]
            if asked and (name in HYBRID or name.endswith(E5)):
                sets[name] = retrieve(asked, "hybrid", store)
            if asked and not name.endswith(E5):
                sets[f"{name} words" if name in HYBRID else name] = retrieve(asked, "lexical", store)
    if options.fit:
        fit(sets)
        return
    print(f"{'set':16}{'':5}{'in the first part':>19}{'in the answer':>19}{'refused':>19}{'false':>19} words   ms")
    curves = [measure(name, questions) for name, questions in sets.items()]
    print("\nrefused of the answerable / answered of the others, from the least certainty on")
    print(f"{'':16}" + "".join(f"{each:>11}" for each in CURVE), *curves, sep="\n")


if __name__ == "__main__":
    main()
