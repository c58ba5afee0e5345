"""What an answerer is, what it gives back and who may listen, and its sources as the plain records that runs keep.

The marks around what a model is to read and not to obey: they carry a code that no document can know.

The code is new for each request, so that a text cannot close its marks or open others; and what servers of models take
for the marks of a turn is disarmed, whoever wrote it.

Recognise answers that decline to answer, whatever their wording or language.

A chat model is asked to write CODE_WORD where the sources do not answer. One that declines in words of its own is
recognised clause by clause: a clause declines when it says that the sources lack the answer or that the writer does not
know it. What quotes a source word for word, or states something behind a citation, is an answer.
"""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import regex

from ragd.search.hops import Link
from ragd.security.links import RemovedAddress
from ragd.text.languages import count_ideographs
from ragd.text.sentences import split_sentences
from ragd.types import Candidate
from retrieval_app.answers.citations import (
    CheckedAnswer,
    Citation,
    is_written,
    page_of,
    path_of,
    place_in_document,
    place_of,
)
from retrieval_app.llm.chat_model import TokenUsage


@dataclass(frozen=True, slots=True)
class Draft:
    """One answer. abstained: the sources do not answer the question, and the answer's text says so.

    sources_given: how many of the sources, from the first, the answerer read. evidence: 0..1, how strong the best
    passage is; None when the answerer does not measure it. first_token_ms: from the question to the model until the
    first piece of a streamed answer. was_told: a listener was told of the answer piece by piece.
    removed: addresses that the model wrote and its sources do not vouch for. code: of the marks around its sources,
    which no answer is to hold; "" where no model was asked.
    """

    checked: CheckedAnswer
    abstained: bool
    usage: TokenUsage
    sources_given: int = 0
    evidence: float | None = None
    first_token_ms: float | None = None
    was_told: bool = False
    removed: tuple[RemovedAddress, ...] = ()
    code: str = ""


class AnswerListener(Protocol):
    """Told of an answer while it is written. What it is told must not wait: the model does not."""

    def tell(self, text: str) -> None:
        """The next piece of the checked answer."""

    def cite(self, citation: Citation) -> None:
        """A valid citation whose marker was told just before; its `sentence` means nothing yet."""

    def restarted(self) -> None:
        """What was told of the answer is void: it was reasoning, it was repaired, or the model failed. Another
        answer follows."""


class Answerer(Protocol):
    """Answers a question from numbered sources: marker n is the n-th source. May raise ServiceError.

    spans: what compress() kept of the sources, {"rank" of the source from 1, "start", "end", "content", ...}; () when
    the sources are to be read whole. listener: told while the answer is written, by an answerer that writes piecewise;
    the others leave it alone. instructions: what a model is told that its answer must not give away, "" without one.
    """

    name: str
    system: str
    model: str
    instructions: str

    def answer(
        self,
        query: str,
        sources: Sequence[Candidate],
        spans: Sequence[Mapping[str, Any]] = (),
        *,
        listener: AnswerListener | None = None,
    ) -> Draft: ...


CODE_BYTES = 8
MARKUP = re.compile(
    r"<(?=\s*/?\s*sources?\b|\||\uff5c|\s*/?\s*(?:start|end)_of_(?:turn|text)\b|<\s*/?\s*SYS\b)", re.IGNORECASE
)
TURN = re.compile(r"\[(?=\s*/?\s*(?:INST|SYSTEM_PROMPT|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\s*\])", re.IGNORECASE)


def draw_code(texts: Iterable[str]) -> str:
    """A random code that stands in none of the texts."""
    known = list(texts)
    while any((code := secrets.token_hex(CODE_BYTES)) in text for text in known):
        pass
    return code


def disarm(text: str) -> str:
    """The text without marks of sources or of turns."""
    return TURN.sub("&#91;", MARKUP.sub("&lt;", text))


def quote_source(code: str, number: int, text: str) -> str:
    """One source between its marks."""
    return f'<source-{code} number="{number}">\n{disarm(text)}\n</source-{code}>'


EXCERPT_CHARS = 320


def chunk_key(candidate: Candidate) -> str:
    return f"{candidate.doc_id}#{candidate.chunk_index}"


def result_dict(candidate: Candidate, rank: int, link: Link | None = None) -> dict[str, Any]:
    """One result. rank starts at 1; start and end are characters of the document; page is None where there is none.

    "link" is there for a chunk that a hop found: {hop, term, doc_id, chunk_index}, the term and where it was read.
    """
    metadata = dict(candidate.metadata)
    result = {
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "content": candidate.content,
        "score": candidate.score,
        "score_kind": candidate.score_kind,
        "unit_score": candidate.unit_score,
        "rank": rank,
        "ranks": {
            name: {"rank": list_rank.rank, "score": list_rank.score} for name, list_rank in candidate.ranks.items()
        },
        "start": candidate.start,
        "end": candidate.end,
        "page": page_of(candidate.attributes),
        "place": place_of(candidate).label,
        "title": title_of(candidate),
        "context": candidate.context,
        "metadata": metadata,
        "attributes": dict(candidate.attributes),
        "tags": list(candidate.tags),
        "revision": candidate.revision,
    }
    return result | ({"link": asdict(link)} if link else {}) | _elsewhere(candidate)


def _elsewhere(candidate: Candidate) -> dict[str, str]:
    """Only of a chunk of another collection than the run's."""
    return {"collection": candidate.collection} if candidate.collection else {}


def with_spans(results: Sequence[dict[str, Any]], spans: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every result with the spans that compress() kept of it, by position: {start, end, content, score, tokens}.

    content == document_text[start:end], but of a chunk that a person wrote: there the place is the chunk's. [] for a
    result of which nothing fitted the budget.
    """
    selected: dict[int, list[dict[str, Any]]] = {result["rank"]: [] for result in results}
    written = {result["rank"]: result for result in results if is_written(result["attributes"])}
    for span in spans:
        named = {name: span[name] for name in ("start", "end", "content", "score")}
        if span["rank"] in written:
            named |= {name: written[span["rank"]][name] for name in ("start", "end")}
        selected[span["rank"]].append(named | {"tokens": span["tokens_after"]})
    return [result | {"spans": selected[result["rank"]]} for result in results]


def source_dict(marker: int, candidate: Candidate, citations: Sequence[Citation]) -> dict[str, Any]:
    """One source of an answer. excerpt is document_text[excerpt_start:excerpt_end]: what was cited, else how it begins.

    Of a chunk that a person wrote, excerpt is its own text, and the place that of the chunk (attribute "overlay").
    t_start and t_end (seconds) are there where the input had them.
    """
    own = [citation for citation in citations if citation.marker == marker]
    first, last = _excerpt_span(candidate, own)
    start, end = place_in_document(candidate, first, last)
    place = place_of(candidate, first, last) if own else place_of(candidate)
    source = {
        "marker": marker,
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "title": title_of(candidate),
        "excerpt": candidate.content[first:last],
        "excerpt_start": start,
        "excerpt_end": end,
        "start": candidate.start,
        "end": candidate.end,
        "page": place.page,
        "place": place.label,
        "cells": place.cells,
        "attributes": dict(candidate.attributes),
        "score": candidate.score,
        "revision": candidate.revision,
        "cited": bool(own),
    }
    times = {name: candidate.attributes.get(name) for name in ("t_start", "t_end")}
    return source | {name: value for name, value in times.items() if value is not None} | _elsewhere(candidate)


def title_of(candidate: Candidate) -> str:
    """The first part of the context: the document's title, or the topmost heading of a document without one; "" where
    there is neither."""
    return path_of(candidate.context).partition(" > ")[0]


def _excerpt_span(candidate: Candidate, citations: Sequence[Citation]) -> tuple[int, int]:
    """What of the content stands for it: what was cited, else how it begins."""
    cited = [_span_of(candidate, citation) for citation in citations if citation.match != "chunk"]
    if cited:
        start, end = min(start for start, _ in cited), max(end for _, end in cited)
        return (start, end) if end - start <= EXCERPT_CHARS * 2 else cited[0]
    content = candidate.content
    if len(content) <= EXCERPT_CHARS:
        return 0, len(content)
    cut = content.rfind(" ", EXCERPT_CHARS // 2, EXCERPT_CHARS)
    return 0, cut if cut > 0 else EXCERPT_CHARS


def _span_of(candidate: Candidate, citation: Citation) -> tuple[int, int]:
    """Where in the content the citation's quotation stands."""
    if is_written(candidate.attributes):
        start = candidate.content.find(citation.quote)
        return start, start + len(citation.quote)
    return citation.start - candidate.start, citation.end - candidate.start


CODE_WORD = "NO_ANSWER"
NOT_ANSWERED = "The sources do not answer this question."
NOTHING_FOUND = "No answer: nothing was found that could be quoted."
WEAK_EVIDENCE = "I could not find this with enough certainty. The closest passages:"
NOT_FOUND = "I could not find with enough certainty:"  # of a part of a question

_CODE = regex.compile(
    r"""(?P<marks>[\s"'`*_«»„“”‘’(\[]*)(?<![\p{L}\p{N}])NO\\?[_-]ANSWER(?!_?[\p{L}\p{N}])["'`*_«»“”’)\].:!;,]*""",
    regex.IGNORECASE,
)
_ENDS_SENTENCE = regex.compile(r"[.!?:\]\n。！？][\"'*_”’)]*\s*$")
_MARKERS = re.compile(r"\s*(?:\[\s*\d[\d\s,;–-]*\]|【[^】]{0,90}】)")
_CLAUSE_END = re.compile(
    r";\s|\s[–—]\s|,?\s+(?:but|however|although|though|aber|jedoch|sondern|mais|cependant|pero|sin embargo|tuttavia|"
    r"porém|entretanto|но|однако|maar|ale)\s|[，；](?:但|不过|而)|但是",
    re.IGNORECASE,
)
_SUBORDINATE = re.compile(r",?\s(?:that|dass|daß|que|che|что|że|dat)\s", re.IGNORECASE)
_QUOTED_WORDS_MIN = 4


def take_code_word(text: str) -> tuple[str, bool]:
    """(the text without the code word, whether the model declined by it).

    The code word counts at the beginning, and as a sentence of its own behind a text that cites nothing. NOT_ANSWERED
    stands in its place, unless the rest of the text declines itself.
    """
    found = _CODE.search(text)
    if found is None:
        return text, False
    before, after = text[: found.start()].strip(), text[found.end() :].strip()
    if before and not _ENDS_SENTENCE.search(text[: found.end("marks")]):
        return text, False  # a word of a sentence, such as a name that a source uses
    rest = " ".join(filter(None, (before, after)))
    if rest and declines(rest):
        return rest, True
    if before and _MARKERS.search(before):
        return rest, False
    if not any(map(str.isalnum, _MARKERS.sub("", after))):
        after = ""
    return " ".join(filter(None, (before, NOT_ANSWERED, after))), True


class CodeWordFilter:
    """Holds back what may become the code word while an answer comes in pieces. From a code word on nothing is given
    out any more: what stands there in the end is known once the answer is whole."""

    def __init__(self) -> None:
        self._waiting = ""

    def feed(self, text: str) -> str:
        """The part of the text so far, and not given out before, that is no beginning of a code word."""
        self._waiting += text
        found = _CODE.search(self._waiting, partial=True)
        cut = len(self._waiting) if found is None else found.start()
        settled, self._waiting = self._waiting[:cut], self._waiting[cut:]
        return settled

    def finish(self) -> str:
        """What is held back of an answer that breaks off; "" where it is the code word or begins it."""
        held, self._waiting = self._waiting, ""
        return "" if re.search(r"no\\?[_-]", held, re.IGNORECASE) else held


def declines(answer: str, sources: Sequence[str] = ()) -> bool:
    """Return True if the answer as a whole declines to answer.

    At least half of its words must stand in clauses that decline; what only says where else to look counts for neither.
    A clause with a citation that does not decline is an answer, and so is a sentence that stands in one of the sources
    word for word. Markers of citations are no words.
    """
    if any(_is_quoted(sentence, sources) for sentence in _sentences(answer)):
        return False
    declining = other = 0
    for clause in _clauses(answer):
        size = _size(clause)
        if clause_declines(clause) or (declining and _ONLY.search(clause)):
            declining += size
        elif _MARKERS.search(clause):
            return False
        elif not _NEUTRAL.search(clause):
            other += size
    return declining > 0 and declining >= other


def holds_refusal(text: str) -> bool:
    """Return True if a clause of the text declines, whatever the others say."""
    return any(clause_declines(clause) for clause in _clauses(text))


def clause_declines(clause: str) -> bool:
    """Return True if the clause says that the sources do not tell, or that the writer does not know."""
    text = " ".join(_MARKERS.sub("", clause).replace("’", "'").lower().split()).strip(" .!?。！？*\"'`_:")
    if not text:
        return False
    if _WHOLE.fullmatch(text) or _english().search(text):
        return True
    main = _SUBORDINATE.split(text)[0]
    return any(language.declines(main) for language in _languages())


def _sentences(answer: str) -> Iterator[str]:
    for start, end in split_sentences(answer):
        if sentence := answer[start:end].strip():
            yield sentence


def _clauses(answer: str) -> Iterator[str]:
    """Clauses of the sentences; a marker that stands alone behind a sentence belongs to the clause before it."""
    clauses: list[str] = []
    for sentence in _sentences(answer):
        for clause in _CLAUSE_END.split(sentence):
            if clauses and clause.strip() and not any(map(str.isalnum, _MARKERS.sub("", clause))):
                clauses[-1] += f" {clause}"
            elif clause.strip():
                clauses.append(clause)
    return iter(clauses)


def _is_quoted(sentence: str, sources: Sequence[str]) -> bool:
    wanted = _plain(_MARKERS.sub("", sentence))
    return _size(wanted) >= _QUOTED_WORDS_MIN and any(wanted in _plain(source) for source in sources)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .!?。！？*\"'“”„`")


def _size(text: str) -> int:
    """Words; two characters of a script without blanks count as one."""
    return len(text.split()) + count_ideographs(text) // 2


@dataclass(frozen=True, slots=True)
class _Language:
    """Regular expressions of one language over a clause: the sources do not tell; the writer does not know."""

    told: re.Pattern[str]
    unable: re.Pattern[str]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> _Language:
        unable = re.compile("|".join(table["unable"]))
        if "told" in table:
            return cls(re.compile(table["told"]), unable)
        named, one, other = (f"(?:{table[name]})" for name in ("sources", "negation", "telling"))
        orders = [(named, one, other), (named, other, one), (one, other, named), (other, named, one)]
        between = f".{{0,{table['gap']}}}?"
        return cls(re.compile("|".join(between.join(order) for order in orders)), unable)

    def declines(self, text: str) -> bool:
        return bool(self.told.search(text) or self.unable.search(text))


@cache
def _english() -> re.Pattern[str]:
    clauses, parts = _PHRASES["english"]["clauses"], _PHRASES["english"]["parts"]
    return re.compile("|".join(re.sub(r"<(\w+)>", lambda found: parts[found[1]], line) for line in clauses))


@cache
def _languages() -> tuple[_Language, ...]:
    return tuple(map(_Language.of, _PHRASES["languages"].values()))


_PHRASES = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))
_WHOLE, _NEUTRAL, _ONLY = (re.compile("|".join(_PHRASES[name]), re.IGNORECASE) for name in ("whole", "neutral", "only"))
