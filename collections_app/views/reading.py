"""Reading a document: its text beside its chunks, and one chunk by itself."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F, QuerySet
from django.db.models.functions import Substr
from django.http import HttpResponse
from django.views.decorators.http import require_GET

from collections_app.models import Chunk, Document
from collections_app.pages import PageRequest, find_or_404, render_page
from collections_app.passages import ChunkSpan, Piece, cut_pieces
from collections_app.policies import policy_for
from collections_app.views.collections import find_collection

CHUNKS_PER_PAGE = 40


@require_GET
def document(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The text with its chunks' edges beside the chunks, some chunks at a time; ?start=&end= marks a cited place."""
    collection = find_collection(name)
    found = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    cited = _cited_span(request, found)
    chunks = Chunk.objects.light().of_document(found)
    reading = _read(request, found, chunks, cited)
    cited_revision = _whole_number(request.GET.get("revision"))
    context = {
        "collection": collection,
        "document": found,
        "reading": reading,
        "cited": cited,
        "present_policy": policy_for(collection).as_dict(),
        "moved_from": cited_revision if cited and cited_revision not in (None, found.revision) else None,
    }
    return render_page(request, "collections/document.html", context)


@dataclass(frozen=True, slots=True)
class Reading:
    """One page of a document: pieces of text and the chunks over them. number counts from 1."""

    number: int
    total: int
    pieces: list[Piece]
    chunks: list[Chunk]

    @property
    def cited_chunks(self) -> set[int]:
        return {index for piece in self.pieces if piece.cited for index in piece.chunks}

    @property
    def before(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        return self.number + 1 if self.number < self.total else None


def _read(request: PageRequest, document: Document, chunks: QuerySet[Chunk], cited: tuple[int, int] | None) -> Reading:
    total = max(1, -(-document.chunk_count // CHUNKS_PER_PAGE))
    number = min(_page_number(request, chunks, cited), total)
    first = (number - 1) * CHUNKS_PER_PAGE
    shown = list(chunks[first : first + CHUNKS_PER_PAGE + 1])
    following = shown[CHUNKS_PER_PAGE:]
    shown = shown[:CHUNKS_PER_PAGE]
    start = shown[0].start_char if shown and first else 0
    end = following[0].start_char if following else document.size_chars
    end = max([end, *(chunk.end_char for chunk in shown)])
    spans = [ChunkSpan(chunk.chunk_index, chunk.start_char, chunk.end_char) for chunk in shown]
    return Reading(number, total, cut_pieces(_text_of(document, start, end), start, spans, cited), shown)


def _text_of(document: Document, start: int, end: int) -> str:
    """text[start:end], cut in the database: a long document stays there."""
    rows = Document.objects.filter(pk=document.pk).annotate(passage=Substr(F("text"), start + 1, max(end - start, 0)))
    return str(rows.values_list("passage", flat=True).get())


def _page_number(request: PageRequest, chunks: QuerySet[Chunk], cited: tuple[int, int] | None) -> int:
    if cited is not None:
        holders = chunks.filter(start_char__lte=cited[0]).order_by("-chunk_index")
        return (holders.values_list("chunk_index", flat=True).first() or 0) // CHUNKS_PER_PAGE + 1
    asked = _whole_number(request.GET.get("chunk"))
    if asked is not None:
        return asked // CHUNKS_PER_PAGE + 1
    return max(_whole_number(request.GET.get("page")) or 1, 1)


def _cited_span(request: PageRequest, document: Document) -> tuple[int, int] | None:
    """start and end of the address when they name a place inside the document, else None."""
    start, end = _whole_number(request.GET.get("start")), _whole_number(request.GET.get("end"))
    if start is None or end is None or not 0 <= start < end or start >= document.size_chars:
        return None
    return start, min(end, document.size_chars)


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


@require_GET
def chunk(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """One chunk with its numbers, its neighbours and, with ?start=&end=, the cited place in it."""
    collection = find_collection(name)
    found = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    shown = find_or_404(Chunk.objects.light(), collection=collection, doc_id=doc_id, chunk_index=index)
    cited = _cited_span(request, found)
    span = ChunkSpan(shown.chunk_index, shown.start_char, shown.end_char)
    context = {
        "collection": collection,
        "document": found,
        "chunk": shown,
        "pieces": cut_pieces(shown.content, shown.start_char, [span], cited),
        "size_chars": shown.end_char - shown.start_char,
        "before": index - 1 if index else None,
        "after": index + 1 if index + 1 < found.chunk_count else None,
        "tab": "documents",
    }
    return render_page(request, "collections/chunk.html", context)
