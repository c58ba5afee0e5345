"""What stands in the stored chunks of a collection that may do harm, looked for on demand.

Chunks are read in batches by their key and never locked, so that nothing waits for a scan, and it never holds up an
ingest. A scan that stops goes on behind the last batch. What it finds is kept by chunk, without the text.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import Count
from django.utils import timezone

from collections_app.models import ChunkFindings, Collection, FindingScan
from collections_app.services.governance import audit
from ragd.security import FAMILIES, RULES_VERSION, Finding, risk_score, scan
from ragd.store.store import execute, fetch_all

BATCH = 500
PAGE_SCAN_S = 15.0

BATCH_ROWS = """
SELECT doc_id, chunk_index, revision, content, context FROM {chunks}
WHERE collection_id = %(collection)s AND (doc_id, chunk_index) > (%(doc_id)s, %(index)s)
ORDER BY doc_id, chunk_index LIMIT %(batch)s
"""
FAMILY_COUNTS = """
SELECT family, count(*) FROM chunk_findings, unnest(families) AS family WHERE collection_id = %(collection)s
GROUP BY family
"""
# In parts, each of which a cluster can do where its rows are.
DROP_GONE = """
WITH listed AS MATERIALIZED (
    SELECT doc_id, chunk_index FROM chunk_findings WHERE collection_id = %(collection)s
), there AS MATERIALIZED (
    SELECT c.doc_id, c.chunk_index FROM listed
    JOIN {chunks} c ON c.collection_id = %(collection)s AND c.doc_id = listed.doc_id
                    AND c.chunk_index = listed.chunk_index
)
DELETE FROM chunk_findings f WHERE f.collection_id = %(collection)s AND NOT EXISTS (
    SELECT FROM there WHERE there.doc_id = f.doc_id AND there.chunk_index = f.chunk_index)
"""
FORGET = """
DELETE FROM chunk_findings WHERE collection_id = %(collection)s
AND (doc_id, chunk_index) >= (%(first_doc)s, %(first)s) AND (doc_id, chunk_index) <= (%(last_doc)s, %(last)s)
"""

OnBatch = Callable[[FindingScan], object]


@dataclass(frozen=True, slots=True)
class FindingCounts:
    """Chunks with findings: all of them, and by family, the gravest family first."""

    chunks: int
    by_family: dict[str, int]


def find_in_chunk(content: str, context: str) -> list[dict[str, Any]]:
    """[`Finding.as_dict()`] of a chunk's content and, with "part": "context", of its context; by place."""
    result: list[dict[str, Any]] = [item.as_dict() for item in scan(content)]
    return result + [item.as_dict() | {"part": "context"} for item in scan(context)]


def scan_collection(
    collection: Collection,
    *,
    seconds: float | None = None,
    anew: bool = False,
    actor: audit.Actor = None,
    on_batch: OnBatch = lambda scan: None,
) -> FindingScan:
    """Look through the chunks, from the beginning, or from where an earlier scan by the same rules stopped.

    seconds: stop after a batch when that much time has gone; None goes to the end. anew: from the beginning in any
    case. on_batch: told the scan after each batch. What was found before stays until its chunk is looked at again.
    """
    began = time.monotonic()
    state = _open_scan(collection, anew)
    while not state.complete:
        _scan_batch(collection, state)
        elapsed = time.monotonic() - began
        state.took_ms = round(elapsed * 1000, 1)
        state.save()
        on_batch(state)
        if seconds is not None and elapsed >= seconds:
            break
    if state.complete:
        execute(connection, DROP_GONE.format(chunks=collection.chunks_table), {"collection": collection.pk})
    message = "all chunks" if state.complete else "a part of the chunks"
    audit.record(actor, [collection], audit.CHANGE, f"scanned {message} for findings")
    return state


def last_finding_scan(collection: Collection) -> FindingScan | None:
    return FindingScan.objects.filter(collection=collection).first()


def count_findings(collection: Collection) -> FindingCounts:
    """What the last scan found."""
    rows = dict(fetch_all(connection, FAMILY_COUNTS, {"collection": collection.pk}))
    total = ChunkFindings.objects.filter(collection=collection).aggregate(total=Count("pk"))["total"]
    ranked = sorted(FAMILIES, key=lambda name: -FAMILIES[name].score)
    return FindingCounts(total, {name: rows[name] for name in ranked if name in rows})


def list_findings(collection: Collection, family: str = "", *, offset: int = 0, limit: int = 50) -> list[ChunkFindings]:
    """The riskiest first, ties by (doc_id, chunk_index). family "": with any."""
    rows = ChunkFindings.objects.filter(collection=collection).order_by("-risk_score", "doc_id", "chunk_index")
    if family:
        rows = rows.filter(families__contains=[family])
    return list(rows[offset : offset + limit])


def _open_scan(collection: Collection, anew: bool) -> FindingScan:
    state = last_finding_scan(collection)
    same = state is not None and state.rules == RULES_VERSION and state.generation == collection.generation
    if state is None or anew or state.complete or not same:
        state = FindingScan(collection=collection, generation=collection.generation, rules=RULES_VERSION)
    state.scanned_at, state.took_ms = timezone.now(), 0.0
    return state


def _scan_batch(collection: Collection, state: FindingScan) -> None:
    values = {
        "collection": collection.pk, "doc_id": state.reached_doc_id, "index": state.reached_index, "batch": BATCH,
    }  # fmt: skip
    rows = fetch_all(connection, BATCH_ROWS.format(chunks=collection.chunks_table), values)
    result = []
    for doc_id, index, revision, content, context in rows:
        if findings := find_in_chunk(content, context):
            result.append(_row(collection, doc_id, index, revision, findings))
    with transaction.atomic():
        if rows:
            first, last = rows[0], rows[-1]
            _forget(collection, (first[0], first[1]), (last[0], last[1]))
            state.reached_doc_id, state.reached_index = last[0], last[1]
        ChunkFindings.objects.bulk_create(
            result,
            update_conflicts=True,
            unique_fields=["collection", "doc_id", "chunk_index"],
            update_fields=["revision", "families", "findings", "risk_score"],
        )
    state.chunks_scanned += len(rows)
    state.complete = len(rows) < BATCH


def _row(
    collection: Collection, doc_id: str, index: int, revision: int, findings: list[dict[str, Any]]
) -> ChunkFindings:
    return ChunkFindings(
        collection=collection,
        doc_id=doc_id,
        chunk_index=index,
        revision=revision,
        families=sorted({item["family"] for item in findings}),
        findings=findings,
        risk_score=risk_score(
            Finding(item["family"], item["rule"], item["start"], item["end"], item["confidence"]) for item in findings
        ),
    )


def _forget(collection: Collection, first: tuple[str, int], last: tuple[str, int]) -> None:
    values = {
        "collection": collection.pk, "first_doc": first[0], "first": first[1], "last_doc": last[0], "last": last[1],
    }  # fmt: skip
    execute(connection, FORGET, values)
