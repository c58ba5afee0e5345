"""Pages of documents as pictures: where their words stand, which are cited or unsure, and the picture itself.

The words are stored with the text, read back for a revision and dropped with it; a page is drawn from the file that was
uploaded, when it is asked for.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import connection

from collections_app.documents.files import find_original, open_content, originals, parse_limits
from collections_app.errors import ServiceError
from collections_app.models import Document, DocumentRevision, StoredPage
from ragd.readers import PageLayout, ParseError, Word, is_image
from ragd.readers.layout import PackedWords, pack_words
from ragd.readers.process.process import DrawnPage, draw_page
from ragd.readers.scans.words import UNSURE
from ragd.store.store import execute, fetch_all

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
