"""Recognise answers that decline to answer, whatever their wording or language.

A chat model is asked to write CODE_WORD where the sources do not answer. One that declines in words of its own is
recognised clause by clause: a clause declines when it says that the sources lack the answer or that the writer does not
know it. What quotes a source word for word, or states something behind a citation, is an answer.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import regex

from ragd.text.languages import count_ideographs
from ragd.text.sentences import split_sentences

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
