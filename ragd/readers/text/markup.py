"""Markdown pieces that all readers write alike: headings, list items, tables.

Packed bytes in a text, such as pictures in base64: nobody reads them, and no search is for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

HEADING_LEVELS = 6
# How lists are counted, by the names of HTML and of OpenDocument.
NUMBER_FORMATS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
ORDINAL_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
ROMAN = tuple(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    )
)
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


def show_number(count: int, form: str) -> str:
    """A counter as documents write it: decimal, letters, Roman, ordinal."""
    if form in ("lowerLetter", "upperLetter") and count > 0:
        letter = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
        return letter.upper() if form == "upperLetter" else letter
    if form in ("lowerRoman", "upperRoman") and 0 < count < 4000:
        return _roman(count) if form == "upperRoman" else _roman(count).lower()
    if form == "ordinal":
        teen = 10 < count % 100 < 20
        return f"{count}{'th' if teen else ORDINAL_ENDINGS.get(count % 10, 'th')}"
    return f"{count:02d}" if form == "decimalZero" else str(count)


def _roman(count: int) -> str:
    text = ""
    for value, letters in ROMAN:
        text += letters * (count // value)
        count %= value
    return text


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


def write_scripts(text: str) -> str:
    """The text with what readers marked as raised or lowered as it is written in one line.

    Raised digits are superscripts behind a power of ten or a unit, and else apart from what they are raised above.
    Lowered digits behind a digit are subscripts.
    """
    if LEVEL not in text:
        return text
    return MARKS.sub("", SCRIPT.sub(_level, text))


def _level(match: re.Match[str]) -> str:
    sign, text = match[1], MARKS.sub("", match[2])
    before = MARKS.sub("", match.string[max(0, match.start() - 20) : match.start()])
    number = DIGITS.fullmatch(text.strip())
    if sign == LOWER:
        return text.translate(SUBSCRIPTS) if number and before[-1:].isdigit() else text
    if number and "," not in text and POWERED.search(before):
        return text.strip().translate(SUPERSCRIPTS)
    is_apart = number is not None or (before[-1:].isdigit() and DIGITS.match(text) is not None)
    return f" {text}" if is_apart and before.strip() and not before[-1].isspace() and before[-1] not in "/[({" else text


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


# Signs that no text holds: they begin and end what a file raises or lowers.
RAISE, LOWER, LEVEL = "\ufdd0", "\ufdd1", "\ufdd2"
MARKS = re.compile(f"[{RAISE}{LOWER}{LEVEL}]")
SCRIPT = re.compile(rf"([{RAISE}{LOWER}])((?:[^{RAISE}{LOWER}{LEVEL}]|{LEVEL}\1)*){LEVEL}")
DIGITS = re.compile(r"[-+\u2212]?\d{1,12}(?:[,\u2013-] ?\d{1,3})*")
POWERED = re.compile(r"(?<![^\W\d])(?:(?<![\d.,])10|[b-zB-HJ-Z]|[cdkmnu\u00b5\u03bc]m|ft|yd)\Z")
SUPERSCRIPTS = str.maketrans("0123456789+-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
SUBSCRIPTS = str.maketrans("0123456789+-\u2212", "₀₁₂₃₄₅₆₇₈₉₊₋₋")

TABLE_BARS = re.compile(r"(?:^|\s)(?:\||-{3})(?=\s|$)")
LIST_ITEM = re.compile(r"( *)(-|\(?(?:\d+|[A-Za-z]|[IVXivx]{1,6})[.)]|\d+(?:\.\d+)+\.?) \S")


DATA_URL = re.compile(
    r"(\bdata:[\w.+-]+/[\w.+-]+)(?:;[\w.=+-]+)*;base64,"
    r"(?:[\w+/=-]|%[0-9A-Fa-f]{2}|\\?\r?\n[ \t]*(?=[\w+/=-]{30}))+"
)
LINE = r"[A-Za-z0-9+/]{60,}={0,2}"
LAST_LINE = r"(?:[A-Za-z0-9+/]{1,59}={1,2}|(?=[A-Za-z]*[0-9+/])[A-Za-z0-9+/]{1,59})(?=[ \t]*(?:\r?\n|\Z))"
BLOB = re.compile(rf"(?<![A-Za-z0-9+/=]){LINE}(?:[ \t]*\r?\n[ \t>]*{LINE})*(?:[ \t]*\r?\n[ \t>]*{LAST_LINE})?")
BLOB_CHARS = 400  # shorter ones are keys, tokens and digests, which people do look for
SIGNS_MIN = 40  # of the 64, which sequences of bases and numbers in hexadecimal do not have


def drop_packed(text: str) -> tuple[str, int]:
    """The text without packed bytes, and how many characters they had. A data: URL keeps its media type."""
    if "base64," not in text and not re.search(LINE, text):
        return text, 0
    shorter = BLOB.sub(lambda match: "" if _is_packed(match.group()) else match.group(), DATA_URL.sub(r"\1", text))
    return shorter, len(text) - len(shorter)


def _is_packed(run: str) -> bool:
    signs = set(run)
    return len(run) >= BLOB_CHARS and len(signs) >= SIGNS_MIN and any(sign.isdigit() for sign in signs)
