"""compress(): the sentences of the candidates that share most with the query, as exact slices within a token budget."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ragd.errors import InvalidInput
from ragd.text.sentences import split_sentences
from ragd.text.tokens import word_terms
from ragd.types import COMPRESS_KINDS, Candidate, CompressKind, check_at_least

_HEADING = re.compile(r"#{1,6} [^\n]*\Z")  # a line of Markdown by itself; a comment above code has more lines


@dataclass(frozen=True, slots=True)
class CompressPolicy:
    """What compress() keeps. Tokens are white-space separated words.

    kind "sentences" keeps the sentences that score; "window" also `window` sentences on either side of each.
    token_budget bounds the words kept in all, max_sentences the scoring sentences; None means no bound.
    """

    kind: CompressKind = "sentences"
    token_budget: int | None = 600
    max_sentences: int | None = None
    window: int = 1

    def __post_init__(self) -> None:
        if self.kind not in COMPRESS_KINDS:
            raise InvalidInput(f"compress policy kind must be 'sentences' or 'window', not {self.kind!r}", field="kind")
        for name, low, optional in (("token_budget", 1, True), ("max_sentences", 1, True), ("window", 0, False)):
            value = getattr(self, name)
            if not optional or value is not None:
                check_at_least(name, value, low)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CompressPolicy:
        names = [item.name for item in fields(cls)]
        for name in values:
            if name not in names:
                raise InvalidInput(f"unknown field {name!r}; known are {', '.join(names)}", field=name)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int  # of its candidate, from 0
    number: int  # within its candidate, from 0
    start: int  # offsets within the candidate's content
    end: int
    tokens: int
    score: float


class _Covered:
    """The sentences of one document that were read. A chunk cuts a sentence only at its own begin or end, so what is
    left of one shares an end or a start with the whole."""

    def __init__(self) -> None:
        self._first_start: dict[int, int] = {}
        self._last_end: dict[int, int] = {}

    def add(self, start: int, end: int) -> bool:
        """Whether the sentence says anything that no earlier one says."""
        if self._first_start.get(end, end) <= start or self._last_end.get(start, start) >= end:
            return False
        self._first_start[end] = start
        self._last_end[start] = end
        return True


def compress(query: str, candidates: Sequence[Candidate], policy: CompressPolicy | None = None) -> list[dict[str, Any]]:
    """Spans of the candidates, in the candidates' order and within each by position. [] for no candidates.

    Each span is {doc_id, chunk_index, rank (the candidate's, from 1), start, end (offsets in the document), content
    (the exact slice), score (its best sentence's), tokens_before (words of the candidate), tokens_after (of the span)}.

    A sentence scores the share of the query's terms that it holds, each weighted by its idf over the candidates, from
    0 to 1; a heading scores 0, because it names what stands below it and does not say it. The best are taken first,
    ties by rank and position, as long as they fit the budget; neighbours become one span; what a higher candidate of
    the same document covers already, whole or in part, is not taken again. When no sentence shares a term with the
    query, the first sentences of the best candidates are taken. When even the first does not fit, its leading words
    are.
    """
    policy = policy or CompressPolicy()
    sentences = _unique_sentences(query, candidates)
    chosen = _choose(sentences, policy)
    return [_span(candidates[run[0].place], run) for run in _runs(chosen)]


def _unique_sentences(query: str, candidates: Sequence[Candidate]) -> list[_Sentence]:
    terms = _terms(query)
    frequencies = Counter(term for candidate in candidates for term in _terms(candidate.content) & terms)
    weights = {term: _idf(frequencies[term], len(candidates)) for term in sorted(terms)}
    total = math.fsum(weights.values()) or 1.0
    covered: dict[str, _Covered] = {}
    sentences = []
    for index, candidate in enumerate(candidates):
        known = covered.setdefault(candidate.doc_id, _Covered())
        for number, (start, end) in enumerate(split_sentences(candidate.content)):
            written = "overlay" in candidate.attributes  # by a person: its sentences lie nowhere in the document
            if not written and not known.add(candidate.start + start, candidate.start + end):
                continue
            text = candidate.content[start:end]
            shared = set() if _HEADING.match(text) else _terms(text) & terms
            score = math.fsum(weights[term] for term in shared) / total
            sentences.append(_Sentence(index, number, start, end, len(text.split()), score))
    return sentences


def _choose(sentences: list[_Sentence], policy: CompressPolicy) -> list[_Sentence]:
    """The sentences kept, by candidate and position."""
    by_place = {(item.place, item.number): item for item in sentences}
    ranked = sorted(
        [item for item in sentences if item.score > 0] or sentences,
        key=lambda item: (-item.score, item.place, item.number),
    )
    chosen: dict[tuple[int, int], _Sentence] = {}
    left = math.inf if policy.token_budget is None else policy.token_budget
    for sentence in ranked[: policy.max_sentences]:
        if sentence.tokens > left and (sentence.place, sentence.number) not in chosen:
            continue
        for number in _outwards(sentence.number, policy.window if policy.kind == "window" else 0):
            position = (sentence.place, number)
            if position in by_place and position not in chosen and by_place[position].tokens <= left:
                chosen[position] = by_place[position]
                left -= by_place[position].tokens
    if ranked and not chosen and policy.token_budget is not None:
        return [replace(ranked[0], tokens=policy.token_budget)]
    return [chosen[position] for position in sorted(chosen)]


def _outwards(number: int, reach: int) -> Iterator[int]:
    yield number
    for distance in range(1, reach + 1):
        yield from (number - distance, number + distance)


def _runs(sentences: list[_Sentence]) -> list[list[_Sentence]]:
    """Neighbours of one candidate together."""
    runs: list[list[_Sentence]] = []
    for sentence in sentences:
        if runs and runs[-1][-1].place == sentence.place and runs[-1][-1].number == sentence.number - 1:
            runs[-1].append(sentence)
        else:
            runs.append([sentence])
    return runs


def _span(candidate: Candidate, run: list[_Sentence]) -> dict[str, Any]:
    content = _first_words(candidate.content[run[0].start : run[-1].end], sum(item.tokens for item in run))
    start = candidate.start + run[0].start
    return {
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "rank": run[0].place + 1,
        "start": start,
        "end": start + len(content),
        "content": content,
        "score": max(item.score for item in run),
        "tokens_before": len(candidate.content.split()),
        "tokens_after": len(content.split()),
    }


def _first_words(text: str, count: int) -> str:
    parts = text.split(None, count)
    return text[: -len(parts[count])].rstrip() if len(parts) > count else text


def _idf(documents: int, total: int) -> float:
    return math.log1p((total - documents + 0.5) / (documents + 0.5))


def _terms(text: str) -> set[str]:
    """Case-folded words; scripts without spaces between words as pairs of characters."""
    return set(word_terms(text))
