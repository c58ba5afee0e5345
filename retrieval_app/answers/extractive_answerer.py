"""Answers made of quotations: the best sentences of the best passages, each an exact slice of its document.

A sentence scores by what it means (cosine of its embedding with the question's), by which of the question's words it
holds (weighted by how rare they are in what was found), and by the rank of its passage. Same sources, same answer.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import regex
import unicodedata2

from ragd import telemetry
from ragd.errors import DimensionMismatch, EmbedderError, RagdError
from ragd.models import minilm
from ragd.text.chunking import split_sentences
from ragd.text.languages import count_ideographs, detect_language, pairs_of, split_runs
from ragd.types import Candidate, Embedder
from retrieval_app.answers.answer_html import BAR
from retrieval_app.answers.citations import CheckedAnswer, QuotedAnswer, is_written
from retrieval_app.answers.protocol import AnswerListener, Draft
from retrieval_app.answers.refusals import NOT_FOUND, NOTHING_FOUND, WEAK_EVIDENCE
from retrieval_app.llm.chat_model import TokenUsage

MODEL: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("quoting.toml").read_text(encoding="utf-8"))
ORDER = ("words", "known_words", "around", "passage", "rank", "kind", "length", "new_words", "relative", "meaning",
         "behind")  # fmt: skip
CERTAINTY = ("passage", "best_passage", "absent", "score", "margin", "lead", "kind", "has_kind", "names", "has_names",
             "length", "ahead", "words", "rarest", "meaning", "meaning_ahead", "meaning_best", "reads")  # fmt: skip
PREFIX = 5  # letters that two forms of a longer word share
FORM_SHARE = 0.8  # what another form of a word counts
MEANING_AHEAD = 5  # the sentence, by meaning, that the best is compared with
PASSAGES_AHEAD = 3
HEADING_SHARE = 0.7  # what a heading's word counts for the sentences behind the first
OTHER_KEY = 20.0  # more than any two scores differ by

WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*+(?:['\u2019-][\p{L}\p{N}][\p{L}\p{N}\p{M}]*+)*+")
SUFFIX = regex.compile(r"(?:'s|\u2019s|ies|ing|ed|es|s|ly)$")
_ACCENTS = regex.compile(r"(?<=[\p{Latin}\p{Greek}\p{Cyrillic}]\p{Mn}*)\p{Mn}|[\u064b-\u065f\u0670\u0640\u0591-\u05c7]")
_LETTERS = str.maketrans({"ı": "i", "đ": "d", "أ": "ا", "إ": "ا", "آ": "ا", "ة": "ه", "ى": "ي"})
_ARTICLE = regex.compile(r"^[وف]?(?:ال|بال|كال|لل)(?=\p{L}{3})")
_NUMBER = regex.compile(r"\p{N}[\p{N}.,]*")
_YEAR = regex.compile(r"(?<!\d)(?:1\d{3}|20\d{2}|[5-9]\d\d)(?!\d)|\d[年月]")
_STARTS = r"(?<!(?:^|[.!?:;…|\n¿¡])\P{L}{0,3})"  # what a sentence begins with is a capital in any case
_NAME = regex.compile(_STARTS + r"\b\p{Lu}[\p{L}\p{M}]+")
# of German, whose nouns are all capitals
_RUN = regex.compile(r"\b\p{Lu}[\p{L}-]+(?:\s(?:(?:von|van|de|der|ibn)\s)?\p{Lu}[\p{L}-]+)+")


def fold(text: str) -> str:
    """Without case, accents and the signs that Arabic and Hebrew put on letters."""
    text = text.casefold()
    if text.isascii():
        return text
    bare = _ACCENTS.sub("", unicodedata2.normalize("NFD", text))
    return str(unicodedata2.normalize("NFC", bare)).translate(_LETTERS)


def _expressions(name: str) -> dict[str, Any]:
    return {language: regex.compile(fold(text)) for language, text in MODEL[name].items()}


_FUNCTION = {language: frozenset(map(fold, words.split())) for language, words in MODEL["function"].items()}
_ANY_FUNCTION = frozenset[str]().union(*_FUNCTION.values())
_KINDS = {kind: _expressions(kind) for kind in ("date", "number", "person", "reason", "way", "formula")}
_BECAUSE = _expressions("because")
_ALSO = {language: regex.compile(text, regex.IGNORECASE) for language, text in MODEL["also"].items()}
_DIFFERENCE = {language: (regex.compile(text), each) for language, (text, each) in MODEL["difference"].items()}
_CODE = regex.compile(r"`[^`\n]*`|```|~~~|\*[^*\n]+\*.*\*[^*\n]+\*|^\p{L}+ \*")
_FORMULA = regex.compile(r"[=≈+*/×÷·√Σ∑^−]\s?[\p{L}\p{N}(]")
_ASKED = regex.compile(r"(?<=[?？؟])\s+(?=[^\s?])")
_NUMERAL = regex.compile(rf"\b(?:{fold(MODEL['numeral']['words'])})\b|{MODEL['numeral']['unspaced']}")
_UNSPACED = regex.compile(MODEL["function_unspaced"]["words"])


@dataclass(frozen=True, slots=True)
class Question:
    """words: its content words, folded, each once, in order. kind: one of _KINDS or "".
    names: its capitalized words but the first, and its numbers."""

    text: str
    language: str
    words: tuple[str, ...]
    kind: str
    names: tuple[str, ...]


@lru_cache(maxsize=256)
def read_question(text: str, likely: str = "") -> Question:
    """likely: the language of the passages, which the question is in where nothing speaks against it."""
    language = detect_language(text, likely)
    asked = fold(text)
    kind = next((kind for kind, each in _KINDS.items() if language in each and each[language].search(asked)), "")
    names = (*_names(text, ""), *_NUMBER.findall(text))
    return Question(text, language, tuple(dict.fromkeys(content_words(text, language))), kind, names)


def _names(text: str, language: str) -> list[str]:
    """The capitals inside of sentences; of German two or more that follow each other."""
    if language != "de":
        return [found[0] for found in _NAME.finditer(text)]
    runs = [[word for word in run[0].split() if fold(word) not in _FUNCTION["de"]] for run in _RUN.finditer(text)]
    return [word for run in runs if len(run) > 1 for word in run]


def content_words(text: str, language: str) -> list[str]:
    """The words that say something, folded, in order; text without spaces as pairs of characters, last."""
    rest, runs = split_runs(fold(text))
    function = _FUNCTION.get(language, _ANY_FUNCTION)
    words = [_question_stem(word) for word in WORD.findall(rest) if word not in function]
    for run in runs:
        for part in _UNSPACED.split(run):
            words += pairs_of(part) if part else []
    return words


def _question_stem(word: str) -> str:
    if word.isascii():
        cut = SUFFIX.sub("", word)
        return cut if len(cut) > 2 else word
    return str(_ARTICLE.sub("", word))


def split_questions(text: str) -> list[str]:
    """The questions in one, in order, where their words say where each begins; else the text alone."""
    parts = [part for whole in _ASKED.split(text) for part in _also(whole)]
    return [part.strip() for part in parts if len(part.split()) > 1 or part.strip() == text] or [text]


def _also(text: str) -> list[str]:
    language = detect_language(text)
    difference, each = _DIFFERENCE.get(language, (None, ""))
    if difference and (found := difference.search(text)):
        return [each.format(thing) for thing in found.groups()]
    between = _ALSO.get(language)
    return between.split(text) if between else [text]


class Matcher:
    """Which of a question's words a text holds: 1.0, or FORM_SHARE for another form that begins alike."""

    def __init__(self, words: Sequence[str]) -> None:
        self.places = {word: place for place, word in enumerate(words)}
        self.beginnings: dict[str, list[int]] = {}
        for word, place in self.places.items():
            if len(word) > 2 and not any(map(str.isnumeric, word)):  # a number or a key has no other form
                least = max(4 if len(word) > 4 else 3, math.ceil(0.6 * len(word)))
                self.beginnings.setdefault(word[: min(least, max(PREFIX, 3))], []).append(place)
        self.lengths = sorted({len(beginning) for beginning in self.beginnings})

    def match(self, words: Sequence[str]) -> np.ndarray:
        row = np.zeros(len(self.places))
        for word in words:
            place = self.places.get(word)
            if place is not None:
                row[place] = 1.0
            for length in self.lengths:
                for other in self.beginnings.get(word[:length], ()):
                    row[other] = max(row[other], FORM_SHARE)
        return row


@dataclass(frozen=True, slots=True)
class Place:
    """A sentence to be weighed. source: index of its passage. text: as read; heading: above it; opens: it is the first
    below that. is_row: it is a row of a table, which no other row says more about."""

    source: int
    text: str
    heading: str = ""
    opens: bool = False
    is_row: bool = False


class Weighing:
    """The question against the sentences of the sources, in their order. order: one row of ORDER per sentence."""

    def __init__(self, question: Question, sources: Sequence[Candidate], places: Sequence[Place]) -> None:
        self.question, self.sources, self.places = question, sources, places
        self.cosines: np.ndarray | None = None
        matcher, language = Matcher(question.words), question.language
        own = [content_words(place.text, language) for place in places]
        self._held = _stack([matcher.match(words) for words in own], len(question.words))
        texts = [content_words(source.text, language) for source in sources]
        self._passages = _stack([matcher.match(words) for words in texts], len(question.words))
        holding = (self._held > 0).sum(axis=0)
        self._rarity = np.log(1 + (len(places) + 0.5) / (holding + 0.5))
        total = float(self._rarity.sum()) or 1.0
        known = self._rarity * (self._passages > 0).any(axis=0)
        self._absent = 1 - float(known.sum()) / total if question.words else 0.0
        self._by_passage = self._passages @ self._rarity / total
        words = self._held @ self._rarity / total
        known_words = self._held @ known / (float(known.sum()) or 1.0)
        headings = {place.heading: matcher.match(content_words(place.heading, language)) for place in places}
        rows = []
        for index, place in enumerate(places):
            share = 1.0 if place.opens else HEADING_SHARE
            around = np.maximum(self._held[index], share * headings[place.heading])
            if index and places[index - 1].source == place.source and not place.is_row:
                around = np.maximum(around, self._held[index - 1])
            rows.append(
                (
                    words[index], known_words[index], float(around @ self._rarity / total - words[index]),
                    self._by_passage[place.source], 0.5 ** (place.source / 3), self._offer(place.text),
                    math.log(1 + len(own[index])), math.log(1 + len(set(own[index]).difference(question.words))),
                    words[index] / (float(words.max()) or 1.0),
                )
            )  # fmt: skip
        self.order = np.hstack([np.array(rows).reshape(len(places), len(ORDER) - 2), np.zeros((len(places), 2))])

    def with_meaning(self, cosines: Mapping[int, float]) -> Weighing:
        """The same with the cosine of some sentences, by index, with the question; the others get the least of them."""
        weighing = copy(self)
        least = min(cosines.values())
        weighing.cosines = np.array([cosines.get(index, least) for index in range(len(self.places))])
        behind = weighing.cosines - weighing.cosines.max()
        weighing.order = np.column_stack([self.order[:, :-2], weighing.cosines, behind])
        return weighing

    def scores(self) -> np.ndarray:
        """One per sentence: higher is likelier to answer."""
        weights = MODEL["order"]["words" if self.cosines is None else "meaning"]
        scores: np.ndarray = self.order @ np.array(weights)
        return scores - OTHER_KEY * self._of_other_keys()

    def _of_other_keys(self) -> np.ndarray:
        """Which rows lack a key or number of the question that another row holds. To an encoder keys look alike."""
        keys = [place for place, word in enumerate(self.question.words) if any(map(str.isnumeric, word))]
        rows = np.array([place.is_row for place in self.places], bool)
        if not keys or not rows.any():
            return np.zeros(len(rows))
        held = self._held[:, keys]
        lacking: np.ndarray = rows & (held < held[rows].max(axis=0)).any(axis=1)
        return lacking.astype(float)

    def certainty(self) -> float:
        """0 to 1: how sure it is that one of the sentences answers; 0.0 without sentences."""
        if not self.places:
            return 0.0
        value = float(self.features() @ np.array(MODEL["certainty"]["weights"])) + MODEL["certainty"]["intercept"]
        return 1 / (1 + math.exp(-value))

    def features(self) -> np.ndarray:
        """CERTAINTY, of the sentence with the highest score."""
        scores, question = self.scores(), self.question
        best = int(np.argmax(scores))
        place = self.places[best]
        passages = np.sort(self._by_passage)[::-1]
        others = [scores[index] for index, other in enumerate(self.places) if other.source != place.source]
        rarest = np.argsort(-self._rarity, kind="stable")[: max(1, len(self._rarity) // 3)]
        meaning = np.zeros(1) if self.cosines is None else np.sort(self.cosines)[::-1]
        return np.array(
            (
                self._by_passage[place.source], passages[0], self._absent, scores[best],
                min(3.0, scores[best] - max(others)) if others else 1.0,
                1 / float(np.exp(scores - scores[best]).sum()), self.order[best, ORDER.index("kind")],
                bool(question.kind), self._named(self.sources[place.source].text),
                bool(question.names),
                math.log(1 + len(question.words)),
                passages[0] - passages[min(PASSAGES_AHEAD, len(passages) - 1)], self.order[:, 0].max(),
                float(self._passages[place.source, rarest].mean()) if question.words else 0.0,
                meaning[0], meaning[0] - meaning[min(MEANING_AHEAD, len(meaning) - 1)],
                0.0 if self.cosines is None else self.cosines[best], self.cosines is not None,
            ),
            dtype=float,
        )  # fmt: skip

    def _named(self, text: str) -> float:
        """The share of the question's names and numbers that the text holds; 1.0 where it has none."""
        names = self.question.names
        return sum(name[: max(4, int(len(name) * 0.7))] in text for name in names) / len(names) if names else 1.0

    def _offer(self, text: str) -> float:
        """0 to 1: how far the text holds the kind of answer that is asked for; 0 where no kind is."""
        kind, asked = self.question.kind, self.question.text
        if kind == "number":
            numbers = [number for number in _NUMBER.findall(text) if number not in asked]
            if any(not _YEAR.fullmatch(number) for number in numbers):
                return 1.0
            return 0.7 if _NUMERAL.search(fold(text)) else 0.3 if numbers else 0.0
        if kind == "date":
            is_new = any(year[0] not in asked for year in _YEAR.finditer(text))
            return 1.0 if is_new else 0.5 * bool(_NUMBER.search(text))
        if kind == "person":
            return float(any(name not in asked for name in _names(text, self.question.language)))
        if kind in ("way", "formula"):
            return 0.5 * bool((_CODE if kind == "way" else _FORMULA).search(text))  # many a sentence holds one
        if kind == "reason":
            because = _BECAUSE.get(self.question.language)
            return float(bool(because and because.search(fold(text))))
        return 0.0


def _stack(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    return np.array(rows).reshape(len(rows), width)


SOURCES_READ = 12
SENTENCES_EMBEDDED = 12
SOURCES_CHECKED = 4  # for whether the encoder reads their language
SENTENCES_QUOTED = 3
WORDS_QUOTED = 60  # at most, unless one sentence alone has more
SENTENCE_CHARS = (20, 900)
BLOCK_CHARS = 900  # of a list or code that is quoted with the sentence before it
STATEMENT_CHARS = 12  # the least where it ends as a sentence does
NEAR_BEST = 2.0  # below the best score
SAME_WORDS = 0.7
EVIDENCE_MIN = float(MODEL["certainty"]["least"])

ENGLISH = (
    "a about after all also am an and any are as at be been before being but by can could did do does doing for "
    "from had has have having he her here him his how i if in into is it its just me more most my no not of off "
    "on one only or other our out over own please same she should so some such tell than that the their them then "
    "there these they this those through to too under up us use used using very was we were what when where which "
    "while who whom whose why will with would you your"
)
STOP_WORDS = frozenset(ENGLISH.split())
LETTER = regex.compile(r"[\p{L}\p{M}]")
LEAD = re.compile(r"\s*(?:(?:>|[-*+\u2022]|[0-9]{1,3}[.)])\s+)*")  # of quotes and list items; matches always
CODE = re.compile(r"^ {0,3}(```|~~~).*(?:\n.*)*?(?:\n {0,3}\1[ \t]*$|\Z)", re.MULTILINE)
BOLD = re.compile(r"\W*\*\*[^*\n]+\*\*\W*")
ITEM = re.compile(r"\n+[ \t]*(?:[-*+\u2022]|[0-9]{1,3}[.)])\s.*(?:\n[ \t]+\S.*)*")
ASKED = "?\uff1f\u061f ."  # what a question ends with
DASHES = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
STATED = (".", "!", "\u3002", "\uff01")
CLOSED = (".", "!", "?", "\u3002", "\uff01", "\uff1f", "\u2026", ":", ";")


@dataclass(frozen=True, slots=True)
class Sentence:
    """content[start:end] of sources[source]. heading: above it, "" without one; opens: it is the first below that.

    columns: of a row of a table, the names of its columns. read_as: each of its cells behind the name of its column,
    which is what is read of it. score: see `Weighing.scores`; 0.0 until it is weighed.
    """

    source: int
    start: int
    end: int
    text: str
    heading: str = ""
    opens: bool = False
    read_as: str = ""
    columns: tuple[str, ...] | None = None
    score: float = 0.0

    @property
    def is_row(self) -> bool:
        return bool(self.read_as)


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
            parts = split_questions(query)
            weighed = [self.weigh(part, used_sources, spans) for part in parts]
            evidence = max(certainty for _, certainty in weighed)
            abstained = evidence < self.evidence_min
            refusal = CheckedAnswer(WEAK_EVIDENCE if weighed[0][0] else NOTHING_FOUND)
            kept = [ranked for ranked, certainty in weighed if certainty >= self.evidence_min]
            missing = [
                part for part, (_, certainty) in zip(parts, weighed, strict=True) if certainty < self.evidence_min
            ]
            chosen = extend(choose_sentences(kept), used_sources)
            checked = refusal if abstained else quote(chosen, used_sources, missing)
            written = 0 if abstained else self.embedder.count_tokens(checked.answer)
            call.confidence = evidence
            call.finish(checked.answer, finish_reasons=["stop"], output_tokens=written)
        usage = TokenUsage(read, written, estimated=True)
        return Draft(checked, abstained, usage, len(used_sources), evidence=round(evidence, 6))

    def weigh(
        self, query: str, sources: Sequence[Candidate], spans: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[list[Sentence], float]:
        """(the sentences, best first, ties by source rank, then place; how sure it is that one of them answers)."""
        sentences, weighing = self.read(query, sources, spans)
        scored = [
            replace(item, score=round(float(score), 6))
            for item, score in zip(sentences, weighing.scores(), strict=True)
        ]
        return sorted(scored, key=lambda item: (-item.score, item.source, item.start)), weighing.certainty()

    def read(
        self, query: str, sources: Sequence[Candidate], spans: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[list[Sentence], Weighing]:
        """(the sentences, by source, then place; what is measured of each)."""
        asked = regex.compile(rf"{regex.escape(fold(query).rstrip(ASKED))}[{ASKED}]*[?\uff1f\u061f]")
        readable = [item for item in read_sentences(sources) if not asked.search(fold(item.text))]  # an echo, no answer
        sentences = [item for item in readable if _is_kept(item, sources[item.source], spans)] if spans else readable
        likely = str(sources[0].attributes.get("language", "")) if sources else ""
        places = [
            Place(item.source, item.read_as or item.text, item.heading, item.opens, item.is_row) for item in sentences
        ]
        weighing = Weighing(read_question(query, likely), sources, places)
        is_read = bool(places) and self._is_read(query, sources)
        return sentences, self._weigh_meaning(weighing) if is_read else weighing

    def _is_read(self, query: str, sources: Sequence[Candidate]) -> bool:
        """Whether the embedder is the bundled one, whose cosines the weights were fitted with, and reads most of it."""
        if self.words_only or self.embedder.model != minilm.MODEL:
            return False
        texts = [source.content for source in sources[:SOURCES_CHECKED]]
        readable = minilm.open_model(None).find_readable(query, texts)
        return 2 * sum(readable) > len(readable)

    def _weigh_meaning(self, weighing: Weighing) -> Weighing:
        """With the cosines of the SENTENCES_EMBEDDED sentences that are best by their words."""
        first = np.argsort(-weighing.scores(), kind="stable")[:SENTENCES_EMBEDDED]
        try:
            question = _unit(np.asarray(self.embedder.embed_query(weighing.question.text), dtype=np.float64))
            vectors = self.embedder.embed([_with_heading(weighing.places[place]) for place in first])
        except (EmbedderError, DimensionMismatch) as error:
            if self.without_embedder is None:
                raise
            self.without_embedder(error)
            return weighing
        cosines = [float(_unit(np.asarray(vector, dtype=np.float64)) @ question) for vector in vectors]
        return weighing.with_meaning(dict(zip(first.tolist(), cosines, strict=True)))


def read_sentences(sources: Sequence[Candidate]) -> list[Sentence]:
    """The sentences of the sources in rank order, each place of a document once, headings and scraps left out."""
    known: set[tuple[str, int, int]] = set()
    sentences = []
    for number, source in enumerate(sources):
        headers, heading, opens = RowReader(source), source.context.partition("\n")[0].rpartition(" > ")[2], True
        for start, end in _units(source.content):
            if lead := LEAD.match(source.content, start, end):
                start = lead.end()
            text = source.content[start:end].rstrip()
            if text.startswith("#"):
                heading, opens = text.strip("# "), True
            header, row = headers.read(start, text)
            if row:
                start, text = start + 1 + len(text[1:]) - len(text[1:].lstrip()), text[1:-1].strip()
            written = is_written(source.attributes)  # then it stands nowhere else
            first = start if written else source.start + start
            index = (f"{source.doc_id}#{number}" if written else source.doc_id, first, first + len(text))
            if index in known or not (row or _is_quotable(text)):
                continue
            known.add(index)
            columns = tuple(_cells(header)) if row else None
            sentences.append(Sentence(number, start, start + len(text), text, heading, opens, row, columns))
            opens = False
    return sentences


def _units(content: str) -> list[tuple[int, int]]:
    """Spans of sentences in order. A block of code is one; so is a bold lead with the sentence behind it, and what
    stands between two backticks is not cut."""
    spans: list[tuple[int, int]] = []
    begin = 0
    for block in [*CODE.finditer(content), None]:
        for start, end in split_sentences(content[begin : block.start() if block else None]):
            before = content[spans[-1][0] : begin + start] if spans and spans[-1][0] >= begin else "\n"
            is_open = not before.endswith("\n") and (before.count("`") % 2 or BOLD.fullmatch(before))
            first = spans.pop()[0] if is_open else begin + start
            spans.append((first, begin + end))
        if block:
            spans.append(block.span())
            begin = block.end()
    return spans


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


def _with_heading(place: Place) -> str:
    return f"{place.heading}: {place.text}" if place.opens and place.heading else place.text


def _is_kept(sentence: Sentence, source: Candidate, spans: Sequence[Mapping[str, Any]]) -> bool:
    start, end = source.start + sentence.start, source.start + sentence.end
    return any(span["rank"] == sentence.source + 1 and span["start"] <= start and end <= span["end"] for span in spans)


def choose_sentences(ranked: Sequence[Sequence[Sentence]]) -> list[Sentence]:
    """Of each question's sentences, best first: the best one, then those that are nearly as good, of the same form and
    say something else, up to WORDS_QUOTED words in all."""
    chosen = list(dict.fromkeys(sentences[0] for sentences in ranked if sentences))
    size = sum(count_words(sentence.text) for sentence in chosen)
    for sentences in ranked:
        for sentence in sentences:
            if len(chosen) >= SENTENCES_QUOTED or sentence.score < sentences[0].score - NEAR_BEST:
                break
            length = count_words(sentence.text)
            is_new = sentence.is_row == sentences[0].is_row and not any(_is_repeated(sentence, each) for each in chosen)
            if is_new and size + length <= WORDS_QUOTED:
                chosen.append(sentence)
                size += length
    return chosen


def extend(chosen: Sequence[Sentence], sources: Sequence[Candidate]) -> list[Sentence]:
    """The sentences, one that ends in a colon with the list or code behind it; what stands in another is left out."""
    longer: list[Sentence] = []
    for sentence in chosen:
        content, end = sources[sentence.source].content, sentence.end
        if sentence.text.endswith(":") and not sentence.is_row:
            code = CODE.match(content, len(content) - len(content[end:].lstrip()))
            end = code.end() if code else end
            while not code and (item := ITEM.match(content, end)):
                end = item.end()
        if sentence.end < end <= sentence.start + BLOCK_CHARS:
            sentence = replace(sentence, end=end, text=content[sentence.start : end])
        if not any(one.source == sentence.source and one.start <= sentence.start < one.end for one in longer):
            longer.append(sentence)
    return longer


def count_words(text: str) -> float:
    """Of text without spaces two characters count as a word."""
    rest, runs = split_runs(text)
    return len(rest.split()) + sum(map(len, runs)) / 2


def _is_repeated(sentence: Sentence, other: Sentence) -> bool:
    one, two = stems(sentence.text), stems(other.text)
    return len(one & two) >= SAME_WORDS * len(one | two)


def quote(chosen: Sequence[Sentence], sources: Sequence[Candidate], missing: Sequence[str] = ()) -> CheckedAnswer:
    """The sentences, each followed by the marker of its source, then the questions that nothing answers. A marker
    inside a quotation is not a citation."""
    answer = QuotedAnswer()
    for index, sentence in enumerate(chosen):
        before = ""
        if index:
            is_prose = chosen[index - 1].text.endswith(CLOSED) and not (sentence.is_row or "\n" in sentence.text)
            before = " " if is_prose else "\n"
        source, marker = sources[sentence.source], sentence.source + 1
        answer.add(before, sentence.text, source, marker, sentence.start, sentence.end, sentence.columns)
    for part in missing:
        answer.note(f"\n{NOT_FOUND} {part}")
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
        and not text.startswith(("#", "|"))
    )


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
