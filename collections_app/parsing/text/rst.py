"""reStructuredText as Markdown: headings by the order of their adornments, directives and roles by their words.

Comments, targets, pictures and lists of contents, which no reader sees as text, are left out.
"""

from __future__ import annotations

import re

from collections_app.parsing.assembly import TITLE_CHARS, Assembly
from collections_app.parsing.text.markup import heading, join_blocks, squeeze, table, words
from collections_app.parsing.text.plain import decode_into
from collections_app.parsing.text.rstinline import plain_inline
from collections_app.parsing.text.rsttables import grid_table, listed_table, separated_table, simple_table
from collections_app.parsing.types import Source

ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+$")
EXPLICIT = re.compile(r"\.\.(?:\s|$)")
DIRECTIVE = re.compile(r"\.\. (?:\|(?P<sub>[^|]+)\| +)?(?P<name>[A-Za-z][\w.+:-]*?) ?::(?:\s+(?P<argument>.*))?$")
NOTE = re.compile(r"\.\. \[(?P<name>[^\]]+)\](?:\s+(?P<text>.*))?$")
OPTION = re.compile(r":(?P<name>[A-Za-z][^:]*):(?:\s+(?P<value>.*))?$")
ITEM = re.compile(r"(?P<mark>[-*+•‣]|\(?(?:\d+|#|[A-Za-z]|[ivxlcIVXLC]+)[.)])(?P<gap> +)(?=\S)")
LINE_BLOCK = re.compile(r"\|(?: |$)")
SIMPLE_BORDER = re.compile(r"=+(?: +=+)+ *$")
GRID_BORDER = re.compile(r"\+(?:-+\+)+ *$")
FENCE = "```"
DEPTH_LIMIT = 40
# Shown as code, with the language where the argument names one.
CODE = words("code code-block sourcecode parsed-literal prompt ipython doctest testcode")
# Nothing of these is text: pictures, settings, tables of contents, other files and other output formats.
DROPPED = words(
    "contents toctree sectnum include literalinclude raw meta default-role highlight highlightlang index"
    " currentmodule module role tabularcolumns default-domain automodule autoclass autofunction autosummary"
    " testsetup testcleanup header footer rst-class image graphviz digraph plot target-notes"
    " sectionauthor codeauthor"
)
# Only a frame around their body.
FRAMES = words("container only compound hlist centered cssclass tab-set tab-item grid grid-item epigraph")
SAID = {"seealso": "See also", "versionadded": "New in version", "versionchanged": "Changed in version"}
SAID |= {"versionremoved": "Removed in version", "deprecated": "Deprecated since version"}
ADMONITIONS = words("note warning tip important caution danger attention hint error seealso todo")
TITLED = words("admonition topic sidebar rubric dropdown tab")


def read(source: Source, assembly: Assembly) -> None:
    """Add the document; its first heading is the title. Never fails for text: what is no markup stays as written."""
    text = decode_into(source.data, assembly)
    reading = _Reading()
    assembly.add(reading.render(text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff").expandtabs(8)))
    assembly.entitle(reading.title[:TITLE_CHARS])


class _Reading:
    def __init__(self) -> None:
        self.title = ""
        self._adornments: list[tuple[str, bool]] = []
        self._substitutions: dict[str, str] = {}

    def render(self, text: str) -> str:
        lines = [line.rstrip() for line in text.split("\n")]
        self._note_substitutions(lines)
        return join_blocks(self.blocks(lines, 0))

    def _note_substitutions(self, lines: list[str]) -> None:
        for line in lines:
            match = DIRECTIVE.match(line.strip()) if "replace::" in line else None
            if match and match.group("sub") and match.group("name") == "replace":
                self._substitutions[match.group("sub").lower()] = match.group("argument") or ""

    def blocks(self, lines: list[str], depth: int) -> list[str]:
        """The Markdown blocks of lines without a common indent."""
        if depth > DEPTH_LIMIT:
            return ["\n".join(lines)]
        found: list[str] = []
        place = 0
        while place < len(lines):
            if not lines[place]:
                place += 1
                continue
            block, place = self._block(lines, place, depth)
            found.append(block)
        return found

    def _block(self, lines: list[str], place: int, depth: int) -> tuple[str, int]:
        line = lines[place]
        if taken := self._heading(lines, place):
            return taken
        if ADORNMENT.match(line) and len(line) >= 4 and not SIMPLE_BORDER.match(line):
            return "", place + 1
        if EXPLICIT.match(line):
            end = indented_end(lines, place + 1)
            return self._explicit(lines[place:end], depth), end
        if line.startswith(("__ ", ".. _")):
            return "", place + 1
        if GRID_BORDER.match(line) or SIMPLE_BORDER.match(line):
            return self._table(lines, place)
        if line.startswith(">>> "):
            end = paragraph_end(lines, place)
            return fenced(lines[place:end], "pycon"), end
        if line[0] == " ":
            end = indented_end(lines, place)
            return join_blocks(self.blocks(dedented(lines[place:end]), depth + 1)), end
        if ITEM.match(line):
            return self._item(lines, place, depth)
        if LINE_BLOCK.match(line):
            end = paragraph_end(lines, place)
            return self._inline("\n".join(each[1:].strip() for each in lines[place:end])), end
        return self._paragraph(lines, place)

    def _heading(self, lines: list[str], place: int) -> tuple[str, int] | None:
        line = lines[place]
        below = lines[place + 1] if place + 1 < len(lines) else ""
        last = lines[place + 2] if place + 2 < len(lines) else ""
        if ADORNMENT.match(line) and below and last == line and len(line) >= min(4, len(below.strip())):
            return self._headed(below, line[0], True), place + 3
        is_under = ADORNMENT.match(below) and not ADORNMENT.match(line) and line[0] != " "
        if is_under and len(below) >= min(4, len(line)) and not GRID_BORDER.match(line):
            return self._headed(line, below[0], False), place + 2
        return None

    def _headed(self, text: str, mark: str, over: bool) -> str:
        if (mark, over) not in self._adornments:
            self._adornments.append((mark, over))
        shown = squeeze(self._inline(text.strip()))
        self.title = self.title or shown.replace("`", "")
        return heading(shown, self._adornments.index((mark, over)) + 1)

    def _explicit(self, lines: list[str], depth: int) -> str:
        """A directive, a footnote or citation; "" for a comment or a target."""
        if match := DIRECTIVE.match(lines[0]):
            return "" if match.group("sub") else self._directive(match, lines[1:], depth)
        if match := NOTE.match(lines[0]):
            rest = dedented(lines[1:])
            text = " ".join(part for part in (match.group("text") or "", *rest) if part)
            return f"[{match.group('name').lstrip('#')}] {self._inline(text)}"
        return ""

    def _directive(self, match: re.Match[str], body: list[str], depth: int) -> str:
        name, argument = match.group("name").lower(), (match.group("argument") or "").strip()
        lines = dedented(body)
        options, lines = split_options(lines)
        if name in DROPPED:
            return options.get("alt", "")
        if name in CODE:
            return fenced(lines, argument if name in ("code", "code-block", "sourcecode") else "")
        if name in ("list-table", "csv-table", "table"):
            return self._titled_table(name, argument, lines, options, depth)
        if name == "math":
            return "\n".join(part for part in (argument, *lines) if part)
        if name == "figure":
            return join_blocks([options.get("alt", ""), *self.blocks(lines, depth + 1)])
        inner = self.blocks(lines, depth + 1)
        if name in FRAMES or (name == "class" and not inner):
            return join_blocks([self._inline(argument), *inner] if name == "centered" else inner)
        return join_blocks([self._lead(name, argument), *inner])

    def _lead(self, name: str, argument: str) -> str:
        """The line that a directive begins with: its kind in words, its title, or the signature that it describes."""
        if name in ADMONITIONS:
            return f"{SAID.get(name, name.capitalize())}: {self._inline(argument)}".rstrip()
        if name in SAID:
            return f"{SAID[name]} {self._inline(argument)}"
        if name in TITLED or not argument:
            return f"**{self._inline(argument)}**" if argument else ""
        return f"`{argument}`" if ":" in name or "(" in argument else self._inline(argument)

    def _titled_table(self, name: str, title: str, lines: list[str], options: dict[str, str], depth: int) -> str:
        if name == "table":
            inner = self.blocks(lines, depth + 1)
        else:
            rows = listed_table(lines) if name == "list-table" else separated_table(lines, options)
            inner = [table([self._inline(value) for value in row] for row in rows)]
        return join_blocks([self._inline(title), *inner])

    def _table(self, lines: list[str], place: int) -> tuple[str, int]:
        is_grid = lines[place].startswith("+")
        rows, end = grid_table(lines, place) if is_grid else simple_table(lines, place)
        if rows is None:
            return fenced(lines[place:end], ""), end
        return table([self._inline(value) for value in row] for row in rows), end

    def _item(self, lines: list[str], place: int, depth: int) -> tuple[str, int]:
        match = ITEM.match(lines[place])
        assert match is not None
        end = indented_end(lines, place + 1)
        mark = match.group("mark")
        shown = "-" if mark in "-*+•‣" else mark.replace("#", "1")
        inner = self.blocks(
            dedented([" " * match.end() + lines[place][match.end() :], *lines[place + 1 : end]]), depth + 1
        )
        indent = " " * (len(shown) + 1)
        return f"{shown} " + re.sub(r"\n(?=[^\n])", f"\n{indent}", join_blocks(inner)), end

    def _paragraph(self, lines: list[str], place: int) -> tuple[str, int]:
        end = paragraph_end(lines, place)
        text = "\n".join(lines[place:end])
        if OPTION.match(lines[place]) and not text.endswith("::"):
            return "\n".join(self._inline(line.strip(), keeps_fields=True) for line in lines[place:end]), end
        if not text.endswith("::"):
            return self._inline(text), end
        start = next((at for at in range(end, len(lines)) if lines[at]), len(lines))
        if start == len(lines) or lines[start][0] != " ":
            return self._inline(text[:-1]), end
        stop = indented_end(lines, start)
        lead = "" if text == "::" else self._inline(text[:-2].rstrip() + ("" if text.endswith(" ::") else ":"))
        return "\n\n".join(part for part in (lead, fenced(dedented(lines[start:stop]), "")) if part), stop

    def _inline(self, text: str, *, keeps_fields: bool = False) -> str:
        if keeps_fields and (match := OPTION.match(text)):
            return f"{match.group('name')}: {plain_inline(match.group('value') or '', self._substitutions)}".rstrip()
        return plain_inline(text, self._substitutions)


def indented_end(lines: list[str], place: int) -> int:
    """The first line from place on that is neither blank nor indented; blank lines before it are not taken."""
    end = place
    for at in range(place, len(lines)):
        if lines[at]:
            if lines[at][0] != " ":
                break
            end = at + 1
    return end


def paragraph_end(lines: list[str], place: int) -> int:
    return next((at for at in range(place, len(lines)) if not lines[at]), len(lines))


def dedented(lines: list[str]) -> list[str]:
    """The lines without their common indent."""
    indents = [len(line) - len(line.lstrip(" ")) for line in lines if line]
    cut = min(indents, default=0)
    return [line[cut:] for line in lines]


def split_options(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options at the head of a directive, and the body behind them without blank lines around it."""
    options: dict[str, str] = {}
    place = 0
    while place < len(lines) and (match := OPTION.match(lines[place])):
        options[match.group("name")] = match.group("value") or ""
        place += 1
    body = lines[place:]
    while body and not body[0]:
        body = body[1:]
    return options, body


def fenced(lines: list[str], language: str) -> str:
    """Lines as a block of code; the fence is longer than any inside."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    if not lines:
        return ""
    fence = FENCE
    while any(fence in line for line in lines):
        fence += "`"
    return "\n".join([f"{fence}{squeeze(language)}", *lines, fence])
