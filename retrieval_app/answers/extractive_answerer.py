"""Answers made of quotations: the best sentences of the best passages, each an exact slice of its document.

A sentence scores by what it means (cosine of its embedding with the question's), by which of the question's words it
holds (weighted by how rare they are in what was found), and by the rank of its passage. Same sources, same answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import regex

from ragd import telemetry
from ragd.errors import DimensionMismatch, EmbedderError, RagdError
from ragd.text.chunking import split_sentences
from ragd.text.languages import count_ideographs, pairs_of, split_runs
from ragd.types import Candidate, Embedder
from retrieval_app.answers.answer_html import BAR
from retrieval_app.answers.citations import CheckedAnswer, QuotedAnswer, is_written
from retrieval_app.answers.protocol import AnswerListener, Draft
from retrieval_app.answers.refusals import NOTHING_FOUND, WEAK_EVIDENCE
from retrieval_app.llm.chat_completion import TokenUsage

SOURCES_READ = 8
SENTENCES_EMBEDDED = 12
SENTENCES_QUOTED = 3
SENTENCE_CHARS = (20, 900)
STATEMENT_CHARS = 12  # the least where it ends as a sentence does
MEANING_WEIGHT, WORDS_WEIGHT, RANK_WEIGHT = 0.5, 0.3, 0.2
NEAR_BEST = 0.75
SAME_WORDS = 0.7
EVIDENCE_MIN = 0.36
WORDS_ASKED = 2

ENGLISH = (
    "a about after all also am an and any are as at be been before being but by can could did do does doing for "
    "from had has have having he her here him his how i if in into is it its just me more most my no not of off "
    "on one only or other our out over own please same she should so some such tell than that the their them then "
    "there these they this those through to too under up us use used using very was we were what when where which "
    "while who whom whose why will with would you your"
)
STOP_WORDS = frozenset(ENGLISH.split())
WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*+(?:['\u2019-][\p{L}\p{N}][\p{L}\p{N}\p{M}]*+)*+")
LETTER = regex.compile(r"[\p{L}\p{M}]")
LEAD = re.compile(r"\s*(?:(?:>|[-*+\u2022]|[0-9]{1,3}[.)])\s+)*")  # of quotes and list items; matches always
SUFFIX = re.compile(r"(?:'s|\u2019s|ies|ing|ed|es|s|ly)$")
DASHES = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
STATED = (".", "!", "\u3002", "\uff01")
CLOSED = (".", "!", "?", "\u3002", "\uff01", "\uff1f", "\u2026", ":", ";")


@dataclass(frozen=True, slots=True)
class Sentence:
    """content[start:end] of sources[source]. words: its stems. meaning: cosine with the question, 0 until embedded.

    words_share: of the question's words, those in the sentence. asked_share: of the sentence's own words without
    numbers, those in the question; 0 below WORDS_ASKED of them, for a row, and where the sentence says nothing else.
    columns: of a row of a table, the names of its columns. read_as: each of its cells behind the name of its column,
    which is what is embedded; words then has those of the header too.
    """

    source: int
    start: int
    end: int
    text: str
    words: frozenset[str]
    words_share: float = 0.0
    asked_share: float = 0.0
    meaning: float = 0.0
    read_as: str = ""
    columns: tuple[str, ...] | None = None

    @property
    def is_row(self) -> bool:
        return bool(self.read_as)

    @property
    def evidence(self) -> float:
        """0..1: how far the sentence alone answers to the question, wherever its passage ranks.

        A short sentence cannot hold the words of a longer question; that it is about little else counts as much.
        """
        words = max(self.words_share, self.asked_share)
        return (MEANING_WEIGHT * self.meaning + WORDS_WEIGHT * words) / (MEANING_WEIGHT + WORDS_WEIGHT)

    @property
    def score(self) -> float:
        return MEANING_WEIGHT * self.meaning + WORDS_WEIGHT * self.words_share + RANK_WEIGHT * rank_value(self.source)


class ExtractiveAnswerer:
    """Needs no key and no network. Reads SOURCES_READ sources, embeds SENTENCES_EMBEDDED sentences at most."""

    name = "extractive"
    system = "ragd.extractive"
    model = "extractive"
    instructions = ""

    def __init__(self, embedder: Embedder, *, evidence_min: float = EVIDENCE_MIN) -> None:
        """without_embedder: where the embedder does not answer, this is told why, and the words of the question alone
        choose the sentences; None: that fails. words_only: the embedder is not asked."""
        self.embedder = embedder
        self.evidence_min = evidence_min
        self.without_embedder: Callable[[RagdError], object] | None = None
        self.words_only = False

    def answer(
        self,
        query: str,
        sources: Sequence[Candidate],
        spans: Sequence[Mapping[str, Any]] = (),
        *,
        listener: AnswerListener | None = None,
    ) -> Draft:
        """Up to SENTENCES_QUOTED quotations with markers, or an abstention when no sentence is evidence enough.

        With spans only what they hold is read and quoted. The listener is not told: the answer is there all at once.
        """
        used_sources = sources[:SOURCES_READ]
        texts = [span["content"] for span in spans if span["rank"] <= len(used_sources)]
        texts = texts if spans else [source.content for source in used_sources]
        read = sum(self.embedder.count_tokens(text) for text in texts)
        question = [{"role": "user", "content": query}]
        with telemetry.ChatCall(self.system, self.model, messages=question, input_tokens=read) as call:
            ranked = self.rank_sentences(query, used_sources, spans)
            evidence = max((sentence.evidence for sentence in ranked), default=0.0)
            abstained = evidence < self.evidence_min
            refusal = CheckedAnswer(WEAK_EVIDENCE if ranked else NOTHING_FOUND)
            checked = refusal if abstained else quote(choose_sentences(ranked), used_sources)
            written = 0 if abstained else self.embedder.count_tokens(checked.answer)
            call.confidence = evidence
            call.finish(checked.answer, finish_reasons=["stop"], output_tokens=written)
        usage = TokenUsage(read, written, estimated=True)
        return Draft(checked, abstained, usage, len(used_sources), evidence=round(evidence, 6))

    def rank_sentences(
        self, query: str, sources: Sequence[Candidate], spans: Sequence[Mapping[str, Any]] = ()
    ) -> list[Sentence]:
        """Best first; ties by source rank, then place."""
        readable = read_sentences(sources)
        selected = [item for item in readable if _is_kept(item, sources[item.source], spans)] if spans else readable
        sentences = weigh_words(query, selected)
        shortlist = sorted(sentences, key=_preselection)[:SENTENCES_EMBEDDED]
        return sorted(self._weigh_meaning(query, shortlist), key=lambda item: (-item.score, item.source, item.start))

    def _weigh_meaning(self, query: str, sentences: Sequence[Sentence]) -> list[Sentence]:
        if not sentences:
            return []
        if self.words_only:
            return [replace(sentence, meaning=sentence.words_share) for sentence in sentences]
        try:
            question = _unit(np.asarray(self.embedder.embed_query(query), dtype=np.float64))
            vectors = self.embedder.embed([sentence.read_as or sentence.text for sentence in sentences])
        except (EmbedderError, DimensionMismatch) as error:
            if self.without_embedder is None:
                raise
            self.without_embedder(error)
            return [replace(sentence, meaning=sentence.words_share) for sentence in sentences]
        cosines = [float(_unit(np.asarray(vector, dtype=np.float64)) @ question) for vector in vectors]
        return [
            replace(sentence, meaning=min(1.0, max(0.0, round(cosine, 6))))
            for sentence, cosine in zip(sentences, cosines, strict=True)
        ]


def read_sentences(sources: Sequence[Candidate]) -> list[Sentence]:
    """The sentences of the sources in rank order, each place of a document once, headings and scraps left out."""
    known: set[tuple[str, int, int]] = set()
    sentences = []
    for number, source in enumerate(sources):
        headers = RowReader(source)
        for start, end in split_sentences(source.content):
            if lead := LEAD.match(source.content, start, end):
                start = lead.end()
            text = source.content[start:end].rstrip()
            header, row = headers.read(start, text)
            if row:
                start, text = start + 1 + len(text[1:]) - len(text[1:].lstrip()), text[1:-1].strip()
            written = is_written(source.attributes)  # then it stands nowhere else
            first = start if written else source.start + start
            index = (f"{source.doc_id}#{number}" if written else source.doc_id, first, first + len(text))
            if index in known or not (row or _is_quotable(text)):
                continue
            known.add(index)
            words, columns = stems(f"{header} {text}"), tuple(_cells(header)) if row else None
            sentences.append(Sentence(number, start, start + len(text), text, words, read_as=row, columns=columns))
    return sentences


class RowReader:
    """Reads the rows of the tables in one source, each under its header: that in the content, or in its context."""

    def __init__(self, source: Candidate) -> None:
        above = source.context.rpartition("\n")[2]
        self.content = source.content
        self.header = above if above.startswith("|") else ""
        self.end = 0

    def read(self, start: int, text: str) -> tuple[str, str]:
        """(the header, "column: cell; ..." ) of a row; ("", "") for what is none, a header or dashes. Ascending."""
        if not (text.startswith("|") and text.endswith("|") and len(text) <= SENTENCE_CHARS[1]):
            return "", ""
        if self.content[self.end : start].strip():
            self.header = ""  # of a table before
        self.end = start + len(text)
        below = self.content[self.end + 1 :].partition("\n")[0]
        if DASHES.fullmatch(below):
            self.header = text
        names, cells = _cells(self.header), _cells(text)
        if self.header in ("", text) or DASHES.fullmatch(text) or not any(map(str.isalnum, text)):
            return "", ""
        named = zip(names + [""] * len(cells), cells, strict=False)
        return self.header, "; ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell)


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in BAR.split(row)[1:-1]]


def _is_kept(sentence: Sentence, source: Candidate, spans: Sequence[Mapping[str, Any]]) -> bool:
    start, end = source.start + sentence.start, source.start + sentence.end
    return any(span["rank"] == sentence.source + 1 and span["start"] <= start and end <= span["end"] for span in spans)


def weigh_words(query: str, sentences: Sequence[Sentence]) -> list[Sentence]:
    """words_share: share of the question's words in the sentence, each weighted by its rarity among the sentences,
    rows of tables left out where there is anything else: they repeat the words of their header."""
    requested = stems(query)
    counted = [sentence for sentence in sentences if not sentence.is_row] or sentences
    counts = Counter(word for sentence in counted for word in sentence.words & requested)
    weights = {word: math.log(1 + (len(counted) + 0.5) / (counts[word] + 0.5)) for word in sorted(requested)}
    total = sum(weights.values())
    if not total:
        return list(sentences)
    return [
        replace(
            sentence,
            words_share=round(sum(weights[word] for word in sorted(sentence.words & requested)) / total, 6),
            asked_share=_asked_share(sentence, requested),
        )
        for sentence in sentences
    ]


def _asked_share(sentence: Sentence, requested: frozenset[str]) -> float:
    shared = sentence.words & requested
    if sentence.is_row or len(shared) < WORDS_ASKED or sentence.words <= requested:
        return 0.0
    own = [word for word in sentence.words if not any(map(str.isnumeric, word))]
    return round(len(shared.intersection(own)) / len(own), 6) if own else 0.0


def choose_sentences(ranked: Sequence[Sentence]) -> list[Sentence]:
    """The best sentence and those near it that say something else; by source rank, then in document order."""
    chosen: list[Sentence] = []
    named = max((sentence.words_share for sentence in ranked if sentence.is_row), default=0.0)
    for sentence in ranked:
        if sentence.is_row and sentence.words_share < named:
            continue  # it shares the header with the row that was asked for, and says less of it
        if len(chosen) == SENTENCES_QUOTED or sentence.score < NEAR_BEST * ranked[0].score:
            break
        if all(_shared_words(sentence, other) < SAME_WORDS for other in chosen):
            chosen.append(sentence)
    return sorted(chosen, key=lambda item: (item.source, item.start))


def quote(chosen: Sequence[Sentence], sources: Sequence[Candidate]) -> CheckedAnswer:
    """The sentences, each followed by the marker of its source. A marker inside a quotation is not a citation."""
    answer = QuotedAnswer()
    for index, sentence in enumerate(chosen):
        before = ""
        if index:
            before = " " if chosen[index - 1].text.endswith(CLOSED) and "\n" not in sentence.text else "\n"
        source, marker = sources[sentence.source], sentence.source + 1
        answer.add(before, sentence.text, source, marker, sentence.start, sentence.end, sentence.columns)
    return answer.checked()


def stems(text: str) -> frozenset[str]:
    """The words of a text without stop words, folded, common English endings cut."""
    return frozenset(list_stems(text))


def list_stems(text: str, *, with_stop_words: bool = False) -> list[str]:
    """`stems` in the text's order, each as often as it stands there; text without spaces as pairs, last."""
    rest, runs = split_runs(text)
    words = [word.casefold() for word in WORD.findall(rest)]
    for run in runs:
        words += pairs_of(run)
    return [_stem(word) for word in words if with_stop_words or word not in STOP_WORDS]


def rank_value(source: int) -> float:
    """1.0 for the first source, falling by halves every three ranks."""
    return float(0.5 ** (source / 3))


def _stem(word: str) -> str:
    cut = SUFFIX.sub("", word)
    return cut if len(cut) > 2 else word


def _is_quotable(text: str) -> bool:
    low, high = SENTENCE_CHARS
    low = STATEMENT_CHARS if text.endswith(STATED) else low
    letters, numbers = len(LETTER.findall(text)), sum(map(str.isnumeric, text))
    # a character of Chinese or Japanese says as much as three letters
    return (
        low <= len(text) + 2 * count_ideographs(text)
        and len(text) <= high
        and letters * 4 >= len(text)  # more numbers than letters: a telephone number, not a row of figures
        and (letters + numbers) * 2 >= len(text)
        and not text.startswith(("#", "|", "```", "~~~"))
    )


def _preselection(sentence: Sentence) -> tuple[float, int, int]:
    return (-(sentence.words_share + 0.5 * rank_value(sentence.source)), sentence.source, sentence.start)


def _shared_words(one: Sentence, other: Sentence) -> float:
    union = len(one.words | other.words)
    return len(one.words & other.words) / union if union else 1.0


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
