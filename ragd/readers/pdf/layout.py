"""A PDF page's text in reading order with its tables, and the place of each word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pypdfium2 as pdfium

from ragd.readers.arrangement.arrange import Rendered, arrange, is_whole, locate, render
from ragd.readers.arrangement.shapes import Block, Box, Cell, PlacedWord, Rule, Table, TextBlock
from ragd.readers.pdf.glyphs import PageWords, Shown, read_words
from ragd.readers.pdf.objects import read_rules
from ragd.readers.types import PageLayout, Word

RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
FEW_WORDS = 3  # that make no table
TURNED_SHARE = 0.5  # of the words: more of them turned, and the page is read as they stand


def lay_out(page: pdfium.PdfPage, text_page: pdfium.PdfTextPage, number: int) -> tuple[str, PageLayout, int]:
    """The page's text as it is read, where its words stand by their offsets in it, and the characters left out.

    Where the order cannot be told, or a word would be lost, pdfium's order stays.
    """
    shown = Shown(page)
    found = read_words(text_page, shown)
    rendered = _render(found, read_rules(page, shown) if len(found.words) > FEW_WORDS else [])
    placed = zip(rendered.places, found.words, strict=True)
    words = sorted((*place, word.x0, word.y0, word.x1, word.y1) for place, word in placed if place is not None)
    layout = PageLayout(number, shown.width, shown.height, tuple(Word(*values) for values in words))
    return rendered.text, layout, found.unseen_chars


def _render(found: PageWords, rules: Sequence[Rule]) -> Rendered:
    words = found.words
    order = range(len(words))
    blocks = _blocks(found, rules)
    if not is_whole(blocks, words):
        blocks = [TextBlock([list(order)])]
    is_plain = len(blocks) == 1 and isinstance(blocks[0], TextBlock) and list(blocks[0].words()) == list(order)
    if is_plain and not found.unseen_chars:
        return Rendered(found.text, locate(found.text, words))
    return render(blocks, words)


def _is_right_to_left(words: Sequence[PlacedWord]) -> bool:
    return 3 * sum(1 for word in words if not word.text.isascii() and RIGHT_TO_LEFT.search(word.text)) > len(words)


def _mirror(words: Sequence[PlacedWord], width: float) -> list[PlacedWord]:
    """Words of a page from right to left, placed as if it ran from left to right; so are those of other scripts."""
    result = [word._replace(x0=width - word.x1, x1=width - word.x0) for word in words]
    start = 0
    for end in range(1, len(result) + 1):
        if end < len(result) and _steps_back(result[end - 1], result[end]):
            continue
        left, right = result[end - 1].x0, result[start].x1
        for number in range(start, end if end - start > 1 else start):
            word = result[number]
            result[number] = word._replace(x0=left + right - word.x1, x1=left + right - word.x0)
        start = end
    return result


def _steps_back(before: PlacedWord, word: PlacedWord) -> bool:
    """Whether a word goes on to the left of the one before it in a line, as words of another direction do."""
    height = before.y1 - before.y0
    is_line = word.gap is not None and "\n" not in word.gap and abs(word.y0 - before.y0) < height / 2
    return is_line and word.x1 <= before.x0 + 1 and before.x0 - word.x1 < height


def _blocks(found: PageWords, rules: Sequence[Rule]) -> list[Block]:
    """The blocks of what stands upright, then what does not; of a page that is turned, of what stands as most does."""
    words, turned = found.words, found.turned
    if not turned:
        return _arrange(words, rules, found.width, found.height)
    counts = [list(turned.values()).count(quarters) for quarters in (1, 2, 3)]
    quarters = counts.index(max(counts)) + 1 if len(turned) > TURNED_SHARE * len(words) else 0
    kept = [number for number in range(len(words)) if turned.get(number, 0) == quarters]
    rest = [number for number in range(len(words)) if turned.get(number, 0) != quarters]
    turn = _Turn(quarters, found.width, found.height)
    upright = [PlacedWord(words[n].text, *turn.box(words[n][1:5]), words[n].gap) for n in kept]
    blocks = _arrange(upright, [Rule(*turn.box(rule)) for rule in rules], turn.width, turn.height)
    blocks = [turn.back(block, kept) for block in blocks]
    return [*blocks, TextBlock([rest])] if rest else blocks


def _arrange(words: Sequence[PlacedWord], rules: Sequence[Rule], width: float, height: float) -> list[Block]:
    if not _is_right_to_left(words):
        return arrange(words, rules, width, height)
    mirrored = [Rule(width - rule.x1, rule.y0, width - rule.x0, rule.y1) for rule in rules]
    return arrange(_mirror(words, width), mirrored, width, height)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Boxes of a page as they stand when it is turned with the clock by quarters. width, height: before that."""

    quarters: int
    page_width: float
    page_height: float

    @property
    def width(self) -> float:
        return self.page_height if self.quarters % 2 else self.page_width

    @property
    def height(self) -> float:
        return self.page_width if self.quarters % 2 else self.page_height

    def box(self, box: Sequence[float]) -> Box:
        x0, y0, x1, y1 = box
        if self.quarters == 1:
            return Box(self.page_height - y1, x0, self.page_height - y0, x1)
        if self.quarters == 2:
            return Box(self.page_width - x1, self.page_height - y1, self.page_width - x0, self.page_height - y0)
        return Box(y0, self.page_width - x1, y1, self.page_width - x0) if self.quarters == 3 else Box(x0, y0, x1, y1)

    def back(self, block: Block, numbers: Sequence[int]) -> Block:
        """A block with the numbers and boxes that its words had before."""
        if isinstance(block, TextBlock):
            return TextBlock([[numbers[word] for word in line] for line in block.lines])
        turn = _Turn(-self.quarters % 4, self.width, self.height)
        rows = [
            [Cell([[numbers[word] for word in line] for line in cell.lines], turn.box(cell.box)) for cell in row]
            for row in block.rows
        ]
        return Table(rows, turn.box(block.box), [[numbers[word] for word in line] for line in block.title])
