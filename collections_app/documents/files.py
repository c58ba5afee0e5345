"""The files of documents: their bytes stored, opened, parsed and dropped.

Pages that are only pictures are read by text recognition, page by page. A page that was read is kept with its file, so
that a job which is stopped, retried or run again goes on with the next.
"""

from __future__ import annotations

import hashlib
import mimetypes
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import IO, Any, Protocol

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from collections_app.domain.rows import RowReader
from collections_app.errors import ServiceError
from collections_app.jobs.leases import interruptible
from collections_app.jobs.models import UploadQuerySet
from collections_app.models import Collection, Document, IngestJob, Upload, WorkPart
from ragd import telemetry
from ragd.readers import ParsedDocument, ParseError, ParseLimits, is_image, is_readable, parse, stop_server
from ragd.readers.process.process import FailedPage, recognize
from ragd.readers.scans.engines import Engine, find_engine
from ragd.readers.scans.words import pack_recognized, unpack_recognized
from ragd.readers.types import RecognizedPage

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


INSTALL = 'make run EXTRAS="ocr"'
NAMED = 5
PAGE_TIMEOUT_S = 120.0


class Watcher(Protocol):
    """The progress of a job (`JobProgress`)."""

    def enter(self, stage: str, *, chunks_total: int = 0, chars: int = 0, total: int = 0) -> None: ...
    def advance(self, done: int, total: int) -> None: ...
    def hold(self, *, forgive: bool = False) -> None: ...


def present_engine() -> Engine | None:
    """What recognizes text here; None where that is switched off or not installed."""
    return find_engine(settings.RAGD_OCR)


def can_read(media_type: str) -> bool:
    """Whether a file of that type can become a document here, also by text recognition."""
    return is_readable(media_type) and (not is_image(media_type) or present_engine() is not None)


def how_to_recognize() -> str:
    """What to do where no engine is there, as a sentence."""
    if settings.RAGD_OCR == "off":
        return "Text recognition (OCR) is switched off: set RAGD_OCR=auto and retry."
    return f"Text recognition (OCR) is not installed: stop ragd, start it with `{INSTALL}`, and retry."


def parse_with_recognition(
    upload: Upload, progress: Watcher, *, keep_attachments: bool = False, fresh_parser: bool = False
) -> ParsedDocument:
    """`parse_upload`, with the stage ocr where pages are pictures: those are read and the file is parsed with them.

    Where no engine is there, a document without any other text is refused ("scanned") and another is partial, both with
    what to do. Raises what `parse_upload` raises, ParseError "scanned" where no page could be recognized.
    """
    parsed: ParsedDocument | None = None
    try:
        parsed = parse_upload(upload, keep_attachments=keep_attachments, fresh_parser=fresh_parser)
        pages = sorted({*parsed.metadata.get("scanned_pages", ()), *parsed.metadata.get("pictured_pages", ())})
        if not pages:
            return parsed
    except ParseError as error:
        if error.kind != "scanned":
            raise
        engine, pages = present_engine(), list(error.pages)
        if engine is None or not pages:
            message = f"{error.message} {how_to_recognize()}"
            raise ParseError("scanned", message, media_type=error.media_type, pages=pages) from error
    engine = present_engine()
    if engine is None:
        assert parsed is not None
        return replace(parsed, warnings=(*parsed.warnings, how_to_recognize()))
    chosen = pages[: settings.RAGD_OCR_MAX_PAGES]
    found, failed = _recognize(upload, chosen, engine, progress)
    progress.enter(IngestJob.Stage.PARSE, total=upload.size_bytes)
    if not found:
        raise ParseError(
            "scanned",
            f"None of the {len(chosen)} pages could be read by text recognition ({failed[0].reason}). Upload a sharper"
            " or smaller scan.",
            pages=pages,
        )
    result = parse_upload(upload, keep_attachments=keep_attachments, recognized=pack_recognized(found))
    warnings = [*result.warnings, *_not_read(pages, chosen, failed)]
    engine_said = {"recognized_by": engine.identity.partition(" (")[0]}
    is_partial = result.is_partial or len(warnings) > len(result.warnings)
    return replace(result, warnings=tuple(warnings), is_partial=is_partial, metadata={**result.metadata, **engine_said})


def _not_read(pages: Sequence[int], chosen: Sequence[int], failed: Sequence[FailedPage]) -> list[str]:
    sentences = []
    if len(pages) > len(chosen):
        sentences.append(
            f"Text recognition read {len(chosen)} of {len(pages)} scanned pages, as RAGD_OCR_MAX_PAGES says; the rest"
            " is left out. Raise it and index the document again."
        )
    if failed:
        named = "; ".join(f"page {each.page}: {each.reason}" for each in failed[:NAMED])
        sentences.append(f"Text recognition failed on {len(failed)} of {len(chosen)} pages ({named}).")
    return sentences


def _recognize(
    upload: Upload, pages: Sequence[int], engine: Engine, progress: Watcher
) -> tuple[dict[int, RecognizedPage], list[FailedPage]]:
    """The stage ocr. Each page is stored in a transaction of its own, in which the job is still this run's."""
    progress.enter(IngestJob.Stage.OCR, total=len(pages))
    found = {page.page: page for page in _kept(upload, engine) if page.page in set(pages)}
    failed: list[FailedPage] = []
    left = [number for number in pages if number not in found]
    progress.advance(len(found), len(pages))
    if not left:
        return dict(sorted(found.items())), failed
    with open_content(upload.pk) as content:
        reading = recognize(
            content, upload.name, left, engine=settings.RAGD_OCR, page_timeout_s=PAGE_TIMEOUT_S, limits=parse_limits()
        )
        try:
            while True:
                with interruptible():
                    page = next(reading, None)
                if page is None:
                    break
                if isinstance(page, FailedPage):
                    failed.append(page)
                else:
                    found[page.page] = page
                    _keep(upload, engine, page, progress)
                progress.advance(len(found) + len(failed), len(pages))
        finally:
            reading.close()
    return dict(sorted(found.items())), failed


def _key(upload: Upload, engine: Engine) -> str:
    return f"{upload.collection_id} {upload.sha256} {engine.identity}"


def _kept(upload: Upload, engine: Engine) -> list[RecognizedPage]:
    rows = WorkPart.objects.filter(kind=WorkPart.Kind.PAGE, key=_key(upload, engine)).order_by("position")
    return [page for row in rows for page in unpack_recognized(bytes(row.content)).values()]


def _keep(upload: Upload, engine: Engine, page: RecognizedPage, progress: Watcher) -> None:
    row = WorkPart(
        kind=WorkPart.Kind.PAGE,
        collection_id=upload.collection_id,
        key=_key(upload, engine),
        position=page.page,
        digest=upload.sha256,
        content=pack_recognized({page.page: page}),
    )
    with transaction.atomic():
        progress.hold(forgive=True)
        WorkPart.objects.bulk_create([row], ignore_conflicts=True)


def drop_unused_recognition() -> int:
    """Remove what was recognized of files that are gone; returns how many pages."""
    files = Upload.objects.filter(collection_id=OuterRef("collection_id"), sha256=OuterRef("digest"))
    return WorkPart.objects.filter(~Exists(files), kind=WorkPart.Kind.PAGE)._raw_delete("default")
