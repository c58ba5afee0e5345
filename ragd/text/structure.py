"""What is known of a chunk's place and origin: its attributes, computed from the document alone."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

from ragd.text.tables import Cells, clip_cells, line_feeds, read_rows
from ragd.types import Chunk

MAIL = frozenset(("message/rfc822", "application/vnd.ms-outlook", "application/mbox"))
CAPTIONS = frozenset(("text/vtt", "application/x-subrip"))
EPUB = "application/epub+zip"
HEAD_CHARS = 8000  # of a message, in which its headers are looked for
VALUE_CHARS = 1000

# Labels of a page map that name a numbered or named place.
_LABEL = re.compile(r"(page|slide|message) (\d{1,9})(?!\d)|(sheet) (.+)", re.DOTALL)
_TABLE_LINE = re.compile(r"^[ \t>]*\|[^\n]*", re.MULTILINE)
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+\u2022]|\d{1,9}[.)])[ \t]+[^\n]*(?:\n[ \t]{2,}\S[^\n]*)*", re.MULTILINE)
_FENCED = re.compile(r"^[ \t>]*(`{3,}|~{3,})[^\n]*(?:\n.*?(?:^[ \t>]*\1|\Z)|\Z)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t][^\n]*", re.MULTILINE)
_TURN = re.compile(r"^([^\W\d_][\w.'\u2019\-]*(?: [\w.'\u2019\-()]+){0,3})[ \t]?:[ \t]+\S", re.MULTILINE)
_MAIL_HEAD = re.compile(r"(?:#{1,6} ([^\n]*)\n\n)?((?:(?:From|To|Cc|Bcc|Date): [^\n]*(?:\n|\Z))+)?")
_MAIL_LINE = re.compile(r"(From|To|Date): ([^\n]*)")
_MAIL_KEYS = {"From": "sender", "To": "recipient"}

Entry = tuple[int, int, str]


class Structure:
    """The structure of one document.

    page_map: (start, end, label), ascending, in characters of the text. cell_map: `ragd.text.tables.Cells`, ascending.
    is_transcript: the text is what people say in turns; without it that is seen from the text and its media type.
    """

    def __init__(
        self,
        text: str = "",
        *,
        page_map: Sequence[Entry] = (),
        cell_map: Sequence[Cells] = (),
        is_transcript: bool = False,
        media_type: str = "",
        file_metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.text, self.page_map, self.cell_map = text, page_map, cell_map
        self.is_transcript, self.media_type = is_transcript, media_type
        self._page_starts = [start for start, _, _ in page_map]
        times = {name: _moment((file_metadata or {}).get(name)) for name in ("created_at", "modified_at")}
        self._of_file: dict[str, str] = {"media_type": media_type} if media_type else {}
        self._of_file |= {f"file_{name}": moment for name, moment in times.items() if moment}

    def attributes(self, chunk: Chunk) -> dict[str, Any]:
        """Of a chunk of this document, without what is unknown; docs/chunking.md says what each one means.

        section and block are what chunk() found. page, slide, sheet, message and chapter are those of the chunk's first
        character; page_end and row_end belong to its last one; pages are those that begin inside of it.
        speaker: who says the most characters of it, of several the one who speaks first.
        """
        found: dict[str, Any] = dict(chunk.attributes)
        if headings := chunk.metadata.get("headings"):
            found["section"] = list(headings)
        found |= self._of_file
        found |= self._place(chunk.start, chunk.end)
        found |= self._rows(chunk.start, chunk.end)
        if speaker := self._speaker(chunk.start, chunk.end):
            found["speaker"] = speaker
        if self.media_type in MAIL:
            found |= self._mail(chunk.start)
        return found

    def _place(self, start: int, end: int) -> dict[str, Any]:
        entry = self._entry(start)
        if entry is None or start >= entry[1]:
            return {}
        label = _LABEL.fullmatch(entry[2]) or _LABEL.match(entry[2])
        if label is None:
            return {"chapter": entry[2]} if self.media_type == EPUB and entry[2] else {}
        if label[3]:
            return {"sheet": label[4]}
        place: dict[str, Any] = {label[1]: int(label[2])}
        if label[1] == "page":
            last = self._entry(end - 1)
            final = _LABEL.match(last[2]) if last is not None else None
            place["page_end"] = int(final[2]) if final is not None and final[1] == "page" else place["page"]
            first, stop = (bisect_right(self._page_starts, at) for at in (start, end - 1))
            if first < stop:
                place["pages"] = [[begin, label] for begin, _, label in self.page_map[first:stop]]
        return place

    def _entry(self, position: int) -> Entry | None:
        index = bisect_right(self._page_starts, position) - 1
        return self.page_map[index] if index >= 0 else None

    def _rows(self, start: int, end: int) -> dict[str, Any]:
        if not self.cell_map:
            return {}
        clipped = clip_cells(self.cell_map, self._line_feeds, start, end)
        if not clipped:
            return {}
        sheet = clipped[0][2]
        runs = [read_rows(entry[4]) for entry in clipped if entry[2] == sheet]
        rows = {"row": runs[0][0][0], "row_end": runs[-1][-1][1], "cells": [list(entry) for entry in clipped]}
        return rows | ({"sheet": sheet} if sheet else {})

    @cached_property
    def _line_feeds(self) -> Sequence[int]:
        return line_feeds(self.text)

    @cached_property
    def _turns(self) -> list[tuple[int, str]]:
        """(start, speaker) of each turn, ascending; none where the text is no transcript.

        Of captions every "NAME: " at the start of a line is a turn. Elsewhere names count that speak twice or more, and
        a text that nobody calls a transcript needs two of them, and a turn in at least half of its lines.
        """
        captions = self.media_type in CAPTIONS
        if not (captions or self.is_transcript or self.media_type in ("", "text/plain")):
            return []
        turns = [(match.start(), match[1]) for match in _TURN.finditer(self.text)]
        if captions:
            return turns
        counts = Counter(name for _, name in turns)
        turns = [(at, name) for at, name in turns if counts[name] > 1]
        if self.is_transcript:
            return turns
        lines = sum(1 for line in self.text.split("\n") if line.strip()) if turns else 0
        return turns if len({name for _, name in turns}) > 1 and 2 * len(turns) >= lines else []

    def _speaker(self, start: int, end: int) -> str:
        turns = self._turns
        first = max(0, bisect_right(turns, start, key=lambda turn: turn[0]) - 1)
        said: dict[str, int] = {}
        for (at, name), (until, _) in pairwise([*turns[first : first + end - start], (len(self.text), "")]):
            if at >= end:
                break
            if until > start:
                said[name] = said.get(name, 0) + min(end, until) - max(start, at)
        return max(said, key=lambda name: said[name]) if said else ""

    def _mail(self, start: int) -> dict[str, Any]:
        """The headers of the message that holds a position: in a mailbox by the page map, else the document's."""
        entry = self._entry(start)
        first = entry[0] if entry is not None and start < entry[1] else 0
        head = _MAIL_HEAD.match(self.text, first, first + HEAD_CHARS)
        if head is None:
            return {}
        found = {"subject": head[1].strip()[:VALUE_CHARS]} if head[1] else {}
        for name, value in _MAIL_LINE.findall(head[2] or ""):
            if name in _MAIL_KEYS:
                found.setdefault(_MAIL_KEYS[name], value.strip()[:VALUE_CHARS])
            elif moment := _moment(value):
                found.setdefault("sent_at", moment)
        return found


def block_kind(content: str, solid: int = 0) -> str:
    """What more than half of the characters of a chunk are, headings and white space not counted: "table", "list",
    "code" or, where none of them is, "text". solid: how many of them lie in code fences and raw HTML."""
    has_rows, has_items = "|" in content, any(mark in content for mark in ("- ", "* ", "+ ", ". ", ") ", "\u2022 "))
    if not (solid or has_rows or has_items or "```" in content or "~~~" in content):
        return "text"
    headings = sum(len(match[0]) for match in _HEADING.finditer(content)) if "#" in content and not solid else 0
    half = (len(content) - headings) / 2
    if not solid and ("```" in content or "~~~" in content):  # the outline of a short text is not read to its end
        solid = sum(match.end() - match.start() for match in _FENCED.finditer(content))
    if solid > half:
        return "code"
    if has_rows and sum(match.end() - match.start() for match in _TABLE_LINE.finditer(content)) > half:
        return "table"
    if has_items and sum(match.end() - match.start() for match in _LIST_ITEM.finditer(content)) > half:
        return "list"
    return "text"


def _moment(value: object) -> str:
    """An ISO 8601 date or time as it is, one of a mail's header as ISO; "" for anything else."""
    if not isinstance(value, str) or not value.strip():
        return ""
    text = value.strip()
    try:
        datetime.fromisoformat(text)
    except ValueError:
        try:
            return parsedate_to_datetime(text).isoformat()
        except (ValueError, TypeError, IndexError, OverflowError):
            return ""
    return text
