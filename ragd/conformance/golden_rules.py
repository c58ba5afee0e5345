"""Sections 5.1 to 5.3: golden results of a fixed corpus, pinned per version of the specification."""

from __future__ import annotations

import re
from collections.abc import Callable

import ragd
from ragd.conformance import corpus, golden
from ragd.conformance.bench import Bench, Rule, corpus_chunks, rule
from ragd.conformance.report import Cases
from ragd.types import SPEC_VERSION, RetrievePlan

SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
CHUNKS_MIN, QUERIES_MIN, LANGUAGES_MIN = 200, 50, 5


def _lists_agree(name: str) -> Callable[[Bench, Cases], None]:
    def check(bench: Bench, cases: Cases) -> None:
        stored = golden.read(name)
        store, plan = bench.open_golden(), corpus.PLANS[name]
        cases.equal("the plan", plan, RetrievePlan.from_dict(stored["plan"]))
        cases.equal("the queries", [item["query"] for item in stored["answers"]], [q.text for q in corpus.queries()])
        for answer in stored["answers"]:
            candidates = ragd.retrieve(answer["query"], plan, store)
            difference = golden.compare(candidates, answer["results"])
            expected = ", ".join(key for key, _ in answer["results"][:5])
            cases.holds(
                f"{answer['language']}: {answer['query']!r}",
                difference is None,
                expected=f"{expected}, ...",
                got=f"{difference}",
            )

    return check


VECTOR, LEXICAL, HYBRID, FILTERED, WEIGHTED = (
    Rule("5.1", f"golden {name} lists: ids exactly, scores in order and within 1e-5", _lists_agree(name), True)
    for name in ("vector", "lexical", "hybrid", "filtered", "weighted")
)


@rule("5.1", "the corpus is fixed: at least 200 chunks and 50 queries in several languages")
def corpus_is_large(bench: Bench, cases: Cases) -> None:
    chunks, queries = corpus_chunks(), corpus.queries()
    languages = {query.language for query in queries}
    for name, got, least in (
        ("chunks", len(chunks), CHUNKS_MIN),
        ("queries", len(queries), QUERIES_MIN),
        ("languages", len(languages), LANGUAGES_MIN),
    ):
        cases.holds(name, got >= least, expected=f"at least {least}", got=f"{got}")
    cases.equal("queries are different", len({query.text for query in queries}), len(queries))


@rule("5.2", "every text of the corpus is cut at the pinned places")
def cuts_are_pinned(bench: Bench, cases: Cases) -> None:
    stored, made = golden.read("chunks"), golden.make_chunk_table()
    cases.equal("policies", made["policies"], stored["policies"])
    cases.equal("texts", sorted(made["cuts"]), sorted(stored["cuts"]))
    for name, cuts in stored["cuts"].items():
        cases.equal(name, made["cuts"].get(name), cuts)


@rule("5.2", "the suite's embedder gives the pinned vectors")
def embeddings_are_pinned(bench: Bench, cases: Cases) -> None:
    stored, made = golden.read("embeddings"), golden.make_embedding_table()
    cases.equal("model and dims", (made["model"], made["dims"]), (stored["model"], stored["dims"]))
    for key, signs in stored["signs"].items():
        cases.equal(key, made["signs"].get(key), signs)


@rule("5.3", "the version of the specification is semver")
def version_is_semver(bench: Bench, cases: Cases) -> None:
    for version in (SPEC_VERSION, *golden.DIGESTS):
        matches = SEMVER.fullmatch(version) is not None
        cases.holds(version, matches, expected="MAJOR.MINOR.PATCH", got=version)


@rule("5.3", "golden results are pinned per version: none has changed without a new version")
def goldens_are_pinned(bench: Bench, cases: Cases) -> None:
    cases.holds(
        f"{SPEC_VERSION} is pinned", SPEC_VERSION in golden.DIGESTS, expected="a digest", got=f"{list(golden.DIGESTS)}"
    )
    for version, digest in golden.DIGESTS.items():
        cases.equal(f"digest of the golden files of {version}", golden.digest_of(golden.folder_of(version)), digest)
    folders = sorted(path.name for path in golden.FOLDER.iterdir() if path.is_dir())
    cases.equal("folders", folders, sorted(golden.DIGESTS))
