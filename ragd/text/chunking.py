"""chunk(): a document's text in pieces, each an exact slice with its offsets. Pure: equal input, equal chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragd.errors import InvalidInput
from ragd.normalization import has_visible, normalize
from ragd.text.blocks import clean_path, skip_space
from ragd.text.sentences import split_sentences
from ragd.text.splitter import Splitter
from ragd.text.structure import Structure, block_kind
from ragd.text.tables import Headers
from ragd.types import Chunk, ChunkPolicy, Segment

__all__ = ["bind", "chunk", "document_text", "iter_bound", "iter_chunks", "segment_spans", "split_sentences"]

HEADER_SHARE = 4  # at most so much of a chunk's characters, one in four, is a table's header beside it

SegmentSpan = tuple[int, int, float | None, float | None]
_Piece = tuple[int, int, tuple[str, ...]]


def chunk(text_or_segments: str | Sequence[Segment], policy: ChunkPolicy) -> list[Chunk]:
    """The chunks of a document in order, not yet bound to one (doc_id is ""). [] for text without a visible character.

    content == document_text(text_or_segments)[start:end] for each. chunk_index counts from 0, starts and ends grow
    strictly, no chunk begins or ends with white space, and every other character lies in at least one chunk.
    No chunk has more than target_tokens words or max_chars characters.

    metadata["headings"] is the path of headings over the chunk's first text, where there is one (kind "structure").
    attributes["block"] is what most of the chunk is (`block_kind`). Of one that begins with rows of a table, behind its
    header, context is that header; the row of dashes below a header is what tells it.
    For segments: segment_start and segment_end, the indexes (from 0) of the first and last segment that the chunk
    touches, and t_start and t_end, their times in seconds, where they are known.
    """
    return list(iter_chunks(text_or_segments, policy))


def iter_chunks(text_or_segments: str | Sequence[Segment], policy: ChunkPolicy) -> Iterator[Chunk]:
    """The chunks of `chunk`, one after the other as they are asked for: a large document's never stand side by side."""
    text, segments = _read(text_or_segments)
    return _cut(text, segments, policy) if has_visible(text) else iter(())


def _cut(text: str, segments: Sequence[SegmentSpan], policy: ChunkPolicy) -> Iterator[Chunk]:
    starts = [start for start, *_ in segments]
    splitter = Splitter(text, policy, starts[1:])
    pieces = _structure_pieces(splitter) if policy.kind == "structure" else _word_pieces(splitter)
    headers = Headers(text, policy.max_chars // HEADER_SHARE)
    last_path: tuple[str, ...] = ()
    headings: list[str] = []
    for index, (start, end, path) in enumerate(pieces):
        content = text[start:end].rstrip()
        end = start + len(content)
        if path is not last_path:
            last_path, headings = path, clean_path(path)
        metadata: dict[str, Any] = {"headings": [*headings]} if headings else {}
        if segments:
            metadata |= _times(segments, starts, start, end)
        context = headers.before(start) if "|" in content else ""
        attributes = {"block": block_kind(content, splitter.solid_chars(start, end))}
        yield _new_chunk(index, content, start, end, metadata, context, attributes)


def document_text(text_or_segments: str | Sequence[Segment]) -> str:
    """The text that chunk offsets refer to: normalized; of segments, each normalized and joined by a line feed."""
    return _read(text_or_segments)[0]


def segment_spans(segments: Sequence[Segment]) -> list[SegmentSpan]:
    """(start, end, t_start, t_end) of each segment in document_text(segments), in order, empty ones included."""
    return _read(segments)[1]


def bind(
    chunks: Sequence[Chunk],
    *,
    doc_id: str,
    title: str = "",
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    page_map: Sequence[tuple[int, int, str]] = (),
    structure: Structure | None = None,
) -> list[Chunk]:
    """The chunks as parts of one document. InvalidInput for an empty doc_id.

    metadata is the document's, and its keys stay as they are. page_map holds (start, end, label) offsets into the
    document's text, ascending. What chunk() and the page map tell is in attributes: section (the headings),
    segment_start, segment_end, t_start, t_end, and page_label, the label of the page that holds the chunk's start;
    metadata has it too, as headings, ..., page, where the document's has no such key.
    context is the title and the heading path, joined by " > ", a heading equal to the title left out; below it stands
    the header of the table that the chunk goes on with. attributes are those of `structure`, of the whole document;
    None: what the page map and the chunks themselves tell.
    """
    bound = iter_bound(
        chunks, doc_id=doc_id, title=title, tags=tags, metadata=metadata, page_map=page_map, structure=structure
    )
    return list(bound)


def iter_bound(
    chunks: Iterable[Chunk],
    *,
    doc_id: str,
    title: str = "",
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    page_map: Sequence[tuple[int, int, str]] = (),
    structure: Structure | None = None,
) -> Iterator[Chunk]:
    """The chunks of `bind`, one after the other as they are asked for. The empty doc_id is refused at once."""
    if not doc_id:
        raise InvalidInput("doc_id must be a text of at least one character, not ''", field="doc_id")
    page_starts = [start for start, _, _ in page_map]
    known = structure or Structure(page_map=page_map)

    def bound(item: Chunk) -> Chunk:
        headings = [heading for heading in item.metadata.get("headings", ()) if heading != title]
        index = bisect_right(page_starts, item.start) - 1
        found = dict(item.metadata)
        if index >= 0 and item.start < page_map[index][1]:
            found["page"] = page_map[index][2]
        # attributes have the headings as section
        own = {"page_label" if name == "page" else name: value for name, value in found.items() if name != "headings"}
        return replace(
            item,
            doc_id=doc_id,
            tags=tuple(tags),
            metadata={**found, **(metadata or {})},
            context="\n".join(
                part for part in (" > ".join([title, *headings] if title else headings), item.context) if part
            ),
            attributes=known.attributes(item) | own,
        )

    return map(bound, chunks)


class _Draft:
    """A chunk that may still be written to: it is laid out like one, and becomes one. A frozen dataclass sets each of
    its fields by a call, which took a sixth of the time of chunk()."""

    __slots__ = Chunk.__slots__


def _new_chunk(
    index: int, content: str, start: int, end: int, metadata: dict[str, Any], context: str, attributes: dict[str, Any]
) -> Chunk:
    """Chunk("", index, content, start, end, (), metadata, context, attributes=attributes)."""
    draft: Any = _Draft()
    draft.doc_id = ""
    draft.context = context
    draft.chunk_index = index
    draft.content = content
    draft.start = start
    draft.end = end
    draft.tags = ()
    draft.metadata = metadata
    draft.embedding = None
    draft.enabled = True
    draft.attributes = attributes
    draft.tokens = None
    draft.__class__ = Chunk
    made: Chunk = draft
    return made


def _structure_pieces(splitter: Splitter) -> Iterator[_Piece]:
    """Whole sections where they fit, small neighbours together; the others split. Ends may have white space before.

    A section joins the piece before it unless its heading ranks above the heading which that piece began with. The
    rest of a section that was split takes only sections below that one's heading. A text that fits is one piece.
    """
    start = end = level = 0
    sure_chars = splitter.sure_chars
    path: tuple[str, ...] = ()  # of the piece that may still grow, as start, end and level are; none while end is 0
    for section_start, body, section_end, section_level, section_path in splitter.outline.find_sections():
        if end:
            if section_level >= level and (section_end - start <= sure_chars or splitter.fits(start, section_end)):
                end = section_end
                continue
            yield start, end, path
        elif splitter.fits_whole(section_start):
            yield section_start, len(splitter.text), section_path
            return
        start, end, level, path = section_start, section_end, section_level, section_path
        if not splitter.fits(start, end):
            *pieces, (start, end) = splitter.split_section(start, body, splitter.trim_end(start, end))
            for piece in pieces:
                yield *piece, path
            level += 1
    if end:
        yield start, end, path


def _word_pieces(splitter: Splitter) -> Iterator[_Piece]:
    text = splitter.text
    if (start := skip_space(text, 0)) < len(text):
        for piece in splitter.split_words(start, splitter.trim_end(start, len(text))):
            yield *piece, ()


def _times(segments: Sequence[SegmentSpan], starts: Sequence[int], start: int, end: int) -> dict[str, Any]:
    first, last = bisect_right(starts, start) - 1, bisect_right(starts, end - 1) - 1
    times = {"t_start": segments[first][2], "t_end": segments[last][3]}
    return {"segment_start": first, "segment_end": last} | {k: v for k, v in times.items() if v is not None}


def _read(text_or_segments: str | Sequence[Segment]) -> tuple[str, list[SegmentSpan]]:
    if isinstance(text_or_segments, str):
        return normalize(text_or_segments), []
    texts: list[str] = []
    spans: list[SegmentSpan] = []
    at = 0
    for index, segment in enumerate(text_or_segments):
        if not isinstance(segment, Segment):
            raise InvalidInput(
                f"text_or_segments must be a text or a list of Segment; item {index} is {type(segment).__name__}",
                field="text_or_segments",
            )
        texts.append(normalize(segment.text))
        spans.append((at, at + len(texts[-1]), segment.t_start, segment.t_end))
        at += len(texts[-1]) + 1
    return "\n".join(texts), spans
