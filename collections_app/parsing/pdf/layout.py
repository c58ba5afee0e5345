"""A PDF page's text in reading order with its tables, and the place of each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pypdfium2 as pdfium

from collections_app.parsing.arrangement.arrange import arrange
from collections_app.parsing.arrangement.rendering import Rendered, is_whole, locate, render
from collections_app.parsing.arrangement.shapes import Block, Box, Cell, PlacedWord, Rule, Table, TextBlock
from collections_app.parsing.pdf.glyphs import PageWords, Shown, read_words
from collections_app.parsing.pdf.rules import read_rules
from collections_app.parsing.types import PageLayout, Word

RIGHT_TO_LEFT = ("\u0590", "\u08ff")
FEW_WORDS = 3  # that make no table
TURNED_SHARE = 0.5  # of the words: more of them turned, and the page is read as they stand


def lay_out(page: pdfium.PdfPage, text_page: pdfium.PdfTextPage, number: int) -> tuple[str, PageLayout]:
    """The page's text as it is read, and where its words stand, by their offsets in it.

    Where the order cannot be told, or a word would be lost, pdfium's order stays.
    """
    shown = Shown(page)
    found = read_words(text_page, shown)
    rendered = _render(found, read_rules(page, shown) if len(found.words) > FEW_WORDS else [])
    placed = zip(rendered.places, found.words, strict=True)
    words = sorted((*place, word.x0, word.y0, word.x1, word.y1) for place, word in placed if place is not None)
    layout = PageLayout(number, shown.width, shown.height, tuple(Word(*values) for values in words))
    return rendered.text, layout


def _render(found: PageWords, rules: Sequence[Rule]) -> Rendered:
    words = found.words
    order = range(len(words))
    blocks: list[Block] = [] if _is_right_to_left(words) else _blocks(found, rules)
    if not is_whole(blocks, words):
        blocks = [TextBlock([list(order)])]
    is_plain = len(blocks) == 1 and isinstance(blocks[0], TextBlock) and list(blocks[0].words()) == list(order)
    if is_plain and not found.is_cut:
        return Rendered(found.text, locate(found.text, words))
    return render(blocks, words)


def _is_right_to_left(words: Sequence[PlacedWord]) -> bool:
    first, last = RIGHT_TO_LEFT
    turned = sum(1 for word in words if not word.text.isascii() and any(first <= sign <= last for sign in word.text))
    return 3 * turned > len(words)


def _blocks(found: PageWords, rules: Sequence[Rule]) -> list[Block]:
    """The blocks of what stands upright, then what does not; of a page that is turned, of what stands as most does."""
    words, turned = found.words, found.turned
    if not turned:
        return arrange(words, rules, found.width, found.height)
    counts = [list(turned.values()).count(quarters) for quarters in (1, 2, 3)]
    quarters = counts.index(max(counts)) + 1 if len(turned) > TURNED_SHARE * len(words) else 0
    kept = [number for number in range(len(words)) if turned.get(number, 0) == quarters]
    rest = [number for number in range(len(words)) if turned.get(number, 0) != quarters]
    turn = _Turn(quarters, found.width, found.height)
    upright = [PlacedWord(words[n].text, *turn.box(words[n][1:5]), words[n].gap) for n in kept]
    blocks = arrange(upright, [Rule(*turn.box(rule)) for rule in rules], turn.width, turn.height)
    blocks = [turn.back(block, kept) for block in blocks]
    return [*blocks, TextBlock([rest])] if rest else blocks


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
