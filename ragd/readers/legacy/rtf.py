"""RTF before Tika reads it: notes and comments stand behind the text, and deleted text is taken out.

Tika writes a note into the sentence that refers to it, and the deleted text of tracked changes like any other.
"""

from __future__ import annotations

import re

TELLING = re.compile(rb"\\(?:deleted|footnote|annotation)(?![a-z])")
TOKEN = re.compile(rb"\\(?P<word>[a-z]+)(?P<number>-?\d{1,9})? ?|\\.|[{}]", re.DOTALL)
NOTE = re.compile(rb"\{(?:\\\*)?\s*\\(?:(?P<footnote>footnote)|annotation)(?![a-z]) ?(?P<end>\s*\\ftnalt(?![a-z]) ?)?")
# Who wrote a comment, when, and the place that it is about.
COMMENT_DATA = re.compile(rb"\{\\\*\\(?:atn(?P<author>author)?|atrf)[a-z]* ?(?P<text>[^{}]*)\}")


def set_notes_apart(data: bytes) -> bytes:
    """The RTF with marks in place of its notes, which follow the text as comments do, and without deleted text."""
    return _Pass(data).rewrite() if TELLING.search(data) else data


class _Pass:
    """One pass over the words and braces of an RTF. What is kept goes to the text, or to the note that is open."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._kept: list[list[bytes]] = [[]]
        self._open: list[tuple[int, str, bytes]] = []  # notes: their depth, their kind, what stands before them
        self._notes: dict[str, list[bytes]] = {"footnote": [], "endnote": [], "comment": []}
        self._author = b""
        self._depth = 0
        self._deleted_depth = 0  # of the group in which text is deleted; 0 for none

    def rewrite(self) -> bytes:
        at = 0
        while match := TOKEN.search(self._data, at):
            self._keep(self._data[at : match.start()])
            at = self._read(match)
            if not self._depth:
                break
        else:
            self._keep(self._data[at:])
        while self._open:
            self._end_note()
        notes = b"".join(note for kind in self._notes.values() for note in kind)
        end = b"}" if self._kept[0][-1:] == [b"}"] and not self._depth else b""
        return b"".join([*self._kept[0][: -1 if end else None], rb"\pard\plain\par ", notes, end])

    def _keep(self, piece: bytes) -> None:
        if not self._deleted_depth:
            self._kept[-1].append(piece)

    def _read(self, match: re.Match[bytes]) -> int:
        """Read one token; returns where the next one may begin."""
        token, word = match.group(), match["word"]
        if token == b"{":
            return self._begin_group(match.start())
        if token == b"}":
            self._end_group()
            return match.end()
        if word == b"bin":
            end = match.end() + max(0, int(match["number"] or 0))
            self._keep(self._data[match.start() : end])
            return end
        if self._deleted_depth == self._depth and (word == b"plain" or token.rstrip() == rb"\deleted0"):
            self._deleted_depth = 0
        elif word == b"deleted" and not self._deleted_depth and match["number"] != b"0":
            self._deleted_depth = self._depth
        self._keep(token)
        return match.end()

    def _begin_group(self, start: int) -> int:
        if comment := COMMENT_DATA.match(self._data, start):
            self._author = comment["text"] if comment["author"] else self._author
            return comment.end()
        self._depth += 1
        note = None if self._deleted_depth else NOTE.match(self._data, start)
        if note is None:
            self._keep(b"{")
            return start + 1
        kind = ("endnote" if note["end"] else "footnote") if note["footnote"] else "comment"
        if kind == "comment":
            head = b"Comment by %s: " % self._author if self._author else b"Comment: "
            self._author = b""
        else:
            opened = sum(each == kind for _, each, _ in self._open)
            mark = b"[^%s%d]" % (b"e" if note["end"] else b"", len(self._notes[kind]) + opened + 1)
            self._keep(mark)
            head = mark + b": "
        self._open.append((self._depth, kind, head))
        self._kept.append([])
        return note.end()

    def _end_group(self) -> None:
        if self._open and self._open[-1][0] == self._depth:
            self._end_note()
        else:
            if self._deleted_depth == self._depth:
                self._deleted_depth = 0
            self._keep(b"}")
        self._depth -= 1

    def _end_note(self) -> None:
        depth, kind, head = self._open.pop()
        if self._deleted_depth >= depth:
            self._deleted_depth = 0
        self._notes[kind].append(b"".join([rb"{\pard\plain ", head, *self._kept.pop(), rb"\par}"]))
