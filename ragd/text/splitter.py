"""Where a text that is too long may be cut: how much fits, which boundary is best, what the next piece repeats."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import unicodedata2

from ragd.text.blocks import Outline, skip_space
from ragd.text.sentences import last_sentence_end, sentence_ends
from ragd.text.windows import Words, is_inside_run
from ragd.types import ChunkPolicy

Span = tuple[int, int]

_BLOCK_START = re.compile(
    r"\n(?:[ \t]*\n|(?=[ \t]*+(?:[-*+•]|\d{1,9}[.)])[ \t])|(?<!\|\n)(?=[ \t]*+\|))"
)  # behind a blank line; a list item; the first row of a table
_LOOK_AHEAD_CHARS = 16
_GRAPHEME_CHARS_MAX = 64
_JOINERS = frozenset("\u200d\u034f\u17d2\u1039")  # the last two put the next consonant below the one before
_NEVER_FIRST = frozenset("。、，．！？：；）」』》〉】〕”’ーゝゞ々ぁぃぅぇぉっゃゅょァィゥェォッャュョๆຯໆฯ។၊။")
_NEVER_LAST = frozenset("（「『《〈【〔“‘")
_SENTENCE_CHARS_GUESS = 250


class Splitter:
    """Cuts spans of one text under one policy. edges are positions, ascending, where a cut is welcome: segment starts.

    Every piece begins and ends with a character that is not white space, has at most target_tokens words and
    max_chars characters, starts behind the start of the piece before it and ends behind that one's end.
    """

    def __init__(self, text: str, policy: ChunkPolicy, edges: Sequence[int] = ()) -> None:
        self.text = text
        self.policy = policy
        self.edges = edges
        self.outline = Outline(text)
        self.words = Words(text)
        self.sure_chars = min(policy.max_chars, 2 * policy.target_tokens - 1)  # of so many, any text fits

    def solid_chars(self, start: int, end: int) -> int:
        """How many characters of the span lie in code fences and raw HTML, as far as the outline was read."""
        starts, ends = self.outline.solid_starts, self.outline.solid_ends
        first = bisect_right(ends, start) if starts else 0
        return sum(
            min(end, ends[at]) - max(start, starts[at])
            for at in range(first, bisect_left(starts, end) if starts else 0)
        )

    def fits(self, start: int, end: int) -> bool:
        """Whether the span, which begins with a word's character, is within the policy; white space at its end is not
        counted."""
        if end - start <= self.sure_chars:
            return True
        if end - start > self.policy.max_chars:
            end = self.trim_end(start, end)
            if end - start > self.policy.max_chars:
                return False
        return self.words.count(start, end) <= self.policy.target_tokens

    def fits_whole(self, start: int) -> bool:
        """fits(start, the end of the text). Counting white space is faster than finding the words of a short text."""
        text, size = self.text, len(self.text)
        if size - start <= self.sure_chars:
            return True
        if size - start <= self.policy.max_chars and text.isascii():
            spaces = text.count(" ", start) + text.count("\n", start) + text.count("\t", start)
            if spaces < self.policy.target_tokens:
                return True
        return self.fits(start, size)

    def split_words(self, start: int, end: int) -> Iterator[Span]:
        """Windows of target_tokens words over a trimmed span, the last overlap_tokens of each in the next one too."""
        position = covered = start
        while True:
            limit, words = self._limit(position, end)
            if limit == end:
                break
            cut, at_word = self._word_cut(covered, limit)
            if cut <= covered:
                position = covered
                continue
            if self.edges and (edge := self._last_edge(max(covered, (position + cut) // 2), cut)):
                cut, words = edge, self.words.count(position, edge)
            yield position, cut
            covered = skip_space(self.text, cut, end)
            position = self._word_overlap(position, cut, words, covered) if at_word else covered
        yield position, end

    def split_section(self, start: int, body: int, end: int) -> Iterator[Span]:
        """Pieces of a trimmed span whose heading ends at body: whole blocks where they fit, else sentences or lines,
        else words. The pieces of one divided block overlap by whole sentences or lines; by words where it has none."""
        position = covered = start
        body = skip_space(self.text, body, end)
        while True:
            limit, words = self._limit(position, end)
            if limit == end:
                break
            cut, overlap_from = self._best_cut(body, position, covered, limit, words)
            if cut <= covered:
                position = covered
                continue
            yield position, cut
            covered = skip_space(self.text, cut, end)
            position = covered if overlap_from == cut else skip_space(self.text, overlap_from, end)
        yield position, end

    def _limit(self, position: int, end: int) -> tuple[int, int]:
        """(the first position that a piece from `position` cannot reach: a word's start, inside a word, or `end`;
        the words before it, a divided one included)."""
        hard = min(end, position + self.policy.max_chars)
        limit, words = self.words.limit(position, hard, self.policy.target_tokens)
        return (skip_space(self.text, hard, end) if limit == hard else limit), words

    def _best_cut(self, body: int, position: int, covered: int, limit: int, words: int) -> tuple[int, int]:
        """(cut, where the next piece starts). A cut that is not behind `covered` asks for a start without overlap."""
        floor = body if covered < body < limit else covered  # a heading keeps some of its text
        if self.edges and (cut := self._last_edge(floor, limit)):
            return cut, cut
        cut, in_solid = self._block_cut(floor, limit)
        if cut > floor:
            return cut, cut
        by_lines = in_solid or self._is_table_row(floor, limit)
        cut = (0 if by_lines else self._last_sentence_end(floor, limit)) or self.text.rfind("\n", floor, limit) + 1
        if cut > floor:
            return cut, self._overlap_start(position, cut, words, by_lines)
        if limit <= covered or (by_lines and position < covered):
            return covered, covered
        cut, between_words = self._word_cut(floor, limit)
        if by_lines or not between_words:
            return cut, cut
        return cut, self._word_overlap(position, cut, words, cut)

    def _block_cut(self, floor: int, limit: int) -> tuple[int, bool]:
        """(the last block boundary behind floor and up to limit, or floor; whether limit lies in a solid block)."""
        solid = bisect_right(self.outline.solid_starts, limit) - 1
        base = floor
        if solid >= 0:
            if self.outline.solid_ends[solid] > limit:
                return max(floor, self.outline.solid_starts[solid]), True
            base = max(floor, self.outline.solid_ends[solid])
        text, line = self.text, limit
        while (line := text.rfind("\n", base, line)) >= 0:
            if (match := _BLOCK_START.match(text, line, limit + _LOOK_AHEAD_CHARS)) and match.end() <= limit:
                return match.end(), False
        return base, False

    def _is_table_row(self, floor: int, limit: int) -> bool:
        line = max(floor, self.text.rfind("\n", floor, limit) + 1)
        return self.text.startswith("|", skip_space(self.text, line, limit))

    def _last_sentence_end(self, floor: int, limit: int) -> int:
        """The last one behind floor, or 0. Looked for ever further back: it is nearly always close."""
        back = _SENTENCE_CHARS_GUESS
        while True:
            start = max(floor, limit - back)
            last = last_sentence_end(self.text, start, limit)
            if last > floor or start == floor:
                return last if last > floor else 0
            back *= 4

    def _overlap_start(self, position: int, cut: int, words: int, by_lines: bool) -> int:
        """Start of the first whole sentence or line among the last words of a piece; `cut` when there is none."""
        floor = self._overlap_floor(position, cut, words)
        if floor == cut:
            return cut
        if by_lines:
            return (self.text.find("\n", floor, cut) + 1) or cut
        ends = sentence_ends(self.text, max(position, floor - _LOOK_AHEAD_CHARS), cut)
        return next((end for end in ends if end >= floor), cut)

    def _word_overlap(self, position: int, cut: int, words: int, covered: int) -> int:
        """Start of the words that the next window repeats, at an edge where there is one."""
        floor = self._overlap_floor(position, cut, words)
        if floor == cut:
            return covered
        if self.words.divides_runs and is_inside_run(self.text, floor):
            floor = self._grapheme_cut(position, floor)
        edge = bisect_left(self.edges, floor)
        result = self.edges[edge] if edge < len(self.edges) and self.edges[edge] < cut else floor
        return skip_space(self.text, result, covered)

    def _overlap_floor(self, position: int, cut: int, words: int) -> int:
        """Behind this the piece has at most its share of overlap words: overlap_tokens of a piece of target_tokens."""
        repeated = words * self.policy.overlap_tokens // self.policy.target_tokens
        first = self.words.last(position, cut, repeated) if repeated else None
        return cut if first is None else self.trim_end(position, first)

    def _word_cut(self, floor: int, limit: int) -> tuple[int, bool]:
        """(the last position behind floor and up to limit that divides no word, True), or (a cut in a word, False)."""
        if self.text[limit].isspace() or self.text[limit - 1].isspace():
            return limit, True
        if self.words.divides_runs and is_inside_run(self.text, limit):
            return self._run_cut(floor, limit), True
        parts = self.text[floor:limit].rsplit(None, 1)
        if len(parts) == 2:
            return floor + len(parts[0]), True
        return self._grapheme_cut(floor, limit), False

    def _run_cut(self, floor: int, limit: int) -> int:
        """In text without spaces: behind the last space of the last quarter, else no closing mark begins the next piece
        and no opening one ends this one."""
        space = self.text.rfind(" ", limit - (limit - floor) // 4, limit)
        if space > floor:
            return space
        cut = self._grapheme_cut(floor, limit)
        while (
            limit - cut < _GRAPHEME_CHARS_MAX
            and cut - 1 > floor
            and (self.text[cut] in _NEVER_FIRST or self.text[cut - 1] in _NEVER_LAST)
        ):
            cut = self._grapheme_cut(floor, cut - 1)
        return cut

    def _grapheme_cut(self, floor: int, limit: int) -> int:
        for cut in range(limit, max(floor, limit - _GRAPHEME_CHARS_MAX), -1):
            if not divides_grapheme(self.text, cut):
                return cut
        return limit

    def _last_edge(self, floor: int, limit: int) -> int:
        """The last edge behind floor and up to limit, or 0."""
        index = bisect_right(self.edges, limit) - 1
        return self.edges[index] if index >= 0 and self.edges[index] > floor else 0

    def trim_end(self, start: int, end: int) -> int:
        """`end` without the white space before it; the span must hold something else."""
        while True:
            tail = self.text[max(start, end - 256) : end]
            if cleaned := tail.rstrip():
                return end - len(tail) + len(cleaned)
            end -= len(tail)


def divides_grapheme(text: str, position: int) -> bool:
    """Whether a cut there parts a base from its marks, an emoji from its joiner or modifier, or a flag in half."""
    before, after = text[position - 1], text[position]
    if after in _JOINERS or before in _JOINERS or unicodedata2.category(after).startswith("M"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if _is_regional(before) and _is_regional(after):
        flags = text[max(0, position - _GRAPHEME_CHARS_MAX) : position]
        return (len(flags) - len(flags.rstrip(_REGIONAL))) % 2 == 1
    return False


_REGIONAL = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def _is_regional(char: str) -> bool:
    return char in _REGIONAL
