"""Sections 1.2.2, 4.1 and 4.2: the vector list and the lexical list.

Sections 1.2.3 and 4.4: filters are subsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ragd
from ragd.conditions import matches, parse_condition
from ragd.conformance import corpus
from ragd.conformance.golden import DIMS, ENTRY, Bench, keys, make_chunks, retrieve_keys, rule
from ragd.conformance.report import Cases
from ragd.store.indexing import delete_document_chunks
from ragd.store.store import Store, bake_length, execute
from ragd.types import MODES, Chunk, Filters, RetrievePlan

TOLERANCE = 1e-5
K1, B = 1.2, 0.75
FRUIT = {
    "a": "apples apples pears",
    "b": "pears grow in the garden",
    "c": "apples",
    "d": "the garden is full of apples and of pears and of plums",
    "e": "nothing of this kind",
}
HIDDEN = {"quince": "quinces and pears and apples", "plum": "plums"}
HIDE = """
INSERT INTO document_access (collection_id, doc_id, access)
SELECT %(collection_id)s, doc_id, '{0}' FROM unnest(%(doc_ids)s::text[]) AS listed (doc_id)
"""
SHOW = "DELETE FROM document_access WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)"


@rule("1.2.2", "candidates are the top of their list: no other chunk scores higher", needs_corpus=True)
def lists_are_tops(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    for query in ("when does water boil", "die Katze schläft", "рынок"):
        for mode in ("vector", "lexical"):
            every = ragd.retrieve(query, RetrievePlan(mode=mode, exact="always", k=1000), store)
            for pool in (1, 7, 50):
                few = retrieve_keys(query, store, mode=mode, exact="always", k=pool, candidate_pool=pool)
                cases.equal(f"{mode} {pool}: {query!r}", few, keys(every)[:pool])


@rule("4.1", "the score is the cosine similarity, higher is better, best first")
def scores_are_cosines(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("cosines")
    query = bench.embedder.embed_query("q")
    chunks = [_with_equal_entries(query, equal) for equal in (256, 128, 0, 200, 129, 64)]
    ragd.index(chunks, store)
    candidates = ragd.retrieve("q", RetrievePlan(mode="vector", exact="always"), store)
    cases.equal("order", keys(candidates), ["e256#0", "e200#0", "e129#0", "e128#0", "e064#0", "e000#0"])
    cases.equal("scores", [item.score for item in candidates], [1.0, 0.5625, 0.0078125, 0.0, -0.5, -1.0])
    cases.equal("kind of score", {item.score_kind for item in candidates}, {"cosine"})
    details = ragd.retrieve_detailed("q", RetrievePlan(mode="vector", exact="always"), store)
    ranks = [item.ranks["vector"].rank for item in details.candidates]
    cases.equal("ranks start at 1", ranks, [1, 2, 3, 4, 5, 6])


@rule("4.1", "the length of a vector changes nothing: the distance is that of the angle")
def lengths_are_nothing(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("lengths")
    query = bench.embedder.embed_query("q")
    chunks = []
    for equal, factor in ((256, 0.25), (200, 64.0), (129, 1024.0), (64, 4096.0)):
        chunk = _with_equal_entries(query, equal)
        chunks.append(replace(chunk, embedding=[entry * factor for entry in chunk.embedding or ()]))
    ragd.index(chunks, store)
    candidates = ragd.retrieve("q", RetrievePlan(mode="vector", exact="always"), store)
    cases.equal("order", keys(candidates), ["e256#0", "e200#0", "e129#0", "e064#0"])
    for item, expected in zip(candidates, (1.0, 0.5625, 0.0078125, -0.5), strict=True):
        near = abs(item.score - expected) <= TOLERANCE
        cases.holds(item.doc_id, near, expected=f"{expected} within {TOLERANCE}", got=f"{item.score}")


@rule("4.1", "a list holds 50 candidates unless the plan says otherwise, and at least k")
def pool_of_vectors(bench: Bench, cases: Cases) -> None:
    _check_pools(bench, cases, "vector")


@rule("4.2", "a list holds 50 candidates unless the plan says otherwise, and at least k")
def pool_of_words(bench: Bench, cases: Cases) -> None:
    _check_pools(bench, cases, "lexical")


@rule("4.2", "the score is BM25 as done by hand")
def scores_are_bm25(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("words")
    for doc_id, text in FRUIT.items():
        ragd.index(make_chunks(doc_id, text), store)
    length = store.state().length_baked
    for query in ("apples", "apples pears", "plums garden", "pears pears apples"):
        candidates = {item.doc_id: item.score for item in ragd.retrieve(query, RetrievePlan(mode="lexical"), store)}
        expected = {doc_id: score for doc_id, text in FRUIT.items() if (score := _bm25(query, text, length)) > 0}
        cases.equal(f"{query!r}: documents", sorted(candidates), sorted(expected))
        for doc_id, score in expected.items():
            near = math.isclose(candidates.get(doc_id, 0.0), score, rel_tol=TOLERANCE)
            cases.holds(
                f"{query!r}: {doc_id}", near, expected=f"{score} within {TOLERANCE}", got=f"{candidates.get(doc_id)}"
            )
    words = sum(len(text.split()) for text in FRUIT.values()) / len(FRUIT)
    near = abs(length / words - 1) <= 0.05
    cases.holds("mean length", near, expected=f"{words} within 5 %", got=f"{length}")


@rule("4.2", "the numbers of BM25 are those of the chunks without an access list, whatever is hidden")
def numbers_are_of_open_chunks(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("lists", language="simple")
    plan, query = RetrievePlan(mode="lexical"), "apples pears garden quinces"

    def check(case: str, listed: Sequence[str], *, hidden: Sequence[str] = ()) -> None:
        opened = {name: text for name, text in FRUIT.items() if name not in listed}
        state = store.state()
        words = sum(len(text.split()) for text in opened.values())
        cases.equal(f"{case}: open chunks and words", [state.open_count, state.length_total], [len(opened), words])
        mean = bake_length(words / len(opened)) if opened else 1.0
        cases.equal(f"{case}: mean length", state.length_baked, mean)
        for item in ragd.retrieve(query, plan, store):
            score = _bm25(query, (HIDDEN | FRUIT)[item.doc_id], mean, opened)
            near = math.isclose(item.score, score, rel_tol=TOLERANCE)
            cases.holds(f"{case}: {item.doc_id}", near, expected=f"{score} within {TOLERANCE}", got=f"{item.score}")
        found = {item.doc_id for item in ragd.retrieve("quinces", plan, store)}
        cases.equal(f"{case}: words that no open chunk holds", found, set(hidden))

    for doc_id, text in FRUIT.items():
        ragd.index(make_chunks(doc_id, text), store)
    check("nothing hidden", ())
    _set_list(store, list(HIDDEN), hide=True)
    for doc_id, text in HIDDEN.items():
        ragd.index(make_chunks(doc_id, text), store)
    check("hidden before they came", (), hidden=["quince"])
    ragd.index(make_chunks("plum", "plums", "plums plums"), store)
    check("hidden ones replaced", (), hidden=["quince"])
    _set_list(store, ["a", "d"], hide=True)
    check("hidden while they were there", ("a", "d"), hidden=["quince"])
    _set_list(store, ["a", "d"], hide=False)
    check("shown again", (), hidden=["quince"])
    delete_document_chunks(list(HIDDEN), store)
    check("hidden ones gone", ())
    _set_list(store, list(FRUIT), hide=True)
    check("all hidden", list(FRUIT))


@rule("4.2", "language auto: documents of another configuration change no score but by the mean length")
def configurations_count_apart(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("apart", language="auto")
    for doc_id, text in FRUIT.items():
        ragd.index(make_chunks(doc_id, text, attributes={"language": "pl"}), store)
    plan, query = RetrievePlan(mode="lexical"), "apples pears plums garden"
    for number in range(7):
        ragd.index(make_chunks(f"de{number}", f"apples pears {number}", attributes={"language": "de"}), store)
        length = store.state().length_baked
        scores = {item.doc_id: item.score for item in ragd.retrieve(query, plan, store) if item.doc_id in FRUIT}
        for doc_id, got in scores.items():
            score = _bm25(query, FRUIT[doc_id], length)
            near = math.isclose(got, score, rel_tol=TOLERANCE)
            cases.holds(f"{number}: {doc_id}", near, expected=f"{score} within {TOLERANCE}", got=f"{got}")


@rule("4.2", "any word may match; words that no chunk holds change nothing; no word gives nothing")
def any_word_matches(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("any")
    for doc_id, text in FRUIT.items():
        ragd.index(make_chunks(doc_id, text), store)
    plan = RetrievePlan(mode="lexical")
    known = [(item.key, item.score) for item in ragd.retrieve("apples pears", plan, store)]
    more = [(item.key, item.score) for item in ragd.retrieve("apples zebra pears quagga", plan, store)]
    cases.equal("documents", sorted(key[0] for key, _ in known), ["a", "b", "c", "d"])
    cases.equal("unknown words", more, known)
    for query in ("zebra", "!!!", "& | ! ( ) : *", "'"):
        cases.equal(f"query {query!r}", retrieve_keys(query, store, mode="lexical"), [])
    cases.equal("case of letters", retrieve_keys("APPLES", store, mode="lexical"), ["a#0", "c#0", "d#0"])


@rule("4.2", "words are reduced by the text search configuration of the collection")
def language_stems(bench: Bench, cases: Cases) -> None:
    for language, expected in (("english", ["a#0", "b#0"]), ("simple", ["b#0"])):
        store = bench.make_store(language, language=language)
        ragd.index([*make_chunks("a", "the kettle boils"), *make_chunks("b", "boiling water")], store)
        cases.equal(language, sorted(retrieve_keys("boiling", store, mode="lexical")), expected)
    store = bench.make_store("vectors-only", hybrid_enabled=False)
    for mode in ("lexical", "hybrid"):
        refusal = lambda requested=mode: ragd.retrieve("q", RetrievePlan(mode=requested), store)  # noqa: E731
        cases.refused(f"{mode} without a lexical index", refusal, field="mode", error=ragd.LexicalDisabled)


COMPOUNDS = {
    "code": ("order PPR-9087 shipped", ("9087", "ppr", "ppr-9087")),
    "flaw": ("the flaw CVE-2026-2332", ("2332", "CVE-2026-2332")),
    "path": ("see photo_7.jpg for read/write", ("photo", "jpg", "write", "read/write", "photo_7.jpg")),
    "years": ("budget 2020-2024", ("2024", "2020-2024", "2020\u20132024")),
    "firm": ("AT&T", ("at&t", "AT&T")),
    "version": ("version v2.10.3", ("2.10.3", "v2.10.3")),
    "device": ("recorder DS-7604NI-E1/4P/A", ("7604", "ds-7604ni", "DS-7604NI-E1")),
    "wide": ("\uff21\uff22\uff23\uff11\uff12\uff13", ("abc123",)),
    "accent": ("r\u00e9sum\u00e9", ("resume", "r\u00e9sum\u00e9")),
    "sign": ("rocket \U0001f680", ("\U0001f680",)),
    "hidden": ("zero\u200bwidth", ("zerowidth",)),
    "ligature": ("e\ufb03cient", ("efficient",)),
}


@rule("4.2", "a compound is found as a whole and by its parts; width, accents and invisible signs hide nothing")
def compounds_have_parts(bench: Bench, cases: Cases) -> None:
    for language in ("simple", "auto"):
        store = bench.make_store(f"compounds-{language}", language=language)
        ragd.index([chunk for doc_id, (text, _) in COMPOUNDS.items() for chunk in make_chunks(doc_id, text)], store)
        for doc_id, (_, queries) in COMPOUNDS.items():
            for query in queries:
                found = retrieve_keys(query, store, mode="lexical")
                cases.equal(f"{language}: {query!a}", found[:1], [f"{doc_id}#0"])


@rule("4.2", "the score of a compound is BM25 over the whole and the parts, each a lexeme of the length")
def compounds_are_bm25(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("compound-scores", language="simple")
    ragd.index([*make_chunks("a", "ab-12 ab"), *make_chunks("b", "ab 12 cd ef")], store)
    length = store.state().length_baked
    found = {item.doc_id: item.score for item in ragd.retrieve("ab-12", RetrievePlan(mode="lexical"), store)}

    def weight(repeats: int, words: int) -> float:
        return repeats * (K1 + 1) / (repeats + K1 * (1 - B + B * words / length))

    both, one = math.log(1 + 0.5 / 2.5), math.log(1 + 1.5 / 1.5)  # idf of what two chunks and one chunk hold
    expected = {"a": both * (weight(2, 4) + weight(1, 4)) + one * weight(1, 4), "b": both * 2 * weight(1, 4)}
    for doc_id, score in expected.items():
        near = math.isclose(found.get(doc_id, 0.0), score, rel_tol=TOLERANCE)
        cases.holds(doc_id, near, expected=f"{score} within {TOLERANCE}", got=f"{found.get(doc_id)}")


LANGUAGES = {
    "de": ("de", "Die Schlüssel liegen unter der Matte"),
    "en": ("en", "the keys were boiling in the kettle"),
    "ja": ("ja", "東京都の鍵はpostgresqlにある"),
    "th": ("th", "กุญแจอยู่ใต้พรม"),
    "zh": ("zh", "钥匙有效期为九十天"),
    "unknown": ("", "kettles 京"),
}


@rule("4.2", "language auto: each chunk by its document's language, a query by all languages that are held")
def auto_stems_by_document(bench: Bench, cases: Cases) -> None:
    store = _load_languages(bench, "auto-stems", list(LANGUAGES))
    for query, expected in (
        ("Schlüssel", ["de#0"]),
        ("schlüssels", ["de#0"]),
        ("boiled", ["en#0"]),
        ("kettle", ["en#0", "unknown#0"]),
        ("the der", []),
    ):
        cases.equal(query, sorted(retrieve_keys(query, store, mode="lexical")), expected)
    english = bench.make_store("auto-plain", language="auto")
    ragd.index(_language_chunks("en"), english)
    explicit = bench.make_store("auto-explicit", language="english")
    ragd.index(_language_chunks("en"), explicit)
    scores = [
        [item.score for item in ragd.retrieve("boiling keys", RetrievePlan(mode="lexical"), each)]
        for each in (english, explicit)
    ]
    cases.equal("an English text scores as under english", scores[0], scores[1])


@rule("4.2", "language auto: text without spaces is found by pairs of characters, one character by itself")
def auto_pairs_characters(bench: Bench, cases: Cases) -> None:
    store = _load_languages(bench, "auto-pairs", list(LANGUAGES))
    for query, expected in (
        ("有效期", ["zh#0"]),
        ("期有", []),
        ("东京", []),
        ("東京", ["ja#0"]),
        ("京", ["ja#0", "unknown#0"]),
        ("postgresql", ["ja#0"]),
        ("ใต้พรม", ["th#0"]),
        ("鍵と有效", ["zh#0"]),
    ):
        cases.equal(query, sorted(retrieve_keys(query, store, mode="lexical")), expected)


@rule("4.2", "language auto: the order of arrival and what was there before change no score")
def auto_keeps_no_history(bench: Bench, cases: Cases) -> None:
    names = list(LANGUAGES)
    whole = _load_languages(bench, "auto-whole", names)
    parts = bench.make_store("auto-parts", language="auto")
    for name in reversed(names):
        ragd.index(_language_chunks(name, language="fr"), parts)
    for name in names:
        ragd.index(_language_chunks(name), parts)
    plan = RetrievePlan(mode="lexical", k=20)
    for query in ("keys kettle Schlüssel 有效期 京", "ใต้พรม boiling", "the"):
        results = [[(item.key, item.score) for item in ragd.retrieve(query, plan, each)] for each in (whole, parts)]
        cases.equal(query, results[1], results[0])


def _load_languages(bench: Bench, name: str, documents: Sequence[str]) -> ragd.Store:
    store = bench.make_store(name, language="auto")
    ragd.index([chunk for doc_id in documents for chunk in _language_chunks(doc_id)], store)
    return store


def _language_chunks(doc_id: str, **stated: str) -> list[Chunk]:
    language, text = LANGUAGES[doc_id]
    return make_chunks(doc_id, text, attributes={"language": stated.get("language", language)})


def _check_pools(bench: Bench, cases: Cases, name: str) -> None:
    cases.equal("default of the plan", RetrievePlan().candidate_pool, 50)
    store = bench.make_store("pools")
    ragd.index(make_chunks("d", *[f"the same words and number {n}" for n in range(80)]), store)
    for values, expected in (
        ({}, 50),
        ({"candidate_pool": 20}, 20),
        ({"k": 30, "candidate_pool": 20}, 30),
        ({"k": 60}, 60),
        ({"candidate_pool": 1000}, 80),
    ):
        plan = RetrievePlan.from_dict({"mode": "hybrid", "exact": "always"} | values)
        lists = ragd.retrieve_detailed("the same words", plan, store).lists
        cases.equal(f"{values}", len(lists[name]), expected)


def _with_equal_entries(query: ragd.types.Vector, equal: int) -> Chunk:
    """A chunk whose vector shares the sign of so many entries with the query: its cosine is equal / 128 - 1."""
    vector = [entry if index < equal else -entry for index, entry in enumerate(query)]
    assert len(vector) == DIMS and abs(vector[0]) == ENTRY
    return replace(make_chunks(f"e{equal:03}", f"text {equal}")[0], embedding=vector)


def _set_list(store: ragd.Store, doc_ids: Sequence[str], *, hide: bool) -> None:
    """Give documents an access list of nobody but the administrators, or take it away."""
    params = {"collection_id": store.collection.id, "doc_ids": list(doc_ids)}
    execute(store.connection, HIDE if hide else SHOW, params)


def _bm25(query: str, text: str, length: float, counted: Mapping[str, str] = FRUIT) -> float:
    """Robertson and Walker's sum with Lucene's idf; the mean length is the one that the store computes with."""
    words = text.split()
    total = 0.0
    for word in query.split():
        holding = sum(word in each.split() for each in counted.values())
        idf = math.log(1 + (len(counted) - holding + 0.5) / (holding + 0.5))
        repeats = words.count(word)
        total += idf * repeats * (K1 + 1) / (repeats + K1 * (1 - B + B * len(words) / length))
    return total


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
