"""`arrange`: the words and drawn lines of a page to its text blocks and tables in reading order.

Arranged blocks as text: lines as they are, tables in Markdown, each word with its offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ragd.readers.arrangement.aligned import NUMBER, find_tables
from ragd.readers.arrangement.columns import Measures, divide, order_lines
from ragd.readers.arrangement.ruled import find_ruled
from ragd.readers.arrangement.shapes import Block, PlacedWord, Rule, Segment, Table, TextBlock, join_segments
from ragd.readers.text.markup import table

WORDS_MAX = 20_000


def arrange(words: Sequence[PlacedWord], rules: Sequence[Rule], width: float, height: float) -> list[Block]:
    """Every word once, by its number, in the order in which the page is read; its tables as rows of cells.

    words: in the order of their source, which is kept where it runs down the page. rules: lines drawn on the page.
    width, height: of the page, in points. No words give no blocks; of more than 20,000 the order is left as it is.
    """
    if not words:
        return []
    if len(words) > WORDS_MAX:
        return [TextBlock([list(range(len(words)))])]
    tables = find_ruled(words, rules, width, height) if rules else []
    inside = {number for table in tables for number in table.words()}
    segments = join_segments(words, (number for number in range(len(words)) if number not in inside))
    segments = _with_tables(segments, tables)

    def chars(segment: Segment) -> int:
        return sum(len(words[number].text) + 1 for number in segment.words)

    def is_number(segment: Segment) -> bool:
        return NUMBER.fullmatch(" ".join(words[number].text for number in segment.words)) is not None

    blocks: list[Block] = []
    for part in divide(segments, Measures(chars, is_number)):
        found = find_tables(words, part)
        taken = {id(segment) for members, _ in found for segment in members}
        rest = [segment for segment in part if id(segment) not in taken]
        for line in order_lines(_with_tables(rest, [each for _, each in found])):
            _append(blocks, line)
    return blocks


def _with_tables(segments: list[Segment], tables: Sequence[Table]) -> list[Segment]:
    """Each table as a segment, before the first of those that came after its first word and stand below its top."""
    result = list(segments)
    for drawn in tables:
        box = drawn.box
        first = min(drawn.words())
        place = next((i for i, each in enumerate(result) if not each.table and each.words[0] > first), len(result))
        result.insert(place, Segment([], box.x0, box.y0, box.x1, box.y1, drawn))
    return result


def _append(blocks: list[Block], line: list[Segment]) -> None:
    """Add a line to the last block of text; a table stands by itself."""
    blocks.extend(segment.table for segment in line if segment.table is not None)
    numbers = [number for segment in line for number in segment.words]
    if numbers:
        if not blocks or not isinstance(blocks[-1], TextBlock):
            blocks.append(TextBlock())
        last = blocks[-1]
        assert isinstance(last, TextBlock)
        last.lines.append(numbers)


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
