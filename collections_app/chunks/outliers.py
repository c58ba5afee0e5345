"""Chunks of a collection that deserve a look: counted and listed by the database, near-duplicates by a scan.

Each statement has a time limit, so that no page waits for a large collection; what was not finished is said.

Near-duplicates are sought in two steps. Candidates share a key: the content folded to its letters and digits in lower
case, or the four lowest or the four highest of the hashed words of the lexical index, which two texts share as often as
they share words (a bottom-k sketch of their sets of words). Every candidate is then compared with the first chunk of
its group by runs of three words: at least SHARE_MIN of those of either must be in both. In a collection without lexical
index only the first key is there, which finds equal texts. At most PAIRS_MAX candidates are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from collections_app.audit import services
from collections_app.chunks.overlays import (
    CHARS_PER_WORD,
    DUPLICATE,
    FLAGS,
    LONG,
    NO_LETTERS,
    SHORT,
    SHORT_SHARE,
    SHORT_WORDS_MIN,
)
from collections_app.chunks.policies import policy_for, window_of
from collections_app.jobs.operations import last_report, running
from collections_app.models import Collection, NearDuplicate, Operation
from ragd.store.store import execute, fetch_all
from ragd.store.tables import LETTERLESS

COUNT_TIMEOUT_S = 8
SCAN_TIMEOUT_S = 30
PAIRS_MAX = 20_000
KEPT_MAX = 5_000
SHARE_MIN = 0.8
SHINGLE = 3
UTF8_MAX = 4  # bytes of one character

CHUNK_COUNT = "SELECT chunk_count FROM chunk_stats WHERE collection_id = %(collection_id)s AND serving"

SET_TIMEOUT = "SET LOCAL statement_timeout = '%d s'"

# By the policies of the documents: above so many words a chunk is short nowhere, below so many characters long nowhere.
BOUNDS = f"""
SELECT greatest({SHORT_WORDS_MIN}, max((chunk_policy->>'target_tokens')::integer) / {SHORT_SHARE}),
       min((chunk_policy->>'max_chars')::integer)
FROM documents WHERE collection_id = %(collection_id)s AND chunk_policy <> '{{}}'
"""  # noqa: S608  (constants)

# The same rules as `collections_app.chunks.overlays.flags_of`, by the policy that cut each document. Contents lie apart
# from their rows, so as few as possible are read: the number of bytes is known without, and tells that a chunk is
# neither short nor long; an index holds those without letters. Chunks come first: they may be on other nodes.
FOUND = """
WITH c AS MATERIALIZED (
    SELECT doc_id, chunk_index, token_count, enabled, revision,
           CASE WHEN octet_length(content) BETWEEN %(short_bytes)s AND %(long_chars)s THEN octet_length(content)
                ELSE length(content) END AS chars
    FROM {table}
), letterless AS MATERIALIZED (SELECT doc_id, chunk_index FROM {table} WHERE {letterless}), limits AS (
    SELECT doc_id, title, target, chars, greatest(%(short_words_min)s, target / %(short_share)s) AS short_words
    FROM documents, LATERAL (
        SELECT coalesce((chunk_policy->>'target_tokens')::integer, %(target)s) AS target,
               coalesce((chunk_policy->>'max_chars')::integer, %(chars)s) AS chars
    ) AS p WHERE collection_id = %(collection_id)s
), measured AS (
    SELECT c.doc_id, l.title, c.chunk_index, c.token_count, c.enabled,
           c.token_count < l.short_words AND c.chars < %(word_chars)s * l.short_words AS short,
           CASE WHEN %(seen_words)s < l.target
                THEN c.token_count > %(seen_words)s OR c.chars > least(l.chars, %(seen_chars)s)
                ELSE c.token_count > l.target OR c.chars > l.chars END AS long,
           w.doc_id IS NOT NULL AS no_letters, n.of_doc_id, n.of_chunk_index, n.share
    FROM c
    JOIN limits l ON l.doc_id = c.doc_id
    LEFT JOIN letterless w ON w.doc_id = c.doc_id AND w.chunk_index = c.chunk_index
    LEFT JOIN near_duplicates n
      ON n.collection_id = %(collection_id)s AND n.doc_id = c.doc_id AND n.chunk_index = c.chunk_index
     AND n.revision = c.revision
), flagged AS MATERIALIZED (SELECT * FROM measured WHERE short OR long OR no_letters OR share IS NOT NULL)
SELECT counts.*, listed.* FROM (
    SELECT (SELECT count(*) FROM c), count(*), count(*) FILTER (WHERE short), count(*) FILTER (WHERE long),
           count(*) FILTER (WHERE no_letters), count(*) FILTER (WHERE share IS NOT NULL)
    FROM flagged
) AS counts
LEFT JOIN (
    SELECT * FROM flagged WHERE {condition} ORDER BY doc_id, chunk_index OFFSET %(offset)s LIMIT %(limit)s
) AS listed ON true
ORDER BY listed.doc_id, listed.chunk_index
"""

CONDITIONS = {"": "true", SHORT: "short", LONG: "long", NO_LETTERS: "no_letters", DUPLICATE: "share IS NOT NULL"}

EXCERPTS = """
SELECT doc_id, chunk_index, left(content, 300), metadata->>'page' FROM {table}
WHERE (doc_id, chunk_index) IN (SELECT * FROM unnest(%(doc_ids)s::text[], %(numbers)s::integer[]))
"""

# Terms come in ascending order, each as "term:weight".
SKETCHES = """
    UNION ALL
    SELECT 'low ' || array_to_string(
        (string_to_array(regexp_replace(left(lexical::text, 120), ':[^,]*', '', 'g'), ','))[1:4], ','
    ), doc_id, chunk_index FROM own
    UNION ALL
    SELECT 'high ' || array_to_string(terms[greatest(1, array_length(terms, 1) - 3):], ','), doc_id, chunk_index
    FROM own, LATERAL (
        SELECT string_to_array(regexp_replace(right(split_part(lexical::text, '/', 1), 120), ':[^,]*', '', 'g'), ',')
    ) AS last (terms)
"""

CANDIDATES = """
WITH own AS NOT MATERIALIZED (
    SELECT doc_id, chunk_index, content, lexical FROM {table}
), keyed AS MATERIALIZED (
    SELECT md5(lower(regexp_replace(content COLLATE "pg_c_utf8", '[^[:alnum:]]+', '', 'g'))) AS key, doc_id, chunk_index
    FROM own
    {sketches}
), grouped AS (
    SELECT doc_id, chunk_index, first_value(doc_id) OVER place AS of_doc_id,
           first_value(chunk_index) OVER place AS of_chunk_index
    FROM keyed
    WINDOW place AS (PARTITION BY key ORDER BY doc_id, chunk_index)
), pairs AS (
    SELECT DISTINCT doc_id, chunk_index, of_doc_id, of_chunk_index FROM grouped
    WHERE (doc_id, chunk_index) <> (of_doc_id, of_chunk_index)
)
SELECT doc_id, chunk_index, of_doc_id, of_chunk_index FROM pairs
ORDER BY doc_id, chunk_index, of_doc_id, of_chunk_index LIMIT %(most)s
"""

CONTENTS = """
SELECT doc_id, chunk_index, revision, content FROM {table}
WHERE (doc_id, chunk_index) IN (SELECT * FROM unnest(%(doc_ids)s::text[], %(numbers)s::integer[]))
"""

Place = tuple[str, int]  # (doc_id, chunk_index)


@dataclass(frozen=True, slots=True)
class OutlierCounts:
    """How many chunks have each flag, in the order of FLAGS; `any` have at least one."""

    chunks: int
    by_flag: dict[str, int]
    any: int


@dataclass(frozen=True, slots=True)
class Outlier:
    """A chunk with flags. like: (doc_id, chunk_index, share) of the earlier chunk that it repeats, or None."""

    doc_id: str
    title: str
    chunk_index: int
    token_count: int
    excerpt: str
    enabled: bool
    page: str | None
    flags: tuple[str, ...]
    like: tuple[str, int, float] | None

    @property
    def name(self) -> str:
        return self.title or self.doc_id


class TooSlowError(Exception):
    """The database did not finish in time."""


@dataclass(frozen=True, slots=True)
class Outliers:
    """What was counted, and the rows that were asked for."""

    counts: OutlierCounts
    rows: list[Outlier]


def find_outliers(collection: Collection, flag: str = "", *, offset: int = 0, limit: int = 50) -> Outliers | None:
    """Counts of all flags, and the chunks of one of them by (doc_id, chunk_index); flag "": with any.

    None when the collection is too large to be counted in COUNT_TIMEOUT_S seconds.
    """
    values = _scope(collection) | {"offset": offset, "limit": limit}
    table = collection.chunks_table
    try:
        with _limited(COUNT_TIMEOUT_S):
            sql = FOUND.format(table=table, letterless=LETTERLESS, condition=CONDITIONS[flag])
            found = fetch_all(connection, sql, values)
            listed = [row[6:] for row in found if row[6] is not None]
            names = {"doc_ids": [row[0] for row in listed], "numbers": [row[2] for row in listed]}
            texts = fetch_all(connection, EXCERPTS.format(table=table), names) if listed else []
    except TooSlowError:
        return None
    chunks, flagged, *by_flag = found[0][:6]
    counts = OutlierCounts(chunks, dict(zip(FLAGS, by_flag, strict=True)), flagged)
    excerpts = {(doc_id, number): shown for doc_id, number, *shown in texts}  # of those not deleted since
    return Outliers(
        counts, [_outlier(row, *excerpts[row[0], row[2]]) for row in listed if (row[0], row[2]) in excerpts]
    )


def _outlier(row: Sequence[Any], excerpt: str, page: str | None) -> Outlier:
    doc_id, title, number, tokens, enabled, short, long, no_letters, of_doc, of_number, share = row
    flags = tuple(compress(FLAGS, (short, long, no_letters, share is not None)))
    like = None if share is None else (of_doc, of_number, share)
    return Outlier(doc_id, title, number, tokens, excerpt, enabled, page, flags, like)


def scan_duplicates(
    collection: Collection, *, timeout_s: int = SCAN_TIMEOUT_S, actor: services.Actor = None
) -> Operation:
    """Look through the collection for near-duplicates, and keep what is found in place of what was found before.

    findings: how many there are. report: {"chunk_count", "complete", "error": why it is not complete}. What was found
    stays as it was when the time is not enough.
    """
    values = {"collection_id": collection.pk, "most": PAIRS_MAX + 1}
    sql = CANDIDATES.format(sketches=SKETCHES if collection.hybrid_enabled else "", table=collection.chunks_table)
    near_duplicates: list[NearDuplicate] | None = None
    with running(Operation.Kind.DUPLICATES, collection.name, actor=actor) as progress:
        error = ""
        try:
            with _limited(timeout_s):
                found = fetch_all(connection, sql, values)
                pairs = [((doc_id, number), (of_doc, of_number)) for doc_id, number, of_doc, of_number in found]
                contents = _read_contents(collection, {place for pair in pairs[:PAIRS_MAX] for place in pair})
            near_duplicates = _compare(collection, pairs[:PAIRS_MAX], contents)
            if len(pairs) > PAIRS_MAX or len(near_duplicates) > KEPT_MAX:
                error = "there are more candidates than are compared at a time"
        except TooSlowError:
            error = f"the collection could not be scanned in {timeout_s} seconds"
        with transaction.atomic():
            if near_duplicates is not None:
                NearDuplicate.objects.filter(collection=collection).delete()
                NearDuplicate.objects.bulk_create(near_duplicates[:KEPT_MAX])
            count = NearDuplicate.objects.filter(collection=collection).count()
            chunks = sum(count for (count,) in fetch_all(connection, CHUNK_COUNT, values))
            services.record(actor, [collection], services.CHANGE, f"scanned for near-duplicates: {count} found")
            return progress.succeed({"chunk_count": chunks, "complete": not error, "error": error}, findings=count)


def last_scan(collection: Collection) -> Operation | None:
    return last_report(Operation.Kind.DUPLICATES, collection)


def _read_contents(collection: Collection, places: Iterable[Place]) -> dict[Place, tuple[int, str]]:
    """(revision, content) of each chunk."""
    ordered = sorted(places)
    values = {"doc_ids": [doc_id for doc_id, _ in ordered], "numbers": [number for _, number in ordered]}
    rows = fetch_all(connection, CONTENTS.format(table=collection.chunks_table), values) if ordered else []
    return {(doc_id, number): (revision, content) for doc_id, number, revision, content in rows}


def _compare(
    collection: Collection, pairs: Sequence[tuple[Place, Place]], contents: Mapping[Place, tuple[int, str]]
) -> list[NearDuplicate]:
    """Those that are near enough, each chunk once, with the one that it shares most with."""
    best: dict[Place, NearDuplicate] = {}
    for place, other in pairs:
        if place not in contents or other not in contents:
            continue  # deleted in between
        revision, content = contents[place]
        share = shared_words(content, contents[other][1])
        known = best.get(place)
        if share >= SHARE_MIN and (known is None or share > known.share):
            best[place] = NearDuplicate(
                collection=collection,
                doc_id=place[0],
                chunk_index=place[1],
                revision=revision,
                of_doc_id=other[0],
                of_chunk_index=other[1],
                share=share,
            )
    return list(best.values())


def shared_words(one: str, other: str) -> float:
    """Of all runs of three words of two texts, in lower case, the share that is in both; 1.0 for equal texts."""
    first, second = _shingles(one), _shingles(other)
    return round(len(first & second) / len(first | second), 4)


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = "".join(letter if letter.isalnum() else " " for letter in text.casefold()).split() or [text]
    return {tuple(words[index : index + SHINGLE]) for index in range(max(1, len(words) - SHINGLE + 1))}


def _scope(collection: Collection) -> dict[str, Any]:
    usual = policy_for(collection)
    window = window_of(collection)
    readable = usual.__class__(usual.kind, 10**9, 0, 10**9).fitted(window)  # what the embedder reads of any chunk
    ((short_words, long_chars),) = fetch_all(connection, BOUNDS, {"collection_id": collection.pk})
    usual_short = max(SHORT_WORDS_MIN, usual.target_tokens // SHORT_SHARE)
    return {
        "collection_id": collection.pk,
        "target": usual.target_tokens,
        "chars": usual.max_chars,
        "seen_words": readable.target_tokens,
        "seen_chars": readable.max_chars,
        "short_share": SHORT_SHARE,
        "short_words_min": SHORT_WORDS_MIN,
        "word_chars": CHARS_PER_WORD,
        "short_bytes": UTF8_MAX * CHARS_PER_WORD * max(usual_short, short_words or 0),
        "long_chars": min(usual.max_chars, readable.max_chars, long_chars or usual.max_chars),
    }


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """A transaction in which no statement takes longer. Raises TooSlowError."""
    try:
        with transaction.atomic():
            execute(connection, SET_TIMEOUT % seconds)
            yield
            execute(connection, "SET LOCAL statement_timeout = 0")
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TooSlowError from error
        raise
