"""A document's text cut where chunks begin and end, so that a page can mark edges, overlaps and a cited place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
