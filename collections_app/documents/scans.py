"""Scans: pages that are only pictures, read by text recognition in the background, page by page.

A page that was read is kept with its file, so that a job which is stopped, retried or run again goes on with the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from collections_app.documents.files import open_content, parse_limits, parse_upload
from collections_app.jobs.leases import interruptible
from collections_app.models import IngestJob, Upload, WorkPart
from ragd.readers import ParsedDocument, ParseError, is_image, is_readable
from ragd.readers.process.process import FailedPage, recognize
from ragd.readers.scans.engines import Engine, find_engine
from ragd.readers.scans.words import pack_recognized, unpack_recognized
from ragd.readers.types import RecognizedPage

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
