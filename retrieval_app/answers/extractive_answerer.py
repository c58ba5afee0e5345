"""Answers made of quotations: the best sentences of the best passages, each an exact slice of its document.

A sentence scores by what it means (how near its tokens come to each of the question's), by which of the question's
words it holds (weighted by how rare they are in what was found), and by the rank of its passage. Same sources, same
answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
import regex

from ragd import telemetry
from ragd.errors import EmbedderError, RagdError
from ragd.models import minilm, multilingual_e5
from ragd.models.embedding import CachingEmbedder
from ragd.models.late_interaction import TokenMatcher
from ragd.text.chunking import split_sentences
from ragd.text.languages import count_ideographs, pairs_of, split_runs
from ragd.types import Candidate, Embedder
from retrieval_app.answers.answer_html import BAR
from retrieval_app.answers.citations import CheckedAnswer, QuotedAnswer, is_written
from retrieval_app.answers.protocol import NOT_FOUND, NOTHING_FOUND, WEAK_EVIDENCE, AnswerListener, Draft
from retrieval_app.answers.question import (
    MODEL,
    SUFFIX,
    WORD,
    Question,
    are_contrasted,
    content_words,
    fold,
    read_question,
    split_questions,
    without,
)
from retrieval_app.answers.question_match import (
    BRACKETED,
    HEADED,
    KEY,
    KEY_LINE,
    QUESTION_MARKS,
    VALUE_CERTAINTY,
    Sentence,
    Weighing,
    whole,
)
from retrieval_app.llm.chat_model import TokenUsage

SOURCES_READ = 12
SENTENCES_ENCODED = {"meaning": 12, "multilingual": 8}
SENTENCES_CACHED = 2048
SOURCES_CHECKED = 4  # for whether the encoder reads their language
SENTENCES_QUOTED = 3
WORDS_QUOTED = 60  # at most, unless one sentence alone has more
SENTENCE_CHARS = (20, 900)
BLOCK_CHARS = 900  # of a list or code that is quoted with the sentence before it
STATEMENT_CHARS = 12  # the least where it ends as a sentence does
NEAR_BEST = 3.0  # below the best score
HEADINGS_QUOTED = 12
SAME_WORDS = 0.7
EVIDENCE_MIN = float(MODEL["certainty"]["least"])

STOP_WORDS = frozenset[str](MODEL["stop"]["en"].split())  # of `stems`
LETTER = regex.compile(r"[\p{L}\p{M}]")
LABEL = r"(?:[QAFPR]|Question|Answer|Frage|Antwort)\s?[0-9]{0,3}"
LEAD = re.compile(
    rf"\s*(?:(?:>|[-*+\u2022]|[0-9]{{1,3}}[.)]|{LABEL}:)\s+)*"
)  # of quotes, list items, questions and their answers; matches always
CODE = re.compile(r"^ {0,3}(```|~~~).*(?:\n.*)*?(?:\n {0,3}\1[ \t]*$|\Z)", re.MULTILINE)
BOLD = re.compile(r"\W*\*\*[^*\n]+\*\*(?:\s*\([^()\n]*\))?\W*")
SHORT = re.compile(rf"[^\W\d_][^\n]{{0,{STATEMENT_CHARS - 2}}}[.!]\s*")  # "No.", of which the next sentence is a part
ITEM = re.compile(r"\n+[ \t]*(?:[-*+\u2022]|[0-9]{1,3}[.)])\s.*(?:\n[ \t]+\S.*)*")
LISTED = re.compile(
    r"^[ \t]*(?:(?P<mark>[-*+\u2022]|[0-9]{1,3}[.)])[ \t]+|(?=\*\*))(?P<item>\S.*(?:\n[ \t]+\S.*)*)", re.MULTILINE
)
NAME = re.compile(r"(?:\*\*[^*\n]+\*\*|`[^`\n]+`)(?:\s*\([^()\n]*\))?")  # of an item that says more
MARKS = "|-*+\u2022.)0123456789 \t\n"  # before a row or an item
OPENING = re.compile(r"[\W_]*")
ASKED = "?\uff1f\u061f ."  # what a question ends with
HEADINGS = re.compile(r"(?:#.*(?:\n\s*|\Z))+")  # at the start of a unit: no empty line need follow
HEADING = re.compile(r"^(#+) +(\S.*?)[ \t#]*$", re.MULTILINE)
FILE_ENDS = re.compile(r".*/|\.\w+$")
RECORD = re.compile(rf"^[ \t]*(?!{LABEL}:)({KEY}):[ \t]+\S.*(?:\n[ \t]*{KEY}:[ \t]+\S.*)+", re.MULTILINE)
QUANTITY = re.compile(r"\d[\d.,/]*\s+[^\W\d_]{3}")  # "2 carrots" in a list
DASHES = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
STATED = (".", "!", "\u3002", "\uff01")
CLOSED = (".", "!", "?", "\u3002", "\uff01", "\uff1f", "\u2026", ":", ";")


@dataclass(frozen=True, slots=True)
class Part:
    """One of the questions in a question. sentences: best first, ties by source rank, then place. certainty: how sure
    it is that one of them answers. listing: all of what it asks for, in order, which answers in their place.
    headline: their number, where that is asked for. heading: that above the best one, where it is a part of the answer.
    """

    question: str
    sentences: list[Sentence]
    certainty: float
    listing: list[Sentence]
    headline: str = ""
    heading: Sentence | None = None


class ExtractiveAnswerer:
    """Needs no key and no network. Reads SOURCES_READ sources, encodes SENTENCES_ENCODED sentences at most."""

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
            parts = [self.weigh(part, used_sources, spans, topic=topic) for part, topic in split_questions(query)]
            evidence = max(part.certainty for part in parts)
            abstained = evidence < self.evidence_min
            refusal = CheckedAnswer(WEAK_EVIDENCE if parts[0].sentences else NOTHING_FOUND)
            answers = lead_with_contrast([part for part in parts if part.certainty >= self.evidence_min])
            missing = [part.question for part in parts if part.certainty < self.evidence_min]
            best = choose_sentences([part.sentences for part in answers if not part.listing])
            headings = [part.heading for part in answers if part.heading]
            quotes = [*chain.from_iterable(part.listing for part in answers), *headings, *extend(best, used_sources)]
            headline = next((part.headline for part in answers if part.headline), "")
            checked = refusal if abstained else quote(quotes, used_sources, missing, headline)
            written = 0 if abstained else self.embedder.count_tokens(checked.answer)
            call.confidence = evidence
            call.finish(checked.answer, finish_reasons=["stop"], output_tokens=written)
        usage = TokenUsage(read, written, estimated=True)
        return Draft(checked, abstained, usage, len(used_sources), evidence=round(evidence, 6))

    def weigh(
        self, query: str, sources: Sequence[Candidate], spans: Sequence[Mapping[str, Any]] = (), *, topic: str = ""
    ) -> Part:
        """topic: see `split_questions`. Where no sentence is evidence enough, or the best one says nothing of what is
        asked about a thing that titles name, what remains is asked of the sources with that title."""
        part, weighing = self._weigh(query, sources, spans, topic=topic)
        named, numbers = (set[str](), list[int]()) if spans else weighing.titled()
        language = weighing.question.language
        rest, before = without(query, named, language), without(topic, named, language)
        asked = content_words(f"{before} {rest}", language) if named else []
        if not asked or not part.sentences or part.listing or weighing.lacks_key():
            return part
        best = int(np.argmax(weighing.scores()))
        if part.certainty >= self.evidence_min and weighing.holds_any(best, asked):
            return part
        titled, again = self._weigh(rest, [sources[number] for number in numbers], (), topic=before)
        if not titled.sentences or titled.certainty < self.evidence_min:
            return part
        best = int(np.argmax(again.scores()))
        if not again.holds_any(best, asked) or not again.says_more(best):
            return part

        def place(items: list[Sentence]) -> list[Sentence]:
            return [replace(item, source=numbers[item.source]) for item in items]

        heading = place([titled.heading])[0] if titled.heading else None
        return replace(
            titled, question=query, sentences=place(titled.sentences), listing=place(titled.listing), heading=heading
        )

    def _weigh(
        self, query: str, sources: Sequence[Candidate], spans: Sequence[Mapping[str, Any]], *, topic: str
    ) -> tuple[Part, Weighing]:
        sentences, weighing = self.read(query, sources, spans, topic=topic)
        scored = [
            replace(item, score=round(float(score), 6))
            for item, score in zip(sentences, weighing.scores(), strict=True)
        ]
        best = int(np.argmax(weighing.scores())) if scored else 0
        if scored and weighing.goes_on(best):
            scored[best + 1] = replace(scored[best + 1], score=scored[best].score)
        in_order = sorted(scored, key=lambda item: (-item.score, item.source, item.start))
        listing = [] if spans else find_overview(weighing.question, sentences, sources)
        listing = listing or ([] if spans else find_listing(weighing, sentences, sources))
        certainty = weighing.certainty()
        if not listing:
            heading = find_heading(scored[best], sources) if scored and weighing.is_headed(best) else None
            return Part(query, in_order, certainty, [], heading=heading), weighing
        headline = weighing.question.count(len(listing))
        return Part(query, in_order, max(certainty, VALUE_CERTAINTY), listing, headline), weighing

    def read(
        self, query: str, sources: Sequence[Candidate], spans: Sequence[Mapping[str, Any]] = (), *, topic: str = ""
    ) -> tuple[list[Sentence], Weighing]:
        """(the sentences, by source, then place; what is measured of each)."""
        asked = regex.compile(rf"{regex.escape(fold(query).rstrip(ASKED))}[{ASKED}]*[?\uff1f\u061f]")
        readable = [item for item in read_sentences(sources) if not _echoes(asked, fold(item.text))]
        sentences = [item for item in readable if _is_kept(item, sources[item.source], spans)] if spans else readable
        likely = str(sources[0].attributes.get("language", "")) if sources else ""
        weighing = Weighing(read_question(query, likely, topic), sources, sentences)
        kind = self._encoder_kind(query, sources) if sentences else "words"
        return sentences, weighing if kind == "words" else self._weigh_meaning(weighing, kind)

    def _encoder_kind(self, query: str, sources: Sequence[Candidate]) -> str:
        """ "multilingual" where that is the embedder, "meaning" where it is the bundled one and reads most of the
        sources, else "words": the weights were fitted with these two."""
        if self.words_only or self.embedder.model not in (minilm.MODEL, multilingual_e5.MODEL):
            return "words"
        if self.embedder.model == multilingual_e5.MODEL:
            return "multilingual"
        texts = [source.content for source in sources[:SOURCES_CHECKED]]
        readable = minilm.open_model(None).find_readable(query, texts)
        return "meaning" if 2 * sum(readable) > len(readable) else "words"

    def _weigh_meaning(self, weighing: Weighing, kind: str) -> Weighing:
        """With what the encoder says of the SENTENCES_ENCODED sentences that are best by their words."""
        first = np.argsort(-weighing.scores(), kind="stable")[: SENTENCES_ENCODED[kind]].tolist()
        question, texts = weighing.question.text, [weighing.places[place].headed for place in first]
        try:
            if kind == "multilingual":
                near = np.array(sentence_embedder().embed(texts)) @ self.embedder.embed_query(question)
                return weighing.with_meaning(dict(zip(first, near[:, None], strict=True)), kind)
            best = encoder().best_cosines(question, texts)
        except EmbedderError as error:
            if self.without_embedder is None:
                raise
            self.without_embedder(error)
            return weighing
        tokens = {place: each[1:-1] for place, each in zip(first, best, strict=True)}
        return weighing.with_meaning(tokens, spans=minilm.open_model(None).token_spans(question))


def _echoes(asked: regex.Pattern[str], text: str) -> bool:
    """Whether a text repeats the question and gives no answer: it does where it begins with it, as a list of questions
    and answers does, and says something more."""
    found = asked.search(text)
    return bool(found) and not (OPENING.fullmatch(text, 0, found.start()) and WORD.search(text, found.end()))


@cache
def encoder() -> TokenMatcher:
    """The bundled encoder with the token vectors of the sentences that were read last in this process, 24 kB each."""
    return TokenMatcher(cached_windows=SENTENCES_CACHED)


@cache
def sentence_embedder() -> CachingEmbedder:
    """multilingual-e5-small with the vectors of the sentences that were read last in this process, 2 kB each."""
    return CachingEmbedder(multilingual_e5.MultilingualE5Embedder(), passages=SENTENCES_CACHED)


def read_sentences(sources: Sequence[Candidate]) -> list[Sentence]:
    """The sentences of the sources in rank order, each place of a document once, headings and scraps left out."""
    known: set[tuple[str, int, int]] = set()
    sentences = []
    for number, source in enumerate(sources):
        headers, heading, opens = RowReader(source), heading_of(source), True
        for start, end in _units(source.content):
            if lead := LEAD.match(source.content, start, end):
                start = lead.end()
            text = source.content[start:end].rstrip()
            if text.endswith(QUESTION_MARKS) and is_line(source.content, start, end):
                heading, opens = text, True
                continue
            if above := HEADINGS.match(text):
                heading, opens = above[0].strip().rpartition("\n")[2].strip("# "), True
                start, text = start + above.end(), text[above.end() :]
            header, row = headers.read(start, text)
            if row:
                start, text = start + 1 + len(text[1:]) - len(text[1:].lstrip()), text[1:-1].strip()
            written = is_written(source.attributes)  # then it stands nowhere else
            first = start if written else source.start + start
            index = (f"{source.doc_id}#{number}" if written else source.doc_id, first, first + len(text))
            key = KEY_LINE.match(text)
            if key and "\n" in text and RECORD.fullmatch(text):
                row, key = "; ".join(map(str.strip, text.splitlines())), None
            if index in known or not (row or key or (lead and QUANTITY.match(text)) or _is_quotable(text)):
                continue
            known.add(index)
            heading = heading or (text if key else "")  # the first line of a sheet says what it is about
            columns = tuple(_cells(header)) if header else None
            sentences.append(Sentence(number, start, start + len(text), text, heading, opens, row, columns))
            opens = False
    return sentences


def is_line(content: str, start: int, end: int) -> bool:
    """Whether nothing else stands in the lines of content[start:end], a mark of a list or a label aside."""
    before = content[content.rfind("\n", 0, start) + 1 : start]
    return bool(LEAD.fullmatch(before)) and not content[end:].partition("\n")[0].strip()


def heading_of(source: Candidate) -> str:
    """The heading above a passage."""
    return source.context.partition("\n")[0].rpartition(" > ")[2]


def _units(content: str) -> list[tuple[int, int]]:
    """Spans of sentences in order. A block of code is one; so is a bold lead with the sentence behind it, and each of
    several records with one first key; what stands between two backticks is not cut."""
    spans: list[tuple[int, int]] = []
    begin = 0
    records = [each for each in RECORD.finditer(content) if len(each[0]) <= BLOCK_CHARS]
    firsts = Counter(each[1] for each in records)
    blocks = [*CODE.finditer(content), *(each for each in records if firsts[each[1]] > 1)]
    for block in [*sorted(blocks, key=lambda each: each.start()), None]:
        if block and block.start() < begin:
            continue
        for start, end in _lines_of_keys(content[begin : block.start() if block else None]):
            before = content[spans[-1][0] : begin + start] if spans and spans[-1][0] >= begin else "\n"
            lead = LEAD.match(before)
            is_short = SHORT.fullmatch(before, lead.end() if lead else 0)
            is_open = not before.endswith("\n") and (before.count("`") % 2 or BOLD.fullmatch(before) or is_short)
            first = spans.pop()[0] if is_open else begin + start
            spans.append((first, begin + end))
        if block:
            spans.append(block.span())
            begin = block.end()
    return spans


def _lines_of_keys(content: str) -> Iterator[tuple[int, int]]:
    """Spans of sentences, where lines of keys and values follow each other each of them one."""
    for start, end in split_sentences(content):
        starts = [line.start() for line in KEY_LINE.finditer(content, start, end)]
        cuts = [start, *(each for each in starts if each > start), end] if len(starts) > 1 else [start, end]
        yield from pairwise(cuts)


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


def lead_with_contrast(parts: list[Part]) -> list[Part]:
    """Of two things that are asked for, as in "What is the difference between A and B?", the best sentence that says
    something of each goes before those that define one."""
    things = [read_question(part.question) for part in parts]
    if len(parts) != 2 or any(thing.kind != "definition" for thing in things):
        return parts
    first = next((item for item in parts[0].sentences if are_contrasted(item.text, things)), None)
    if not first:
        return parts
    return [
        replace(part, sentences=[replace(first, score=max(first.score, part.sentences[0].score)), *part.sentences])
        for part in parts
    ]


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


def find_heading(sentence: Sentence, sources: Sequence[Candidate]) -> Sentence | None:
    """The heading above a sentence, where it stands in the passage."""
    start = sources[sentence.source].content.rfind(sentence.heading, 0, sentence.start)
    return Sentence(sentence.source, start, start + len(sentence.heading), sentence.heading) if start >= 0 else None


def find_overview(question: Question, sentences: Sequence[Sentence], sources: Sequence[Candidate]) -> list[Sentence]:
    """Of "What is ... about?" how the document or section of that name begins, and the headings of the document; [] for
    another question, and where no source is of that name."""

    numbers = [name for name in question.names if name[0].isdigit()]

    def is_named(name: str) -> bool:
        words = {*content_words(BRACKETED.sub("", name), question.language)}
        is_whole = all(whole(number).search(name) for number in numbers)
        return bool(question.about) and is_whole and words - HEADED == question.about - HEADED

    def place_of(sentence: Sentence) -> int:
        return sources[sentence.source].start + sentence.start

    for source in sources:
        title = source.context.partition("\n")[0].partition(" > ")[0]
        passages = [(each.collection, each.doc_id) == (source.collection, source.doc_id) for each in sources]
        own = sorted((each for each in sentences if passages[each.source]), key=place_of)
        if any(map(is_named, (title, source.doc_id, FILE_ENDS.sub("", source.doc_id)))):
            found = [_headings(number, sources[number]) for number, is_own in enumerate(passages) if is_own]
            below = [(level, each) for level, each in chain.from_iterable(found) if each.text != title]
            top = min((level for level, _ in below), default=0)
            headings = sorted((each for level, each in below if level == top), key=place_of)[:HEADINGS_QUOTED]
            first = [each for each in own if each.heading in ("", title) or not headings]
            return [*_few(first or [each for each in own[:1] if not each.is_row]), *headings]
        if section := [each for each in own if is_named(each.heading)]:
            return _few(section)
    return []


def _few(sentences: Sequence[Sentence]) -> list[Sentence]:
    """The first ones, up to SENTENCES_QUOTED and WORDS_QUOTED words, one at least."""
    few, size = [*sentences[:1]], sum(count_words(each.text) for each in sentences[:1])
    for each in sentences[1:SENTENCES_QUOTED]:
        size += count_words(each.text)
        if size > WORDS_QUOTED:
            break
        few.append(each)
    return few


def _headings(number: int, source: Candidate) -> list[tuple[int, Sentence]]:
    """(level, heading) of those in a passage."""
    prose = CODE.sub(lambda code: " " * len(code[0]), source.content)
    return [(len(line[1]), Sentence(number, *line.span(2), line[2], mark="- ")) for line in HEADING.finditer(prose)]


def find_listing(weighing: Weighing, sentences: Sequence[Sentence], sources: Sequence[Candidate]) -> list[Sentence]:
    """All rows or items of the first table or list that is named as what is asked for, by the heading above it, its
    first column or the line before it; where they are long their names alone; of "How do I ...?" the numbered steps
    below a heading or a line that names it. [] where the best sentence gives all of it, where a number is asked for and
    the sources may not hold the whole list, and where it is too long to quote."""
    asks = weighing.question.asks or ("steps" if weighing.question.kind == "way" else "")
    if not asks or not sentences or weighing.gives_all(int(np.argmax(weighing.scores()))):
        return []
    for items in sorted([*_tables(sentences, sources), *_lists(sources)], key=lambda items: items[0].source):
        source, first = sources[items[0].source], items[0]
        above = source.content[: first.start]
        before = [line for line in above.splitlines() if line.strip(MARKS) and line[0] != "|"][-1:]
        before = [line for line in before if line.endswith((":", "\uff1a"))]
        if asks == "steps":
            path = "\n".join([path_above(above), *before])
            around = f"{source.context}\n{path}"
            around += f"\n{source.content}" * weighing.is_of(path.rpartition("\n")[2])
            if first.mark[:1].isdigit() and weighing.is_named(path, around):
                return items if sum(len(item.text) for item in items) <= BLOCK_CHARS else []
            continue
        lead = (first.heading, *(first.columns or ())[:1], *before)
        picked = weighing.pick(items) if asks == "list" and first.is_row else None
        values = [item.text for item in items if picked is not None]
        is_named = weighing.is_named("\n".join(lead), "\n".join([source.context, above, *values]))
        if is_named and picked is not None:
            return picked if sum(len(item.text) for item in picked) <= BLOCK_CHARS else []
        if is_named and (asks == "list" or _is_whole(items, sources)):
            names = [name for name in map(_name_of, items) if name]
            if sum(count_words(item.text) for item in items) <= WORDS_QUOTED:
                return items
            if len(names) == len(items):
                return names
            return items if sum(len(item.text) for item in items) <= BLOCK_CHARS else []
    return []


def says_how_many(query: str, sources: Sequence[Candidate], *, in_a_row: bool) -> bool:
    """Whether a sentence holds every word of the question and the number, or the list, that it asks for, or one row of
    a table is asked for one of its cells. in_a_row: or one row holds every word, and no other."""
    sentences = read_sentences(sources[:SOURCES_READ])
    likely = str(sources[0].attributes.get("language", "")) if sources else ""
    weighing = Weighing(read_question(query, likely), sources, sentences)
    rows = [row for row in sentences if in_a_row and row.is_row and weighing.names_all(row.said)]
    asked = [weighing.count_words(index) for index in range(len(sentences)) if weighing.asks_for_a_cell(index)]
    is_one = len(rows) == 1 or asked.count(max(asked, default=0)) == 1
    return is_one or any(weighing.gives_all(index) for index in range(len(sentences)))


def path_above(content: str) -> str:
    """The headings that a text at the end of it stands below, a line each."""
    path: dict[int, str] = {}
    for line in content.splitlines():
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            path = {each: text for each, text in path.items() if each < level} | {level: line.strip("# ")}
    return "\n".join(path.values())


def _tables(sentences: Sequence[Sentence], sources: Sequence[Candidate]) -> list[list[Sentence]]:
    tables: dict[Any, list[Sentence]] = {}
    for row in sentences:
        if row.is_row:
            source = sources[row.source]
            tables.setdefault((source.collection, source.doc_id, row.heading, row.columns), []).append(row)
    return [sorted(rows, key=lambda row: sources[row.source].start + row.start) for rows in tables.values() if rows[1:]]


def _lists(sources: Sequence[Candidate]) -> list[list[Sentence]]:
    """Items of a list, or paragraphs that begin in bold, of which nothing stands between two."""
    lists: list[list[Sentence]] = []
    for number, source in enumerate(sources):
        end, last = -1, ""
        for item in LISTED.finditer(source.content):
            start, mark = item.start("item"), item["mark"] or ""
            if source.content[:start].count("```") % 2:
                continue
            heading = path_above(source.content[:start]).rpartition("\n")[2] or heading_of(source)
            if end < 0 or source.content[end : item.start()].strip() or bool(mark) != bool(last):
                lists.append([])
            shown = f"{mark} " if mark[:1].isdigit() else "- "
            lists[-1].append(Sentence(number, start, item.end(), item["item"], heading, mark=shown))
            end, last = item.end(), mark
    return [items for items in lists if items[1:]]


def _name_of(item: Sentence) -> Sentence | None:
    """The first cell of a row, or what an item begins with in bold or as code; None without one."""
    if item.is_row:
        text = BAR.split(item.text)[0].rstrip()
    else:
        text = name[0] if (name := NAME.match(item.text)) else ""
    return Sentence(item.source, item.start, item.start + len(text), text, mark="- ") if text else None


def _is_whole(items: Sequence[Sentence], sources: Sequence[Candidate]) -> bool:
    """Whether the list begins behind something else in its passage and ends before something else, or the passage that
    follows is there and does not go on with it."""
    first, last = sources[items[0].source], sources[items[-1].source]
    if not first.content[: items[0].start].strip(MARKS):
        return False
    next_sources = [each for each in sources if (each.doc_id, each.chunk_index) == (last.doc_id, last.chunk_index + 1)]
    goes_on = any(re.match(r"\s*\|", each.content) or LISTED.match(each.content) for each in next_sources)
    return bool(last.content[items[-1].end :].strip("| \n")) or bool(next_sources and not goes_on)


def count_words(text: str) -> float:
    """Of text without spaces two characters count as a word."""
    rest, runs = split_runs(text)
    return len(rest.split()) + sum(map(len, runs)) / 2


def _is_repeated(sentence: Sentence, other: Sentence) -> bool:
    one, two = stems(sentence.text), stems(other.text)
    return len(one & two) >= SAME_WORDS * len(one | two)


def quote(
    chosen: Sequence[Sentence], sources: Sequence[Candidate], missing: Sequence[str] = (), headline: str = ""
) -> CheckedAnswer:
    """The sentences, each followed by the marker of its source, then the questions that nothing answers. A marker
    inside a quotation is not a citation."""
    answer = QuotedAnswer(headline)
    for index, sentence in enumerate(chosen):
        before = "\n\n" if headline else ""
        if index:
            last = chosen[index - 1]
            is_prose = last.text.endswith(CLOSED) and not (sentence.is_row or sentence.mark or "\n" in sentence.text)
            is_list = bool(last.mark) or "\n" in last.text  # what follows is none of its items
            before = "\n\n" if is_list and not sentence.mark else " " if is_prose else "\n"
        before += sentence.mark
        source, marker = sources[sentence.source], sentence.source + 1
        answer.add(before, sentence.text, source, marker, sentence.start, sentence.end, sentence.columns)
    for part in missing:
        answer.note(f"\n\n{NOT_FOUND} {part}")
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
