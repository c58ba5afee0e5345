"""Citations of an answer, each checked against the sources that the answer was given.

Marker n stands for the n-th source. Forms that are understood: [1], [1][2], [1, 3], [1-3], [Source 1], 【1】,
【1†source】. They leave in one form, [1] or [1][3]. Left alone: code spans and fences, Markdown links, link definitions
and footnotes, and an index on a name, as in a[1].

How far each sentence of an answer is supported by the sources that it cites: told by its words and numbers.

Answers that quote: each quotation a slice of a source, followed by its marker.

Where in its document something stands, in words and as cells of a spreadsheet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from collections_app.chunks.overlays import ADD, EDIT, MARK
from ragd.text.chunking import split_sentences
from ragd.text.languages import is_unspaced
from ragd.text.tables import address
from ragd.text.tokens import word_terms
from ragd.types import Candidate


@dataclass(frozen=True, slots=True)
class Place:
    """label: such as "page 3", "sheet Prices, row 14"; None where nothing is known. cells: such as "Prices!A14:F14".
    page: the label of its page, "page 3"."""

    label: str | None = None
    cells: str | None = None
    page: str | None = None


def place_of(source: Candidate, start: int | None = None, end: int | None = None) -> Place:
    """Of a chunk, or of content[start:end]. Of a chunk that a person wrote, no cells: they are those of other text."""
    known = source.attributes
    label = page = _page_at(source, source.start + (start or 0))
    found = None
    if known.get("cells") and not is_written(source.attributes):
        first = source.start + (start or 0)
        last = source.end if end is None else source.start + end
        found = address([tuple(entry) for entry in known["cells"]], source.content, source.start, first, last)
    if found is not None:
        cells, sheet, (top, bottom) = found
        rows = f"row {top}" if top == bottom else f"rows {top} to {bottom}"
        return Place(f"sheet {sheet}, {rows}" if sheet else rows, cells, page)
    if speaker := known.get("speaker"):
        label = f"{label}, {speaker}" if label else f"speaker {speaker}"
    return Place(label, page=page)


def _page_at(source: Candidate, position: int) -> str | None:
    """The page that holds a character of the document; of a chunk that a person wrote, the page where it begins."""
    begun = [] if is_written(source.attributes) else source.attributes.get("pages", ())
    return next((str(label) for at, label in reversed(begun) if at <= position), page_of(source.attributes))


def path_of(context: str) -> str:
    """The title and heading path of a chunk's context, without the header of a table that stands below them."""
    path = context.partition("\n")[0]
    return "" if path.startswith("|") else path


def page_of(attributes: Mapping[str, Any]) -> str | None:
    label = attributes.get("page_label")
    return None if label is None else str(label)


def is_written(attributes: Mapping[str, Any]) -> bool:
    """Whether a person wrote the chunk's content, so that the document does not have it at the chunk's place."""
    return attributes.get(MARK) in (EDIT, ADD)


Match = Literal["quote", "closest", "chunk"]

# What a citation is never looked for in. Longest forms first.
PROTECTED = re.compile(
    r"""
      (?P<fence>^[ ]{0,3}(?P<tick>`{3,}|~{3,})[^\n]*(?:\n.*?(?:^[ ]{0,3}(?P=tick)[`~]*[ \t]*$|\Z)|\Z))
    | (?P<code>(?<!`)(?P<run>`{1,2})(?!`)(?:(?!\n\s*\n).)+?(?<!`)(?P=run)(?!`))
    | (?P<definition>^[ ]{0,3}\[[^\]\n]{1,200}\]:)
    | (?P<link>!?\[[^\[\]\n]{0,300}\]\([^()\n]{0,2000}\))
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
NUMBERS = r"[0-9]{1,3}(?:\s*(?:[,;]|-|\u2013|\u2014)\s*[0-9]{1,3})*"
MARKER = re.compile(
    rf"""
      (?<![\\!\]])\[\s*(?:(?:source|sources|src|ref)\s*:?\s*)?(?P<ascii>{NUMBERS})\s*\](?!\()
    | (?<=\])\[(?P<next>{NUMBERS})\](?!\()
    """,
    re.IGNORECASE | re.VERBOSE,
)
WIDE = re.compile(rf"\u3010\s*({NUMBERS})\s*(?:\u2020[^\u3010\u3011\n]{{0,80}})?\u3011")
NUMBER_OR_RANGE = re.compile(r"([0-9]+)(?:\s*(?:-|\u2013|\u2014)\s*([0-9]+))?")
ATTACHED = re.compile(r"[^\W_]+$")
CLAUSE_END = re.compile(r"\s*(?:$|[.,;:!?)\]}\"'\u2019\u201d\u3002\uff0c\uff1b\uff1a\uff01\uff1f\u3001\[\u3010])")
CLOSEST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Citation:
    """One marker that stands in the answer.

    start, end: the cited place in characters of the document: a quoted sentence ("quote"), the sentence of the source
    that shares most words with the answer's ("closest"), or the whole chunk. answer_start, answer_end: the marker in
    the answer. sentence: index into CheckedAnswer.sentences. Of a chunk that a person wrote, the place is the chunk's.
    place, cells: see `places`. column_names: where the quotation is a row of a table, the names of its columns.
    """

    marker: int
    doc_id: str
    chunk_index: int
    start: int
    end: int
    quote: str
    match: Match
    sentence: int
    answer_start: int
    answer_end: int
    page: str | None = None
    place: str | None = None
    cells: str | None = None
    column_names: tuple[str, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"column_names": list(self.column_names) if self.column_names else None}


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """answer[start:end] with the markers that stand in or right behind it.

    supported: True when it is an exact quotation of a cited source, None when nobody judged it. overlap: share of its
    words that occur in the cited sources, None without citation.
    """

    text: str
    start: int
    end: int
    markers: tuple[int, ...]
    supported: bool | None = None
    overlap: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"markers": list(self.markers)}


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer in which every marker names one of its sources. removed_count: markers that named none."""

    answer: str
    citations: tuple[Citation, ...] = ()
    removed_count: int = 0
    sentences: tuple[AnswerSentence, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class PlacedMarker:
    """A marker and where it stands in the answer."""

    marker: int
    start: int
    end: int


def check_citations(answer: str, sources: Sequence[Candidate]) -> CheckedAnswer:
    """The answer with every known citation in the form [n] and every unknown one removed and counted.

    Never raises. Checking a checked answer changes nothing.
    """
    checked, placed, removed_count = rewrite_markers(answer, len(sources))
    sentences = _cite_sentences(checked, placed, sources)
    citations = tuple(_locate(item, sentences, sources) for item in placed)
    return CheckedAnswer(checked, citations, removed_count, sentences)


def rewrite_markers(answer: str, known: int) -> tuple[str, list[PlacedMarker], int]:
    """(the answer with its markers in one form, those up to `known` in order of place, how many were removed)."""
    removed_count = 0
    while True:
        checked, placed, removed = _rewrite(_narrow(answer), known)
        removed_count += removed
        if not removed:
            return checked, placed, removed_count
        answer = checked  # what stood on both sides of a removed marker may form a new one


def locate_marker(checked: str, item: PlacedMarker, sources: Sequence[Candidate]) -> Citation:
    """One marker of a checked text that may yet go on: its place is judged by the sentence as far as it has come."""
    return _locate(item, _cite_sentences(checked, [item], sources), sources)


def _rewrite(answer: str, known: int) -> tuple[str, list[PlacedMarker], int]:
    pieces: list[str] = []
    placed: list[PlacedMarker] = []
    length = removed = 0
    for text, numbers in _split_markers(answer, known):
        selected = [number for number in numbers if 1 <= number <= known]
        removed += len(numbers) - len(selected)
        if numbers and not selected:
            pieces[-1] = pieces[-1].rstrip(" \t")  # places count only where nothing is removed: see rewrite_markers
        for number in selected:
            mark = f"[{number}]"
            placed.append(PlacedMarker(number, length, length + len(mark)))
            pieces.append(mark)
            length += len(mark)
        pieces.append(text)
        length += len(text)
    return "".join(pieces), placed, removed


def _split_markers(answer: str, known: int) -> Iterator[tuple[str, list[int]]]:
    """The answer as (text that follows, numbers of the marker before it); the first item has no marker."""
    position = 0
    numbers: list[int] = []
    cited_until = -1
    for match in _markers(answer):
        result = _read_numbers(match.group("ascii") or match.group("next"))
        if not _is_citation(answer, match, result, known, follows_citation=cited_until == match.start()):
            continue
        yield answer[position : match.start()], numbers
        position, numbers, cited_until = match.end(), result, match.end()
    yield answer[position:], numbers


def _markers(answer: str) -> Iterator[re.Match[str]]:
    """Marker-shaped spans outside code, links and definitions, in order."""
    for start, end in _open_spans(answer):
        yield from MARKER.finditer(answer, start, end)


def _open_spans(answer: str) -> Iterator[tuple[int, int]]:
    """Where markers may stand: between the protected spans."""
    position = 0
    for protected in PROTECTED.finditer(answer):
        yield position, protected.start()
        position = protected.end()
    yield position, len(answer)


def _narrow(answer: str) -> str:
    """The answer with wide brackets made narrow, set apart where narrow ones would mean something else."""
    pieces = []
    position = 0
    for match in (matched for start, end in _open_spans(answer) for matched in WIDE.finditer(answer, start, end)):
        before, after = answer[: match.start()], answer[match.end() :]
        apart = before.endswith(("\\", "!", "]")) or _sticks_to_code(answer, match.start())
        pieces += [answer[position : match.start()], " " if apart else "", f"[{match.group(1)}]"]
        pieces.append(" " if after.startswith(("(", ":")) else "")
        position = match.end()
    return "".join([*pieces, answer[position:]])


def _is_citation(answer: str, match: re.Match[str], numbers: list[int], known: int, *, follows_citation: bool) -> bool:
    if match.group("next"):
        return follows_citation
    if _sticks_to_code(answer, match.start()):
        return False
    if answer[: match.start()][-1:].isalnum() and not all(1 <= number <= known for number in numbers):
        return CLAUSE_END.match(answer, match.end()) is not None
    return True


def _sticks_to_code(text: str, position: int) -> bool:
    """Whether what stands right before the position is a name of code, so that brackets there are an index."""
    before = ATTACHED.search(text, max(0, position - 60), position)
    if before is None:
        return text[:position].endswith(("_", "->"))
    return not _is_prose(before.group()) or text[: before.start()].endswith(("_", ".", "$"))


def _is_prose(word: str) -> bool:
    """Whether a citation may stick to it: a word, an acronym or a number, not a name of code."""
    if word.isdecimal():
        return True
    return len(word) > 1 and word.isalpha() and (word.isupper() or word[1:] == word[1:].lower())


def _read_numbers(text: str) -> list[int]:
    """The numbers of a marker in order, each once, ranges spelt out."""
    numbers: list[int] = []
    for first, last in NUMBER_OR_RANGE.findall(text):
        low, high = sorted((int(first), int(last or first)))
        numbers.extend(range(low, high + 1))
    return list(dict.fromkeys(numbers))


def _cite_sentences(
    answer: str, placed: Sequence[PlacedMarker], sources: Sequence[Candidate]
) -> tuple[AnswerSentence, ...]:
    """A marker belongs to the last sentence that begins before it; markers are blanked while sentences are split."""
    masked = answer
    for item in placed:
        masked = masked[: item.start] + " " * (item.end - item.start) + masked[item.end :]
    spans = split_sentences(masked)
    owners = [_owner(spans, item.start) for item in placed]
    sentences = []
    for index, (start, end) in enumerate(spans):
        own = [item for item, owner in zip(placed, owners, strict=True) if owner == index]
        end = max([end, *(item.end for item in own)])
        markers = tuple(dict.fromkeys(item.marker for item in own))
        overlap = _overlap(masked[start:end], [sources[marker - 1].content for marker in markers])
        sentences.append(AnswerSentence(answer[start:end], start, end, markers, None, overlap))
    return tuple(sentences)


def _owner(spans: Sequence[tuple[int, int]], position: int) -> int:
    return max(sum(1 for start, _ in spans if start <= position) - 1, 0)


def _overlap(sentence: str, cited: Sequence[str]) -> float | None:
    words = _words(sentence)
    if not cited or not words:
        return None
    result: set[str] = set()
    for text in cited:
        result |= _words(text)
    return round(len(words & result) / len(words), 4)


def _words(text: str) -> set[str]:
    return {word for word in word_terms(text) if len(word) > 1 or is_unspaced(word)}


def _locate(item: PlacedMarker, sentences: Sequence[AnswerSentence], sources: Sequence[Candidate]) -> Citation:
    source = sources[item.marker - 1]
    owner = _owner([(sentence.start, sentence.end) for sentence in sentences], item.start)
    start, end, match = _closest(sentences[owner].text if sentences else "", source)
    return cite(item, source, start, end, match, owner)


def cite(
    item: PlacedMarker,
    source: Candidate,
    start: int,
    end: int,
    match: Match,
    sentence: int,
    column_names: tuple[str, ...] | None = None,
) -> Citation:
    """The citation of source.content[start:end] by a marker; see `Citation`."""
    place, (first, last) = place_of(source, start, end), place_in_document(source, start, end)
    return Citation(
        item.marker, source.doc_id, source.chunk_index, first, last, source.content[start:end], match, sentence,
        item.start, item.end, place.page, place.label, place.cells, column_names,
    )  # fmt: skip


def place_in_document(source: Candidate, start: int, end: int) -> tuple[int, int]:
    """content[start:end] in characters of the document; of a chunk that a person wrote, the place of that chunk."""
    if is_written(source.attributes):
        return source.start, source.end
    return source.start + start, source.start + end


def _closest(sentence: str, source: Candidate) -> tuple[int, int, Match]:
    """The first sentence of the source with the largest share of the answer sentence's words, if at least half."""
    words = _words(sentence)
    best, index = 0.0, (0, len(source.content))
    for start, end in split_sentences(source.content) if words else ():
        share = len(words & _words(source.content[start:end])) / len(words)
        if share > best:
            best, index = share, (start, end)
    if best < CLOSEST_SHARE:
        return 0, len(source.content), "chunk"
    return *index, "closest"


Support = Literal["supported", "partly", "unsupported"]

SUPPORTED_MIN, PARTLY_MIN = 0.75, 0.4  # shares of a sentence's words that occur in what it cites
WORDS_MIN = 4  # a shorter sentence without citation states nothing
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
TABLE_ROW = re.compile(r"^\s*\|", re.MULTILINE)
NUMBER_MARKER = re.compile(r"\[\d+\]")


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
        text = NUMBER_MARKER.sub("", sentence["text"]).strip()
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


class QuotedAnswer:
    """An answer that is being written, with its citations and sentences."""

    def __init__(self, headline: str = "") -> None:
        """headline: a sentence of its own at the beginning, that cites nothing."""
        self.answer = headline
        self.citations: list[Citation] = []
        self.sentences = [AnswerSentence(headline, 0, len(headline), ())] if headline else []

    def add(
        self,
        before: str,
        shown: str,
        source: Candidate,
        marker: int,
        start: int,
        end: int,
        column_names: tuple[str, ...] | None = None,
    ) -> None:
        """`before`, then what is shown of source.content[start:end], then the marker. supported only where it is shown
        as it stands there. column_names: see `Citation`."""
        begin = len(self.answer) + len(before)
        gap = "\n" if shown.endswith(("```", "~~~")) else " "  # behind its fence a block of code would not end
        self.answer += f"{before}{shown}{gap}[{marker}]"
        place = PlacedMarker(marker, len(self.answer) - len(f"[{marker}]"), len(self.answer))
        self.citations.append(cite(place, source, start, end, "quote", len(self.sentences), column_names))
        exact, text = shown == source.content[start:end], self.answer[begin:]
        self.sentences.append(
            AnswerSentence(text, begin, len(self.answer), (marker,), exact or None, 1.0 if exact else None)
        )

    def note(self, text: str) -> None:
        """A sentence of its own, that cites nothing."""
        begin = len(self.answer) + len(text) - len(text.lstrip())
        self.answer += text
        self.sentences.append(AnswerSentence(text.lstrip(), begin, len(self.answer), ()))

    def checked(self) -> CheckedAnswer:
        return CheckedAnswer(self.answer, tuple(self.citations), 0, tuple(self.sentences))
