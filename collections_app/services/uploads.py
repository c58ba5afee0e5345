"""Uploaded files: each accepted or refused on its own, all of them committed together with their jobs."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
from django.conf import settings
from django.db import connection, transaction

from collections_app.identity import check_doc_id, clean_metadata, clean_tags, doc_id_from_name
from collections_app.models import Collection, IngestJob, Upload
from collections_app.services import audit
from collections_app.services.backpressure import check_queue
from collections_app.services.locks import lock_documents
from collections_app.services.queueing import send_jobs, supersede_jobs
from ragd import telemetry
from ragd.errors import InvalidInput

MEGABYTE = 1_000_000
KEPT_FIELDS = ("collection_id", "doc_id", "sha256", "name", "media_type", "size_bytes", "created_at")

INSERT_UPLOAD = """
INSERT INTO uploads (collection_id, doc_id, sha256, name, media_type, size_bytes, created_at, content)
VALUES (%(collection_id)s, %(doc_id)s, %(sha256)s, %(name)s, %(media_type)s, %(size_bytes)s, %(created_at)s,
        %(content)b)
RETURNING id
"""


class UploadedFile(Protocol):
    """What a browser or a client sent; Django's UploadedFile is one."""

    @property
    def name(self) -> str | None: ...
    @property
    def size(self) -> int | None: ...
    def read(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class UploadOutcome:
    """What became of one file. status "queued" with its job, or "rejected" with the reason."""

    name: str
    doc_id: str
    status: str
    job: IngestJob | None = None
    error: str = ""
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class _RefusedError(Exception):
    type: str
    message: str


def submit_uploads(
    collection: Collection,
    files: Sequence[UploadedFile],
    *,
    doc_ids: Sequence[str] = (),
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    actor: audit.Actor = None,
) -> list[UploadOutcome]:
    """Queue one job per acceptable file; one outcome per file, in order.

    doc_ids: one per file, "" or none for the file's own name. A file of the same document that is still under way is
    superseded. Bytes and jobs are committed together, before anything is sent to the broker. ServiceError 429 when the
    queue would become too deep.
    """
    if doc_ids and len(doc_ids) != len(files):
        raise InvalidInput(f"doc_ids must name every file: {len(files)} files, {len(doc_ids)} ids", field="doc_ids")
    kept_tags, kept_metadata = clean_tags(tags), clean_metadata(metadata)
    wanted = list(doc_ids) or [""] * len(files)
    taken: set[str] = set()
    outcomes = []
    check_queue(len(files), sum(file.size or 0 for file in files))
    with transaction.atomic():
        lock_documents(collection, [])
        for file, doc_id in zip(files, wanted, strict=True):
            name = file.name or "file"
            try:
                known = _check_file(file, name, doc_id, taken)
            except _RefusedError as refusal:
                outcomes.append(UploadOutcome(name, doc_id, "rejected", error=refusal.message, error_type=refusal.type))
                continue
            taken.add(known)
            upload = _keep(collection, known, name, file.read())
            job = IngestJob(
                collection=collection,
                doc_id=known,
                tags=list(kept_tags),
                metadata=kept_metadata,
                source=name,
                policy=dict(policy) if policy else None,
                upload=upload,
                traceparent=telemetry.current_traceparent(),
                created_by=audit.name_actor(actor),
            )
            outcomes.append(UploadOutcome(name, known, "queued", job))
        jobs = [outcome.job for outcome in outcomes if outcome.job is not None]
        supersede_jobs(collection, taken, "superseded by a newer upload of the same document")
        IngestJob.objects.bulk_create(jobs)
        send_jobs([job.pk for job in jobs])
    return outcomes


def _check_file(file: UploadedFile, name: str, doc_id: str, taken: set[str]) -> str:
    """The document's id, or a _RefusedError."""
    limit = settings.RAGD_MAX_DOCUMENT_MB
    size = file.size or 0
    if size > limit * MEGABYTE:
        raise _RefusedError(
            "too_large",
            f"{name} has {size / MEGABYTE:.1f} MB; at most {limit} MB are taken. "
            "Split it, or raise RAGD_MAX_DOCUMENT_MB.",
        )
    if not size:
        raise _RefusedError("empty_content", f"{name} is empty; upload a file with some content")
    try:
        known = check_doc_id(doc_id) if doc_id else doc_id_from_name(name)
    except InvalidInput as error:
        raise _RefusedError("invalid_input", error.message) from None
    if known in taken:
        raise _RefusedError(
            "duplicate_name",
            f"another file of this upload is {known!r} already; rename one, or send them one after the other",
        )
    return known


def _keep(collection: Collection, doc_id: str, name: str, content: bytes) -> Upload:
    """Store the bytes; the record comes back without them, so that many files do not pile up in memory."""
    media_type, _ = mimetypes.guess_type(name)
    upload = Upload(
        collection=collection,
        doc_id=doc_id,
        sha256=hashlib.sha256(content).hexdigest(),
        name=name,
        media_type=media_type or "application/octet-stream",
        size_bytes=len(content),
    )
    values = {field: getattr(upload, field) for field in KEPT_FIELDS} | {"content": content}
    # Bound by the server, in binary: as part of the statement's text the bytes would take several times their size.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        row = cursor.execute(INSERT_UPLOAD, values).fetchone()
    upload.pk = row[0] if row else None
    return upload


def drop_stale_uploads(collection_id: int, doc_id: str, *, keep: int = 0) -> None:
    """Remove the files of a document but the one that is its source, unless a job may still need them."""
    stale = Upload.objects.of_document(collection_id, doc_id).exclude(pk=keep)
    stale.exclude(jobs__state__in=("queued", "running", "failed")).delete()
