"""Markdown tables in a text: the header of a row, and the rows and cells of a spreadsheet that its lines show."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

# (start, end, sheet, columns, rows): each line of text[start:end] shows one row. sheet: "" in a file without sheets.
# columns, rows: as the spreadsheet names them, in runs such as "A:C,F" and "14:20,22".
Cells = tuple[int, int, str, str, str]
Run = tuple[int, int]

_ROW = re.compile(r"[ \t>]*\|")
_DELIMITER = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_LINE_FEED = re.compile("\n")
_BAR = re.compile(r"(?<!\\)\|")
_PLAIN_SHEET = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class Headers:
    """The header rows of one text's tables. Asked for ascending positions, it reads each line once."""

    def __init__(self, text: str, chars_max: int) -> None:
        self.text, self.chars_max = text, chars_max
        self.first = self.last = -1  # a line that is known as a table's first one, and one known to belong to it

    def before(self, position: int) -> str:
        """The header row of the table in which the line of `position` stands, if that begins before the line.

        "" where there is none: outside of tables, in the header itself, in a table without a line of dashes. One of
        more than chars_max characters is cut behind a cell.
        """
        text = self.text
        line = text.rfind("\n", 0, position) + 1
        if not _ROW.match(text, line):
            return ""
        first = line
        while first > 0:
            if self.first <= first <= self.last:
                first = self.first
                break
            above = text.rfind("\n", 0, first - 1) + 1
            if not _ROW.match(text, above):
                break
            first = above
        self.first, self.last = first, line
        end = text.find("\n", first)
        if first == line or end < 0 or not _DELIMITER.fullmatch(text, end + 1, line_end(text, end + 1)):
            return ""
        header = text[first:end].strip()
        if len(header) > self.chars_max:
            header = header[: header.rfind("|", 0, self.chars_max) + 1]
        return header


def spell_numbers(numbers: Iterable[int]) -> str:
    """Ascending numbers in runs: 14, 15, 16, 22 -> "14:16,22"."""
    return ",".join(f"{first}:{last}" if last > first else f"{first}" for first, last in _runs(numbers))


def spell_columns(numbers: Iterable[int]) -> str:
    """Ascending columns, from 1, in runs of letters: 1, 2, 3, 6 -> "A:C,F"."""
    runs = ((column_name(first), column_name(last)) for first, last in _runs(numbers))
    return ",".join(f"{first}:{last}" if last != first else first for first, last in runs)


def column_name(number: int) -> str:
    """1 -> "A", 28 -> "AB"."""
    name = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def column_number(name: str) -> int:
    """ "AB" -> 28."""
    number = 0
    for letter in name:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def read_rows(spelled: str) -> list[Run]:
    """The runs of `spell_numbers`, both ends included."""
    return [(int(first), int(last or first)) for first, _, last in (run.partition(":") for run in spelled.split(","))]


def read_columns(spelled: str) -> list[int]:
    """The columns of `spell_columns`, each by its number."""
    runs = (run.partition(":") for run in spelled.split(","))
    return [n for first, _, last in runs for n in range(column_number(first), column_number(last or first) + 1)]


def slice_rows(runs: Sequence[Run], first: int, count: int) -> list[Run]:
    """Of the rows in these runs `count` ones from number `first` on, which counts from 0."""
    cut = []
    for start, end in runs:
        size = end - start + 1
        if first < size and count > 0:
            taken = min(count, size - first)
            cut.append((start + first, start + first + taken - 1))
            count -= taken
        first = max(0, first - size)
    return cut


def line_feeds(text: str) -> array[int]:
    """Where the line feeds of a text stand."""
    return array("q", (match.start() for match in _LINE_FEED.finditer(text)))


def clip_cells(cells: Sequence[Cells], feeds: Sequence[int], start: int, end: int) -> list[Cells]:
    """What of `cells`, ascending, text[start:end] shows, whole rows each. A row that begins before start counts.

    feeds: line_feeds(text).
    """
    first = max(0, bisect_right(cells, start, key=lambda entry: entry[0]) - 1)
    clipped: list[Cells] = []
    for entry in cells[first:]:
        if entry[0] >= end:
            break
        if entry[1] <= start:
            continue
        top, at, last = (bisect_left(feeds, position) for position in (entry[0], max(start, entry[0]), end - 1))
        line = feeds[at - 1] + 1 if at > top else entry[0]
        stop = min(entry[1], end)
        rows = slice_rows(read_rows(entry[4]), at - top, min(last, bisect_left(feeds, entry[1] - 1)) - at + 1)
        spelled = ",".join(f"{low}:{high}" if high > low else f"{low}" for low, high in rows)
        clipped.append((line, stop, entry[2], entry[3], spelled))
    return clipped


def address(cells: Sequence[Cells], content: str, offset: int, start: int, end: int) -> tuple[str, str, Run] | None:
    """(cells, sheet, (first row, last row)) of text[start:end] where content == text[offset:]: "Prices!A14:F14".

    cells: as clip_cells() gives them. Of a span in two sheets it is the first one; None where it touches no row.
    Of a row that begins before the content, it is the whole row.
    """
    for entry in cells:
        low, high = max(start, entry[0], offset), min(end, entry[1])
        while low < high and content[low - offset] in " |\n\t":  # what separates cells belongs to none
            low += 1
        while low < high and content[high - 1 - offset] in " |\n\t":
            high -= 1
        if low >= high:
            continue
        base = max(entry[0], offset)
        skipped = content.count("\n", base - offset, low - offset)
        lines = content.count("\n", low - offset, high - offset) + 1
        rows = slice_rows(read_rows(entry[4]), skipped, lines)
        if not rows:
            continue
        columns = read_columns(entry[3])
        left, right = 0, len(columns) - 1
        if lines == 1 and len(columns) > 1 and not (skipped == 0 and entry[0] < offset):
            line = content.rfind("\n", 0, low - offset) + 1
            left, right = (len(_BAR.findall(content[line : at - offset])) - 1 for at in (low, high))
            left, right = max(0, min(left, right)), min(len(columns) - 1, max(left, right))
        top, bottom = rows[0][0], rows[-1][1]
        corners = [f"{column_name(columns[left])}{top}", f"{column_name(columns[right])}{bottom}"]
        area = corners[0] if corners[0] == corners[1] else ":".join(corners)
        return f"{_sheet_name(entry[2])}{area}", entry[2], (top, bottom)
    return None


def _sheet_name(sheet: str) -> str:
    if not sheet:
        return ""
    quoted = sheet if _PLAIN_SHEET.fullmatch(sheet) else "'" + sheet.replace("'", "''") + "'"
    return f"{quoted}!"


def _runs(numbers: Iterable[int]) -> list[Run]:
    listed = list(numbers)
    breaks = [0, *(at for at, (one, two) in enumerate(pairwise(listed), 1) if two != one + 1), len(listed)]
    return [(listed[first], listed[stop - 1]) for first, stop in pairwise(breaks) if stop > first]


def line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end
