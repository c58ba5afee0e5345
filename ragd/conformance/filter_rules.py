"""Sections 1.2.3 and 4.4: filters are subsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ragd
from ragd.conditions import matches, parse_condition
from ragd.conformance import corpus
from ragd.conformance.bench import Bench, keys, make_chunks, retrieve_keys, rule
from ragd.conformance.report import Cases
from ragd.store.store import Store
from ragd.types import MODES, Filters, RetrievePlan

TEXT = "one text for all"
TAGS = {"none": (), "a": ("a",), "ab": ("a", "b"), "bc": ("b", "c"), "A": ("A",), "long": ("a b", "c,d", "{x}")}
METADATA: dict[str, Mapping[str, Any]] = {
    "number": {"n": 1},
    "text": {"n": "1"},
    "truth": {"n": True},
    "null": {"n": None},
    "absent": {},
    "list": {"n": [1, 2]},
    "longer": {"n": [1, 2, 3]},
    "deep": {"n": {"x": 1}},
    "deeper": {"n": {"x": 1, "y": 2}},
    "inside": {"m": {"n": 1}},
    "two": {"n": 1, "m": 2},
}
EMPTY: tuple[dict[str, Any], ...] = ({}, {"tags_any": []}, {"tags_all": [], "metadata": {}})
DAYS = ("2024-02-29", "2024-02-29T23:30:00-05:00", "2024-03-02")


def _compare(field: str, op: str, value: object) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value}


TYPED: tuple[dict[str, Any], ...] = (
    _compare("metadata.n", "eq", 1), _compare("metadata.n", "ne", 1), _compare("metadata.n", "in", ["1", True]),
    _compare("metadata.n", "nin", [1, 2]), _compare("metadata.n", "gt", 1), _compare("metadata.n", "exists", True),
    _compare("metadata.n", "prefix", "1"), _compare("metadata.n.x", "lte", 1), _compare("page", "eq", 3),
    _compare("page", "gte", 8), _compare("section", "prefix", ["Guide", "deep"]), _compare("section", "eq", "text"),
    _compare("sent_at", "eq", "2024-02-29"), _compare("sent_at", "gt", "2024-03-01T04:00:00Z"),
    _compare("tags", "eq", "b"), _compare("tags", "exists", False), _compare("doc_id", "prefix", "deep"),
    {"and": [_compare("page", "lt", 6), {"not": _compare("metadata.n", "eq", 1)}]},
    {"or": [_compare("page", "gt", 10), _compare("doc_id", "in", ["text", "null"])]},
)  # fmt: skip
REFUSED: tuple[Any, ...] = (
    _compare("colour", "eq", "red"), _compare("page", "is", 3), _compare("page", "eq", "3"), {"and": []},
    _compare("sent_at", "gt", "yesterday"), _compare("metadata.n", "eq", None), {"page": 3}, [],
    {**_compare("page", "eq", 3), "boost": 2},
)  # fmt: skip


@rule("4.4", "tags_any: at least one of the tags, exactly as written")
def any_tag(bench: Bench, cases: Cases) -> None:
    store = _tagged(bench)
    for requested, expected in {
        ("a",): {"a", "ab"},
        ("a", "c"): {"a", "ab", "bc"},
        ("A",): {"A"},
        ("zebra",): set[str](),
        ("zebra", "b"): {"ab", "bc"},
        ("a b",): {"long"},
        ("c,d",): {"long"},
        ("{x}",): {"long"},
        ("",): set[str](),
    }.items():
        _expect(cases, f"tags_any {requested}", store, Filters(tags_any=requested), expected)


@rule("4.4", "tags_all: every one of the tags")
def every_tag(bench: Bench, cases: Cases) -> None:
    store = _tagged(bench)
    for requested, expected in {
        ("a",): {"a", "ab"},
        ("a", "b"): {"ab"},
        ("b", "a"): {"ab"},
        ("b", "b"): {"ab", "bc"},
        ("a", "c"): set[str](),
        ("a b", "c,d"): {"long"},
    }.items():
        _expect(cases, f"tags_all {requested}", store, Filters(tags_all=requested), expected)
    both = Filters(tags_any=("a", "c"), tags_all=("b",))
    _expect(cases, "tags_any and tags_all together", store, both, {"ab", "bc"})


@rule("4.4", "metadata: equality on top-level keys, type and depth included")
def equal_metadata(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("metadata")
    for name, metadata in METADATA.items():
        ragd.index(make_chunks(name, TEXT, metadata=metadata), store)
    requested: list[tuple[dict[str, Any], set[str]]] = [
        ({"n": 1}, {"number", "two"}),
        ({"n": 1.0}, {"number", "two"}),
        ({"n": "1"}, {"text"}),
        ({"n": True}, {"truth"}),
        ({"n": None}, {"null"}),
        ({"n": [1, 2]}, {"list"}),
        ({"n": [2, 1]}, set()),
        ({"n": {"x": 1}}, {"deep"}),
        ({"n": {"y": 2, "x": 1}}, {"deeper"}),
        ({"n": {}}, set()),
        ({"n": 1, "m": 2}, {"two"}),
        ({"x": 1}, set()),
        ({"m": {"n": 1}}, {"inside"}),
    ]
    for metadata, expected in requested:
        _expect(cases, f"metadata {metadata}", store, Filters(metadata=metadata), expected)


@rule("1.2.3", "a filtered list is the unfiltered one without what the filter excludes", needs_corpus=True)
def filtered_lists_are_subsets(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    passes: dict[str, tuple[Filters, Callable[[Any], bool]]] = {
        "tags_any": (Filters(tags_any=("en", "market")), lambda item: bool({"en", "market"} & set(item.tags))),
        "tags_all": (Filters(tags_all=("facts", "nature")), lambda item: {"facts", "nature"} <= set(item.tags)),
        "metadata": (Filters(metadata={"edition": 2}), lambda item: item.metadata.get("edition") == 2),
        "a truth": (Filters(metadata={"checked": True}), lambda item: item.metadata.get("checked") is True),
    }
    for query in corpus.queries()[::8]:
        for mode in ("vector", "lexical"):
            whole = ragd.retrieve(query.text, RetrievePlan(mode=mode, exact="always", k=1000), store)
            for name, (filters, passing) in passes.items():
                plan = RetrievePlan(mode=mode, exact="always", k=1000, filters=filters)
                got = [(item.key, item.score) for item in ragd.retrieve(query.text, plan, store)]
                expected = [(item.key, item.score) for item in whole if passing(item)]
                cases.equal(f"{mode}, {name}: {query.text!r}", got, expected)


@rule("1.2.3", "empty filters restrict nothing", needs_corpus=True)
def empty_filters(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    for mode in MODES:
        plain = retrieve_keys("the market sells", store, mode=mode, exact="always")
        for values in EMPTY:
            plan = RetrievePlan.from_dict({"mode": mode, "exact": "always", "filters": values})
            cases.equal(f"{mode}, {values}", keys(ragd.retrieve("the market sells", plan, store)), plain)


@rule("1.2.3", "a filter that nothing passes gives nothing, and says why", needs_corpus=True)
def unsatisfiable_filters(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    nothing = (Filters(tags_any=("zebra",)), Filters(tags_all=("en", "de")), Filters(metadata={"edition": "1"}))
    for filters in nothing:
        for mode in MODES:
            plan = RetrievePlan(mode=mode, exact="always", filters=filters)
            details = ragd.retrieve_detailed("water", plan, store)
            cases.equal(f"{mode}, {filters.as_dict()}", keys(details.candidates), [])
            reason = details.short_result.reason if details.short_result else None
            cases.equal(f"{mode}, reason", reason, "filters")


@rule("4.4", "a typed filter lets the same chunks through on every path")
def typed_filters(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("typed")
    records: dict[str, dict[str, Any]] = {}
    for number, (name, metadata) in enumerate(METADATA.items()):
        attributes = {"page": number, "page_end": number + 1, "section": ["Guide", name], "sent_at": DAYS[number % 3]}
        tags = tuple("ab"[: number % 3])
        records[name] = {"doc_id": name, "tags": tags, "metadata": metadata, "attributes": attributes}
        ragd.index(make_chunks(name, f"{TEXT} {name}", metadata=metadata, tags=tags, attributes=attributes), store)
    store.build_vector_index()
    for values in TYPED:
        condition = parse_condition(values)
        assert condition is not None
        expected = sorted(name for name, record in records.items() if matches(condition, record))
        some = 0 < len(expected) < len(records)
        cases.holds(f"{values} tells chunks apart", some, expected="some of them", got=str(expected))
        for mode, exact in (("vector", "always"), ("vector", "never"), ("lexical", "always"), ("hybrid", "always")):
            plan = RetrievePlan.from_dict({"mode": mode, "exact": exact, "k": 50, "filters": {"where": values}})
            passed = sorted(item.doc_id for item in ragd.retrieve(TEXT, plan, store))
            cases.equal(f"{mode}, exact {exact}: {values}", passed, expected)


@rule("1.2.3", "a typed filter with an unknown field, comparison or type is an error")
def refused_typed_filters(bench: Bench, cases: Cases) -> None:
    for values in REFUSED:
        refusal = lambda values=values: RetrievePlan.from_dict({"filters": {"where": values}})  # noqa: E731
        cases.refused(str(values), refusal, field="filter", error=ragd.InvalidInput)


@rule("1.2.3", "an unknown filter is an error, never ignored")
def unknown_filters(bench: Bench, cases: Cases) -> None:
    for name in ("tag", "tags", "language", "metadata_any"):
        refusal = lambda values=name: RetrievePlan.from_dict({"filters": {values: ["a"]}})  # noqa: E731
        cases.refused(name, refusal, field=name, error=ragd.InvalidInput)


def _tagged(bench: Bench) -> Store:
    store = bench.make_store("tags")
    for name, tags in TAGS.items():
        ragd.index(make_chunks(name, TEXT, tags=tags), store)
    return store


def _expect(cases: Cases, case: str, store: Store, filters: Filters, expected: set[str]) -> None:
    for mode in MODES:
        plan = RetrievePlan(mode=mode, exact="always", k=50, filters=filters)
        candidates = {item.doc_id for item in ragd.retrieve(TEXT, plan, store)}
        cases.equal(f"{mode}: {case}", sorted(candidates), sorted(expected))
