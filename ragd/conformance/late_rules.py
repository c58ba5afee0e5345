"""Sections 1.2.5 to 1.2.7: rerank, compress, package."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ragd
from ragd.conformance import corpus
from ragd.conformance.bench import Bench, keys, make_candidate, retrieve_keys, rule
from ragd.conformance.report import Cases
from ragd.search.compression import CompressPolicy
from ragd.types import RetrievePlan

TEXTS = (
    "The kettle boils water. Tea needs hot water.\nBread needs an oven! The oven is hot.",
    "The moon rises. A river runs to the sea, and the sea is wide. Nobody boils it.",
    "茶の湯は静かに始まる。客は庭を通る。湯を沸かす。",
)


class ByLength:
    """A reranker by the number of characters, or by given scores."""

    name = "by-length"

    def __init__(self, scores: Sequence[float] | None = None) -> None:
        self.scores = scores

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        return self.scores if self.scores is not None else [float(len(text)) for text in texts]


@rule("1.2.5", "reranked candidates are in the order of the model's scores, earlier places kept")
def reranks(bench: Bench, cases: Cases) -> None:
    fused = ragd.fuse([[make_candidate(name, content="x" * size) for name, size in (("a", 1), ("b", 9), ("c", 5))]])
    candidates = ragd.rerank("q", fused, ByLength())
    cases.equal("order", keys(candidates), ["b#0", "c#0", "a#0"])
    cases.equal("scores", [item.score for item in candidates], [9.0, 5.0, 1.0])
    cases.equal("places before", [item.ranks["fused"].rank for item in candidates], [2, 3, 1])
    cases.equal("places after", [item.ranks["reranked"].rank for item in candidates], [1, 2, 3])
    cases.equal("scores before", [item.ranks["fused"].score for item in candidates], [1 / 62, 1 / 63, 1 / 61])
    cases.equal("the same again", ragd.rerank("q", fused, ByLength()), candidates)
    cases.equal("whatever the order it came in", keys(ragd.rerank("q", fused[::-1], ByLength())), keys(candidates))
    cases.equal("without a model", ragd.rerank("q", fused), fused)
    cases.equal("without candidates", ragd.rerank("q", [], ByLength()), [])


@rule("1.2.5", "equal scores are ordered by (doc_id, chunk_index); scores that are none are an error")
def reranks_stably(bench: Bench, cases: Cases) -> None:
    values = [make_candidate(name, index=index) for name in ("b", "é", "B") for index in (10, 2)]
    candidates = keys(ragd.rerank("q", values, ByLength([1.0] * 6)))
    cases.equal("equal scores", candidates, ["B#2", "B#10", "b#2", "b#10", "é#2", "é#10"])
    for scores in ([1.0], [1.0] * 5 + [math.nan], [1.0] * 5 + [math.inf], [1.0] * 7):
        try:
            outcome = repr(ragd.rerank("q", values, ByLength(scores)))
        except ragd.RerankerError:
            outcome = "RerankerError"
        cases.equal(f"scores {scores}", outcome, "RerankerError")


@rule("1.2.5", "a plan names its reranker; the store's reranker orders the pool", needs_corpus=True)
def plan_reranks(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    plan = RetrievePlan(rerank="nobody")
    refused = ragd.InvalidInput
    cases.refused("unknown reranker", lambda: ragd.retrieve("tea", plan, store), field="rerank", error=refused)
    armed = ragd.Store(bench.connection, store.collection.name, bench.embedder, rerankers={"by-length": ByLength()})
    details = ragd.retrieve_detailed("tea", RetrievePlan(rerank="by-length", exact="always"), armed)
    expected = ragd.rerank("tea", details.fused, ByLength())
    cases.equal("the whole pool", keys(details.reranked), keys(expected))
    cases.equal("the first k", keys(details.candidates), keys(expected)[:12])


@rule("1.2.6", "spans are exact slices at their offsets, in the order of the candidates")
def compresses_exactly(bench: Bench, cases: Cases) -> None:
    candidates = [
        make_candidate(name, content=text, start=100, ranks={}) for name, text in zip("abc", TEXTS, strict=True)
    ]
    by_key = {item.key: item for item in candidates}
    for query in ("hot water", "boils", "sea", "茶の湯", "zebra"):
        for policy in (CompressPolicy(), CompressPolicy(kind="window"), CompressPolicy(token_budget=4)):
            spans = ragd.compress(query, candidates, policy)
            name = f"{query!r}, {policy.kind} {policy.token_budget}"
            cases.holds(f"{name}: something is kept", bool(spans), expected="a span", got="none")
            positions = [(span["rank"], span["start"]) for span in spans]
            cases.equal(f"{name}: order", positions, sorted(positions))
            for span in spans:
                source = by_key[span["doc_id"], span["chunk_index"]]
                exact = source.content[span["start"] - 100 : span["end"] - 100]
                cases.equal(f"{name}: {span['doc_id']} from {span['start']}", span["content"], exact)


@rule("1.2.6", "a token budget is kept, tokens before and after are counted")
def keeps_the_budget(bench: Bench, cases: Cases) -> None:
    candidates = [make_candidate(name, content=text) for name, text in zip("ab", TEXTS[:2], strict=True)]
    for budget in (1, 3, 8, 20, 1000):
        spans = ragd.compress("hot water in the sea", candidates, CompressPolicy(token_budget=budget))
        words = sum(span["tokens_after"] for span in spans)
        cases.holds(f"budget {budget}", 0 < words <= budget, expected=f"1 to {budget} words", got=f"{words}")
        for span in spans:
            cases.equal(f"budget {budget}: tokens_after", span["tokens_after"], len(span["content"].split()))
            before = len(TEXTS["ab".index(span["doc_id"])].split())
            cases.equal(f"budget {budget}: tokens_before", span["tokens_before"], before)
    first, second = (ragd.compress("hot water", candidates) for _ in range(2))
    cases.equal("the same again", second, first)


@rule(
    "1.2.7", "results are ordered by score, best first, with the metadata and tags of their chunks", needs_corpus=True
)
def packages(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    documents = {document.doc_id: document for document in corpus.documents()}
    for name, plan in corpus.PLANS.items():
        for query in corpus.queries()[::7]:
            candidates = ragd.retrieve(query.text, plan, store)
            case = f"{name}: {query.text!r}"
            scores = [item.score for item in candidates]
            cases.equal(f"{case}: scores", scores, sorted(scores, reverse=True))
            cases.equal(f"{case}: at most k", len(candidates) <= plan.k, True)
            cases.equal(f"{case}: once each", len({item.key for item in candidates}), len(candidates))
            for item in candidates:
                document = documents[item.doc_id]
                whole = dict(item.metadata) | dict(document.metadata) == dict(item.metadata)
                stored = item.tags == document.tags and whole
                cases.equal(f"{case}: {item.doc_id}", stored, True)


@rule("1.2.7", "k and the pool cut the same list", needs_corpus=True)
def k_is_a_prefix(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    for query in corpus.queries()[::10]:
        long = retrieve_keys(query.text, store, exact="always", k=40)
        for k in (1, 5, 12, 39):
            got = retrieve_keys(query.text, store, exact="always", k=k, candidate_pool=50)
            cases.equal(f"k {k}: {query.text!r}", got, long[:k])
