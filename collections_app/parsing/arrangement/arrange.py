"""`arrange`: the words and drawn lines of a page to its text blocks and tables in reading order."""

from __future__ import annotations

from collections.abc import Sequence

from collections_app.parsing.arrangement.aligned import NUMBER, find_tables
from collections_app.parsing.arrangement.columns import Measures, divide, order_lines
from collections_app.parsing.arrangement.ruled import find_ruled
from collections_app.parsing.arrangement.segments import join_segments
from collections_app.parsing.arrangement.shapes import Block, PlacedWord, Rule, Segment, Table, TextBlock

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
        for line in order_lines(_with_tables(rest, [table for _, table in found])):
            _append(blocks, line)
    return blocks


def _with_tables(segments: list[Segment], tables: Sequence[Table]) -> list[Segment]:
    """Each table as a segment, before the first of those that came after its first word and stand below its top."""
    result = list(segments)
    for table in tables:
        box = table.box
        first = min(table.words())
        place = next((i for i, each in enumerate(result) if not each.table and each.words[0] > first), len(result))
        result.insert(place, Segment([], box.x0, box.y0, box.x1, box.y1, table))
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
