"""Ranked lists side by side, and the lines that join the same chunk in neighbouring lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROW_PX = 48  # the height of a row in static/css/playground.css
GAP_PX = 32  # the width of the space between two lists


@dataclass(frozen=True, slots=True)
class RankLine:
    """One line. number: the chunk's number on the page. tone: up, down or level. path: SVG, from left to right."""

    number: int
    tone: str
    path: str


def join_ranks(left: Sequence[str], right: Sequence[str], shown: int, numbers: Mapping[str, int]) -> list[RankLine]:
    """Lines between the first `shown` rows of two lists of keys; the ones with the larger moves lie on top.

    A chunk that is shown on one side only, and stands lower on the other, runs out at the lower edge.
    """
    positions = {key: index for index, key in enumerate(left)}
    lines = []
    for index, key in enumerate(right):
        if key in positions and min(index, positions[key]) < shown:
            lines.append((positions[key] - index, key, positions[key], index))
    lines.sort(key=lambda line: (abs(line[0]), line[3]))
    return [
        RankLine(numbers[key], "up" if gain > 0 else "down" if gain < 0 else "level", _path(before, after, shown))
        for gain, key, before, after in lines
    ]


def _path(before: int, after: int, shown: int) -> str:
    start, end = (
        min(position, shown) * ROW_PX + (ROW_PX // 2 if position < shown else 0) for position in (before, after)
    )
    half = GAP_PX // 2
    return f"M0 {start}C{half} {start} {half} {end} {GAP_PX} {end}"


def mark_pieces(text: str, positions: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """The text cut at [start, end, lexeme] places: (piece, lexeme or ""), in order; joined, the pieces are the text."""
    pieces, position = [], 0
    for start, end, lexeme in positions:
        if start > position:
            pieces.append((text[position:start], ""))
        pieces.append((text[start:end], lexeme))
        position = end
    if position < len(text):
        pieces.append((text[position:], ""))
    return pieces
