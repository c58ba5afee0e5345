"""Rows of chunks as ranked candidates, and the filter that every list shares."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import psycopg
from psycopg.types.string import TextLoader

from ragd.models.late_interaction import HEADER_BYTES
from ragd.search.conditions import condition_sql
from ragd.store.store import Connection, Store, cursor
from ragd.types import Candidate, ListRank, RetrievePlan, canonical_json, with_score

# metadata and attributes as they are stored: their text is made of the few rows that are sent, not of all that pass
COLUMNS = "id, doc_id, chunk_index, content, start_char, end_char, context, tags, metadata, revision, attributes"

ROW_WIDTH = COLUMNS.count(",") + 2  # with the score

KEYS = "id, doc_id, chunk_index"  # where only the place in a list is asked

ROWS_BY_ID = f"""
SELECT {COLUMNS}, 0 AS score{{tokens}}
FROM {{chunks}}
WHERE collection_id = %(collection_id)s AND id = ANY(%(ids)s)
"""  # noqa: S608  (constants of the library)

TOKENS = f""",
       CASE WHEN id = ANY(%(whole)s::bigint[]) THEN tokens ELSE substring(tokens FOR {HEADER_BYTES}) END"""

READABLE_MOST = 0.5  # from this share on a scan in strict order soon has its rows

ENABLED = "enabled"
DISABLED = "NOT enabled"
# Row-level security says it too. Here the planner sees how few rows it leaves, and uses an index; for one who may read
# most of them it would only be checked twice per row.
ACCESS = "access && %(principals)s::bigint[]"
TAGS_ANY = "tags && %(tags_any)s::text[]"
TAGS_ALL = "tags @> %(tags_all)s::text[]"
# Equality on top-level keys; the containment before it lets an index help and is never narrower.
METADATA = "metadata @> %(metadata)s::jsonb"
METADATA_KEY = (
    "metadata -> (%(metadata_keys)s::text[])[{place:d}] = %(metadata)s::jsonb -> (%(metadata_keys)s::text[])[{place:d}]"
)


def scope(plan: RetrievePlan, store: Store) -> dict[str, Any]:
    """The parameters that COLUMNS statements and passing() share."""
    filters = plan.filters
    typed = condition_sql(filters.where)[1] if filters.where else {}
    return typed | {
        "collection_id": store.collection.id,
        "pool": plan.pool,
        "tags_any": list(filters.tags_any) or None,
        "tags_all": list(filters.tags_all) or None,
        "metadata": canonical_json(dict(filters.metadata)) if filters.metadata else None,
        "metadata_keys": list(filters.metadata),
        "principals": store.principals,
    }


def narrows(plan: RetrievePlan, store: Store) -> bool:
    """Whether some chunks of the store may not pass: filters, or documents that the asker may not read."""
    return bool(plan.filters) or store.principals is not None


def reads_most(store: Store) -> bool:
    """Whether the reader may read at least READABLE_MOST of the chunks, as far as that is known."""
    return store.principals is None or (store.readable_share or 0) >= READABLE_MOST


def passing(plan: RetrievePlan, store: Store, *, enabled: bool = True) -> str:
    """The condition for the rows of a partition that the plan may find, over the parameters of scope().

    Filters that the plan does not use are not in it, so that the database need not plan them. enabled=False: the rows
    that it would find if they were not disabled.
    """
    filters = plan.filters
    used = (
        (store.principals is not None and not reads_most(store), ACCESS),
        (filters.tags_any, TAGS_ANY),
        (filters.tags_all, TAGS_ALL),
        (filters.metadata, METADATA),
        *((True, METADATA_KEY.format(place=place)) for place in range(1, len(filters.metadata) + 1)),
    )
    typed = [condition_sql(filters.where)[0]] if filters.where else []
    return " AND ".join([ENABLED if enabled else DISABLED, *(condition for value, condition in used if value), *typed])


class MadeCandidates(Sequence[Candidate]):
    """Candidates each of which is made when it is asked for."""

    def make(self, place: int) -> Candidate:
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Candidate: ...

    @overload
    def __getitem__(self, place: slice) -> list[Candidate]: ...

    def __getitem__(self, place: int | slice) -> Candidate | list[Candidate]:
        places = range(len(self))[place]
        return self.make(places) if isinstance(places, int) else [self.make(each) for each in places]


class RankedKeys(MadeCandidates):
    """Rows of KEYS and the score as candidates without content."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], name: str, kind: str, highest: float) -> None:
        self._rows, self._name, self._kind, self._highest = rows, name, kind, highest

    def __len__(self) -> int:
        return len(self._rows)

    def make(self, place: int) -> Candidate:
        score = self._rows[place][3]
        unit_score = min(1.0, max(0.0, score / self._highest))
        return self.placed(place, score, self._kind, unit_score, {self._name: ListRank(place + 1, score)})

    def placed(
        self, place: int, score: float, kind: str, unit_score: float, ranks: Mapping[str, ListRank]
    ) -> Candidate:
        """As `with_score` of the candidate there, which is not made."""
        chunk_id, doc_id, chunk_index, _ = self._rows[place]
        return Candidate(
            doc_id, chunk_index, "", score, score_kind=kind, unit_score=unit_score, ranks=ranks, chunk_id=chunk_id
        )

    def rank(self, place: int) -> tuple[str, ListRank]:
        """The name of the list, and the rank of the candidate there."""
        return self._name, ListRank(place + 1, self._rows[place][3])

    def scores(self) -> list[float]:
        return [row[3] for row in self._rows]

    def keys(self) -> list[tuple[str, int]]:
        return [row[1:3] for row in self._rows]

    def without(self, gone: Collection[tuple[str, int]]) -> RankedKeys:
        kept = [row for row in self._rows if row[1:3] not in gone]
        return RankedKeys(kept, self._name, self._kind, self._highest)


def keys_of(candidates: Sequence[Candidate]) -> list[tuple[str, int]]:
    """(doc_id, chunk_index) of each, in order."""
    if isinstance(candidates, RankedKeys):
        return candidates.keys()
    return [candidate.key for candidate in candidates]


def scores_of(candidates: Sequence[Candidate]) -> list[float]:
    """The score of each, in order."""
    return candidates.scores() if isinstance(candidates, RankedKeys) else [each.score for each in candidates]


def listed(
    rows: Sequence[tuple[Any, ...]], name: str, kind: str, highest: float, *, keys_only: bool
) -> Sequence[Candidate]:
    """What fetch_rows() gave, as candidates."""
    return RankedKeys(rows, name, kind, highest) if keys_only else ranked(rows, name, kind, highest)


def ranked(rows: Sequence[tuple[Any, ...]], name: str, kind: str, highest: float) -> list[Candidate]:
    """Rows of COLUMNS and the score, in the order of the database, as candidates; unit_score is score / highest,
    clipped to 0..1."""
    candidates = []
    for rank, row in enumerate(rows, 1):
        chunk_id, doc_id, chunk_index, content, start, end, context, tags, metadata, revision, attributes, score = row
        score = float(score)
        candidates.append(
            Candidate(
                doc_id,
                chunk_index,
                content,
                score,
                tuple(tags),
                _object(metadata),
                start,
                end,
                context,
                kind,
                min(1.0, max(0.0, score / highest)),
                {name: ListRank(rank, score)},
                chunk_id,
                revision,
                _object(attributes),
            )
        )
    return candidates


def fill(candidates: Sequence[Candidate], store: Store, *, tokens: int = 0) -> list[Candidate]:
    """The candidates of lists of KEYS, in order, with all that their rows hold; one whose row is gone is left out.

    tokens: the first so many have their token vectors too, and those behind the first bytes of them
    (`ragd.models.reranking.TokenReranker`); 0: none has any.
    """
    ids = [candidate.chunk_id for candidate in candidates]
    params = {"collection_id": store.collection.id, "ids": ids} | ({"whole": ids[:tokens]} if tokens else {})
    sql = ROWS_BY_ID.format(chunks=store.collection.partition, tokens=TOKENS if tokens else "")
    rows = fetch_rows(store.connection, sql, params)
    packed = {row[0]: row[-1] for row in rows} if tokens else {}
    filled = {each.chunk_id: each for each in ranked([row[:ROW_WIDTH] for row in rows], "", "", 1.0)}
    return [
        with_text(filled[each.chunk_id], each, packed.get(each.chunk_id) or each.tokens)
        for each in candidates
        if each.chunk_id in filled
    ]


def with_text(row: Candidate, listed: Candidate, tokens: bytes | None = None) -> Candidate:
    """What stands in a row, with the score and the ranks of a candidate of a list."""
    filled = with_score(row, listed.score, listed.score_kind, listed.unit_score, listed.ranks)
    return filled if tokens is None else replace(filled, tokens=bytes(tokens))


def without(gone: Collection[tuple[str, int]], candidates: Sequence[Candidate], name: str) -> Sequence[Candidate]:
    """A list of that name without some keys; those behind them move up."""
    if isinstance(candidates, RankedKeys):
        return candidates.without(gone)
    kept = [candidate for candidate in candidates if candidate.key not in gone]
    return [
        replace(each, ranks={**each.ranks, name: ListRank(rank, each.score)}) for rank, each in enumerate(kept, start=1)
    ]


def fetch_rows(
    connection: Connection, sql: str, params: dict[str, Any], *, keys_only: bool = False
) -> list[tuple[Any, ...]]:
    """What a statement of COLUMNS finds, or of KEYS in their place. JSON stays text, as on Django's connections: most
    of it is empty."""
    if keys_only:
        sql = sql.replace(COLUMNS, KEYS)
    with cursor(connection, binary=keys_only) as opened:
        if isinstance(opened, psycopg.Cursor) and not keys_only:
            opened.adapters.register_loader("jsonb", TextLoader)
        opened.execute(sql, params)
        rows: list[tuple[Any, ...]] = opened.fetchall()
        return rows


def _object(value: Any) -> dict[str, Any]:
    """A JSON object of the database: text on Django's connections, read already on others."""
    if value == "{}":
        return {}
    read: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
    return read
