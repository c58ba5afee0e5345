"""What another chunk policy would make of documents, before anything is written.

A preview reads at most PREVIEW_CHARS of a document, so that it answers at once whatever the document's size; it says
when that was not the whole.

A document's text cut where chunks begin and end, so that a page can mark edges, overlaps and a cited place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import IO, Any

from django.conf import settings
from django.db import connection
from django.db.models.functions import MD5, Substr

from collections_app.chunks.overlays import MARK
from collections_app.chunks.policies import policy_for, policy_of
from collections_app.documents.stored_documents import DocumentOverlays
from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError
from collections_app.index.ingestion import Draft, chunk_draft
from collections_app.models import Collection, Document
from ragd.errors import EmptyContent
from ragd.normalization import has_visible
from ragd.readers import parse
from ragd.readers.types import ParseLimits
from ragd.store.store import fetch_all
from ragd.text.chunking import document_text
from ragd.types import Chunk, ChunkPolicy, Segment

PREVIEW_CHARS = 2_000_000
SAMPLE_CHARS = 200_000
SAMPLE_DOCUMENTS = 8
BINS = 16

PRESENT = """
SELECT chunk_index, start_char, end_char, token_count, encode(sha256(convert_to(
    CASE WHEN context = '' THEN content ELSE context || E'\\n' || content END, 'UTF8')), 'hex')
FROM {chunks}
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s AND start_char < %(reach)s
ORDER BY chunk_index
"""


@dataclass(frozen=True, slots=True)
class PreviewChunk:
    """One chunk. start, end: characters of the document; digest: SHA-256 of what its embedder reads."""

    index: int
    start: int
    end: int
    token_count: int
    digest: str
    content: str = ""
    headings: tuple[str, ...] = ()
    page: str | None = None
    enabled: bool = True
    overlay: str = ""
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long some chunks are, in words; all None without chunks. shared_chars: text that lies in two, summed."""

    count: int
    tokens: int
    shortest: int | None
    median: float | None
    longest: int | None
    shared_chars: int

    @classmethod
    def of(cls, chunks: Sequence[PreviewChunk]) -> Lengths:
        sizes = [position.token_count for position in chunks]
        shared, reach = 0, 0
        for position in chunks:
            shared += max(0, min(reach, position.end) - position.start)
            reach = max(reach, position.end)
        if not sizes:
            return cls(0, 0, None, None, None, 0)
        return cls(len(sizes), sum(sizes), min(sizes), float(median(sizes)), max(sizes), shared)


@dataclass(frozen=True, slots=True)
class Bins:
    """Lengths in words, now and then, in bins of `step` words from 0: bin i holds from i * step up to its successor."""

    step: int
    now: tuple[int, ...]
    then: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Where the last bin ends, in words."""
        return self.step * len(self.now)

    @property
    def rows(self) -> list[tuple[int, int, int, int]]:
        """(fewest words, most words, chunks now, chunks then) of each bin that is not empty."""
        pairs = enumerate(zip(self.now, self.then, strict=True))
        return [(n * self.step, (n + 1) * self.step - 1, now, then) for n, (now, then) in pairs if now or then]


@dataclass(frozen=True, slots=True)
class Preview:
    """One document under two policies. equal: chunks of `then` whose text is there now, so that they keep their vector.

    chars: how much of the document was read; whole: all of it. waiting: changes of chunks that would no longer apply
    (None when the document was not read whole).
    """

    title: str
    doc_id: str
    text: str
    whole: bool
    size_chars: int
    policy_now: ChunkPolicy
    policy: ChunkPolicy
    now: Sequence[PreviewChunk]
    then: Sequence[PreviewChunk]
    waiting: int | None = 0

    @property
    def chars(self) -> int:
        return len(self.text)

    @property
    def equal(self) -> int:
        return sum(position.kept for position in self.then)

    @property
    def to_embed(self) -> int:
        return len(self.then) - self.equal

    @property
    def lengths_now(self) -> Lengths:
        return Lengths.of(self.now)

    @property
    def lengths_then(self) -> Lengths:
        return Lengths.of(self.then)

    @property
    def bins(self) -> Bins:
        return bin_lengths(self.now, self.then)


@dataclass(frozen=True, slots=True)
class SamplePreview:
    """A few documents under the present policies and another one. documents: how many the collection has."""

    documents: int
    policy_now: ChunkPolicy
    policy: ChunkPolicy
    previews: Sequence[Preview]

    @property
    def lengths_now(self) -> Lengths:
        return _sum_lengths([preview.now for preview in self.previews])

    @property
    def lengths_then(self) -> Lengths:
        return _sum_lengths([preview.then for preview in self.previews])

    @property
    def equal(self) -> int:
        return sum(preview.equal for preview in self.previews)

    @property
    def bins(self) -> Bins:
        now = [position for preview in self.previews for position in preview.now]
        return bin_lengths(now, [position for preview in self.previews for position in preview.then])


def preview_document(
    collection: Collection, document: Document, explicit: Mapping[str, Any] | None, *, chars: int = PREVIEW_CHARS
) -> Preview:
    """A stored document as it is, and as the stated fields of a policy would cut it. Writes nothing.

    Its overlays are laid over both. Raises InvalidInput naming a field of the policy, and EmptyContent for a document
    that keeps no text.
    """
    policy = policy_for(collection, explicit)
    draft, text = _head(document, chars)
    if not text.strip():
        raise EmptyContent(f"{document.doc_id!r} keeps no text that could be cut again", field="doc_id")
    whole = len(text) >= document.size_chars
    overlays = DocumentOverlays.read(collection.pk, document.doc_id)
    made: Sequence[Chunk] = list(overlays.apply(chunk_draft(draft, text, policy)))
    # the last one ends where reading ended, not where the policy cuts
    made = made if whole or len(made) < 2 else made[:-1]
    values = {"collection_id": collection.pk, "doc_id": document.doc_id, "reach": len(text)}
    present = PRESENT.format(chunks=collection.chunks_table)
    now = [PreviewChunk(*row) for row in fetch_all(connection, present, values)]
    return Preview(
        document.name,
        document.doc_id,
        text,
        whole,
        document.size_chars,
        ChunkPolicy.from_dict(document.chunk_policy),
        policy,
        now,
        _preview_chunks(made, {position.digest for position in now}),
        len(overlays.listed) - len(overlays.places) if whole else None,
    )


def preview_content(
    collection: Collection,
    content: str | Sequence[Segment],
    explicit: Mapping[str, Any] | None,
    *,
    title: str = "",
    page_map: Sequence[Sequence[Any]] = (),
) -> Preview:
    """A text that is not stored, as the collection's policy cuts it and as the stated fields would. Writes nothing.

    title: chunks are embedded with it. Raises InvalidInput, EmptyContent.
    """
    policy, usual = policy_for(collection, explicit), policy_for(collection)
    size = len(content) if isinstance(content, str) else 0
    content = content[:PREVIEW_CHARS] if isinstance(content, str) else content
    draft = Draft(doc_id="preview", content=content, title=title, page_map=page_map)
    text = document_text(content)
    if not has_visible(text):
        raise EmptyContent("the content has no text after normalization; send some text", field="content")
    now = _preview_chunks(chunk_draft(draft, text, usual), set())
    then = _preview_chunks(chunk_draft(draft, text, policy), {position.digest for position in now})
    return Preview(title, "", text, size <= PREVIEW_CHARS, max(size, len(text)), usual, policy, now, then)


def preview_upload(collection: Collection, name: str, file: IO[bytes], explicit: Mapping[str, Any] | None) -> Preview:
    """A file that is not stored, read as an upload would be. Writes nothing, keeps nothing.

    Raises what parsing raises, ServiceError 413 for a file that is too large, InvalidInput, EmptyContent.
    """
    limits = ParseLimits(
        timeout_s=settings.RAGD_PARSE_TIMEOUT_S,
        memory_mb=settings.RAGD_PARSE_MEMORY_MB,
        max_chars=settings.RAGD_PARSE_MAX_CHARS,
        max_input_mb=settings.RAGD_MAX_DOCUMENT_MB,
    )
    data = file.read(settings.RAGD_MAX_DOCUMENT_MB * MEGABYTE + 1)
    if len(data) > settings.RAGD_MAX_DOCUMENT_MB * MEGABYTE:
        raise ServiceError(
            f"the file has more than {settings.RAGD_MAX_DOCUMENT_MB} MB; raise RAGD_MAX_DOCUMENT_MB, or take a part",
            type="too_large",
            status=413,
            field="file",
        )
    parsed = parse(data, name, limits=limits)
    return preview_content(collection, parsed.text, explicit, title=parsed.title or "", page_map=parsed.page_map)


def preview_collection(
    collection: Collection, explicit: Mapping[str, Any] | None, *, documents: int = SAMPLE_DOCUMENTS
) -> SamplePreview:
    """A few documents under another policy of the collection, the same ones each time. Raises InvalidInput.

    A document that states fields of its own keeps them, as it would when the collection's policy changes.
    """
    rows = Document.objects.filter(collection=collection)
    picked = rows.filter(size_chars__gt=0).exclude(text="").defer("text").order_by(MD5("doc_id"))[:documents]
    policy = policy_for(collection, explicit)
    target = Collection(
        embed_model=collection.embed_model,
        embed_dims=collection.embed_dims,
        chunk_policy=dict(collection.chunk_policy) | {k: v for k, v in (explicit or {}).items() if v is not None},
    )
    target.pk = collection.pk
    previews = []
    for document in picked:
        own = policy_of(target, document) if document.chunk_policy_stated else policy
        previews.append(preview_document(collection, document, own.as_dict(), chars=SAMPLE_CHARS))
    return SamplePreview(rows.count(), policy_for(collection), policy, previews)


def bin_lengths(now: Iterable[PreviewChunk], then: Iterable[PreviewChunk]) -> Bins:
    """Both in the same bins, BINS of them, from 0 to the longest of both."""
    sizes = [position.token_count for position in now], [position.token_count for position in then]
    step = max([1, *(size for each in sizes for size in each)]) // BINS + 1
    counts = [[0] * BINS, [0] * BINS]
    for counted, each in zip(counts, sizes, strict=True):
        for size in each:
            counted[size // step] += 1
    return Bins(step, tuple(counts[0]), tuple(counts[1]))


def _head(document: Document, chars: int) -> tuple[Draft, str]:
    """The beginning of a document as a draft. Segments that reach beyond it are left out."""
    rows = Document.objects.filter(pk=document.pk).annotate(head=Substr("text", 1, chars))
    text: str = rows.values_list("head", flat=True).get()
    content: str | list[Segment] = text
    if document.segments:
        segments = [Segment(text[start:end], *times) for start, end, *times in document.segments if end <= len(text)]
        whole = document_text(segments)
        if text.startswith(whole):
            content, text = segments, whole
    draft = Draft(
        doc_id=document.doc_id,
        content=content,
        title=document.title,
        tags=tuple(document.tags),
        metadata=document.metadata,
        page_map=document.page_map,
        cell_map=document.cell_map,
    )
    return draft, text


def _preview_chunks(chunks: Iterable[Chunk], known: set[str]) -> list[PreviewChunk]:
    positions = []
    for chunk in chunks:
        digest = hashlib.sha256(chunk.embed_text.encode()).hexdigest()
        positions.append(
            PreviewChunk(
                chunk.chunk_index,
                chunk.start,
                chunk.end,
                len(chunk.content.split()),
                digest,
                chunk.content,
                tuple(chunk.attributes.get("section", ())),
                chunk.attributes.get("page_label"),
                chunk.enabled,
                str(chunk.attributes.get(MARK, "")),
                digest in known,
            )
        )
    return positions


def _sum_lengths(documents: Sequence[Sequence[PreviewChunk]]) -> Lengths:
    every = [Lengths.of(positions) for positions in documents]
    sizes = [position.token_count for positions in documents for position in positions]
    if not sizes:
        return Lengths.of([])
    shared = sum(each.shared_chars for each in every)
    return Lengths(len(sizes), sum(sizes), min(sizes), float(median(sizes)), max(sizes), shared)


CROWDED_CHARS = 100  # about a line


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """A chunk's place, in characters of the whole document."""

    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text that the same chunks cover.

    chunks: indices of the chunks that hold it. begins: chunks that begin with it. cited: inside the cited place;
    anchor: the first such piece. passage: inside the passage of the cited place. crowded: begins so close behind
    another that their marks would touch.
    """

    text: str
    start: int
    chunks: tuple[int, ...]
    begins: tuple[int, ...]
    cited: bool = False
    anchor: bool = False
    crowded: bool = False
    passage: bool = False

    @property
    def overlap(self) -> bool:
        return len(self.chunks) > 1


def cut_pieces(
    text: str,
    offset: int,
    spans: Sequence[ChunkSpan],
    cited: tuple[int, int] | None = None,
    begin: int | None = None,
    passage: tuple[int, int] | None = None,
) -> list[Piece]:
    """The text, which begins at character `offset` of its document, as pieces in order; joined they are the text again.

    Spans may reach beyond the text; what no span covers is a piece without chunks. begin: where a piece begins too.
    passage: the place around `cited`.
    """
    end = offset + len(text)
    borders = {offset, end}
    places = [*((span.start, span.end) for span in spans), *filter(None, (cited, passage))]
    for start, stop in [*places, *([(begin, begin)] if begin is not None else [])]:
        borders.update(position for position in (start, stop) if offset < position < end)
    edges = sorted(borders)
    pieces: list[Piece] = []
    anchored = False
    last_begin = -CROWDED_CHARS
    for start, stop in pairwise(edges):
        is_cited = cited is not None and cited[0] <= start < cited[1]
        begins = tuple(span.index for span in spans if span.start == start)
        pieces.append(
            Piece(
                text=text[start - offset : stop - offset],
                start=start,
                chunks=tuple(span.index for span in spans if span.start <= start < span.end),
                begins=begins,
                cited=is_cited,
                anchor=is_cited and not anchored,
                crowded=bool(begins) and start - last_begin < CROWDED_CHARS,
                passage=passage is not None and passage[0] <= start < passage[1],
            )
        )
        last_begin = start if begins else last_begin
        anchored = anchored or is_cited
    return pieces


def join_chunks(chunks: Sequence[tuple[int, str]]) -> str:
    """The text that neighbouring chunks, (start, content) in order, were cut from; what none holds becomes line feeds.

    That is exact up to white space, which alone lies between chunks. "" for none.
    """
    text, begin = "", chunks[0][0] if chunks else 0
    for start, content in chunks:
        text += "\n" * (start - begin - len(text))
        text += content[max(0, begin + len(text) - start) :]
    return text


@dataclass(frozen=True, slots=True)
class ComparedPiece:
    """A run of text under two cuts. begins: chunks of the new one that begin here; began: whether one of the old does.

    same: both begin here, so that this edge stays. overlap: inside two chunks of the new cut.
    """

    text: str
    begins: tuple[int, ...]
    began: bool
    overlap: bool
    crowded: bool = False

    @property
    def same(self) -> bool:
        return self.began and bool(self.begins)


def compare_pieces(text: str, offset: int, then: Sequence[ChunkSpan], now: Sequence[ChunkSpan]) -> list[ComparedPiece]:
    """The text as pieces in order, cut where a chunk of either begins, and where one of `then` ends."""
    starts = {span.start for span in now}
    edges = [ChunkSpan(-1, start, start) for start in starts]  # without length, they only cut
    return [
        ComparedPiece(
            piece.text,
            tuple(index for index in piece.begins if index >= 0),
            piece.start in starts,
            piece.overlap,
            piece.crowded,
        )
        for piece in cut_pieces(text, offset, [*then, *edges])
    ]
