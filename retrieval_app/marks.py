"""An answer as HTML: its Markdown rendered, each citation a link to the cited place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

# private-use characters that stand for a citation while the Markdown around it is rendered
OPEN, CLOSE = "\ue000", "\ue001"
PLACEHOLDER = re.compile(f"{OPEN}([0-9]+){CLOSE}")
HEADING = re.compile(r"^#{1,6}\s+[^\n]*\n+")
SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """Text without citation, or one citation record (see `retrieval_app.citations.Citation`)."""

    text: str
    citation: Mapping[str, Any] | None = None


def cut_answer(answer: str, citations: Sequence[Mapping[str, Any]]) -> list[AnswerPiece]:
    """The answer in order; joined, the texts are the answer again. A citation outside the answer is left out."""
    pieces: list[AnswerPiece] = []
    position = 0
    for citation in sorted(citations, key=lambda item: item["answer_start"]):
        start, end = citation["answer_start"], citation["answer_end"]
        if not position <= start < end <= len(answer):
            continue
        if start > position:
            pieces.append(AnswerPiece(answer[position:start]))
        pieces.append(AnswerPiece(answer[start:end], citation))
        position = end
    if position < len(answer):
        pieces.append(AnswerPiece(answer[position:]))
    return pieces


def render_answer(
    answer: str, citations: Sequence[Mapping[str, Any]], draw: Callable[[Mapping[str, Any]], SafeString]
) -> SafeString:
    """The answer's Markdown as HTML with `draw(citation)` at every citation.

    HTML in the answer is shown as text; headings and images stay text too; links keep only safe addresses.
    """
    pieces = cut_answer(answer, citations)
    cited = [piece.citation for piece in pieces if piece.citation is not None]
    source, number = "", 0
    for piece in pieces:
        if piece.citation is None:
            source += piece.text.replace(OPEN, "").replace(CLOSE, "")
        else:
            source += f"{OPEN}{number}{CLOSE}"
            number += 1
    html = _markdown().render(source)
    return mark_safe(PLACEHOLDER.sub(lambda found: draw(cited[int(found[1])]), html))  # noqa: S308 (escaped by the renderer)


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).disable(
        ["heading", "lheading", "image", "html_block", "hr"]
    )


def shorten_passage(content: str) -> str:
    """A chunk's text in one line without the headings it begins with, which stand beside it already."""
    kept = content.lstrip()
    while found := HEADING.match(kept):
        kept = kept[found.end() :].lstrip()
    return SPACES.sub(" ", kept or content).strip()
