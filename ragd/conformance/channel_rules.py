"""Section 6: whoever serves the library answers as the library does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ragd
from ragd.conformance import corpus
from ragd.conformance.golden import Bench, Rule, result_of
from ragd.conformance.report import Cases
from ragd.store.indexing import delete_document_chunks
from ragd.store.store import Connection, Store, fetch_all
from ragd.types import Candidate, RetrievePlan, canonical_json

STORED = """
SELECT doc_id, chunk_index, content, context, start_char, end_char, to_jsonb(tags)::text, metadata::text
FROM {chunks} WHERE collection_id = %(collection_id)s
"""

Channel = Callable[[str, RetrievePlan], Sequence[Mapping[str, Any]]]
Channels = Mapping[str, Channel]
EVERY = 5  # every fifth query, through each plan: channels are slower than the library


def make_rules(channels: Channels) -> list[Rule]:
    """One rule per channel, the library's own function first."""
    return [
        Rule("6", "every result holds what its row holds, and its ranks are its places", _hold_rows, needs_corpus=True),
        Rule("6", "a chunk that goes while a search runs is no result, and the next moves up", _move_up),
        *(
            Rule("6", f"{name} answers as the library does, byte for byte", _checker(channel), needs_corpus=True)
            for name, channel in channels.items()
        ),
    ]


def library_results(bench: Bench, query: str, plan: RetrievePlan) -> str:
    """The library's answer in the canonical JSON form."""
    return canonical_json([result_of(item) for item in ragd.retrieve(query, plan, bench.open_golden())])


def _hold_rows(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    stored = _stored_rows(store)
    for name, plan in corpus.PLANS.items():
        for query in corpus.queries()[::EVERY]:
            details = ragd.retrieve_detailed(query.text, plan, store)
            rows = [_row_of(candidate) for candidate in details.candidates]
            case = f"{name}: {query.text!r}"
            cases.equal(case, rows, [stored[candidate.key] for candidate in details.candidates])
            _ranks_agree(case, details, plan, cases)
            cases.equal(f"{case}: retrieve()", ragd.retrieve(query.text, plan, store), details.candidates)


def _ranks_agree(case: str, details: ragd.Retrieval, plan: RetrievePlan, cases: Cases) -> None:
    got = len(details.candidates)
    cases.equal(f"{case}: short result", details.short_result.got if details.short_result else plan.k, got)
    places = {name: {each.key: place for place, each in enumerate(column, 1)} for name, column in details.lists.items()}
    if len(details.lists) > 1:
        places["fused"] = {candidate.key: place for place, candidate in enumerate(details.fused, 1)}
    for candidate in details.candidates:
        ranks = {name: candidate.ranks[name].rank for name in places if name in candidate.ranks}
        expected = {name: column[candidate.key] for name, column in places.items() if candidate.key in column}
        cases.equal(f"{case}: ranks of {candidate.doc_id}", ranks, expected)


def _stored_rows(store: Store) -> dict[tuple[str, int], tuple[Any, ...]]:
    rows = fetch_all(
        store.connection, STORED.format(chunks=store.collection.partition), {"collection_id": store.collection.id}
    )
    return {(row[0], row[1]): (*row[2:6], *(json.loads(value) for value in row[6:])) for row in rows}


def _row_of(item: Candidate) -> tuple[Any, ...]:
    return (item.content, item.context, item.start, item.end, list(item.tags), dict(item.metadata))


class _Losing:
    """A connection that loses a document before its last statement of a search, as to another writer."""

    def __init__(self, store: Store) -> None:
        self.connection: Connection = store.connection
        self.store = store
        self.lost, self.opened, self.last = "", 0, 0

    def cursor(self, **options: Any) -> Any:
        self.opened += 1
        if self.lost and self.opened == self.last:
            delete_document_chunks([self.lost], Store(self.connection, self.store.collection.name, self.store.embedder))
        return self.connection.cursor(**options)


def _move_up(bench: Bench, cases: Cases) -> None:
    plan = RetrievePlan(k=12, exact="always")
    store = bench.make_store("losing")
    texts = {name: f"tea {'and water ' * number}" for number, name in enumerate("abc")}
    ragd.index([bound for name, text in texts.items() for bound in _bound(name, text)], store)
    losing = _Losing(store)
    watched = Store(losing, store.collection.name, store.embedder)
    losing.opened = 0
    before = ragd.retrieve_detailed("tea", plan, watched)
    losing.last, losing.opened, losing.lost = losing.opened, 0, before.candidates[0].doc_id
    details = ragd.retrieve_detailed("tea", plan, watched)
    kept = [item.doc_id for item in before.candidates[1:]]
    cases.equal("results", [item.doc_id for item in details.candidates], kept)
    cases.equal("texts", [item.content for item in details.candidates], [texts[name].strip() for name in kept])
    cases.equal("the lists", {name: len(each) for name, each in details.lists.items()}, {"vector": 2, "lexical": 2})
    _ranks_agree("after", details, plan, cases)
    after = ragd.retrieve_detailed("tea", plan, store)
    cases.equal("places", [item.ranks["fused"].rank for item in details.candidates], [1, 2])
    cases.equal("as asked afterwards", [item.key for item in details.fused], [item.key for item in after.fused])


def _bound(doc_id: str, text: str) -> list[ragd.Chunk]:
    return ragd.bind(ragd.chunk(text, ragd.ChunkPolicy()), doc_id=doc_id)


def _checker(channel: Channel) -> Callable[[Bench, Cases], None]:
    def check(bench: Bench, cases: Cases) -> None:
        for name, plan in corpus.PLANS.items():
            for query in corpus.queries()[::EVERY]:
                got = canonical_json(list(channel(query.text, plan)))
                cases.equal(f"{name}: {query.text!r}", got, library_results(bench, query.text, plan))

    return check
