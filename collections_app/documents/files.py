"""The files of documents: their bytes stored, opened, parsed and dropped."""

from __future__ import annotations

import hashlib
import mimetypes
import tempfile
from typing import IO, Any

import psycopg
from django.conf import settings
from django.db import connection

from collections_app.domain.rows import RowReader
from collections_app.errors import ServiceError
from collections_app.jobs.leases import interruptible
from collections_app.jobs.models import UploadQuerySet
from collections_app.models import Collection, Document, Upload
from ragd import telemetry
from ragd.readers import ParsedDocument, ParseLimits, parse, stop_server

STORED_FIELDS = ("collection_id", "doc_id", "sha256", "name", "media_type", "size_bytes", "created_at")
_uploads = RowReader(Upload, "u", without="content")
SELECT_CONTENT = "SELECT content FROM uploads WHERE id = %s"
SELECT_PIECE = "SELECT substring(content FROM %s FOR %s), octet_length(content) FROM uploads WHERE id = %s"
PIECE_BYTES = 1 << 23

INSERT_UPLOAD = """
INSERT INTO uploads (collection_id, doc_id, sha256, name, media_type, size_bytes, created_at, content)
VALUES (%(collection_id)s, %(doc_id)s, %(sha256)s, %(name)s, %(media_type)s, %(size_bytes)s, %(created_at)s,
        %(content)b)
RETURNING id
"""


def store_upload(collection: Collection, doc_id: str, name: str, content: bytes, *, sha256: str = "") -> Upload:
    """Store the bytes; the record comes back without them, so that many files do not pile up in memory.

    sha256: theirs, in hex, when it is known already.
    """
    media_type, _ = mimetypes.guess_type(name)
    upload = Upload(
        collection=collection,
        doc_id=doc_id,
        sha256=sha256 or hashlib.sha256(content).hexdigest(),
        name=name,
        media_type=media_type or "application/octet-stream",
        size_bytes=len(content),
    )
    values = {field: getattr(upload, field) for field in STORED_FIELDS} | {"content": content}
    # Bound by the server, in binary: as part of the statement's text the bytes would take several times their size.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        row = cursor.execute(INSERT_UPLOAD, values).fetchone()
    upload.pk = row[0] if row else None
    return upload


def read_content(upload_id: int | None) -> bytes:
    """The bytes of an upload, asked for in binary: as text they would take three times their size. ServiceError 409."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        row = cursor.execute(SELECT_CONTENT, (upload_id,), binary=True).fetchone()
    if row is None:
        raise _gone()
    return bytes(row[0])


def open_content(upload_id: int | None) -> IO[bytes]:
    """The bytes of an upload as a file, read piece by piece; in memory while it is small. ServiceError 409."""
    connection.ensure_connection()
    spool = tempfile.SpooledTemporaryFile(PIECE_BYTES)  # noqa: SIM115 (the caller's)
    size = 1
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        while spool.tell() < size:
            values = (spool.tell() + 1, PIECE_BYTES, upload_id)
            row = cursor.execute(SELECT_PIECE, values, binary=True).fetchone()
            if row is None:
                raise _gone()
            spool.write(row[0])
            size = row[1]
    return spool


def _gone() -> ServiceError:
    return ServiceError("the file of this job is gone; upload it again", type="upload_gone")


def originals(document: Document) -> UploadQuerySet:
    """The stored file that the document was made from, without its bytes; none for a text or after the file went."""
    rows: UploadQuerySet = Upload.objects.listed().of_document(document.collection_id, document.doc_id)
    return rows.filter(sha256=document.source_hash)


def find_original(document: Document) -> Upload:
    """The file that the document was made from; ServiceError 404."""
    upload = originals(document).order_by("-pk").first()
    if upload is None:
        raise ServiceError(
            "the file of this document is not stored: it came as text, or its file is no longer kept. Upload the file"
            " as a new version",
            type="no_original",
            status=404,
        )
    return upload


def drop_stale_uploads(collection_id: int, doc_id: str, *, keep: int = 0) -> None:
    """Remove the files of a document but the one that is its source, unless a job may still need them."""
    stale = Upload.objects.of_document(collection_id, doc_id).exclude(pk=keep)
    stale.exclude(jobs__state__in=("queued", "running", "failed", "quarantined")).delete()


def find_upload(collection: Collection, upload_id: int | None) -> Upload | None:
    """A stored file without its bytes; None when it is gone."""
    return _uploads.find("u.id = %(id)s AND u.collection_id = %(of)s", {"id": upload_id, "of": collection.pk})


def require_upload(collection: Collection, upload_id: int | None) -> Upload:
    """`find_upload`, or ServiceError 409."""
    upload = find_upload(collection, upload_id)
    if upload is None:
        raise _gone()
    return upload


def parse_limits(**values: Any) -> ParseLimits:
    """The limits that the settings state. values: further fields of ParseLimits."""
    return ParseLimits(
        timeout_s=settings.RAGD_PARSE_TIMEOUT_S,
        memory_mb=settings.RAGD_PARSE_MEMORY_MB,
        max_chars=settings.RAGD_PARSE_MAX_CHARS,
        max_input_mb=settings.RAGD_MAX_DOCUMENT_MB,
        **values,
    )


def parse_upload(
    upload: Upload, *, keep_attachments: bool = False, fresh_parser: bool = False, recognized: bytes = b""
) -> ParsedDocument:
    """The stage parse: the text of a stored file. Raises ParseError, ServiceError 409 for one that is gone.

    fresh_parser: not in the process that parsed for an earlier attempt, which may have been harmed by it. recognized:
    as `parse` takes it.
    """
    limits = parse_limits(keep_attachments=keep_attachments)
    with telemetry.stage(telemetry.PARSE, file_name=upload.name, size_bytes=upload.size_bytes) as span:
        content = open_content(upload.pk)
        if fresh_parser:
            stop_server()
        with content, interruptible():
            parsed = parse(content, upload.name, limits=limits, recognized=recognized)
        telemetry.record_counts(span, size_chars=len(parsed.text), media_type=parsed.media_type)
    return parsed
