"""The four kinds of tables of reStructuredText as rows of cells."""

from __future__ import annotations

import csv
import re
from itertools import pairwise

BORDER_GROUP = re.compile(r"=+|-+")
GRID_LINE = re.compile(r"[+|]")
ROW_BORDER = re.compile(r"[+|][-=+| ]*$")
ITEM = re.compile(r"[*-](?: |$)")


def simple_table(lines: list[str], place: int) -> tuple[list[list[str]], int]:
    """The rows of a table with borders of "===", and where it ends. A row without a first cell continues the last."""
    groups = [match.span() for match in re.finditer(r"=+", lines[place])]
    starts = [start for start, _ in groups]
    rows: list[list[str]] = []
    borders, at = 1, place + 1
    while at < len(lines):
        line = lines[at]
        at += 1
        if line and not line.strip("= "):
            borders += 1
            # the third closes the table; the second does when nothing that belongs to it follows
            if borders == 3 or not _has_border(lines, at):
                break
            continue
        if not line or not line.strip("- "):
            continue
        ends = [*starts[1:], len(line) + 1]
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        if rows and not cells[0]:
            rows[-1] = [f"{before} {more}".strip() for before, more in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    return rows, at


def _has_border(lines: list[str], place: int) -> bool:
    """Whether a border follows before anything that cannot be a row of the table."""
    for at in range(place, min(len(lines), place + 500)):
        line = lines[at]
        if not line:
            return False
        if not line.strip("= "):
            return True
    return False


def grid_table(lines: list[str], place: int) -> tuple[list[list[str]] | None, int]:
    """The rows of a table drawn with "+", "-" and "|", and where it ends; None where cells span others."""
    end = place
    while end < len(lines) and GRID_LINE.match(lines[end]):
        end += 1
    columns = [match.start() for match in re.finditer(r"\+", lines[place])]
    rows: list[list[str]] = []
    current: list[list[str]] = [[] for _ in columns[1:]]
    for line in lines[place + 1 : end]:
        if line.startswith("+"):
            if ROW_BORDER.match(line) is None or [at for at in columns if line[at : at + 1] != "+"]:
                return None, end
            rows.append([" ".join(part for part in cell if part) for cell in current])
            current = [[] for _ in columns[1:]]
            continue
        if any(line[at : at + 1] != "|" for at in columns):
            return None, end
        for number, (left, right) in enumerate(pairwise(columns)):
            current[number].append(line[left + 1 : right].strip())
    return rows, end


def listed_table(lines: list[str]) -> list[list[str]]:
    """The rows of a list-table: a list of lists."""
    rows: list[list[str]] = []
    for line in lines:
        text = line.strip()
        if line.startswith("* "):
            rows.append([])
            text = text[2:].strip()
        if rows and ITEM.match(text):
            rows[-1].append(text[2:].strip())
        elif rows and rows[-1] and text:
            rows[-1][-1] = f"{rows[-1][-1]} {text}".strip()
    return rows


def separated_table(lines: list[str], options: dict[str, str]) -> list[list[str]]:
    """The rows of a csv-table with its header."""
    header = [options["header"]] if options.get("header") else []
    delimiter = options.get("delim", ",")
    if len(delimiter) != 1:
        delimiter = {"tab": "\t", "space": " "}.get(delimiter, ",")
    return [row for row in csv.reader([*header, *lines], delimiter=delimiter, skipinitialspace=True) if row]
