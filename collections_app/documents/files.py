"""The files of documents: their bytes stored, opened, parsed and dropped.

Pages that are only pictures are read by text recognition, page by page. A page that was read is kept with its file, so
that a job which is stopped, retried or run again goes on with the next.

Pages of documents as pictures: where their words stand, which are cited or unsure, and the picture itself.

The words are stored with the text, read back for a revision and dropped with it; a page is drawn from the file that was
uploaded, when it is asked for.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Protocol

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from collections_app.domain.rows import RowReader
from collections_app.errors import ServiceError
from collections_app.jobs.leases import interruptible
from collections_app.jobs.models import UploadQuerySet
from collections_app.models import Collection, Document, DocumentRevision, IngestJob, StoredPage, Upload, WorkPart
from ragd import telemetry
from ragd.readers import (
    PageLayout,
    ParsedDocument,
    ParseError,
    ParseLimits,
    Word,
    is_image,
    is_readable,
    parse,
    stop_server,
)
from ragd.readers.layout import PackedWords, pack_words
from ragd.readers.process.process import DrawnPage, FailedPage, draw_page, recognize
from ragd.readers.scans.engines import Engine, find_engine
from ragd.readers.scans.words import UNSURE, pack_recognized, unpack_recognized
from ragd.readers.types import RecognizedPage
from ragd.store.store import execute, fetch_all

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


PAGES_AT_ONCE = 200

PRESENT_HASH = "SELECT encode(sha256(convert_to(text, 'UTF8')), 'hex') FROM documents WHERE id = %(document)s"

# Hashing a text costs more than finding that there are no pages, so the texts stand apart and are asked for last.
DROP_UNUSED = """
WITH held AS MATERIALIZED (
    SELECT doc_id, encode(sha256(convert_to(text, 'UTF8')), 'hex') AS text_hash
    FROM documents WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
    UNION
    SELECT doc_id, encode(sha256(convert_to(text, 'UTF8')), 'hex')
    FROM document_revisions WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) AND text <> ''
)
DELETE FROM page_layouts
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
  AND (doc_id, text_hash) NOT IN (SELECT doc_id, text_hash FROM held)
"""


def store_pages(collection_id: int, doc_id: str, text_hash: str, layout: Sequence[PageLayout]) -> None:
    """Make these the pages of the text with that hash. In the transaction that stores the document."""
    StoredPage.objects.filter(collection_id=collection_id, doc_id=doc_id, text_hash=text_hash).delete()
    StoredPage.objects.bulk_create(
        (
            StoredPage(
                collection_id=collection_id,
                doc_id=doc_id,
                text_hash=text_hash,
                page=page.page,
                width=page.width,
                height=page.height,
                words=pack_words(page.words, page.width, page.height).data,
            )
            for page in layout
        ),
        batch_size=PAGES_AT_ONCE,
    )


def drop_unused_pages(collection_id: int, doc_ids: Iterable[str]) -> int:
    """Remove the pages of texts that neither these documents nor their earlier revisions have; returns how many."""
    return execute(connection, DROP_UNUSED, {"collection_id": collection_id, "doc_ids": list(doc_ids)})


def find_pages(document: Document, first: int, last: int, *, text_hash: str = "") -> list[PageLayout]:
    """The pages from first to last, counted from 1, in order. text_hash: of another text than the present one."""
    if not text_hash:
        ((text_hash,),) = fetch_all(connection, PRESENT_HASH, {"document": document.pk})
    rows = StoredPage.objects.filter(
        collection_id=document.collection_id,
        doc_id=document.doc_id,
        text_hash=text_hash,
        page__gte=first,
        page__lte=last,
    )
    return [
        PageLayout(row.page, row.width, row.height, PackedWords(bytes(row.words), row.width, row.height))
        for row in rows.order_by("page")
    ]


PDF = "application/pdf"
LONG_SIDES = (1400, 2600)  # pixels, by zoom
DRAWN_AT_ONCE = 2
PAGE_LABEL = re.compile(r"page (\d+)\b")
MARGIN = 1.5  # points around words that are framed
SAME_LINE = 0.5

_drawing = threading.BoundedSemaphore(DRAWN_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Frame:
    """A box on a page, in points. confidence: of its first word, None where that is not known."""

    x: float
    y: float
    width: float
    height: float
    confidence: float | None = None

    @property
    def place(self) -> dict[str, str]:
        """Its attributes in SVG, whatever the language of the page."""
        return {name: f"{getattr(self, name):.2f}" for name in ("x", "y", "width", "height")}


@dataclass(frozen=True, slots=True)
class PageView:
    """One page beside its text. has_file: whether it can be drawn. width, height: in points, 0 where not known.

    start: where its text begins, in characters of the document. cited: frames of the cited place, one a line; passage:
    those of the passage around it. unsure: words that text recognition is not sure of. confidence: mean of the page's
    words, None without recognition.
    """

    number: int
    count: int
    has_file: bool
    width: float
    height: float
    start: int
    cited: list[Frame]
    unsure: list[Frame]
    confidence: float | None
    passage: list[Frame]

    @property
    def view_box(self) -> str:
        """The page in SVG's words."""
        return f"0 0 {self.width:.2f} {self.height:.2f}"

    @property
    def before(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        return self.number + 1 if self.number < self.count else None


def has_pages(document: Document | DocumentRevision) -> bool:
    return document.media_type == PDF or is_image(document.media_type)


def view_page(
    document: Document, number: int | None, cited: tuple[int, int] | None, passage: tuple[int, int] | None = None
) -> PageView | None:
    """The page of that number, else the one where the cited place begins, else the first; None without pages."""
    if not has_pages(document):
        return None
    places = [
        (int(match.group(1)), start, end)
        for start, end, label in document.page_map
        if (match := PAGE_LABEL.match(label))
    ]
    stated = document.file_metadata.get("pages")
    count = max([1, stated if isinstance(stated, int) else 1, *(page for page, _, _ in places)])
    if number is None and cited is not None:
        number = next((page for page, _, end in places if end > cited[0]), None)
    number = min(max(number or 1, 1), count)
    begins = [start for page, start, _ in places if page >= number]
    layout = next(iter(find_pages(document, number, number)), None)
    words = list(layout.words) if layout else []
    known = [word.confidence for word in words if word.confidence is not None]
    return PageView(
        number=number,
        count=count,
        has_file=originals(document).exists(),
        width=layout.width if layout else 0.0,
        height=layout.height if layout else 0.0,
        start=begins[0] if begins else document.size_chars,
        cited=_frames_of(words, cited),
        passage=_frames_of(words, passage),
        unsure=[_frame([word], 0.0) for word in words if word.confidence is not None and word.confidence < UNSURE],
        confidence=sum(known) / len(known) if known else None,
    )


def _frames_of(words: Sequence[Word], place: tuple[int, int] | None) -> list[Frame]:
    return merge_frames(word for word in words if word.start < place[1] and word.end > place[0]) if place else []


def merge_frames(words: Iterable[Word]) -> list[Frame]:
    """One frame for each run of words that stand beside each other in a line, in the order of the text."""
    runs: list[list[Word]] = []
    for word in words:
        if runs and _goes_on(runs[-1][-1], word):
            runs[-1].append(word)
        else:
            runs.append([word])
    return [_frame(run, MARGIN) for run in runs]


def _goes_on(before: Word, word: Word) -> bool:
    height = min(before.y1 - before.y0, word.y1 - word.y0)
    common = min(before.y1, word.y1) - max(before.y0, word.y0)
    return common > SAME_LINE * height and word.x1 > before.x0 and word.x0 - before.x1 < 4 * max(height, 1)


def _frame(words: Sequence[Word], margin: float) -> Frame:
    x0, y0 = min(word.x0 for word in words) - margin, min(word.y0 for word in words) - margin
    x1, y1 = max(word.x1 for word in words) + margin, max(word.y1 for word in words) + margin
    return Frame(x0, y0, x1 - x0, y1 - y0, words[0].confidence)


def draw(document: Document, number: int, zoom: int) -> DrawnPage:
    """The page as a picture. zoom: an index of LONG_SIDES. ServiceError 404 where the file is gone or has no such page,
    422 where it cannot be drawn."""
    upload = find_original(document)
    try:
        with _drawing, open_content(upload.pk) as content:
            return draw_page(content, upload.name, number, long_side=LONG_SIDES[zoom], limits=parse_limits())
    except ParseError as error:
        status = 404 if error.kind == "empty" else 422
        raise ServiceError(error.message, type=error.kind, status=status) from error


def picture_tag(document: Document, number: int, zoom: int) -> str:
    """What a browser's copy of the picture is known by; "" where its file is gone."""
    if not originals(document).exists():
        return ""
    return f"{document.source_hash[:32]}-{number}-{zoom}"
