"""The structure of Markdown and plain text, found line by line: sections under headings, and blocks that hide markup.

Only what decides where a chunk may begin is read; everything is an offset into the text, nothing is copied.
"""

from __future__ import annotations

import html
import re
from array import array
from collections.abc import Iterator
from functools import lru_cache

from ragd.text.tables import line_end

TITLE_CHARS_MAX = 200
RAW_TITLE_CHARS_MAX = 800
FENCE_MARKS_MAX = 32  # longer ones count as this long, which bounds how often an end is searched in vain

# What a line can open. One test of its first character, then the alternative that the character belongs to: that order,
# the look-behinds and the possessive forms double the speed.
_LINE = r"""[ \t>]*+[\#`~=\-<*+\d](?:
    (?<=\#)(\#{0,5})(?:[ \t]++([^\n]*+)|(?=\n|\Z))
  | (?<=[`~])(``++(?=[^`\n]*+(?:\n|\Z))|~~++)
  | (?<=[=\-])(=++|--++)[ \t]*+(?=\n|\Z)
  | (?<=<)(!--|\?|!\[CDATA\[|(?i:pre|script|style|textarea)(?=[ \t>\n]))
  | (?<=[\-*+\d])(?:(?<!\d)|\d{0,8}[.)])[ \t]++([`~])(?:(?<=`)``++(?=[^`\n]*+(?:\n|\Z))|(?<=~)~~++)
)"""
_MARKS, _TITLE, _FENCE, _UNDERLINE, _HTML, _LIST_FENCE = range(1, 7)
_HEADINGS = (_MARKS, _TITLE)
_INDENT = re.compile(r"\n? {0,3}")
_FIRST_LINE = re.compile(_LINE, re.VERBOSE)
_LATER_LINE = re.compile(r"\n" + _LINE, re.VERBOSE)
_ASCII_LATER_LINE = re.compile(r"\n" + _LINE, re.VERBOSE | re.ASCII)  # the same for a text of ASCII, but faster
_FENCE_END = {
    "`": re.compile(r"\n[ \t>]*+(`{3,}+)[ \t]*+(?=\n|\Z)"),
    "~": re.compile(r"\n[ \t>]*+(~{3,}+)[ \t]*+(?=\n|\Z)"),
}
_HTML_END = {
    "!--": re.compile("-->"),
    "?": re.compile(r"\?>"),
    "![CDATA[": re.compile(r"\]\]>"),
    **{tag: re.compile(f"(?i:</{tag}>)") for tag in ("pre", "script", "style", "textarea")},
}
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?=[\w\"'][^\n:]*:)")
_FRONT_MATTER_END = re.compile(r"\n(?:---|\.\.\.)[ \t]*(?=\n|\Z)")
_NOT_A_TITLE = re.compile(r"\s*(?:\n|\Z)| {4}|[ ]*\t|[ ]{0,3}(?:[>|]|(?:[-*+]|\d{1,9}[.)])[ \t])")
# A title that may open with an anchor and be one piece of code: most are, and this is faster than _INLINE_MARKUP.
_SIMPLE_TITLE = re.compile(r"(?:<a\b[^<>]*></a>)?[ \t]*+(?:([^`\[<\\*&#]+)|`([^`\[<\\*&#]+)`)")
_MARKUP = re.compile(r"[`\[<\\*&#]")
_INLINE_MARKUP = re.compile(
    r"`+([^`]+)`+"
    r"|!?\[([^\[\]]*)\](?:\([^()\s]*\)|\[[^\[\]]*\])"
    r"|</?(?:a|b|br|code|em|i|img|kbd|span|strong|sub|sup)\b[^<>]*>()"
    r"|\\([!-/:-@\[-`{-~])"
    r"|\*\*+()"
    r"|(?:^|[ \t])#+[ \t]*$()"
)
_NONSPACE = re.compile(r"\S")


# (start, body, end, level, path) of the text under one heading, up to the next one.
# start: its first character; leading white space of the text belongs to no section. body: the end of its last heading
# line. level: of its first heading, 1 to 6; 0 before any heading. path: the titles in force at body, outermost first,
# as they are written: clean_path() makes them readable.
Section = tuple[int, int, int, int, tuple[str, ...]]


class Outline:
    """The sections of a text and its solid blocks: code fences and raw HTML, in which nothing is markup.

    solid_starts and solid_ends hold the blocks that find_sections() has come past; they grow as it goes.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.solid_starts = array("q")
        self.solid_ends = array("q")
        self._unclosed: dict[str, int] = {}  # fence character or HTML opener: no end from here on (for that length)

    def find_sections(self) -> Iterator[Section]:
        """The sections in order; up to white space they cover the text. None of blank text.

        Headings with nothing between them, each below the one before, open one section; so does front matter.
        """
        text = self.text
        position = front_matter_end(text)  # end of the last line that was read as structure
        next_mark = (_ASCII_LATER_LINE if text.isascii() else _LATER_LINE).search
        mark = next_mark(text, position) if position else _FIRST_LINE.match(text) or next_mark(text)
        start, body, level = skip_space(text, 0), position, 0
        path: tuple[str, ...] = ()
        paths = [path] * 7  # per level up to the last heading's: the titles in force under a heading of that level
        deepest = 0  # the last heading's level
        while mark:
            kind = mark.lastindex
            if kind == _FENCE:
                position = self._skip_fence(mark, _FENCE)
                mark = next_mark(text, position)
                continue
            if kind in _HEADINGS and (text.startswith("\n#", mark.start()) or self._is_outermost(mark, _MARKS)):
                first, end = mark.span(_MARKS)
                heading_start, heading_level = first - 1, end - first + 1
                title = mark[_TITLE][:RAW_TITLE_CHARS_MAX] if kind == _TITLE else ""
            elif kind == _UNDERLINE and (underlined := self._read_underlined(mark, position)):
                heading_start, heading_level, title = underlined
            else:
                position = self._skip_solid(mark)
                mark = next_mark(text, position)
                continue
            if heading_level <= deepest or not _is_blank(text, body if body > start else start, heading_start):
                yield start, body, heading_start, level, path
                start, level = heading_start, heading_level
            elif not level:
                level = heading_level
            if heading_level > deepest + 1:
                paths[deepest + 1 : heading_level] = [path] * (heading_level - deepest - 1)
            path = paths[heading_level] = (*paths[heading_level - 1], title)
            deepest = heading_level
            body = position = mark.end()
            mark = next_mark(text, position)
        if start < len(text):
            yield start, body, len(text), level, path

    def _read_underlined(self, mark: re.Match[str], position: int) -> tuple[int, int, str] | None:
        """(start, level, title) when the line above is one. It must stand alone: the last of several lines is text."""
        if not self._is_outermost(mark, _UNDERLINE):
            return None
        title_end = mark.start()
        line = self.text.rfind("\n", position, title_end) + 1
        if line < position or not 0 < title_end - line <= TITLE_CHARS_MAX or _NOT_A_TITLE.match(self.text, line):
            return None
        if line - 1 > position:
            above = self.text.rfind("\n", position, line - 1) + 1
            if not _is_blank(self.text, above, line - 1):
                return None
        level = 1 if mark[_UNDERLINE][0] == "=" else 2
        return skip_space(self.text, line), level, self.text[line:title_end]

    def _is_outermost(self, mark: re.Match[str], group: int) -> bool:
        """Whether the line begins with what the group found, after three spaces at most: not in a list or quotation."""
        line, first = mark.start(), mark.start(group) - 1
        return first - line <= 1 or _INDENT.fullmatch(self.text, line, first) is not None

    def _skip_solid(self, mark: re.Match[str]) -> int:
        """Where to read on behind a line that is no heading: behind the solid block that it opens, if it opens one."""
        kind = mark.lastindex
        if kind == _LIST_FENCE:
            return self._skip_fence(mark, kind)
        end = self._html_end(mark) if kind == _HTML else None
        return line_end(self.text, mark.end()) if end is None else self._add_solid(mark, end)

    def _skip_fence(self, mark: re.Match[str], kind: int) -> int:
        """Behind the line that closes the fence. One that nothing closes runs to the end of the text, as CommonMark
        says, unless it stands inside a list or quotation: there it is a line like any other."""
        text, after = self.text, mark.end()
        start = mark.start(kind) - (kind == _FENCE)
        character, length = text[start], min(after - start, FENCE_MARKS_MAX)
        if not self._unclosed or length < self._unclosed.get(character, length + 1):
            find = _FENCE_END[character].search
            closing = find(text, after)
            while closing and len(closing[1]) < length:
                closing = find(text, closing.end())
            if closing:
                return self._add_solid(mark, closing.end())
            self._unclosed[character] = length
        if kind == _FENCE and self._is_outermost(mark, _FENCE):
            return self._add_solid(mark, len(text))
        return line_end(text, after)

    def _add_solid(self, mark: re.Match[str], end: int) -> int:
        line = mark.start()
        self.solid_starts.append(line + 1 if self.text[line] == "\n" else line)
        self.solid_ends.append(end)
        return end

    def _html_end(self, mark: re.Match[str]) -> int | None:
        kind = mark[_HTML]
        kind = kind if kind in _HTML_END else kind.lower()
        closing = None if kind in self._unclosed else _HTML_END[kind].search(self.text, mark.end())
        if closing is None:
            self._unclosed[kind] = 0
            return None
        return line_end(self.text, closing.end())


def clean_path(path: tuple[str, ...]) -> list[str]:
    """The titles without inline markup, each on one line and at most 200 characters; empty ones left out."""
    return [title for title in map(_clean_title, path) if title]


@lru_cache(maxsize=4096)
def _clean_title(raw: str) -> str:
    if simple := _SIMPLE_TITLE.fullmatch(raw):
        raw = simple[1] or simple[2]
    elif _MARKUP.search(raw):
        raw = html.unescape(_INLINE_MARKUP.sub(lambda match: match[match.lastindex or 0], raw))
    return " ".join(raw.split())[:TITLE_CHARS_MAX].strip()


def front_matter_end(text: str) -> int:
    """The end of the last line of the YAML block that the text opens with; 0 without one."""
    opening = _FRONT_MATTER.match(text) if text.startswith("---") else None
    closing = _FRONT_MATTER_END.search(text, opening.end() - 1) if opening else None
    return closing.end() if closing else 0


def skip_space(text: str, start: int, end: int | None = None) -> int:
    """The first position from start on that holds no white space, or end."""
    end = len(text) if end is None else end
    if start < end and not text[start].isspace():
        return start
    match = _NONSPACE.search(text, start, end)
    return match.start() if match else end


def _is_blank(text: str, start: int, end: int) -> bool:
    near = text[start : end if end < start + 64 else start + 64]
    return not near or (near.isspace() and (len(near) < 64 or skip_space(text, start, end) == end))
