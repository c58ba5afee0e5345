"""Section 2.1 and 2.2: the types, the six functions and the plan, by name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence

import ragd
from ragd.conformance.golden import Bench, SimHashEmbedder, make_candidate, make_chunks, rule
from ragd.conformance.report import Cases
from ragd.store.store import Store
from ragd.types import MODES, RetrievePlan, Vector

FUNCTIONS = {
    "chunk": ("text_or_segments", "policy"),
    "index": ("chunks", "store"),
    "retrieve": ("query", "plan", "store"),
    "fuse": ("candidate_sets", "method", "params"),
    "rerank": ("query", "candidates", "model"),
    "compress": ("query", "candidates", "policy"),
}
DEFAULTS = {"method": "rrf", "params": None, "model": None}
CHUNK_FIELDS = {"doc_id", "chunk_index", "content", "tags", "metadata"}


class RecordingEmbedder(SimHashEmbedder):
    """Keeps the queries that it embeds."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [super(RecordingEmbedder, self).embed_query(text) for text in texts]

    def embed_query(self, text: str) -> Vector:
        self.queries.append(text)
        return super().embed_query(text)


@rule("1.2.1", "the normalized query is embedded once, by the collection's embedder")
def embeds_the_query(bench: Bench, cases: Cases) -> None:
    bench.make_store("asked")
    embedder = RecordingEmbedder()
    store = Store(bench.connection, "asked", embedder)
    ragd.index(make_chunks("d", "cafe\u0301 and tea".replace("e\u0301", "\u00e9"), "tea"), store)
    for mode in MODES:
        times = 0 if mode == "lexical" else 1
        embedder.queries.clear()
        ragd.retrieve("cafe\u0301\r\nand tea\x00", RetrievePlan(mode=mode), store)
        cases.equal(mode, embedder.queries, ["caf\u00e9\nand tea"] * times)
    for blank in ("", "  \n", "\x00"):
        refusal = lambda text=blank: ragd.retrieve(text, RetrievePlan(), store)  # noqa: E731
        cases.refused(f"query {blank!r}", refusal, field="query", error=ragd.InvalidInput)


@rule("2.1", "Chunk and Candidate have the fields of the specification")
def types_have_their_fields(bench: Bench, cases: Cases) -> None:
    for kind, expected in ((ragd.Chunk, CHUNK_FIELDS), (ragd.Candidate, CHUNK_FIELDS | {"score"})):
        names = {item.name for item in dataclasses.fields(kind)}
        cases.equal(f"{kind.__name__} lacks", sorted(expected - names), [])
    frozen = make_candidate("d")
    try:
        frozen.score = 2.0  # type: ignore[misc]
        outcome = "changed"
    except dataclasses.FrozenInstanceError:
        outcome = "refused"
    cases.equal("a candidate cannot be changed", outcome, "refused")


@rule("2.2", "the six functions have the names and parameters of the specification")
def functions_are_there(bench: Bench, cases: Cases) -> None:
    for name, parameters in FUNCTIONS.items():
        signature = inspect.signature(getattr(ragd, name))
        cases.equal(name, tuple(signature.parameters)[: len(parameters)], parameters)
        more = [
            item.name for item in list(signature.parameters.values())[len(parameters) :] if item.default is item.empty
        ]
        cases.equal(f"{name}: further required parameters", more, [])
        for parameter, default in DEFAULTS.items():
            if parameter in signature.parameters:
                cases.equal(f"{name}({parameter}=...)", signature.parameters[parameter].default, default)
    cases.equal("rerank without a model", ragd.rerank("q", [make_candidate("d")]), [make_candidate("d")])
    cases.equal("compress without candidates", ragd.compress("q", []), [])
    cases.equal("fuse without lists", ragd.fuse([]), [])


@rule("2.2", "the pure functions answer equal input with equal output")
def functions_are_pure(bench: Bench, cases: Cases) -> None:
    text = "The kettle boils. Tea is made. Bread is baked.\n\nThe moon rises over the river."
    candidates = [make_candidate(name, 0.5, content=text) for name in "abc"]
    lists = {"vector": candidates, "lexical": candidates[::-1]}
    calls: dict[str, Callable[[], object]] = {
        "chunk": lambda: ragd.chunk(text, ragd.ChunkPolicy()),
        "fuse": lambda: ragd.fuse(lists),
        "rerank": lambda: ragd.rerank("tea", candidates),
        "compress": lambda: ragd.compress("tea", candidates),
    }
    for name, call in calls.items():
        cases.equal(name, call(), call())


@rule("2.2", "a plan names the field that is wrong; an unknown field is an error")
def plans_are_checked(bench: Bench, cases: Cases) -> None:
    for field, value in {
        "mode": "both",
        "k": 0,
        "candidate_pool": 0,
        "rrf_k": 0,
        "exact": "maybe",
        "ef_search": 0,
        "weights": {"vector": -1.0},
        "token_budget": 0,
        "hops": 4,
    }.items():
        refusal = lambda payload={field: value}: RetrievePlan.from_dict(payload)  # noqa: E731
        cases.refused(f"{field} = {value!r}", refusal, field=field, error=ragd.InvalidInput)
    for values, field in (({"top_k": 3}, "top_k"), ({"filters": {"tag": ["a"]}}, "tag")):
        refusal = lambda payload=values: RetrievePlan.from_dict(payload)  # noqa: E731
        cases.refused(f"unknown {field}", refusal, field=field, error=ragd.InvalidInput)
    plan = RetrievePlan(k=3, weights={"vector": 0.5, "lexical": 2.0}, filters=ragd.Filters(tags_any=("a",)))
    cases.equal("as_dict and back", RetrievePlan.from_dict(plan.as_dict()), plan)
    cases.equal("hash of an equal plan", RetrievePlan.from_dict(plan.as_dict()).hash, plan.hash)
    other = RetrievePlan(k=4, weights=plan.weights, filters=plan.filters)
    cases.holds("hash of another plan", other.hash != plan.hash, expected="another hash", got="the same")
