"""How far each sentence of an answer is supported by the sources that it cites: told by its words and numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from retrieval_app.citations.citations import PROTECTED

Support = Literal["supported", "partly", "unsupported"]

SUPPORTED_MIN, PARTLY_MIN = 0.75, 0.4  # shares of a sentence's words that occur in what it cites
WORDS_MIN = 4  # a shorter sentence without citation states nothing
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
TABLE_ROW = re.compile(r"^\s*\|", re.MULTILINE)
MARKER = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class SupportMark:
    """end: where the sentence ends in the answer, behind its citations."""

    end: int
    support: Support


def mark_support(answer: str, sentences: Sequence[Mapping[str, Any]], texts: Mapping[int, str]) -> list[SupportMark]:
    """The sentences of the answer in order that state something. texts: marker -> what its source says.

    supported: a quotation, or most of its words and all of its numbers occur in what it cites. partly: some words do,
    or a number does not. unsupported: the rest, such as a sentence without a citation. Rows of tables and code have no
    mark.
    """
    marks = []
    code = [span.span() for span in PROTECTED.finditer(answer) if span["fence"]]
    for sentence in sentences:
        text = MARKER.sub("", sentence["text"]).strip()
        if TABLE_ROW.search(text) or _is_code(answer, sentence, code):
            continue
        if sentence["markers"] or len(text.split()) >= WORDS_MIN:
            cited = " ".join(texts.get(marker, "") for marker in sentence["markers"])
            marks.append(SupportMark(sentence["end"], _support_of(sentence, text, cited)))
    return marks


def _is_code(answer: str, sentence: Mapping[str, Any], code: Sequence[tuple[int, int]]) -> bool:
    """Whether nothing of it stands outside of the code blocks."""
    first, last = sentence["start"], sentence["start"] + len(answer[sentence["start"] : sentence["end"]].rstrip())
    return any(start <= first and last <= end for start, end in code)


def _support_of(sentence: Mapping[str, Any], text: str, cited: str) -> Support:
    if sentence["supported"]:
        return "supported"
    overlap = sentence["overlap"] or 0.0
    if not sentence["markers"] or overlap < PARTLY_MIN:
        return "unsupported"
    has_numbers = set(NUMBER.findall(text)) <= set(NUMBER.findall(cited))
    return "supported" if overlap >= SUPPORTED_MIN and has_numbers else "partly"


def count_support(marks: Sequence[SupportMark]) -> dict[str, int]:
    """{"total", "supported", "partly", "unsupported"}."""
    counts = Counter[str](mark.support for mark in marks)
    return {"total": len(marks)} | {name: counts[name] for name in ("supported", "partly", "unsupported")}
