"""RTF: text with its font's charset, headings, list markers, tables, notes; pictures and objects dropped."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from collections_app.parsing.assembly import Assembly
from collections_app.parsing.legacy.rtfflow import Flow
from collections_app.parsing.legacy.rtfwords import (
    CHARSETS,
    DROPPED,
    HEADING_STYLE,
    INNER_VERSIONS,
    KEPT_STARRED,
    NOTES,
    PAGES,
    SPECIAL_CHARACTERS,
    SYMBOL_CHARSET,
    WRAPPERS,
)
from collections_app.parsing.text.charsets import known_charset
from collections_app.parsing.text.markup import join_blocks, squeeze
from collections_app.parsing.types import ParseError, Source

TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?"
    r"|\\'(?P<hex>[0-9a-fA-F]{2})"
    r"|\\(?P<symbol>[^a-zA-Z'])"
    r"|(?P<brace>[{}])"
    r"|(?P<text>[^\\{}\r\n]+)"
    r"|[\r\n]+|\\'?",
    re.DOTALL,
)
BODY_WORD = re.compile(r"\\(?:pard?|cell|u-?\d+)(?![a-z])")
GROUP_LIMIT = 20_000
TITLE_CHARS = 300


@dataclass(frozen=True, slots=True)
class RichText:
    """What an RTF document says."""

    text: str
    title: str = ""
    author: str = ""


def read(source: Source, assembly: Assembly) -> None:
    """Add the document. Anything that starts like RTF is read as far as it goes."""
    rich = render_rtf(source.data)
    assembly.describe(author=rich.author)
    assembly.add(rich.text)
    assembly.entitle(rich.title)


def render_rtf(data: bytes) -> RichText:
    """The document as Markdown. Raises ParseError "bomb" for absurd nesting only."""
    reading = _Reading()
    reading.run(data.decode("latin-1"))
    return RichText(join_blocks(reading.finish()), squeeze(reading.info["title"]), squeeze(reading.info["author"]))


@dataclass(frozen=True, slots=True)
class Group:
    """State that a closing brace restores. target: where text goes ("" the body, None nowhere, or a destination)."""

    target: str | None = ""
    fallback_chars: int = 1
    charset: str = ""
    hidden: bool = False
    is_symbol: bool = False


class _Reading:
    def __init__(self) -> None:
        self.info = {"title": "", "author": ""}
        self._groups = [Group()]
        self._flows = [Flow()]
        self._note_depths: list[tuple[int, str]] = []
        self._notes: list[str] = []
        self._headers: list[str] = []
        self._bytes = bytearray()
        self._charset = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font = -1
        self._default_font = 0
        self._headings: dict[int, int] = {}
        self._style = -1
        self._style_name = ""
        self._marker: list[str] = []
        self._to_skip = 0
        self._starred = False
        self._fresh = False
        self._in_table = False
        self._level = 0
        self._list_level = 0

    def run(self, text: str) -> None:
        place = 0
        while match := TOKEN.match(text, place):
            place = match.end()
            kind = match.lastgroup
            if kind == "text":
                self._add_bytes(match.group("text").encode("latin-1"))
            elif kind == "hex":
                self._add_bytes(bytes([int(match.group("hex"), 16)]))
            elif kind == "brace":
                self._flush_bytes()
                self._open() if match.group("brace") == "{" else self._close()
                if len(self._groups) == 1 and not BODY_WORD.search(text, place):
                    return  # what stands behind the document's group is no part of it
            elif kind == "symbol":
                self._symbol(match.group("symbol"))
            elif match.group("word"):
                number = match.group("number")
                value = int(number) if number is not None else None
                if match.group("word") == "bin":
                    place += max(0, value or 0)
                else:
                    self._word(match.group("word"), value)
            if kind != "brace" and kind is not None:
                self._fresh = False

    def finish(self) -> list[str]:
        self._flush_bytes()
        while self._note_depths:
            self._end_note()
        flow = self._flows[0]
        self._end_paragraph()
        flow.end_table()
        return [*flow.blocks, *self._notes, *dict.fromkeys(self._headers)]

    def _open(self) -> None:
        if len(self._groups) >= GROUP_LIMIT:
            raise ParseError("bomb", f"The RTF is nested deeper than {GROUP_LIMIT} groups. Save it again in Word.")
        self._groups.append(self._groups[-1])
        self._fresh = True
        self._starred = False
        self._to_skip = 0

    def _close(self) -> None:
        closed = self._groups.pop() if len(self._groups) > 1 else self._groups[0]
        self._to_skip = 0
        if closed.target == "style" and self._groups[-1].target == "stylesheet":
            self._note_style()
        if closed.target == "listtext" and self._groups[-1].target != "listtext":
            self._end_marker()
        if self._note_depths and len(self._groups) < self._note_depths[-1][0]:
            self._end_note()

    def _set(self, **changes: object) -> None:
        self._groups[-1] = replace(self._groups[-1], **changes)  # type: ignore[arg-type]

    def _symbol(self, symbol: str) -> None:
        if symbol == "*":
            self._starred = True
            return
        characters = {"~": "\xa0", "_": "\u2011", "{": "{", "}": "}", "\\": "\\", "\t": "\t"}
        if symbol in characters:
            if not self._skipped():
                self._flush_bytes()
                self._append(characters[symbol])
        elif symbol in "\r\n":
            self._word("par", None)

    def _word(self, word: str, number: int | None) -> None:
        if word == "u":
            self._flush_bytes()
            self._unicode(number or 0)
            return
        if word == "uc":
            self._set(fallback_chars=max(0, number or 0))
            return
        if self._to_skip and word in SPECIAL_CHARACTERS:
            self._to_skip -= 1
            return
        self._flush_bytes()
        starred, self._starred = self._starred, False
        if self._groups[-1].target is None:
            return
        if starred and word not in KEPT_STARRED:
            self._set(target=None)
        elif self._enter_destination(word):
            pass
        elif word in SPECIAL_CHARACTERS:
            self._append(SPECIAL_CHARACTERS[word])
        else:
            self._property(word, number)

    def _enter_destination(self, word: str) -> bool:
        """Whether the word opened a destination."""
        if word in DROPPED:
            self._set(target=None)
        elif word in ("fonttbl", "stylesheet", "info") or word in WRAPPERS:
            self._set(target=word)
        elif word in INNER_VERSIONS and self._groups[-1].target in WRAPPERS:
            outside = (group.target for group in reversed(self._groups) if group.target not in WRAPPERS)
            self._set(target=next(outside, ""))
        elif word in ("title", "author") and self._groups[-1].target == "info":
            self._set(target=word)
        elif word in ("listtext", "pntext"):
            self._marker.clear()
            self._set(target="listtext")
        elif word in NOTES:
            self._note_depths.append((len(self._groups), word))
            self._flows.append(Flow())
            self._set(target="")
        elif self._groups[-1].target == "info" and self._fresh:
            self._set(target=None)
        else:
            return False
        return True

    def _property(self, word: str, number: int | None) -> None:
        target = self._groups[-1].target
        value = number if number is not None else 1
        if word in PAGES or word == "ansicpg":
            page = PAGES.get(word) or f"cp{value}"
            self._charset = known_charset(page) or self._charset
        elif word == "deff":
            self._default_font = value
        elif word == "f":
            self._font = value
            self._set(charset=self._fonts.get(value, ""), is_symbol=self._fonts.get(value) == SYMBOL_CHARSET)
        elif word == "fcharset" and target == "fonttbl":
            self._fonts[self._font] = CHARSETS.get(value, "")
        elif word == "s" and target in ("stylesheet", "style"):
            self._style, self._style_name = value, ""
            self._set(target="style")
        elif word == "plain":
            default = self._fonts.get(self._default_font, "")
            self._set(charset=default, hidden=False, is_symbol=default == SYMBOL_CHARSET)
        elif word in ("v", "deleted") or word == "htmlrtf":
            self._set(hidden=number != 0)
        elif target == "":
            self._layout(word, value)

    def _layout(self, word: str, value: int) -> None:
        flow = self._flows[-1]
        if word in ("par", "sect", "page"):
            self._break(word)
        elif word == "pard":
            self._in_table, self._level, self._list_level = False, 0, 0
        elif word == "intbl":
            self._in_table = True
        elif word == "s":
            self._level = self._headings.get(value, 0)
        elif word == "outlinelevel":
            self._level = value + 1 if 0 <= value < 9 else 0
        elif word == "ilvl":
            self._list_level = max(0, min(8, value))
        elif word in ("cell", "nestcell"):
            flow.cells.append(squeeze(f"{flow.marker} {''.join(flow.pieces)}"))
            flow.pieces.clear()
            flow.marker = ""
        elif word in ("row", "nestrow"):
            flow.rows.append(flow.cells.copy())
            flow.cells.clear()
        elif word == "trowd":
            self._in_table = True

    def _break(self, word: str) -> None:
        if self._in_table and word == "par":
            self._append("\n")
        else:
            self._end_paragraph()

    def _unicode(self, number: int) -> None:
        if not self._groups[-1].hidden:
            self._append(chr(number & 0xFFFF))
        self._to_skip = self._groups[-1].fallback_chars

    def _skipped(self) -> bool:
        """Whether the next character stands in for a Unicode one that has been read."""
        if self._to_skip:
            self._to_skip -= 1
            return True
        return False

    def _add_bytes(self, content: bytes) -> None:
        if self._to_skip:
            skipped = min(self._to_skip, len(content))
            self._to_skip -= skipped
            content = content[skipped:]
        if content and self._groups[-1].target is not None:
            self._bytes += content

    def _flush_bytes(self) -> None:
        if not self._bytes:
            return
        content = bytes(self._bytes)
        self._bytes.clear()
        group = self._groups[-1]
        if group.hidden:
            return
        if group.is_symbol:
            self._append("•" if content.strip() == b"\xb7" else content.decode("ascii", "ignore"))
            return
        self._append(content.decode(group.charset or self._charset, "replace"))

    def _append(self, text: str) -> None:
        group = self._groups[-1]
        if group.target == "":
            if not group.hidden:
                self._add_to_paragraph(text)
        elif group.target == "style":
            self._style_name += text
        elif group.target == "listtext":
            self._marker.append(text)
        elif group.target in ("title", "author") and len(self.info[group.target]) < TITLE_CHARS:
            self.info[group.target] += text

    def _add_to_paragraph(self, text: str) -> None:
        flow = self._flows[-1]
        if flow.rows and not flow.cells and not self._in_table and text.strip():
            flow.end_table()
        flow.pieces.append(text)

    def _note_style(self) -> None:
        if match := HEADING_STYLE.match(self._style_name.strip()):
            self._headings[self._style] = int(match.group(1) or 1)

    def _end_marker(self) -> None:
        text = squeeze("".join(self._marker))
        self._marker.clear()
        self._flows[-1].marker = text if re.fullmatch(r"\(?[0-9a-zA-Z.]{1,8}[.)]?", text) else "-"

    def _end_paragraph(self) -> None:
        self._flows[-1].end_paragraph(self._level, self._list_level)

    def _end_note(self) -> None:
        _, word = self._note_depths.pop()
        self._end_paragraph()
        flow = self._flows.pop()
        flow.end_table()
        text = squeeze(" ".join(flow.blocks))
        if not re.search(r"\w", text):
            return
        if word == "footnote":
            number = len(self._notes) + 1
            self._add_to_paragraph(f"[^{number}]")
            self._notes.append(f"[^{number}]: {text}")
        elif word == "annotation":
            self._notes.append(f"Comment: {text}")
        else:
            self._headers.append(f"{'Header' if word.startswith('header') else 'Footer'}: {text}")
