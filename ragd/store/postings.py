"""Postings of all but small collections: per term, which chunks hold it and how much each counts, in segments.

A segment covers the chunks of one range of ids, at most SEGMENT_MAX of them. Ids only grow and a chunk's words never
change under its id, so a segment is written once; what is younger than the last segment is the tail, which a search
scans. A tail of TAIL_SHARE of what is packed, from TAIL_MIN to TAIL_MAX chunks, becomes a segment, together with the
segments before it that are not much larger, so that their number stays logarithmic and every chunk is packed a few
times at most (a log-structured merge). Chunks that were deleted stay in their segment until many have gone; a search
meets them as ids without a row.

chunk_postings.postings of a term (slot = the term, when it is in COMMON_MIN chunks of the segment or more) is either
the places of its chunks (uint16) followed by their impacts (uint8), or, when it is in a quarter of them, one impact
for every place. All rarer terms share BUCKETS slots (-1 - term % BUCKETS): terms (int32), places, impacts. Little
endian. An impact is the chunk's BM25 weight for the term, rounded up to a multiple of STEP, so that no score is ever
underestimated.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ragd.store.store import REBAKE, SEGMENTS, SET_BAKED, Segment, Store, bake_length, cursor, execute, fetch_all

POSTINGS_MIN = 2_000
SEGMENT_MAX = 65_536
TAIL_MAX = 2_048
TAIL_MIN = 256
TAIL_SHARE = 0.125
MERGE_RATIO = 4
DEAD_SHARE_MAX = 0.3
COMMON_MIN = 64
BUCKETS = 1_024
READ_ROWS = 512  # whose weights are taken apart at a time
SCAN_POSTINGS = 1 << 20
WEIGHT_MAX = 2.2
STEP = WEIGHT_MAX / 255

LOCK_STATS = """
SELECT chunk_count, open_count, length_total, length_baked FROM chunk_stats
WHERE collection_id = %(collection_id)s AND index_version = %(index_version)s FOR UPDATE
"""

# Every packed chunk lies in the segment with the highest first id that is not above its own.
COUNT_LIVE = """
SELECT width_bucket(id, %(firsts)s::bigint[]) - 1, count(*) FROM {chunks}
WHERE collection_id = %(collection_id)s AND id BETWEEN %(first)s AND %(last)s
GROUP BY 1
"""

COUNT_TAIL = """
SELECT count(*)
FROM (SELECT 1 FROM {chunks} WHERE collection_id = %(collection_id)s AND id > %(covered)s LIMIT %(most)s) AS tail
"""

DROP_SEGMENTS = """
DELETE FROM chunk_segments
WHERE collection_id = %(collection_id)s AND index_version = %(index_version)s
  AND (%(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s::bigint[]))
"""

INSERT_SEGMENT = """
INSERT INTO chunk_segments (collection_id, index_version, first_id, last_id, size, chunk_ids)
VALUES (%(collection_id)s, %(index_version)s, %(first_id)s, %(last_id)s, %(size)s, %(chunk_ids)s)
RETURNING id
"""

# COPY takes no parameters: whole numbers and the table's own name only
READ_WEIGHTS = """
COPY (SELECT id, lexical FROM {chunks}
      WHERE collection_id = {collection_id:d} AND id > {after:d} AND id <= {until:d} AND lexical IS NOT NULL
      ORDER BY id LIMIT {most:d}) TO STDOUT (FORMAT BINARY)
"""

COPY_POSTINGS = "COPY chunk_postings (segment_id, slot, postings) FROM STDIN (FORMAT BINARY)"

ID_MAX = 2**63 - 1

Ints = npt.NDArray[np.int64]
Packed = npt.NDArray[Any]  # uint64: one posting each, term << 24 | place << 8 | impact


def read_segments(store: Store) -> list[Segment]:
    """The segments of the store's index version, oldest first; [] while the collection is small."""
    ((rows,),) = fetch_all(store.connection, f"SELECT {SEGMENTS}", {**store.scope})
    return [Segment(*row) for row in rows]


def drop_postings(store: Store) -> None:
    """Forget every segment, because the stored weights have changed."""
    execute(store.connection, DROP_SEGMENTS, {**store.scope, "ids": None})


def refresh_weights(store: Store) -> bool:
    """Compute the stored BM25 weights anew when the mean length has left its grid step; returns whether it had.

    Rewrites every row of the collection and packs its postings again; writers wait meanwhile.
    """
    ((_, count, total, baked),) = fetch_all(store.connection, LOCK_STATS, {**store.scope})
    requested = bake_length(total / count) if count else 1.0
    if requested == baked:
        return False
    params = {**store.scope, "length_baked": requested}
    packed = bool(read_segments(store))
    drop_postings(store)
    execute(store.connection, REBAKE.format(chunks=store.collection.partition), params)
    execute(store.connection, SET_BAKED, params)
    if packed:
        build_postings(store)
    return True


def build_postings(store: Store) -> int:
    """Pack everything that is not packed yet, in a collection of any size; returns how many segments were made.

    Call it after a bulk load that did not go through index(). The caller holds the lock of the statistics, or nobody
    else writes.
    """
    segments = read_segments(store)
    covered = segments[-1].last_id if segments else 0
    made = 0
    while (last_id := _pack(store, after=covered)) is not None:
        covered, made = last_id, made + 1
    return made


def build_missing_postings(store: Store) -> int:
    """Pack a collection that is large enough and has no segments, as after its mean length moved (`follow_length`);
    returns how many were made. Writers wait meanwhile."""
    ((count, *_),) = fetch_all(store.connection, LOCK_STATS, {**store.scope})
    return 0 if count < POSTINGS_MIN or read_segments(store) else build_postings(store)


def extend_postings(store: Store, chunk_count: int, segments: list[Segment]) -> None:
    """Keep the segments up with what was written; index() calls it, holding the lock of the statistics.

    segments: those that there are, oldest first. Does nothing below POSTINGS_MIN chunks while there are none, nor while
    the tail is short.
    """
    if not segments:
        if chunk_count >= POSTINGS_MIN:
            build_postings(store)
        return
    covered, packed = segments[-1].last_id, sum(segment.size for segment in segments)
    most = min(TAIL_MAX, max(TAIL_MIN, round(packed * TAIL_SHARE)))
    params = {**store.scope, "covered": covered, "most": most}
    ((tail,),) = fetch_all(store.connection, COUNT_TAIL.format(chunks=store.collection.partition), params)
    if tail >= most:
        _absorb_tail(store, segments, tail)
    elif packed - (chunk_count - tail) > max(most, packed * DEAD_SHARE_MAX):
        _repack_worst(store, segments)


def _absorb_tail(store: Store, segments: list[Segment], tail: int) -> None:
    """A new segment of the tail and of the last segments, as long as they are not much larger."""
    absorbed: list[Segment] = []
    taken = tail
    while segments and segments[-1].size <= MERGE_RATIO * taken and segments[-1].size + taken <= SEGMENT_MAX:
        absorbed.append(segments.pop())
        taken += absorbed[-1].size
    after = segments[-1].last_id if segments else 0
    _drop(store, absorbed)
    while (last_id := _pack(store, after=after)) is not None:
        after = last_id


def _repack_worst(store: Store, segments: list[Segment]) -> None:
    """Write the segment with the most deleted chunks anew, with its younger neighbours as far as they fit."""
    firsts = [segment.first_id for segment in segments]
    params = {**store.scope, "firsts": firsts, "first": firsts[0], "last": segments[-1].last_id}
    counted = dict(fetch_all(store.connection, COUNT_LIVE.format(chunks=store.collection.partition), params))
    live = [counted.get(position, 0) for position in range(len(segments))]
    worst = max(range(len(segments)), key=lambda position: segments[position].size - live[position])
    end, total = worst + 1, live[worst]
    while end < len(segments) and total + live[end] <= SEGMENT_MAX:
        total += live[end]
        end += 1
    after = segments[worst - 1].last_id if worst else 0
    _drop(store, segments[worst:end])
    _pack(store, after=after, until=segments[end - 1].last_id)


def _drop(store: Store, segments: Sequence[Segment]) -> None:
    if segments:
        execute(store.connection, DROP_SEGMENTS, {**store.scope, "ids": [segment.id for segment in segments]})


def _pack(store: Store, *, after: int, until: int = ID_MAX) -> int | None:
    """One segment of the first chunks with after < id <= until; returns its last id, None when there is none."""
    ids, packed = _read_postings(store, after, until)
    if not ids:
        return None
    params = {
        **store.scope,
        "first_id": ids[0],
        "last_id": ids[-1],
        "size": len(ids),
        "chunk_ids": np.asarray(ids, dtype=">i8").tobytes(),
    }
    ((segment_id,),) = fetch_all(store.connection, INSERT_SEGMENT, params)
    with cursor(store.connection) as opened, opened.copy(COPY_POSTINGS) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0))
        for slot, postings in _encode(len(ids), packed):
            copy.write(struct.pack("!hiqiii", 3, 8, segment_id, 4, slot, len(postings)) + postings)
        copy.write(struct.pack("!h", -1))
    return ids[-1]


def _read_postings(store: Store, after: int, until: int) -> tuple[list[int], Packed]:
    """Ids in order and sorted postings of at most SEGMENT_MAX chunks; a large segment is never in memory twice."""
    sql = READ_WEIGHTS.format(
        chunks=store.collection.partition, collection_id=store.collection.id, after=after, until=until, most=SEGMENT_MAX
    )
    ids: list[int] = []
    packed: Packed = np.empty(0, dtype=np.uint64)
    with cursor(store.connection) as opened, opened.copy(sql) as copy:
        copy.set_types(["int8", "bytea"])
        rows = copy.rows()
        while block := list(itertools.islice(rows, READ_ROWS)):
            postings = _pack_vectors([vector for _, vector in block], len(ids))
            ids += [chunk_id for chunk_id, _ in block]
            before = len(packed)
            packed.resize(before + len(postings), refcheck=False)
            packed[before:] = postings
    packed.sort()
    return ids, packed


def _pack_vectors(vectors: Sequence[bytes], first: int) -> Packed:
    """One number per posting, as they sort several times faster than three columns; first: the first one's place.

    vectors: the binary form of sparsevec: dim, count, 0, terms, values.
    """
    words = np.frombuffer(b"".join(vectors), dtype=">i4")
    lengths = np.fromiter(map(len, vectors), dtype=np.int64, count=len(vectors)) // 4
    counts = (lengths - 3) // 2
    starts = np.cumsum(lengths) - lengths + 3
    before = np.cumsum(counts) - counts
    positions = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    terms = words[positions].astype(np.uint64) + np.uint64(1)  # the binary form counts from 0
    weights = words.view(">f4")[positions + np.repeat(counts, counts)].astype(np.float64)
    steps = np.ceil(weights / STEP).clip(1, 255).astype(np.uint64)
    owners = np.repeat(np.arange(first, first + len(vectors), dtype=np.uint64), counts)
    packed: Packed = (terms << 24) | (owners << 8) | steps
    return packed


def _term_starts(packed: Packed) -> Ints:
    """Where the postings of each term begin."""
    result, before = [np.empty(0, dtype=np.int64)], np.uint64(0)
    for first in range(0, len(packed), SCAN_POSTINGS):
        terms = packed[first : first + SCAN_POSTINGS] >> 24
        result.append(np.flatnonzero(np.diff(terms, prepend=before)) + first)
        before = terms[-1]
    return np.concatenate(result)


def _encode(size: int, packed: Packed) -> Iterator[tuple[int, bytes]]:
    """(slot, postings) of one segment of `size` chunks, as the module's docstring lays them out."""
    starts = _term_starts(packed)
    counts = np.diff(starts, append=len(packed))
    common = counts >= COMMON_MIN
    for start, count in zip(starts[common].tolist(), counts[common].tolist(), strict=True):
        terms, positions, impacts = _unpack(packed[start : start + count])
        if count * 4 >= size:
            every = np.zeros(size, dtype=np.uint8)
            every[positions] = impacts
            yield int(terms[0]), every.tobytes()
        else:
            yield int(terms[0]), positions.tobytes() + impacts.tobytes()
    yield from _encode_rare(packed[np.repeat(~common, counts)])


def _encode_rare(rare: Packed) -> Iterator[tuple[int, bytes]]:
    in_buckets = rare >> 24
    in_buckets %= BUCKETS
    in_buckets <<= 54
    in_buckets |= rare
    in_buckets.sort()
    edges = np.searchsorted(in_buckets, np.arange(BUCKETS, dtype=np.uint64) << 54).tolist()
    for bucket, (first, last) in enumerate(itertools.pairwise([*edges, len(in_buckets)])):
        if first < last:
            terms, positions, impacts = _unpack(in_buckets[first:last] & ((1 << 54) - 1))
            yield -1 - bucket, terms.astype("<i4").tobytes() + positions.tobytes() + impacts.tobytes()


def _unpack(packed: Packed) -> tuple[Packed, npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """(terms, places, impacts) of term << 24 | place << 8 | impact."""
    return packed >> 24, (packed >> 8 & 0xFFFF).astype("<u2"), (packed & 0xFF).astype(np.uint8)


def slots_of(terms: Sequence[int]) -> list[int]:
    """Where these terms may be: each in a slot of its own, or in its bucket."""
    return sorted({*terms, *(-1 - term % BUCKETS for term in terms)})


def add_impacts(values: Any, slot: int, postings: bytes, factors: dict[int, np.float32]) -> None:
    """Add impact * factor to the places of one segment (`values`, float32) for every term of the slot in `factors`."""
    if slot > 0:
        if len(postings) == len(values):
            values += np.frombuffer(postings, dtype=np.uint8) * factors[slot]
            return
        count = len(postings) // 3
        positions = np.frombuffer(postings, dtype="<u2", count=count)
        values[positions] += np.frombuffer(postings, dtype=np.uint8, offset=2 * count) * factors[slot]
        return
    count = len(postings) // 7
    held = np.frombuffer(postings, dtype="<i4", count=count)
    for term, factor in factors.items():
        if -1 - term % BUCKETS == slot:
            first, last = np.searchsorted(held, (term, term + 1))
            positions = np.frombuffer(postings, dtype="<u2", count=last - first, offset=4 * count + 2 * first)
            impacts = np.frombuffer(postings, dtype=np.uint8, count=last - first, offset=6 * count + first)
            values[positions] += impacts * factor
