"""BM25 over the postings of a large collection: the same rows in the same order as scoring every chunk, without it.

Term by term, rarest first, impacts are added up per chunk: an upper bound of its score by the terms that were read
(MaxScore: Turtle and Flood, 1995). As soon as the terms that are left cannot lift any other chunk into the pool, their
postings stay unread: the chunks that can still be in it get their exact score from the stored weights, in the
database, and the pool is complete when its last score is above the bound of everything that was left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ragd.search.candidates import COLUMNS, fetch_rows, narrows, passing, scope
from ragd.search.conditions import is_indexed
from ragd.store.postings import STEP, WEIGHT_MAX, add_impacts, read_segments, slots_of
from ragd.store.store import Segment, Store, array_text, binds_on_server, cursor, fetch_all
from ragd.types import RetrievePlan, order_key

GROUP_SHARE = 0.05
GROUP_MIN = 20_000  # places that are added up in less time than another statement takes
RESCORED_MAX = 8
BATCH_GROWTH = 4
SCAN_CONSIDERED = 150
ATTEMPTS = 3
ROUNDING = 1e-5
BLOCK = 64

# COPY takes no parameters: whole numbers only
READ_POSTINGS = (
    "SELECT segment_id, slot, postings FROM chunk_postings WHERE segment_id IN ({segments}) AND slot IN ({slots})"
)

# How many of the segments are still there: looked up with the rows, to save a round trip.
STANDING = "(SELECT count(*) FROM chunk_segments WHERE id = ANY(%(every)s::bigint[]))"
COUNT_STANDING = f"SELECT {STANDING}"

CHOSEN_IDS = """
SELECT ('x' || encode(substring(s.chunk_ids FROM chosen.place * 8 + 1 FOR 8), 'hex'))::bit(64)::bigint
FROM unnest(%(segments)s::bigint[], %(places)s::integer[]) AS chosen (segment_id, place)
JOIN chunk_segments s ON s.id = chosen.segment_id"""

# The chosen chunks, by their places in the segments, and in the first round the tail that no segment covers.
RESCORE = f"""
SELECT {COLUMNS}, -(lexical <#> %(weights)s::sparsevec) AS score{{also}}
FROM {{chunks}}
WHERE collection_id = %(collection_id)s AND (id > %(tail_after)s OR id = ANY({{ids}}))
  AND {{passing}} AND lexical <#> %(weights)s::sparsevec < 0
ORDER BY lexical <#> %(weights)s::sparsevec, doc_id, chunk_index
LIMIT %(pool)s
"""

ID_MAX = 2**63 - 1
GONE = np.float32(-np.inf)

Row = tuple[Any, ...]
Floats = npt.NDArray[np.float32]


def pruned_rows(
    weights: dict[int, float],
    frequencies: dict[int, int],
    vector: str,
    plan: RetrievePlan,
    store: Store,
    segments: Sequence[Segment] | None = None,
    *,
    keys_only: bool = False,
) -> list[Row] | None:
    """The plan's pool of rows (COLUMNS and score), best first, ties by (doc_id, chunk_index).

    weights: term -> what the query gives it; frequencies: term -> in how many chunks it is; vector: the weights as a
    sparsevec; segments: those of the store, where they were read already. None when scanning what the filters leave is
    the better way: the collection has no segments, or the filters are so narrow that few of the best chunks pass.
    """
    for attempt in range(ATTEMPTS):
        if attempt or segments is None:
            segments = read_segments(store)
        if not segments:
            return None
        search = _Search(segments, weights, frequencies, vector, plan, store, keys_only)
        rows = search.run()
        # A writer may have merged segments between two statements: then their postings were not all there.
        if rows is None or search.is_whole():
            return rows
    return None


class _Search:
    """One query over one set of segments. `bounds` has a place per packed chunk: its score by the terms read."""

    def __init__(
        self,
        segments: Sequence[Segment],
        weights: dict[int, float],
        frequencies: dict[int, int],
        vector: str,
        plan: RetrievePlan,
        store: Store,
        keys_only: bool,
    ) -> None:
        self.segments, self.weights, self.vector, self.plan, self.store = segments, weights, vector, plan, store
        self.keys_only = keys_only
        self.ids = [segment.id for segment in segments]
        sizes = [segment.size for segment in segments]
        self.starts = np.cumsum([0, *sizes])
        self.bounds = np.zeros(-(-int(self.starts[-1]) // BLOCK) * BLOCK, dtype=np.float32)
        self.waiting = group_terms(weights, frequencies, max(GROUP_MIN, GROUP_SHARE * sum(sizes)))
        self.rest = WEIGHT_MAX * sum(weights.values())  # what the terms not yet read can add
        self.slack = 0.0  # how far a bound can be above the score by the terms read
        self.error = ROUNDING * self.rest
        self.rows: list[Row] = []
        self.rescored = 0
        self.standing: int | None = None  # segments that were there after postings were read last; None: not counted

    def run(self) -> list[Row] | None:
        batch = pool = self.plan.pool
        self._read_group()
        while True:
            chosen = self._choose(batch)
            self._rescore(chosen)
            self.bounds[chosen] = GONE
            highest = float(self.bounds.max()) + self.rest + self.error
            if len(self.rows) >= pool and self.rows[pool - 1][-1] > highest:
                return self.rows
            if highest <= self.error and not self.waiting:
                return self.rows
            if self._scan_is_better():
                return None
            batch = self._next_batch(batch)

    def is_whole(self) -> bool:
        """Whether all segments were still there after postings were read last."""
        if self.standing is None:
            ((self.standing,),) = fetch_all(self.store.connection, COUNT_STANDING, {"every": self.ids})
        return self.standing == len(self.segments)

    def _choose(self, requested: int) -> npt.NDArray[np.int64]:
        """Every chunk that can be among the best `wanted` of those not rescored; reads terms until these are few."""
        while True:
            highest = self.bounds.reshape(-1, BLOCK).max(axis=1)
            floor = kth_largest(self.bounds, highest, requested) - self.slack - self.rest - self.error
            if not self.waiting:
                return at_least(self.bounds, highest, max(floor, STEP * 1e-6))
            if floor > 0:
                chosen = at_least(self.bounds, highest, floor)
                if len(chosen) <= RESCORED_MAX * requested:
                    return chosen
            self._read_group()

    def _read_group(self) -> None:
        terms = self.waiting.pop(0)
        factors = {term: np.float32(self.weights[term] * STEP) for term in terms}
        where = {segment.id: index for index, segment in enumerate(self.segments)}
        for segment_id, slot, postings in self._postings(terms):
            index = where[segment_id]
            add_impacts(self.bounds[self.starts[index] : self.starts[index + 1]], slot, postings, factors)
        self.standing = None
        added = sum(self.weights[term] for term in terms)
        self.slack += STEP * added
        self.rest = max(0.0, self.rest - WEIGHT_MAX * added) if self.waiting else 0.0

    def _postings(self, terms: Sequence[int]) -> Iterator[tuple[int, int, bytes]]:
        """In binary, by COPY where the driver gives the rows of a statement as text alone."""
        connection = self.store.connection
        sql = READ_POSTINGS.format(
            segments=",".join(str(segment.id) for segment in self.segments), slots=",".join(map(str, slots_of(terms)))
        )
        with cursor(connection, binary=True) as opened:
            if binds_on_server(connection):
                yield from opened.execute(sql).fetchall()
                return
            with opened.copy(f"COPY ({sql}) TO STDOUT (FORMAT BINARY)") as copy:
                copy.set_types(["int8", "int4", "bytea"])
                yield from copy.rows()

    def _rescore(self, chosen: npt.NDArray[np.int64]) -> None:
        first = not self.rescored
        if not len(chosen) and not first:
            return
        owners = np.searchsorted(self.starts, chosen, side="right") - 1
        params = scope(self.plan, self.store) | {
            "weights": self.vector,
            "segments": array_text([self.segments[owner].id for owner in owners.tolist()]),
            "places": array_text((chosen - self.starts[owners]).tolist()),
            "tail_after": self.segments[-1].last_id if first else ID_MAX,
            "every": self.ids,
        }
        names = {"chunks": self.store.collection.partition, "passing": passing(self.plan, self.store)}
        if self.store.collection.is_distributed:  # what is looked up here is not on the nodes
            params["ids"] = [chunk_id for (chunk_id,) in fetch_all(self.store.connection, CHOSEN_IDS, params)]
            rows = self._fetch(RESCORE.format(**names, ids="%(ids)s", also=""), params)
        else:
            found = self._fetch(RESCORE.format(**names, ids=f"ARRAY({CHOSEN_IDS})", also=f", {STANDING}"), params)
            rows = [row[:-1] for row in found]
            self.standing = found[0][-1] if found else None
        self.rows = sorted(self.rows + rows, key=_order)[: self.plan.pool] if self.rows else rows
        self.rescored += max(1, len(chosen))

    def _fetch(self, sql: str, params: dict[str, Any]) -> list[Row]:
        return fetch_rows(self.store.connection, sql, params, keys_only=self.keys_only)

    def _next_batch(self, batch: int) -> int:
        """BATCH_GROWTH times as many, or what should be enough by the share that passed so far, when that is less."""
        missing = self.plan.pool - len(self.rows)
        if missing <= 0:
            return batch * BATCH_GROWTH
        likely = round(1.5 * missing * self.rescored / (len(self.rows) + 1))
        return max(self.plan.pool, min(batch * BATCH_GROWTH, likely))

    def _scan_is_better(self) -> bool:
        """So few of the best passed that going on would read more rows than a scan.

        An index finds what passes tags and equality; of other filters a scan is taken to read every row with one of the
        words.
        """
        filters = self.plan.filters
        if self.rescored < SCAN_CONSIDERED or not narrows(self.plan, self.store):
            return False
        passed = (len(self.rows) + 1) / self.rescored
        scanned = float(np.count_nonzero(self.bounds > 0))
        by_index = filters.tags_any or filters.tags_all or filters.metadata or self.store.principals is not None
        if by_index or (filters.where and is_indexed(filters.where)):
            scanned *= passed
        return self.plan.pool / passed > scanned


def group_terms(weights: dict[int, float], frequencies: dict[int, int], most: float) -> list[list[int]]:
    """Terms by falling weight, in groups that are read at once: each of one term, or of up to `most` chunks in all."""
    groups: list[list[int]] = []
    total = 0
    for term in sorted(weights, key=lambda term: (-weights[term], term)):
        if not groups or total + frequencies[term] > most:
            groups.append([])
            total = 0
        groups[-1].append(term)
        total += frequencies[term]
    return groups


def kth_largest(values: Floats, highest: Floats, requested: int) -> float:
    """The wanted-th largest of the values above 0; 0 when there are fewer. highest: the largest of each BLOCK of them.

    The wanted-th largest of `highest` is never above it, so that few blocks are looked into.
    """
    floor = float(np.partition(highest, -requested)[-requested]) if len(highest) >= requested else 0.0
    near = values.reshape(-1, BLOCK)[highest >= floor if floor > 0 else highest > 0]
    near = near[near > 0]
    return float(np.partition(near, -requested)[-requested]) if len(near) >= requested else 0.0


def at_least(values: Floats, highest: Floats, floor: float) -> npt.NDArray[np.int64]:
    """The places of the values that are not below `floor`, in order."""
    blocks = np.flatnonzero(highest >= floor)
    rows, columns = np.nonzero(values.reshape(-1, BLOCK)[blocks] >= floor)
    positions: npt.NDArray[np.int64] = blocks[rows] * BLOCK + columns
    return positions


def _order(row: Row) -> tuple[float, str, int]:
    return order_key(row[-1], row[1], row[2])
