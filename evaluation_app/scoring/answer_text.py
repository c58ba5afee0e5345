"""What an answer says, without what only points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TRAILING = " \t"


def without_markers(answer: str, citations: Iterable[Mapping[str, Any]]) -> str:
    """The answer without the markers [n] of these citations and the blanks before them: they are no words of it."""
    positions = sorted((int(item["answer_start"]), int(item["answer_end"])) for item in citations)
    pieces, position = [], 0
    for start, end in positions:
        if start < position or end > len(answer):  # a record of another text
            continue
        pieces.append(answer[position:start].rstrip(TRAILING))
        position = end
    return "".join((*pieces, answer[position:])).strip()
