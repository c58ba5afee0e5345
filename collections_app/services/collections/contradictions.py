"""Passages of different documents that disagree: looked for by a worker over a whole collection, shown with both texts.

The rules are those of `collections_app.domain.claims`. A scan reads every enabled chunk of the index version that
serves, and puts what it finds in place of what was found before; what was dismissed stays so while both sentences are
the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from collections_app.access_context import require
from collections_app.domain.claims import CLAIMS_MAX, KINDS, Claim, Disagreement, find_disagreements, read_claims
from collections_app.domain.differences import Part
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection, Contradiction, Document, Operation
from collections_app.services.collections.operations import (
    OperationProgress,
    last_operation,
    request_operation,
    running,
)
from collections_app.services.governance import audit
from collections_app.work.leases import Lease
from ragd.errors import UnknownCollection
from ragd.store.store import fetch_all

BATCH = 500
KEPT_MAX = 1_000
USUAL_RATE = 400  # chunks in a second, before one was measured
CHUNK_COUNT = "SELECT chunk_count FROM chunk_stats WHERE collection_id = %(collection)s AND serving"
BATCH_ROWS = """
SELECT doc_id, chunk_index, content FROM {chunks}
WHERE collection_id = %(collection)s AND enabled AND (doc_id, chunk_index) > (%(doc_id)s, %(index)s)
ORDER BY doc_id, chunk_index LIMIT %(batch)s
"""
TEXTS = """
SELECT c.doc_id, c.chunk_index, c.content, c.enabled
FROM unnest(%(docs)s::text[], %(indexes)s::integer[]) AS listed (doc_id, chunk_index)
JOIN {chunks} c ON c.collection_id = %(collection)s AND c.chunk_index = listed.chunk_index
 AND c.doc_id = listed.doc_id COLLATE "C"
"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a scan would take. measured: whether the time follows from an earlier scan of the collection."""

    chunks: int
    seconds: float
    measured: bool

    @property
    def took_ms(self) -> float:
        return self.seconds * 1000


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two passages. parts: its sentence in marked pieces; [] where the chunk has changed since the scan."""

    doc_id: str
    title: str
    chunk_index: int
    revision: int
    enabled: bool
    parts: Sequence[Part]
    said: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A contradiction with both sides."""

    contradiction: Contradiction
    sides: tuple[Side, Side]


def estimate_scan(collection: Collection) -> Estimate:
    chunks = sum(count for (count,) in fetch_all(connection, CHUNK_COUNT, {"collection": collection.pk}))
    last = last_operation(Operation.Kind.CONTRADICTIONS, collection.name)
    report = last.report if last else {}
    if report.get("seconds") and report.get("chunks"):
        return Estimate(chunks, round(chunks * report["seconds"] / report["chunks"], 2), measured=True)
    return Estimate(chunks, round(chunks / USUAL_RATE, 2), measured=False)


def request_scan(collection: Collection, *, actor: audit.Actor = None) -> Operation:
    """Have a worker look; the operation that will keep how it went. One that is under way is returned instead."""
    require(Permission.WRITE, collection.pk)
    newest = last_operation(Operation.Kind.CONTRADICTIONS, collection.name)
    if newest is not None and newest.is_running:
        return newest
    with transaction.atomic():
        audit.record(actor, [collection], audit.CHANGE, "requested a scan for contradictions")
        return request_operation(Operation.Kind.CONTRADICTIONS, collection.name, {}, actor=actor)


def run_scan(lease: Lease[Operation]) -> None:
    """The worker's side of `request_scan`."""
    name = lease.work.subject
    collection = Collection.objects.live().filter(name=name).first()
    if collection is None:
        OperationProgress(lease).fail(UnknownCollection(f"collection {name!r} was deleted", field="collection"))
        return
    with running(Operation.Kind.CONTRADICTIONS, name, lease=lease) as progress:
        scan_contradictions(collection, progress)


def scan_contradictions(collection: Collection, progress: OperationProgress) -> Operation:
    """report: {"chunks": read, "claims", "found", "complete": whether all claims were compared, "seconds"}."""
    began = time.monotonic()
    total = estimate_scan(collection).chunks
    claims: list[Claim] = []
    read, last = 0, ("", -1)
    while len(claims) < CLAIMS_MAX:
        values = {"collection": collection.pk, "doc_id": last[0], "index": last[1], "batch": BATCH}
        rows = fetch_all(connection, BATCH_ROWS.format(chunks=collection.chunks_table), values)
        if not rows:
            break
        for doc_id, index, content in rows:
            claims += read_claims((doc_id, index), content)
        read, last = read + len(rows), (rows[-1][0], rows[-1][1])
        progress.tell("reading", read, total)
    complete = len(claims) < CLAIMS_MAX
    progress.tell("comparing", 0, len(claims))
    found = find_disagreements(claims[:CLAIMS_MAX])
    with transaction.atomic():
        kept = _keep(collection, found)
    report = {"chunks": read, "claims": min(len(claims), CLAIMS_MAX), "found": kept, "complete": complete}
    return progress.succeed(report | {"seconds": round(time.monotonic() - began, 2)}, findings=kept)


def _keep(collection: Collection, found: Sequence[Disagreement]) -> int:
    own = Contradiction.objects.filter(collection=collection)
    dismissed = set(own.filter(dismissed=True).values_list("digest", flat=True))
    own.delete()
    rows: dict[str, Contradiction] = {}
    for each in found:
        digest = _digest(each.kind, *((claim.place[0], claim.text) for claim in (each.first, each.second)))
        rows.setdefault(
            digest,
            Contradiction(
                collection=collection,
                kind=each.kind,
                doc_id=each.first.place[0],
                chunk_index=each.first.place[1],
                start=each.first.start,
                end=each.first.end,
                of_doc_id=each.second.place[0],
                of_chunk_index=each.second.place[1],
                of_start=each.second.start,
                of_end=each.second.end,
                said=list(each.said),
                score=each.score,
                digest=digest,
                dismissed=digest in dismissed,
            ),
        )
    kept = list(rows.values())[:KEPT_MAX]
    Contradiction.objects.bulk_create(kept)
    return len(kept)


def _digest(kind: str, *sides: tuple[str, str]) -> str:
    return hashlib.sha256("\x1f".join([kind, *(part for side in sides for part in side)]).encode()).hexdigest()


def count_contradictions(collection: Collection, *, dismissed: bool = False) -> dict[str, int]:
    """By kind, in the order of KINDS; of those both of whose documents one may read."""
    kinds = list(
        Contradiction.objects.filter(collection=collection, dismissed=dismissed).values_list("kind", flat=True)
    )
    return {kind: kinds.count(kind) for kind in KINDS}


def list_contradictions(
    collection: Collection, kind: str = "", *, dismissed: bool = False, offset: int = 0, limit: int = 25
) -> list[Shown]:
    """The likeliest first, ties by the documents. kind "": all. Those both of whose documents one may read."""
    rows = Contradiction.objects.filter(collection=collection, dismissed=dismissed)
    if kind:
        rows = rows.filter(kind=kind)
    page = list(
        rows.order_by("-score", "doc_id", "chunk_index", "of_doc_id", "of_chunk_index", "id")[offset : offset + limit]
    )
    places = [place for row in page for place in ((row.doc_id, row.chunk_index), (row.of_doc_id, row.of_chunk_index))]
    params = {
        "collection": collection.pk,
        "docs": [doc_id for doc_id, _ in places],
        "indexes": [index for _, index in places],
    }
    stored = fetch_all(connection, TEXTS.format(chunks=collection.chunks_table), params)
    texts = {(doc, index): (content, on) for doc, index, content, on in stored}
    named = Document.objects.filter(collection=collection, doc_id__in={doc_id for doc_id, _ in places})
    documents = {
        doc_id: (title, revision) for doc_id, title, revision in named.values_list("doc_id", "title", "revision")
    }
    return [_show(row, texts, documents) for row in page]


def mark_said(sentence: str, said: str) -> list[Part]:
    """The sentence in pieces, those of kind "added" to be marked: what it states where the other states something
    else. One unmarked piece where that is nothing."""
    before, found, after = sentence.partition(said) if said else (sentence, "", "")
    pieces = [Part("same", before), Part("added", found), Part("same", after)]
    return [piece for piece in pieces if piece.text]


def _show(row: Contradiction, texts: dict[Any, tuple[str, bool]], documents: dict[str, tuple[str, int]]) -> Shown:
    places = (
        (row.doc_id, row.chunk_index, row.start, row.end),
        (row.of_doc_id, row.of_chunk_index, row.of_start, row.of_end),
    )
    found = [texts.get((doc_id, index), ("", False)) for doc_id, index, _, _ in places]
    sentences = [content[start:end] for (content, _), (_, _, start, end) in zip(found, places, strict=True)]
    is_same = row.digest == _digest(row.kind, (row.doc_id, sentences[0]), (row.of_doc_id, sentences[1]))
    sides = []
    for number, (doc_id, index, _, _) in enumerate(places):
        title, revision = documents.get(doc_id, ("", 1))
        own = mark_said(sentences[number], row.said[number]) if is_same else []
        sides.append(Side(doc_id, title or doc_id, index, revision, found[number][1], own, row.said[number]))
    return Shown(row, (sides[0], sides[1]))


def dismiss_contradiction(
    collection: Collection, pk: int, *, dismissed: bool = True, actor: audit.Actor = None
) -> None:
    """Put one away while both sentences stay as they are, or bring it back. Raises ServiceError 404, Forbidden."""
    require(Permission.WRITE, collection.pk)
    row = Contradiction.objects.filter(collection=collection, pk=pk).first()
    if row is None:
        raise ServiceError(
            f"collection {collection.name!r} has no contradiction {pk}; a later scan may have replaced it",
            type="unknown_contradiction",
            status=404,
        )
    with transaction.atomic():
        row.dismissed = dismissed
        row.save(update_fields=["dismissed"])
        did = "dismissed" if dismissed else "brought back"
        audit.record(actor, [collection], audit.CHANGE, f"{did} a contradiction")
