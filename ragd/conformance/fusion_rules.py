"""Sections 1.2.4 and 4.3: reciprocal rank fusion, against sums that can be checked by hand.

Section 2.3: one order, whatever ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import ragd
from ragd.conformance import corpus
from ragd.conformance.golden import Bench, keys, make_candidate, make_chunks, retrieve_keys, rule
from ragd.conformance.report import Cases
from ragd.search.compression import CompressPolicy
from ragd.types import MODES, Candidate, RetrievePlan

ROUNDING = Fraction(1, 10**15)
VECTOR = ("a", "b", "c", "d")
LEXICAL = ("c", "a", "e")
# by hand: a is 1st and 2nd, c is 3rd and 1st, b 2nd, e 3rd, d 4th
BY_HAND = {
    "a#0": Fraction(1, 61) + Fraction(1, 62),
    "c#0": Fraction(1, 63) + Fraction(1, 61),
    "b#0": Fraction(1, 62),
    "e#0": Fraction(1, 63),
    "d#0": Fraction(1, 64),
}


@rule("4.3", "score = sum of 1 / (rrf_k + rank), ranks from 1, rrf_k 60")
def sums_reciprocal_ranks(bench: Bench, cases: Cases) -> None:
    candidates = ragd.fuse({"vector": _list(VECTOR), "lexical": _list(LEXICAL)})
    cases.equal("order", keys(candidates), list(BY_HAND))
    for item in candidates:
        key = f"{item.doc_id}#0"
        _near(cases, f"{key} = {BY_HAND[key]}", item.score, BY_HAND[key])
    cases.equal("kind of score", {item.score_kind for item in candidates}, {"rrf"})
    thirds = ragd.fuse([_list("ab"), _list("ba"), _list("ab")], params={"rrf_k": 1})
    for item, expected in zip(thirds, (Fraction(4, 3), Fraction(7, 6)), strict=True):
        _near(cases, f"rrf_k 1, three lists: {item.doc_id}", item.score, expected)


@rule("4.3", "a list that lacks a candidate adds nothing; nothing is rescaled")
def absent_adds_nothing(bench: Bench, cases: Cases) -> None:
    for length in (1, 5, 500):
        candidates = ragd.fuse([_list([f"x{n:03}" for n in range(length)]), _list(["only"])])
        score = next(item.score for item in candidates if item.doc_id == "only")
        cases.equal(f"beside a list of {length}", score, 1 / 61)
    scores = [item.score for item in ragd.fuse([_list("ab", score=1000.0), _list("cd", score=-7.0)])]
    cases.equal("scores of the lists are not read", scores, [1 / 61, 1 / 61, 1 / 62, 1 / 62])
    cases.equal("empty lists", ragd.fuse({"vector": [], "lexical": []}), [])
    repeated = ragd.fuse([_list("aab")])
    cases.equal("the first place of a repeated one counts", [item.score for item in repeated], [1 / 61, 1 / 63])


@rule("4.3", "weights multiply a list's share; the order of the lists is nothing")
def weights_multiply(bench: Bench, cases: Cases) -> None:
    lists = {"vector": _list(VECTOR), "lexical": _list(LEXICAL)}
    candidates = ragd.fuse(lists, params={"rrf_k": 20, "weights": {"vector": 0.5, "lexical": 1.5}})
    expected = {
        "a#0": Fraction(1, 2) / 21 + Fraction(3, 2) / 22,
        "c#0": Fraction(1, 2) / 23 + Fraction(3, 2) / 21,
        "e#0": Fraction(3, 2) / 23,
        "b#0": Fraction(1, 2) / 22,
        "d#0": Fraction(1, 2) / 24,
    }
    ordered = sorted(expected, key=lambda key: (-expected[key], key))
    cases.equal("order", keys(candidates), ordered)
    for item in candidates:
        _near(cases, item.doc_id, item.score, expected[f"{item.doc_id}#0"])
    turned = ragd.fuse(dict(reversed(lists.items())))
    straight = ragd.fuse(lists)
    cases.equal("lists turned round", [(i.key, i.score) for i in turned], [(i.key, i.score) for i in straight])
    alone = ragd.fuse(lists, params={"weights": {"vector": 0.0}})
    cases.equal("weight 0", [item.score for item in alone if item.doc_id in "bd"], [0.0, 0.0])


@rule("4.3", "k is 12 and rrf_k is 60 unless the plan says otherwise", needs_corpus=True)
def defaults_hold(bench: Bench, cases: Cases) -> None:
    plan = RetrievePlan()
    cases.equal("k", plan.k, 12)
    cases.equal("rrf_k", plan.rrf_k, 60)
    cases.equal("weights", dict(plan.weights), {"vector": 1.0, "lexical": 1.0})
    store = bench.open_golden()
    details = ragd.retrieve_detailed("when does water boil", RetrievePlan(exact="always"), store)
    cases.equal("results", len(details.candidates), 12)
    for item in details.candidates:
        positions = [item.ranks[name].rank for name in ("vector", "lexical") if name in item.ranks]
        exact = sum((Fraction(1, 60 + position) for position in positions), Fraction(0))
        _near(cases, f"{item.doc_id}: places {positions}", item.score, exact)


@rule("1.2.4", "one list keeps its own scores; several are fused by reciprocal rank", needs_corpus=True)
def one_list_is_not_fused(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    for mode, kind in zip(MODES, ("cosine", "bm25", "rrf"), strict=True):
        candidates = ragd.retrieve("the bread bakes", RetrievePlan(mode=mode, exact="always"), store)
        cases.equal(mode, {item.score_kind for item in candidates}, {kind})
    plan = RetrievePlan(exact="always")
    details = ragd.retrieve_detailed("the bread bakes", plan, store)
    params = {"rrf_k": plan.rrf_k, "weights": dict(plan.weights)}
    fused = ragd.fuse(details.lists, params=params)
    cases.equal("hybrid is fuse() of its lists", keys(details.candidates), keys(fused)[: plan.k])
    cases.refused("unknown method", lambda: ragd.fuse([], method="max"), field="method", error=ragd.InvalidInput)


def _near(cases: Cases, case: str, score: float, exact: Fraction) -> None:
    """Within the rounding of a few additions of float64."""
    near = abs(Fraction(score) - exact) <= ROUNDING
    cases.holds(case, near, expected=f"{float(exact)} within {float(ROUNDING)}", got=f"{score}")


def _list(names: str | tuple[str, ...] | list[str], score: float = 0.5) -> list[Candidate]:
    return [make_candidate(name, score) for name in names]


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
