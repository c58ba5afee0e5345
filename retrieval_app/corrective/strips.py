"""Passages taken apart into strips, the strips weighed one by one, and those kept that bear on the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragd.text.sentences import split_sentences
from ragd.types import Candidate
from retrieval_app.confidence.evaluator import Measured
from retrieval_app.confidence.rules import Rule

SENTENCES = 3
WORDS_MIN = 5
KEPT_MAX = 10


@dataclass(frozen=True, slots=True)
class Strip:
    """candidates[place].content[start:end]. score: how likely it answers, from 0 to 1."""

    place: int
    start: int
    end: int
    score: float = 0.0


def cut_strips(content: str) -> list[tuple[int, int]]:
    """Spans (start, end) of the strips of a text, in order: SENTENCES sentences each, the last one what is left.

    A text of two sentences is one strip. A sentence of fewer than WORDS_MIN words (a heading, a scrap) does not count
    as one, so that it goes with what follows. [] for a blank text.
    """
    sentences = split_sentences(content)
    if len(sentences) <= 2:
        return [(sentences[0][0], sentences[-1][1])] if sentences else []
    strips: list[tuple[int, int]] = []
    start, counted = sentences[0][0], 0
    for index, (first, end) in enumerate(sentences):
        counted += len(content[first:end].split()) >= WORDS_MIN
        if counted == SENTENCES or index == len(sentences) - 1:
            strips.append((start, end))
            start, counted = sentences[min(index + 1, len(sentences) - 1)][0], 0
    return strips


def filter_strips(
    candidates: Sequence[Candidate], scores: Sequence[float], rule: Rule, measured: Measured
) -> tuple[list[dict[str, Any]], int]:
    """(spans as `ragd.search.compression.compress` gives them, of the strips that are kept; how many strips there
    were).

    Weak candidates are left out as a whole; of the others the KEPT_MAX best strips that are not weak, at least one; in
    the order of the candidates and of the text. A span's score is the strip's. scores: of the candidates.
    """
    cut = [
        Strip(index, start, end)
        for index, (item, score) in enumerate(zip(candidates, scores, strict=True))
        if not rule.is_weak(score)
        for start, end in cut_strips(item.content)
    ]
    texts = [_in_context(candidates[strip.place], strip) for strip in cut]
    weighed = [
        Strip(strip.place, strip.start, strip.end, rule.weights.probability(row))
        for strip, row in zip(cut, measured.of_texts(texts), strict=True)
    ]
    best = sorted(weighed, key=lambda strip: (-strip.score, strip.place, strip.start))[:KEPT_MAX]
    selected = [strip for strip in best if not rule.is_weak(strip.score)] or best[:1]
    selected.sort(key=lambda strip: (strip.place, strip.start))
    return [_span(candidates[strip.place], strip) for strip in selected], len(cut)


def _in_context(candidate: Candidate, strip: Strip) -> str:
    content = candidate.content[strip.start : strip.end]
    return f"{candidate.context}\n{content}" if candidate.context else content


def _span(candidate: Candidate, strip: Strip) -> dict[str, Any]:
    content = candidate.content[strip.start : strip.end]
    return {
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "rank": strip.place + 1,
        "start": candidate.start + strip.start,
        "end": candidate.start + strip.end,
        "content": content,
        "score": strip.score,
        "tokens_before": len(candidate.content.split()),
        "tokens_after": len(content.split()),
    }
