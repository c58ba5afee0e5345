"""Arranged blocks as text: lines as they are, tables in Markdown, each word with its offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from collections_app.parsing.arrangement.shapes import Block, PlacedWord, Table
from collections_app.parsing.text.markup import table

# The line below the headings of a table, which are its first line: a cell may hold dashes as well.
DASHES = re.compile(r"\|.*\n(\|(?: --- \|)+)(?=\n)")
PARTED = "\n\n"  # between blocks


@dataclass(frozen=True, slots=True)
class Rendered:
    """text, and for each word by its number its start and end there; None where it is not found."""

    text: str
    places: list[tuple[int, int] | None]


def is_whole(blocks: Sequence[Block], words: Sequence[PlacedWord]) -> bool:
    """Whether the blocks hold every word once, and no word is parted from its other half."""
    order = [number for block in blocks for number in block.words()]
    if sorted(order) != list(range(len(words))):
        return False
    return all(
        words[number].gap != "" or (position > 0 and order[position - 1] == number - 1)
        for position, number in enumerate(order)
    )


def render(blocks: Sequence[Block], words: Sequence[PlacedWord]) -> Rendered:
    """Blocks with a blank line between them. Words that followed each other at the source keep what parts them."""
    pieces: list[str] = []
    places: list[tuple[int, int] | None] = [None] * len(words)
    end = 0

    def add(piece: str, order: Iterable[int], *, in_table: bool = False) -> None:
        nonlocal end
        start = end + len(PARTED) if pieces else 0
        pieces.append(piece)
        end = start + len(piece)
        for number, place in _find(piece, words, order, in_table=in_table):
            places[number] = (start + place[0], start + place[1])

    for block in blocks:
        if not isinstance(block, Table):
            add(_lines_text(block.lines, words), block.words())
            continue
        if block.title:
            add(_lines_text(block.title, words), (word for line in block.title for word in line))
        cells = [word for row in block.rows for cell in row for line in cell.lines for word in line]
        columns = {place for row in block.rows for place, cell in enumerate(row) if any(cell.lines)}
        # One column becomes plain lines, whose bars are not marked.
        shown = table([_lines_text(cell.lines, words) for cell in row] for row in block.rows)
        add(shown, cells, in_table=len(columns) > 1)
    return Rendered(PARTED.join(pieces), places)


def locate(text: str, words: Sequence[PlacedWord]) -> list[tuple[int, int] | None]:
    """Where each word stands in a text that holds them in their order with nothing but blanks between."""
    places: list[tuple[int, int] | None] = [None] * len(words)
    for number, place in _find(text, words, range(len(words))):
        places[number] = place
    return places


def _find(
    text: str, words: Sequence[PlacedWord], order: Iterable[int], *, in_table: bool = False
) -> Iterator[tuple[int, tuple[int, int]]]:
    """(number, (start, end)) of each word that is found in the text of one block, in which they stand in this order.

    in_table: bars part the cells, so those of a word are marked, and a line of dashes stands below the first row.
    """
    position = 0
    dashes = DASHES.match(text) if in_table else None
    for number in order:
        shown = words[number].text
        if in_table:
            shown = shown.replace("|", "\\|")
        start = position
        if not text.startswith(shown, start) or words[number].gap != "":
            while start < len(text) and (text[start].isspace() or (in_table and text[start] == "|")):
                start = dashes.end(1) if dashes and start == dashes.start(1) else start + 1
        if text.startswith(shown, start):
            position = start + len(shown)
            yield number, (start, position)


def _lines_text(lines: Sequence[Sequence[int]], words: Sequence[PlacedWord]) -> str:
    pieces: list[str] = []
    before = -1
    for line in lines:
        for index, number in enumerate(line):
            word = words[number]
            if pieces:
                gap = word.gap if number == before + 1 else None
                if gap is None or (index == 0 and gap.isspace() and "\n" not in gap):
                    gap = "\n" if index == 0 else " "
                pieces.append(gap)
            pieces.append(word.text)
            before = number
    return "".join(pieces)
