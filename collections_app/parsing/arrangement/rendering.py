"""Arranged blocks as text: lines as they are, tables in Markdown, each word with its offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collections_app.parsing.arrangement.shapes import Block, Cell, PlacedWord, Table
from collections_app.parsing.text.markup import table

# The line below the headings of a table, which are the first line of its block: a cell may hold dashes as well.
DASHES = re.compile(r"(?:\A|\n\n)\|.*\n(\|(?: --- \|)+)(?=\n)")
BAR = re.compile(r"\|")


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
    order: list[int] = []
    in_tables: set[int] = set()
    for block in blocks:
        if isinstance(block, Table):
            if block.title:
                pieces.append(_lines_text(block.title, words))
            pieces.append(table([_cell_text(cell, words) for cell in row] for row in block.rows))
            in_tables.update(word for row in block.rows for cell in row for line in cell.lines for word in line)
        else:
            pieces.append(_lines_text(block.lines, words))
        order.extend(block.words())
    text = "\n\n".join(pieces)
    return Rendered(text, locate(text, words, order, in_tables))


def locate(
    text: str, words: Sequence[PlacedWord], order: Sequence[int], in_tables: set[int] | frozenset[int] = frozenset()
) -> list[tuple[int, int] | None]:
    """Where each word stands in a text that holds them in this order with nothing but blanks and bars between."""
    places: list[tuple[int, int] | None] = [None] * len(words)
    position = 0
    dashes = {found.start(1): found.end(1) for found in DASHES.finditer(text)} if in_tables else {}
    for number in order:
        shown = words[number].text
        if number in in_tables:
            shown = BAR.sub(r"\\|", shown)
        start = position
        if not text.startswith(shown, start) or words[number].gap != "":
            while start < len(text) and (text[start].isspace()):
                start += 1
            if not text.startswith(shown, start):
                start = _skip_bars(text, start, dashes)
        if text.startswith(shown, start):
            position = start + len(shown)
            places[number] = (start, position)
    return places


def _skip_bars(text: str, start: int, dashes: Mapping[int, int]) -> int:
    """Behind the blanks, bars and whole lines of dashes that stand at start."""
    while start < len(text) and (text[start] == "|" or text[start].isspace()):
        start = dashes.get(start, start + 1)
    return start


def _cell_text(cell: Cell, words: Sequence[PlacedWord]) -> str:
    return _lines_text(cell.lines, words)


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
