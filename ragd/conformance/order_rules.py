"""Section 2.3: one order, whatever ties."""

from __future__ import annotations

from collections.abc import Sequence

import ragd
from ragd.conformance import corpus
from ragd.conformance.bench import Bench, keys, make_candidate, make_chunks, retrieve_keys, rule
from ragd.conformance.report import Cases
from ragd.types import MODES, Candidate, RetrievePlan

TEXT = "the same text in every document"
NAMES = ("b", "B", "a", "é", "_", "10", "9", "日", "Ä", "a/b", "a-b", "\U0001f600", "\uffee", "Z", "ab", "a b")
IN_ORDER = sorted(NAMES, key=lambda name: name.encode())


@rule("2.3", "ties are sorted by doc_id in UTF-8 bytes, whatever the database's locale")
def ties_by_doc_id(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("ties")
    for name in NAMES:
        ragd.index(make_chunks(name, TEXT), store)
    expected = [f"{name}#0" for name in IN_ORDER]
    for mode in MODES:
        cases.equal(mode, retrieve_keys(TEXT, store, mode=mode, exact="always", k=len(NAMES)), expected)


@rule("2.3", "then by chunk_index as a number")
def ties_by_index(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("indexes")
    for name in ("b", "a", "c"):
        ragd.index(make_chunks(name, *[TEXT] * 12), store)
    expected = [f"{name}#{number}" for name in "abc" for number in range(12)]
    for mode in MODES:
        cases.equal(mode, retrieve_keys(TEXT, store, mode=mode, exact="always", k=36), expected)


@rule("2.3", "ties at the edge of a pool are decided the same way")
def ties_at_the_edge(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("edge")
    for name in NAMES:
        ragd.index(make_chunks(name, TEXT), store)
    for pool in (1, 2, 5, 11, len(NAMES) - 1):
        for mode in MODES:
            got = retrieve_keys(TEXT, store, mode=mode, exact="always", k=pool, candidate_pool=pool)
            cases.equal(f"{mode}, pool {pool}", got, [f"{name}#0" for name in IN_ORDER[:pool]])
    for name in IN_ORDER[:3]:  # the first ones gone, the next ones enter
        ragd.index(make_chunks(name, "quite another matter"), store)
    got = retrieve_keys(TEXT, store, mode="lexical", k=4, candidate_pool=4)
    cases.equal("after the first were replaced", got, [f"{name}#0" for name in IN_ORDER[3:7]])


@rule("2.3", "identical texts in several documents keep their order in every list", needs_corpus=True)
def identical_texts(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    query = "the same words stand in several documents"
    for name, plan in corpus.PLANS.items():
        if plan.filters:
            continue
        candidates = [key for key in keys(ragd.retrieve(query, plan, store)) if key.startswith("equal/")]
        expected = [f"{doc_id}#0" for doc_id in corpus.EQUAL_DOCUMENTS]
        cases.equal(name, candidates[: len(expected)], expected)


@rule("2.3", "HNSW search sorts what the index returns by (score, doc_id, chunk_index)", needs_corpus=True)
def approximate_order(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    store.build_vector_index()
    plan = RetrievePlan(mode="vector", exact="never", k=30, ef_search=400)
    for query in corpus.queries()[::6]:
        details = ragd.retrieve_detailed(query.text, plan, store)
        cases.equal(f"{query.text!r}: the index was asked", details.exact, False)
        _in_order(cases, query.text, details.candidates)


@rule("2.3", "fuse and rerank break ties by (doc_id, chunk_index)")
def ties_in_memory(bench: Bench, cases: Cases) -> None:
    scrambled = [make_candidate(name, 0.5, index) for index in (10, 9) for name in NAMES]
    expected = [f"{name}#{index}" for name in IN_ORDER for index in (9, 10)]
    one_each = [[item] for item in scrambled]
    cases.equal("fuse", keys(ragd.fuse(one_each)), expected)
    cases.equal("rerank", keys(ragd.rerank("q", scrambled, EqualScores())), expected)


@rule("2.3", "the same plan on the same store gives the same bytes", needs_corpus=True)
def repeats_itself(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    for name, plan in corpus.PLANS.items():
        for query in corpus.queries()[::9]:
            first, second = (repr(ragd.retrieve(query.text, plan, store)) for _ in range(2))
            cases.equal(f"{name}: {query.text!r}", second, first)


class EqualScores:
    """A reranker that tells nothing apart."""

    name = "equal"

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        return [1.0] * len(texts)


def _in_order(cases: Cases, case: str, candidates: list[Candidate]) -> None:
    got = [(-item.score, item.doc_id.encode(), item.chunk_index) for item in candidates]
    cases.equal(case, got, sorted(got))
