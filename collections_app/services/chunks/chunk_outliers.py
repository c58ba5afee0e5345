"""Chunks of a collection that deserve a look: counted and listed by the database, near-duplicates by a scan.

Each statement has a time limit, so that no page waits for a large collection; what was not finished is said.

Near-duplicates are sought in two steps. Candidates share a key: the content folded to its letters and digits in lower
case, or the four lowest or the four highest of the hashed words of the lexical index, which two texts share as often as
they share words (a bottom-k sketch of their sets of words). Every candidate is then compared with the first chunk of
its group by runs of three words: at least SHARE_MIN of those of either must be in both. In a collection without lexical
index only the first key is there, which finds equal texts. At most PAIRS_MAX candidates are compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError, connection, transaction
from django.utils import timezone
from psycopg.errors import QueryCanceled

from collections_app.domain.outliers import DUPLICATE, FLAGS, LONG, NO_LETTERS, SHORT, SHORT_SHARE, SHORT_WORDS_MIN
from collections_app.models import Collection, DuplicateScan, NearDuplicate
from collections_app.policies import policy_for, window_of
from collections_app.services.governance import audit
from ragd.store.store import execute, fetch_all

COUNT_TIMEOUT_S = 8
SCAN_TIMEOUT_S = 30
PAIRS_MAX = 20_000
KEPT_MAX = 5_000
SHARE_MIN = 0.8
SHINGLE = 3

CHUNK_COUNT = "SELECT chunk_count FROM chunk_stats WHERE collection_id = %(collection_id)s AND serving"

SET_TIMEOUT = "SET LOCAL statement_timeout = '%d s'"

# The same rules as `collections_app.domain.outliers.flags_of`, by the policy that cut each document.
FLAGGED = """
WITH limits AS (
    SELECT d.doc_id, d.title, p.target, p.chars,
           greatest(%(short_words_min)s, p.target / %(short_share)s) AS short_words
    FROM documents d, LATERAL (
        SELECT coalesce((d.chunk_policy->>'target_tokens')::integer, %(target)s) AS target,
               coalesce((d.chunk_policy->>'max_chars')::integer, %(chars)s) AS chars
    ) AS p
    WHERE d.collection_id = %(collection_id)s
), flagged AS (
    SELECT c.doc_id, l.title, c.chunk_index, c.token_count, c.content, c.enabled, c.metadata->>'page' AS page,
           c.token_count < l.short_words AND length(c.content) < 6 * l.short_words AS short,
           CASE WHEN %(seen_words)s < l.target
                THEN c.token_count > %(seen_words)s OR length(c.content) > least(l.chars, %(seen_chars)s)
                ELSE c.token_count > l.target OR length(c.content) > l.chars END AS long,
           c.content COLLATE "pg_c_utf8" !~ '[[:alpha:]]' AS no_letters,
           n.of_doc_id, n.of_chunk_index, n.share
    FROM chunks c
    JOIN limits l ON l.doc_id = c.doc_id
    LEFT JOIN near_duplicates n
      ON n.collection_id = %(collection_id)s AND n.doc_id = c.doc_id AND n.chunk_index = c.chunk_index
     AND n.revision = c.revision
    WHERE c.collection_id = %(collection_id)s
)
"""

COUNTS = (
    FLAGGED
    + """
SELECT count(*), count(*) FILTER (WHERE short), count(*) FILTER (WHERE long), count(*) FILTER (WHERE no_letters),
       count(*) FILTER (WHERE share IS NOT NULL),
       count(*) FILTER (WHERE short OR long OR no_letters OR share IS NOT NULL)
FROM flagged
"""
)

CONDITIONS = {
    "": "short OR long OR no_letters OR share IS NOT NULL",
    SHORT: "short",
    LONG: "long",
    NO_LETTERS: "no_letters",
    DUPLICATE: "share IS NOT NULL",
}

LISTED = (
    FLAGGED
    + """
SELECT doc_id, title, chunk_index, token_count, left(content, 300), enabled, page, short, long, no_letters,
       of_doc_id, of_chunk_index, share
FROM flagged WHERE {condition} ORDER BY doc_id, chunk_index OFFSET %(offset)s LIMIT %(limit)s
"""
)

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
    SELECT doc_id, chunk_index, content, lexical FROM chunks WHERE collection_id = %(collection_id)s
), keyed AS (
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
    ORDER BY doc_id, chunk_index, of_doc_id, of_chunk_index LIMIT %(most)s
)
SELECT p.doc_id, p.chunk_index, c.revision, c.content, p.of_doc_id, p.of_chunk_index, o.content
FROM pairs p
JOIN chunks c ON c.collection_id = %(collection_id)s AND c.doc_id = p.doc_id AND c.chunk_index = p.chunk_index
JOIN chunks o ON o.collection_id = %(collection_id)s AND o.doc_id = p.of_doc_id AND o.chunk_index = p.of_chunk_index
ORDER BY p.doc_id, p.chunk_index, p.of_doc_id, p.of_chunk_index
"""


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


def count_outliers(collection: Collection) -> OutlierCounts | None:
    """None when the collection is too large to be counted in COUNT_TIMEOUT_S seconds."""
    try:
        with _limited(COUNT_TIMEOUT_S):
            ((chunks, short, long, no_letters, duplicate, flagged),) = fetch_all(connection, COUNTS, _scope(collection))
    except TooSlowError:
        return None
    return OutlierCounts(chunks, dict(zip(FLAGS, (short, long, no_letters, duplicate), strict=True)), flagged)


def list_outliers(collection: Collection, flag: str = "", *, offset: int = 0, limit: int = 50) -> list[Outlier] | None:
    """By (doc_id, chunk_index); flag "": with any. None when that took longer than COUNT_TIMEOUT_S seconds."""
    values = _scope(collection) | {"offset": offset, "limit": limit}
    try:
        with _limited(COUNT_TIMEOUT_S):
            rows = fetch_all(connection, LISTED.format(condition=CONDITIONS[flag]), values)
    except TooSlowError:
        return None
    return [_outlier(row) for row in rows]


def _outlier(row: Sequence[Any]) -> Outlier:
    doc_id, title, number, tokens, excerpt, enabled, page, short, long, no_letters, of_doc, of_number, share = row
    result = zip(FLAGS, (short, long, no_letters, share is not None), strict=True)
    like = None if share is None else (of_doc, of_number, share)
    return Outlier(
        doc_id, title, number, tokens, excerpt, enabled, page, tuple(flag for flag, has in result if has), like
    )


def scan_duplicates(
    collection: Collection, *, timeout_s: int = SCAN_TIMEOUT_S, actor: audit.Actor = None
) -> DuplicateScan:
    """Look through the collection for near-duplicates, and keep what is found in place of what was found before.

    What was found stays as it was when the time is not enough; the scan then says so.
    """
    began = time.monotonic()
    values = {"collection_id": collection.pk, "most": PAIRS_MAX + 1}
    sql = CANDIDATES.format(sketches=SKETCHES if collection.hybrid_enabled else "")
    scan = DuplicateScan(collection=collection, generation=collection.generation, scanned_at=timezone.now())
    near_duplicates: list[NearDuplicate] | None = None
    try:
        with _limited(timeout_s):
            pairs = fetch_all(connection, sql, values)
        near_duplicates = _compare(collection, pairs[:PAIRS_MAX])
        if len(pairs) > PAIRS_MAX or len(near_duplicates) > KEPT_MAX:
            scan.complete, scan.error = False, "there are more candidates than are compared at a time"
    except TooSlowError:
        scan.complete, scan.error = False, f"the collection could not be scanned in {timeout_s} seconds"
    with transaction.atomic():
        if near_duplicates is not None:
            NearDuplicate.objects.filter(collection=collection).delete()
            NearDuplicate.objects.bulk_create(near_duplicates[:KEPT_MAX])
        scan.found = NearDuplicate.objects.filter(collection=collection).count()
        scan.chunk_count = sum(count for (count,) in fetch_all(connection, CHUNK_COUNT, values))
        scan.took_ms = round((time.monotonic() - began) * 1000, 1)
        DuplicateScan.objects.filter(collection=collection).delete()
        scan.save(force_insert=True)
        audit.record(actor, [collection], audit.CHANGE, f"scanned for near-duplicates: {scan.found} found")
    return scan


def last_scan(collection: Collection) -> DuplicateScan | None:
    return DuplicateScan.objects.filter(collection=collection).first()


def _compare(collection: Collection, pairs: Sequence[Sequence[Any]]) -> list[NearDuplicate]:
    """Those that are near enough, each chunk once, with the one that it shares most with."""
    best: dict[tuple[str, int], NearDuplicate] = {}
    for doc_id, number, revision, content, of_doc, of_number, other in pairs:
        share = shared_words(content, other)
        known = best.get((doc_id, number))
        if share >= SHARE_MIN and (known is None or share > known.share):
            best[doc_id, number] = NearDuplicate(
                collection=collection,
                doc_id=doc_id,
                chunk_index=number,
                revision=revision,
                of_doc_id=of_doc,
                of_chunk_index=of_number,
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
    return {
        "collection_id": collection.pk,
        "target": usual.target_tokens,
        "chars": usual.max_chars,
        "seen_words": readable.target_tokens,
        "seen_chars": readable.max_chars,
        "short_share": SHORT_SHARE,
        "short_words_min": SHORT_WORDS_MIN,
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
