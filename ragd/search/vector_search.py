"""The vector list: nearest chunks by cosine, by an exact scan or through the HNSW index."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from psycopg.adapt import Dumper
from psycopg.pq import Format

from ragd.search.candidates import ACCESS, COLUMNS, fetch_rows, listed, passing, ranked, reads_most, scope
from ragd.store.placement import set_everywhere
from ragd.store.store import Store, StoreState, binds_on_server, execute, fetch_all
from ragd.types import Candidate, RetrievePlan

SCAN_TUPLES_MAX = 100_000
EF_SEARCH_MAX = 1000
COMPACT_MIN = 1_000  # chunks from which on the compact index is asked
COMPACT_MORE = 50  # rows beyond those that are wanted
# How far a distance in half precision can be off: two vectors of length 1, each component rounded by at most 2^-11 of
# itself, and at most 4,000 products added up in single precision, twice.
COMPACT_ERROR = 0.002
FILTERED_BEAM_MIN = 200
READABLE_EXACT = 3_000  # so few chunks that one may read are compared one by one, whatever the plan says

# The limit and the type are whole numbers in the text, not parameters: the plan depends on them, and a prepared
# statement keeps its plan only where it can see them.
# Without the cast that the HNSW index is over, so that every row is compared.
VECTOR_EXACT = f"""
SELECT {COLUMNS}, 1 - (embedding <=> %(vector)s::vector) AS score
FROM {{chunks}}
WHERE {{passing}}
ORDER BY embedding <=> %(vector)s::vector, doc_id, chunk_index
LIMIT {{rows:d}}
"""

VECTOR_INDEXED = f"""
SELECT {COLUMNS}, 1 - ((embedding::{{cast}}) <=> %(vector)s::vector::{{cast}}) AS score
FROM {{chunks}}
WHERE {{passing}}
ORDER BY (embedding::{{cast}}) <=> %(vector)s::vector::{{cast}}, doc_id, chunk_index
LIMIT {{rows:d}}
"""

MATCHING_UP_TO = "SELECT count(*) FROM (SELECT 1 FROM {chunks} WHERE {passing} LIMIT {most:d}) AS matching"

# The exact scan and how many rows pass in one reading; of more than `most` it stops, and the rows say nothing.
VECTOR_IF_FEW = f"""
WITH passing AS MATERIALIZED (
    SELECT id, doc_id, chunk_index, embedding <=> %(vector)s::vector AS distance
    FROM {{chunks}}
    WHERE {{passing}}
    LIMIT {{most:d}}
), nearest AS (
    SELECT id, distance FROM passing ORDER BY distance, doc_id, chunk_index LIMIT {{rows:d}}
)
SELECT {COLUMNS}, 1 - distance AS score, (SELECT count(*) FROM passing)
FROM nearest JOIN {{chunks}} USING (id)
WHERE collection_id = %(collection_id)s
ORDER BY distance, doc_id, chunk_index
"""

# Under filters the scan goes on for rows that pass. In strict order it throws away every row that is nearer than one it
# has given before; in relaxed order it gives them too, late, and they are sorted here.
VECTOR_FILTERED = f"""
WITH nearest AS MATERIALIZED (
    SELECT {COLUMNS}, (embedding::{{cast}}) <=> %(vector)s::vector::{{cast}} AS distance
    FROM {{chunks}}
    WHERE {{passing}}
    ORDER BY (embedding::{{cast}}) <=> %(vector)s::vector::{{cast}}
    LIMIT {{rows:d}}
)
SELECT {COLUMNS}, 1 - distance AS score FROM nearest ORDER BY distance, doc_id, chunk_index
"""

HALF = "l2_normalize(embedding)::halfvec({dims:d})"
HALF_ASKED = "l2_normalize(%(vector)s::vector)::halfvec({dims:d})"

# The exact scan in two steps: the rows that are nearest in half precision, which the compact index gives in order, and
# of these the nearest. What says whether others could be among them comes along.
VECTOR_COMPACT = f"""
WITH near AS MATERIALIZED (
    SELECT id, doc_id, chunk_index, embedding <=> %(vector)s::vector AS distance, ({HALF}) <#> {HALF_ASKED} AS product
    FROM {{chunks}}
    WHERE {{passing}}
    ORDER BY ({HALF}) <#> {HALF_ASKED}
    LIMIT {{most:d}}
), nearest AS (
    SELECT id, distance FROM near ORDER BY distance, doc_id, chunk_index LIMIT {{rows:d}}
)
SELECT {COLUMNS}, 1 - distance AS score, distance, (SELECT count(*) FROM near), (SELECT 1 + max(product) FROM near)
FROM nearest JOIN {{chunks}} USING (id)
WHERE collection_id = %(collection_id)s
ORDER BY distance, doc_id, chunk_index
"""

HNSW_NAMES = {
    "ef_search": "hnsw.ef_search",
    "scan_order": "hnsw.iterative_scan",
    "scan_tuples": "hnsw.max_scan_tuples",
    "plans": "plan_cache_mode",
}
# Until the end of the transaction. Rows that were replaced stand in the index until they are vacuumed away, and take
# their share of the beam, which is therefore wider by as many: twice as wide at most.
WIDER = """(1 + least(1, coalesce(pg_stat_get_dead_tuples(to_regclass(%(chunks)s)), 0)::float8
           / greatest(1, pg_stat_get_live_tuples(to_regclass(%(chunks)s)))))"""
HNSW_SETTINGS = f"""set_config('hnsw.ef_search',
                  least({EF_SEARCH_MAX}, ceil(%(ef_search)s::integer * {WIDER}))::integer::text, true),
       set_config('hnsw.iterative_scan', %(scan_order)s, true),
       set_config('hnsw.max_scan_tuples', %(scan_tuples)s, true),
       set_config('hnsw.scan_mem_multiplier', '4', true), set_config('plan_cache_mode', %(plans)s, true)"""
SET_HNSW = f"SELECT {HNSW_SETTINGS}"


class BinaryVector:
    """A vector as psycopg sends it to pgvector: in binary, where a text would take longer to write than to search."""

    __slots__ = ("data",)

    def __init__(self, vector: Sequence[float]) -> None:
        self.data = struct.pack("!hh", len(vector), 0) + np.asarray(vector, dtype=">f4").tobytes()

    def __str__(self) -> str:
        return vector_text(np.frombuffer(self.data, dtype=">f4", offset=4).tolist())


class _BinaryVectorDumper(Dumper):
    """Names no type: pgvector's has another number in every database, and the cast beside the parameter says it."""

    format = Format.BINARY

    def dump(self, obj: BinaryVector) -> bytes:
        return obj.data


def hnsw_settings(plan: RetrievePlan, store: Store) -> dict[str, str]:
    """The parameters of SET_HNSW. The beam holds the pool and one more: ties at its edge are looked for one row on,
    and a beam that ends at the edge would make the scan begin again for that row. Under filters it has room for rows
    that do not pass."""
    filtered = passes_few(plan, store)
    least = max(plan.pool + 1, FILTERED_BEAM_MIN if filtered else 0)
    if not filtered and store.readable_share:
        least = math.ceil(least / store.readable_share)
    return scan_settings(min(EF_SEARCH_MAX, max(plan.ef_search or 0, least)), store, filtered=filtered)


def passes_few(plan: RetrievePlan, store: Store) -> bool:
    """Whether an index scan may have to go on for rows that pass: under filters, or where one may not read most."""
    return bool(plan.filters) or not reads_most(store)


def scan_settings(ef_search: int, store: Store, *, filtered: bool) -> dict[str, str]:
    """The parameters of SET_HNSW for a given beam. A plan made for all values cannot tell how few rows a filter leaves,
    so with filters each statement is planned for its own."""
    order, plans = ("relaxed_order", "force_custom_plan") if filtered else ("strict_order", "auto")
    values = {"ef_search": str(ef_search), "scan_order": order, "scan_tuples": str(SCAN_TUPLES_MAX), "plans": plans}
    return values if store.collection.is_distributed else values | {"chunks": store.collection.partition}


def set_scan(store: Store, settings: Mapping[str, str]) -> None:
    """Let index scans go by these settings (`scan_settings`) until the end of the transaction."""
    if store.collection.is_distributed:
        named = {HNSW_NAMES[name]: value for name, value in settings.items()}
        set_everywhere(store.connection, named | {"hnsw.scan_mem_multiplier": "4"})
    else:
        execute(store.connection, SET_HNSW, dict(settings))


def read_state(plan: RetrievePlan, store: Store, text: str | None = None) -> StoreState:
    """The store's state, with the words of a normalized text where they are looked for; the settings of the index scan
    are made in the same round trip, where the plan may need it."""
    for_words = plan.mode != "vector"
    if plan.mode == "lexical" or plan.exact == "always":
        return store.state(for_words=for_words, question=text)
    if store.collection.is_distributed:
        set_scan(store, hnsw_settings(plan, store))
        return store.state(for_words=for_words, question=text)
    return store.state(HNSW_SETTINGS, hnsw_settings(plan, store), for_words=for_words, question=text)


def is_exact(plan: RetrievePlan, store: Store, state: StoreState) -> bool:
    """Scan or index? "auto" scans up to the threshold, counting only what the filters leave."""
    known = _known_exact(plan, store, state)
    return count_passing(plan, store, store.exact_threshold + 1) <= store.exact_threshold if known is None else known


def _known_exact(plan: RetrievePlan, store: Store, state: StoreState) -> bool | None:
    """None where it depends on how many chunks the filters leave."""
    if plan.exact == "always" or not state.vector_index:
        return True
    if store.readable_share is not None and store.readable_share * state.chunk_count <= READABLE_EXACT:
        return True
    if plan.exact == "never":
        return False
    if state.chunk_count <= store.exact_threshold:
        return True
    return None if plan.filters or (store.principals is not None and store.readable_share is None) else False


def count_passing(plan: RetrievePlan, store: Store, most: int) -> int:
    """How many chunks the plan's filters let through; the count stops at `most`."""
    sql = MATCHING_UP_TO.format(chunks=store.collection.partition, passing=passing(plan, store), most=most)
    ((matching,),) = fetch_all(store.connection, sql, scope(plan, store))
    return int(matching)


def count_readable(store: Store, most: int) -> int:
    """How many chunks the store's principals may read, disabled ones too; the count stops at `most`."""
    sql = MATCHING_UP_TO.format(chunks=store.collection.partition, passing=ACCESS, most=most)
    ((readable,),) = fetch_all(store.connection, sql, {"principals": store.principals})
    return int(readable)


def vector_list(
    vector: Sequence[float],
    plan: RetrievePlan,
    store: Store,
    state: StoreState,
    *,
    rows: int | None = None,
    keys_only: bool = False,
) -> tuple[Sequence[Candidate], bool]:
    """The plan's vector list and whether it `is_exact`, reading the rows of a filter once. It needs what read_state()
    set. rows: so many in place of the pool, except from a filtered scan of the index. keys_only: candidates without
    content where that is faster, see `fill`."""
    rows = rows or plan.pool
    exact = _known_exact(plan, store, state)
    if exact is None:
        few = _exact_if_few(vector, plan, store, rows)
        if few is not None:
            return few, True
        exact = False
    if exact and state.compact_index and state.chunk_count >= COMPACT_MIN:
        nearest = _exact_by_compact(vector, plan, store, rows, keys_only=keys_only)
        if nearest is not None:
            return nearest, True
    if not exact and passes_few(plan, store):
        rows = plan.pool
    return vector_candidates(vector, plan, store, exact, rows=rows, keys_only=keys_only), exact


def _exact_if_few(vector: Sequence[float], plan: RetrievePlan, store: Store, rows: int) -> list[Candidate] | None:
    """The nearest chunks by an exact scan; None where more than the threshold pass the filters."""
    sql = VECTOR_IF_FEW.format(
        chunks=store.collection.partition, passing=passing(plan, store), most=store.exact_threshold + 1, rows=rows
    )
    params = scope(plan, store) | {"vector": vector_parameter(vector, store)}
    found = fetch_rows(store.connection, sql, params)
    if found and found[0][-1] > store.exact_threshold:
        return None
    return ranked([row[:-1] for row in found], "vector", "cosine", 1.0)


def _exact_by_compact(
    vector: Sequence[float], plan: RetrievePlan, store: Store, rows: int, *, keys_only: bool
) -> Sequence[Candidate] | None:
    """The nearest chunks, as an exact scan gives them; None where so many are about as near as the last of them that
    half precision cannot tell which come first."""
    most = rows + COMPACT_MORE
    sql = VECTOR_COMPACT.format(
        chunks=store.collection.partition,
        passing=passing(plan, store),
        dims=store.collection.embed_dims,
        most=most,
        rows=rows,
    )
    params = scope(plan, store) | {"vector": vector_parameter(vector, store)}
    found = fetch_rows(store.connection, sql, params, keys_only=keys_only)
    if found:
        *_, distance, seen, farthest = found[-1]
        if seen == most and not distance + COMPACT_ERROR < farthest:
            return None
    return listed([row[:-3] for row in found], "vector", "cosine", 1.0, keys_only=keys_only)


def vector_candidates(
    vector: Sequence[float],
    plan: RetrievePlan,
    store: Store,
    exact: bool,
    *,
    rows: int | None = None,
    enabled: bool = True,
    keys_only: bool = False,
) -> Sequence[Candidate]:
    """The nearest chunks, best first, ties by (doc_id, chunk_index): the plan's pool, or so many rows.

    Through the index it needs what read_state() set. enabled=False: among the disabled chunks.
    """
    params = scope(plan, store) | {"vector": vector_parameter(vector, store)}
    through_index = VECTOR_FILTERED if passes_few(plan, store) else VECTOR_INDEXED
    sql = (VECTOR_EXACT if exact else through_index).format(
        chunks=store.collection.partition,
        cast=store.collection.vector_cast,
        passing=passing(plan, store, enabled=enabled),
        rows=rows or plan.pool,
    )
    found = fetch_rows(store.connection, sql, params, keys_only=keys_only)
    return listed(found, "vector", "cosine", 1.0, keys_only=keys_only)


def vector_parameter(vector: Sequence[float], store: Store) -> Any:
    """The vector as the store's connection takes it: text where the driver writes it into the statement."""
    connection = store.connection
    if not binds_on_server(connection):
        return vector_text(vector)
    connection.adapters.register_dumper(BinaryVector, _BinaryVectorDumper)  # it may be older than this module
    return BinaryVector(vector)


def vector_text(vector: Sequence[float]) -> str:
    """pgvector's text form, with the shortest digits that give the same float back."""
    return "[" + ",".join(map(repr, map(float, vector))) + "]"
