"""Markdown pieces that all readers write alike: headings, list items, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

HEADING_LEVELS = 6
BLANKS = re.compile(r"\s+")


def words(names: str) -> frozenset[str]:
    """The set of the names in a line, such as those of elements."""
    return frozenset(names.split())


def heading(text: str, level: int) -> str:
    """One line; "" for empty text. The level is kept between 1 and 6."""
    line = squeeze(text)
    return f"{'#' * max(1, min(HEADING_LEVELS, level))} {line}" if line else ""


def list_item(text: str, level: int = 0, marker: str = "-") -> str:
    """An item at a level from 0; its further lines are indented under it."""
    indent = "  " * max(0, min(level, 8))
    body = text.strip().replace("\n", f"\n{indent}  ")
    return f"{indent}{marker} {body}" if body else ""


def squeeze(text: str) -> str:
    """All runs of white space as one blank."""
    return BLANKS.sub(" ", text).strip()


def cell(text: str) -> str:
    """Text that fits into a table cell."""
    return squeeze(text).replace("|", "\\|")


def table(rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first row is the header. Rows without any text and columns without any text are dropped.

    A table of one column becomes plain lines, one of a single row one line of cells; no rows give "".
    """
    cleaned = [[cell(value) for value in row] for row in rows]
    cleaned = [row for row in cleaned if any(row)]
    if not cleaned:
        return ""
    width = max(len(row) for row in cleaned)
    used = [index for index in range(width) if any(index < len(row) and row[index] for row in cleaned)]
    packed = [[row[index] if index < len(row) else "" for index in used] for row in cleaned]
    if len(used) == 1:
        return "\n".join(row[0].replace("\\|", "|") for row in packed)
    lines = ["| " + " | ".join(row) + " |" for row in packed]
    if len(lines) > 1:
        lines.insert(1, "|" + " --- |" * len(used))
    return "\n".join(lines)


def flatten(text: str) -> str:
    """Blocks as one line; the bars of tables become blanks."""
    return squeeze(TABLE_BARS.sub(" ", text))


def join_blocks(blocks: Iterable[str]) -> str:
    """Blocks with a blank line between them, but the items of one list on adjacent lines.

    A numbered item after a bullet at the margin, or the other way round, starts another list.
    """
    joined: list[str] = []
    before: re.Match[str] | None = None
    for block in blocks:
        if not block.strip():
            continue
        item = LIST_ITEM.match(block)
        if joined:
            joined.append("\n" if item and before and not _starts_list(item, before) else "\n\n")
        joined.append(block)
        before = item
    return "".join(joined)


def _starts_list(item: re.Match[str], before: re.Match[str]) -> bool:
    return not item.group(1) and not before.group(1) and (item.group(2) == "-") != (before.group(2) == "-")


TABLE_BARS = re.compile(r"(?:^|\s)(?:\||-{3})(?=\s|$)")
LIST_ITEM = re.compile(r"( *)(-|\(?(?:\d+|[A-Za-z]|[IVXivx]{1,6})[.)]|\d+(?:\.\d+)+\.?) \S")
