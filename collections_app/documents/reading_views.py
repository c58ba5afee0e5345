"""Reading a document: its text beside its chunks, and one chunk by itself.

The file that a document was made from: shown, downloaded or drawn by page for whoever may read it, and replaced.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import IO
from urllib.parse import urlencode
from zlib import crc32

from django import forms
from django.contrib import messages
from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Substr
from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import condition

from collections_app.access.document_access import readers_of
from collections_app.access.rules import READ, WRITE, needs
from collections_app.chunks.finding_scan import find_in_chunk
from collections_app.chunks.overlays import DUPLICATE, EDIT, MARK, Limits, flags_of, limits_of
from collections_app.chunks.policies import policy_for, window_of
from collections_app.chunks.preview import ChunkSpan, Piece, cut_pieces, join_chunks
from collections_app.collections.views import find_document
from collections_app.documents.files import (
    LONG_SIDES,
    PageView,
    draw,
    find_original,
    has_pages,
    open_content,
    originals,
    picture_tag,
    view_page,
)
from collections_app.documents.revisions.differences import Part, mark_words
from collections_app.documents.revisions.services import revision_text
from collections_app.documents.revisions.views import cited_elsewhere, cited_span
from collections_app.documents.stored_documents import overlays_of_chunk
from collections_app.errors import ServiceError
from collections_app.http.downloads import DownloadSlots, LimitedDownload, download_response
from collections_app.http.downloads import Reading as FileReading
from collections_app.http.page_requests import (
    PageRequest,
    find_or_404,
    page_number,
    pages_around,
    render_page,
    submit_form,
    whole_number,
)
from collections_app.models import Chunk, ChunkOverlay, Collection, Document, NearDuplicate
from collections_app.uploads.services import replace_document
from ragd.types import ChunkPolicy

CHUNKS_PER_PAGE = 40
VIEWS = (("chunks", gettext_lazy("Chunks")), ("formatted", gettext_lazy("Formatted")), ("page", gettext_lazy("Page")))
AROUND_CHARS = 240  # of text around a chunk, or a cited passage, that is shown without the rest


@needs(READ, WRITE, methods="GET")
def document(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The text with its chunks' edges beside the chunks, some chunks at a time, or beside a page of its file.

    ?start=&end= marks a cited place, in the text and on its page. ?view=page shows the page, ?leaf= which one;
    ?view=chunks the chunks also for a cited place, ?view=formatted its Markdown as HTML.
    """
    collection, record = find_document(name, doc_id)
    elsewhere, moved_from = cited_elsewhere(request.GET, record)
    if elsewhere:
        return redirect(elsewhere)
    cited = cited_span(request.GET, record.size_chars)
    cited_chunk = _cited_chunk(request.GET, record, cited)
    passage = (cited_chunk.start_char, cited_chunk.end_char) if cited and cited_chunk else None
    limits = _limits(collection, record)
    flagged = request.GET.get("flagged") == "1"
    chunks = Chunk.objects.light().of_document(record)
    if flagged:
        chunks = chunks.outlying(limits, _duplicates(record))
    page = None if flagged else _page_beside(request, record, cited, passage)
    formatted = request.GET.get("view") == "formatted" and not flagged
    reading = _read(request, record, chunks, None if flagged else cited, page, passage, flagged=flagged)
    context = {
        "collection": collection,
        "document": record,
        "reading": reading,
        "cards": _cards(record, reading.chunks, limits),
        "flagged": flagged,
        "readers": readers_of(collection, record),
        "page_view": page,
        "views": [view for view in VIEWS if view[0] != "page" or has_pages(record)],
        "shown_view": "page" if page else "formatted" if formatted else "chunks",
        "original": originals(record).first(),
        "zoom": request.GET.get("zoom") == "1",
        "cited_query": _cited_query(request) if cited else "",
        "whole_cited": cited == passage,
        "edited": _edited_passage(request.GET, record, cited_chunk, is_cited=cited is not None),
        "overlays": _count_overlays(record),
        "cited": cited,
        "present_policy": policy_for(collection).as_dict(),
        "moved_from": moved_from,
        **pages_around(reading.number, has_more=reading.number < reading.total),
    }
    return render_page(request, "collections/document.html", context)


def _cited_chunk(query: QueryDict, document: Document, cited: tuple[int, int] | None) -> Chunk | None:
    """The passage of the cited place: the chunk that ?chunk= names, else the last one that holds the place whole."""
    rows = Chunk.objects.light().of_document(document)
    index = whole_number(query.get("chunk"))
    named = None if index is None else rows.filter(chunk_index=index).first()
    if cited is None:
        return named
    if named and named.start_char <= cited[0] and cited[1] <= named.end_char:
        return named
    return rows.filter(start_char__lte=cited[0], end_char__gte=cited[1]).order_by("-chunk_index").first()


def _cited_query(request: PageRequest) -> str:
    """The cited place for the address of another view or page of the document."""
    given = {name: request.GET[name] for name in ("start", "end", "chunk", "quoted") if name in request.GET}
    return f"&{urlencode(given)}"


@dataclass(frozen=True, slots=True)
class EditedPassage:
    """A cited passage that a person wrote. pieces: its text with the quotation marked, [] where the edit was reverted.
    parts: what differs from the document, [] for one that was added. changed: whether the quotation is not in it."""

    pieces: list[Piece]
    parts: list[Part]
    changed: bool = False


def _edited_passage(
    query: QueryDict, document: Document, chunk: Chunk | None, *, is_cited: bool
) -> EditedPassage | None:
    """None where nothing is cited, or the chunk was and is as the document has it."""
    was_edited = "quoted" in query
    overlay = chunk.attributes.get(MARK) if chunk else None
    if chunk is None or not overlay:
        return EditedPassage([], []) if was_edited else None
    if not (is_cited or was_edited):
        return None
    original = _text_of(document, chunk.start_char, chunk.end_char)
    quoted = _quoted(query, chunk.content)
    parts = mark_words(original, chunk.content) if overlay == EDIT else []
    return EditedPassage(cut_pieces(chunk.content, 0, [], quoted), parts, was_edited and quoted is None)


def _quoted(query: QueryDict, content: str) -> tuple[int, int] | None:
    """?quoted=START-END-CRC32: the quotation within a chunk that a person wrote; None where it is gone."""
    numbers = [whole_number(text) for text in query.get("quoted", "").split("-")[:2]]
    start, end = numbers if len(numbers) == 2 else (None, None)
    if start is None or end is None or not start < end <= len(content):
        return None
    written = f"{start}-{end}-{crc32(content[start:end].encode()):08x}"
    return (start, end) if query["quoted"] == written else None


@dataclass(frozen=True, slots=True)
class CitedPassage:
    """A cited place with the passage around it, as the evidence of an answer shows it.

    before, passage, after: the text in pieces, the cited ones marked; whole: the passage itself is what is cited. page:
    the page of the file where the place is drawn on one. revision, revision_href: the earlier one that has the place,
    where the document has another text now. moved_from: see `cited_elsewhere`.
    """

    document: Document
    before: list[Piece]
    passage: list[Piece]
    after: list[Piece]
    whole: bool
    page: PageView | None = None
    edit: EditedPassage | None = None
    revision: int | None = None
    revision_href: str = ""
    moved_from: int | None = None


def read_passage(name: str, doc_id: str, query: QueryDict, passage: tuple[int, int]) -> CitedPassage | None:
    """query: the cited place as `document` takes it. passage: the chunk that was retrieved, in characters of the
    revision that is cited. None where the document is gone, or the reader may not read it."""
    try:
        _, record = find_document(name, doc_id)
    except Http404:
        return None
    elsewhere, moved_from = cited_elsewhere(query, record)
    if elsewhere:
        number = whole_number(query.get("revision")) or 0
        end = passage[1] + AROUND_CHARS
        start = max(0, passage[0] - AROUND_CHARS)
        text = revision_text(record, number, start, end)
        parts = _cut_passage(text, start, cited_span(query, start + len(text)), passage)
        return CitedPassage(record, *parts, revision=number, revision_href=elsewhere)
    place = cited_span(query, record.size_chars)
    edit = _edited_passage(query, record, _cited_chunk(query, record, place), is_cited=place is not None)
    page = view_page(record, None, place, passage) if place else None
    start, end = max(0, passage[0] - AROUND_CHARS), min(record.size_chars, passage[1] + AROUND_CHARS)
    parts = _cut_passage(_text_of(record, start, end), start, place, passage)
    is_drawn = page is not None and page.has_file and bool(page.cited)
    return CitedPassage(record, *parts, page=page if is_drawn else None, edit=edit, moved_from=moved_from)


def _cut_passage(
    text: str, start: int, place: tuple[int, int] | None, passage: tuple[int, int]
) -> tuple[list[Piece], list[Piece], list[Piece], bool]:
    """What stands before the passage, the passage and what follows, in whole lines; whether all of it is cited."""
    first, last = (min(max(at - start, 0), len(text)) for at in passage)
    begin = text.find("\n", 0, first) + 1 if start else 0
    end = text.rfind("\n", last)
    end = len(text) if end < 0 else end
    whole = place is None or place == passage
    return (
        cut_pieces(text[begin:first], start + begin, []),
        cut_pieces(text[first:last], start + first, [], None if whole else place),
        cut_pieces(text[last:end], start + last, []),
        whole,
    )


def _page_beside(
    request: PageRequest, document: Document, cited: tuple[int, int] | None, passage: tuple[int, int] | None
) -> PageView | None:
    """The page of the document's file that is shown beside the text, if one is: for a cited place whose words have a
    place on a page, and where it is asked for."""
    asked = request.GET.get("view")
    if asked not in (None, "page") or not (asked or cited):
        return None
    page = view_page(document, whole_number(request.GET.get("leaf")), cited, passage)
    return page if page is not None and (asked or page.cited) else None


@dataclass(frozen=True, slots=True)
class Reading:
    """One page of a document: stretches of text in pieces, and the chunks over them. number counts from 1."""

    number: int
    total: int
    stretches: list[list[Piece]]
    chunks: list[Chunk]

    @property
    def pieces(self) -> list[Piece]:
        return [piece for stretch in self.stretches for piece in stretch]

    @property
    def cited_chunks(self) -> set[int]:
        return {index for piece in self.pieces if piece.cited for index in piece.chunks}


def _read(
    request: PageRequest,
    document: Document,
    chunks: QuerySet[Chunk],
    cited: tuple[int, int] | None,
    page: PageView | None,
    passage: tuple[int, int] | None,
    *,
    flagged: bool = False,
) -> Reading:
    """The part of the text where the page begins that was turned to, else the cited place, else the page shown."""
    turned = page is not None and (cited is None or "leaf" in request.GET)
    place = page.start if page is not None and turned else cited[0] if cited else None
    count = chunks.count() if flagged else document.chunk_count
    total = max(1, -(-count // CHUNKS_PER_PAGE))
    number = min(_page_number(request, chunks, place), total)
    first = (number - 1) * CHUNKS_PER_PAGE
    page_chunks = list(chunks[first : first + CHUNKS_PER_PAGE + 1])
    following = page_chunks[CHUNKS_PER_PAGE:]
    page_chunks = page_chunks[:CHUNKS_PER_PAGE]
    if flagged:
        return Reading(number, total, _stretches(document, page_chunks), page_chunks)
    start = page_chunks[0].start_char if page_chunks and first else 0
    end = following[0].start_char if following else document.size_chars
    end = max([end, *(chunk.end_char for chunk in page_chunks)])
    spans = [ChunkSpan(chunk.chunk_index, chunk.start_char, chunk.end_char) for chunk in page_chunks]
    begin = page.start if page is not None else None
    pieces = cut_pieces(_text_of(document, start, end), start, spans, cited, begin, passage)
    behind = tuple(span.index for span in spans if span.start == span.end == end)
    if behind:  # what was added by hand at the very end begins with a piece without text
        pieces.append(Piece("", end, (), behind, crowded=True))
    return Reading(number, total, [pieces], page_chunks)


def _stretches(document: Document, page_chunks: Sequence[Chunk]) -> list[list[Piece]]:
    """The shown chunks with a little text around, put together from the chunks beside them: no text is read for it."""
    requested = {chunk.chunk_index + step for chunk in page_chunks for step in (-1, 0, 1)}
    rows = Chunk.objects.light().of_document(document).filter(chunk_index__in=requested)
    stretches: list[list[Chunk]] = []
    for row in rows:
        if stretches and stretches[-1][-1].chunk_index == row.chunk_index - 1:
            stretches[-1].append(row)
        else:
            stretches.append([row])
    indexes = {chunk.chunk_index for chunk in page_chunks}
    return [_stretch(document, rows, [row for row in rows if row.chunk_index in indexes]) for rows in stretches]


def _stretch(document: Document, rows: Sequence[Chunk], page_chunks: Sequence[Chunk]) -> list[Piece]:
    start, end = rows[0].start_char, max(row.end_char for row in rows)
    if any(row.attributes.get(MARK) == EDIT for row in rows):
        text = _text_of(document, start, end)  # what the document has there is in no chunk
    else:
        text = join_chunks([(row.start_char, row.content) for row in rows if row.end_char > row.start_char])
    first = max(0, page_chunks[0].start_char - start - AROUND_CHARS)
    last = max(row.end_char for row in page_chunks) - start + AROUND_CHARS
    spans = [ChunkSpan(row.chunk_index, row.start_char, row.end_char) for row in page_chunks]
    return cut_pieces(text[first:last], start + first, spans)


@dataclass(frozen=True, slots=True)
class Card:
    """A chunk as it is shown. overlay: "edit", "add" or "". like: the earlier chunk that it repeats."""

    chunk: Chunk
    flags: list[str]
    overlay: str
    like: NearDuplicate | None


def _cards(document: Document, chunks: Sequence[Chunk], limits: Limits) -> list[Card]:
    indexes = [chunk.chunk_index for chunk in chunks]
    like = {row.chunk_index: row for row in _duplicates(document).filter(chunk_index__in=indexes)}
    cards = []
    for chunk in chunks:
        near = like.get(chunk.chunk_index)
        flags = flags_of(chunk.content, limits) + ([DUPLICATE] if near else [])
        cards.append(Card(chunk, flags, str(chunk.attributes.get(MARK, "")), near))
    return cards


def _duplicates(document: Document) -> QuerySet[NearDuplicate]:
    """Of the present revision, as the last scan found them."""
    rows = NearDuplicate.objects.filter(collection_id=document.collection_id, doc_id=document.doc_id)
    return rows.filter(revision=document.revision)


def _count_overlays(document: Document) -> dict[str, int]:
    rows = ChunkOverlay.objects.filter(collection_id=document.collection_id, doc_id=document.doc_id)
    return rows.aggregate(total=Count("pk"), waiting=Count("pk", filter=Q(applies=False)))


def _text_of(document: Document, start: int, end: int) -> str:
    """text[start:end], cut in the database: a long document stays there."""
    rows = Document.objects.filter(pk=document.pk).annotate(passage=Substr(F("text"), start + 1, max(end - start, 0)))
    return str(rows.values_list("passage", flat=True).get())


def _page_number(request: PageRequest, chunks: QuerySet[Chunk], place: int | None) -> int:
    if place is not None:
        holders = chunks.filter(start_char__lte=place).order_by("-chunk_index")
        return (holders.values_list("chunk_index", flat=True).first() or 0) // CHUNKS_PER_PAGE + 1
    index = whole_number(request.GET.get("chunk"))
    return page_number(request) if index is None else index // CHUNKS_PER_PAGE + 1


@needs(READ, WRITE, methods="GET")
def chunk(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """One chunk with its numbers, its neighbours, what can be done with it and, with ?start=&end=, the cited place."""
    collection, record = find_document(name, doc_id)
    elsewhere, _ = cited_elsewhere(request.GET, record)
    if elsewhere:
        return redirect(elsewhere)
    return show_chunk(request, collection, record, index)


def show_chunk(
    request: PageRequest,
    collection: Collection,
    document: Document,
    index: int,
    *,
    refused: str = "",
    status: int = 200,
) -> HttpResponse:
    """The page of a chunk. refused: why what was typed into it was not taken; it is kept in the form."""
    row = find_or_404(Chunk.objects.of(collection).light(), doc_id=document.doc_id, chunk_index=index)
    cited = cited_span(request.GET, document.size_chars)
    span = ChunkSpan(row.chunk_index, row.start_char, row.end_char)
    overlay = row.attributes.get(MARK)
    if overlay:  # its offsets are those of the text that it stands for
        pieces = cut_pieces(row.content, 0, [], _quoted(request.GET, row.content))
    else:
        pieces = cut_pieces(row.content, row.start_char, [span], cited)
    original = _text_of(document, row.start_char, row.end_char) if overlay or row.switched_off else ""
    context = {
        "collection": collection,
        "document": document,
        "chunk": row,
        "pieces": pieces,
        "original": original if overlay == EDIT else "",
        "overlays": overlays_of_chunk(row, original) if overlay or row.switched_off else [],
        "overlay": overlay,
        "findings": find_in_chunk(row.content, row.context),
        "flags": flags_of(row.content, _limits(collection, document)),
        "refused": refused,
        "typed": request.POST.get("content", "") if refused else "",
        "typed_action": request.POST.get("action", "") if refused else "",
        "size_chars": len(row.content),
        "before": index - 1 if index else None,
        "after": index + 1 if index + 1 < document.chunk_count else None,
        "tab": "documents",
    }
    return render_page(request, "collections/chunk.html", context, status=status)


def _limits(collection: Collection, document: Document) -> Limits:
    policy = ChunkPolicy.from_dict(document.chunk_policy) if document.chunk_policy else policy_for(collection)
    return limits_of(policy, window_of(collection))


PIECE_BYTES = 1 << 16
PDF = "application/pdf"
SHOWN = (PDF, "image/png", "image/jpeg", "image/webp")  # what a browser shows without running anything of it
TEXTS = ("text/plain", "text/markdown", "text/csv")  # shown as plain text
# A browser's own viewer of PDFs does not run in a sandbox; it is no part of the page, which may load nothing.
POLICIES = {PDF: "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}

KEPT = "private, no-cache"  # a browser asks each time whether its copy still holds, and so whether it may be seen

_slots = DownloadSlots(4, "files")


@needs(READ, WRITE, methods="GET")
def original(request: PageRequest, name: str, doc_id: str) -> HttpResponseBase:
    """The file, shown where it is of a type that runs nothing, else downloaded; ?download=1 downloads it in any case.

    404 where the document has none.
    """
    _, document = find_document(name, doc_id)
    try:
        upload = find_original(document)
        pieces = LimitedDownload(_slots, _pieces(open_content(upload.pk)))
    except ServiceError as error:
        return HttpResponse(error.message, status=error.status, content_type="text/plain; charset=utf-8")
    kind = document.media_type
    shown = "text/plain; charset=utf-8" if kind in TEXTS else kind if kind in SHOWN else "application/octet-stream"
    inline = shown != "application/octet-stream" and "download" not in request.GET
    reading = FileReading(
        "document.original", "opened the original" if inline else "downloaded the original", document, rows=1
    )
    response = download_response(request, pieces, shown, upload.name, reading=reading, inline=inline)
    policy = {"Content-Security-Policy": POLICIES.get(shown, SANDBOX), "Content-Length": str(upload.size_bytes)}
    for header, value in (HEADERS | policy).items():
        response[header] = value
    return response


def _pieces(content: IO[bytes]) -> Generator[bytes]:
    with content:
        content.seek(0)
        while piece := content.read(PIECE_BYTES):
            yield piece


class VersionForm(forms.Form):
    """The file of the next revision."""

    file = forms.FileField(
        label=gettext_lazy("File"),
        help_text=gettext_lazy("Any file name and format. It becomes a new revision; ID, tags and metadata stay."),
        allow_empty_file=True,
    )


@needs(WRITE, methods="GET POST")
def new_version(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """Another file becomes the next revision of the document."""
    collection, document = find_document(name, doc_id)
    form = VersionForm(request.POST, request.FILES) if request.method == "POST" else VersionForm()

    def save() -> HttpResponse:
        outcome = replace_document(collection, doc_id, form.cleaned_data["file"], actor=request.user)
        if outcome.job is None:
            messages.warning(request, gettext("The file is the same as that of the current revision."))
            return redirect("collections:document", name, doc_id)
        messages.success(request, gettext("The new version of %(doc_id)s is processed.") % {"doc_id": doc_id})
        return redirect("collections:job", name, outcome.job.pk)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "document": document, "form": form, "part": "new-version"}
    return response or render_page(request, "collections/new_version.html", context, status=status)


def _zoom(request: PageRequest) -> int:
    return len(LONG_SIDES) - 1 if request.GET.get("zoom") == "1" else 0


def _tag(request: PageRequest, name: str, number: int, doc_id: str) -> str | None:
    _, document = find_document(name, doc_id)
    tag = picture_tag(document, number, _zoom(request))
    return f'"{tag}"' if tag else None


@needs(READ, WRITE, methods="GET")
@condition(etag_func=_tag)
def page_image(request: PageRequest, name: str, number: int, doc_id: str) -> HttpResponse:
    """JPEG or PNG; ?zoom=1 the larger one. 404 where there is no such page or the file is gone."""
    _, document = find_document(name, doc_id)
    try:
        picture = draw(document, number, _zoom(request))
    except ServiceError as error:
        return HttpResponse(error.message, status=error.status, content_type="text/plain; charset=utf-8")
    return HttpResponse(picture.data, content_type=picture.media_type, headers={"Cache-Control": KEPT})
