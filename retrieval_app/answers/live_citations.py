"""Citations checked while the answer comes: what can no longer change is given out, and nothing else.

Whether a bracket is a citation depends on what follows it. So text is held back from the first construct that is not
decided yet: an open bracket, an open code span, blanks that go with a removed marker. What was given out in the end is
the text that `check_citations` makes of the whole answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ragd.types import Candidate
from retrieval_app.answers.citations import Citation, PlacedMarker, locate_marker, rewrite_markers

AnswerPart = str | Citation
WORDS = re.compile(r"\s*\S+|\s+\Z")

OPENER = re.compile(r"^[ ]{0,3}(?:`{3,}|~{3,})|`+|\[|\u3010", re.MULTILINE)
PARTIAL_FENCE = re.compile(r"^[ ]{0,3}~{0,2}\Z", re.MULTILINE)
CODE = re.compile(r"(`{1,2})(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)", re.DOTALL)
BLANK_LINE = re.compile(r"\n\s*\n")
INNER = re.compile(r"\[[^\[\]]*(?:\]|\Z)")
MARKER_BEGUN = re.compile(r"\s*(?:[a-z]{0,7}\s*:?\s*)?[0-9\s,;\u2013\u2014-]*\Z", re.IGNORECASE)
BRACKET_CHARS, TARGET_CHARS, WIDE_CHARS = 320, 2000, 120  # what is longer is no citation and no link
# where a text can be cut in two that are read on their own: a letter there opens nothing and belongs to nothing before
SENTENCE_START = re.compile(r"(?:[.!?:;)\]][ ]|\n)(?=[^\W\d_])")
SEGMENT_CHARS = 500
GROWTH = 256  # a long segment is looked at each time it has grown by one part in so many


class LiveCitations:
    """The text of one answer, fed piece by piece.

    `feed` and `finish` give out, in order, pieces of the checked text and each citation right behind its marker. The
    pieces joined are the checked answer. A citation's `sentence` is 0: only the whole answer has sentences.
    """

    def __init__(self, sources: Sequence[Candidate]) -> None:
        self.sources = sources
        self._waiting = ""  # raw text since the last cut
        self._looked_at = 0
        self._before = 0  # characters of checked text before that cut
        self._emitted = ""  # checked text since that cut
        self._is_lost = False  # what was given out is not how the text goes on

    def feed(self, text: str) -> Iterator[AnswerPart]:
        """More of the raw text. Yields what is settled now."""
        self._waiting += text
        if not self._before and not self._emitted:
            self._waiting = self._waiting.lstrip()
        if self._is_lost or len(self._waiting) - self._looked_at < max(1, len(self._waiting) // GROWTH):
            return
        self._looked_at = len(self._waiting)
        decided, cut = decided_length(self._waiting)
        # the held character goes along, for what stands before it may depend on it
        checked, placed, _ = rewrite_markers(self._waiting[: decided + 1], len(self.sources))
        checked = (checked if decided == len(self._waiting) else checked[:-1]).rstrip()
        yield from self._tell(checked, [item for item in placed if item.end <= len(checked)])
        if len(self._waiting) > SEGMENT_CHARS and cut:
            self._cut_off(cut)

    def finish(self, answer: str, citations: Sequence[Citation]) -> Iterator[AnswerPart]:
        """The rest of the checked answer, once all of it is known. Nothing when it does not go on what was told."""
        details = self._before + len(self._emitted)
        if self._is_lost or not answer[self._before :].startswith(self._emitted):
            return
        rest = [item for item in citations if item.answer_end > details]
        yield from pieces_of(answer, rest, start=details)

    def _tell(self, checked: str, placed: Sequence[PlacedMarker]) -> Iterator[AnswerPart]:
        if self._emitted.startswith(checked):
            return
        if not checked.startswith(self._emitted):
            self._is_lost = True
            return
        start = len(self._emitted)
        self._emitted = checked
        for item in placed:
            if item.end <= start:
                continue
            citation = locate_marker(checked, item, self.sources)
            if citation.answer_end > start:
                yield checked[start : citation.answer_end]
            start = citation.answer_end
            yield replace(
                citation,
                sentence=0,
                answer_start=citation.answer_start + self._before,
                answer_end=citation.answer_end + self._before,
            )
        if start < len(checked):
            yield checked[start:]

    def _cut_off(self, cut: int) -> None:
        """Go on from the beginning of a sentence outside all constructs: what stands before it is done with."""
        checked, _, _ = rewrite_markers(self._waiting[:cut], len(self.sources))
        if not self._emitted.startswith(checked):
            return
        self._before += len(checked)
        self._emitted = self._emitted[len(checked) :]
        self._waiting = self._waiting[cut:]
        self._looked_at = len(self._waiting)


def pieces_of(answer: str, citations: Sequence[Citation], *, start: int = 0) -> Iterator[AnswerPart]:
    """A checked answer from `start` on: words with the blanks around them, each citation right behind its marker."""
    for citation in citations:
        yield from WORDS.findall(answer[start : citation.answer_end])
        start = max(start, citation.answer_end)
        yield citation
    yield from WORDS.findall(answer[start:])


def decided_length(text: str) -> tuple[int, int]:
    """(how many characters are decided, the last beginning of a sentence before that or 0).

    All is decided but what begins at the first place that later text may turn into something else.
    """
    position = cut = 0
    while opener := OPENER.search(text, position):
        cut = max(cut, _sentence_start(text, position, opener.start()))
        after = _pass(text, opener)
        if after is None:
            return opener.start(), cut
        position = after
    cut = max(cut, _sentence_start(text, position, len(text)))
    if partial := PARTIAL_FENCE.search(text, position):
        return partial.start(), cut
    return len(text), cut


def _sentence_start(text: str, start: int, end: int) -> int:
    """The last one, with all of the blank before it behind start; 0 where there is none."""
    return max((match.end() for match in SENTENCE_START.finditer(text, start, end)), default=0)


def _pass(text: str, opener: re.Match[str]) -> int | None:
    """Where to look on behind what the opener opens; None while that is open."""
    opened, start = opener.group(), opener.start()
    if opened == "[":
        inside = text[start + 1 : start + 1 + BRACKET_CHARS]
        flat = inside
        while (shorter := INNER.sub("", flat)) != flat:
            flat = shorter
        closed = inside.find("]")
        if closed < 0:
            over = len(inside) == BRACKET_CHARS or ("\n" in inside and not MARKER_BEGUN.match(flat))
            return start + 1 if over else None
        if MARKER_BEGUN.match(flat) and len(inside) < BRACKET_CHARS:
            return None  # a removed marker inside may leave a marker
        return _pass_behind(text, start, start + 1 + closed + 1)
    if opened == "\u3010":
        return _pass_wide(text, start)
    if opener.end() == len(text):
        return None  # there may be more ticks
    mark = opened.lstrip(" ")
    if len(mark) > 2 and (start == 0 or text[start - 1] == "\n"):
        closing = re.compile(rf"^[ ]{{0,3}}{mark}[`~]*[ \t]*\n", re.MULTILINE).search(text, opener.end())
        return closing.end() - 1 if closing else len(text)  # inside, everything stays as it is
    if len(mark) > 2:
        return opener.end()
    code = CODE.match(text, start)
    if code and code.end() < len(text):
        return code.end()
    return opener.end() if not code and BLANK_LINE.search(text, start) else None


def _pass_behind(text: str, start: int, end: int) -> int | None:
    """Behind a closing bracket: what follows decides whether it is a link, a definition or a citation."""
    if end == len(text):
        return None
    if text[end] == "(":
        target = text[end + 1 : end + 1 + TARGET_CHARS]
        stop = re.search(r"[()\n]", target)
        if stop is None:
            return start + 1 if len(target) == TARGET_CHARS else None
        return end + 1 + stop.end() if stop.group() == ")" and "[" not in text[start + 1 : end] else start + 1
    if text[start - 1 : start].isalnum() and not text[end:].strip():
        return None
    return start + 1


def _pass_wide(text: str, start: int) -> int | None:
    inside = text[start + 1 : start + 1 + WIDE_CHARS]
    stop = re.search(r"[\u3010\u3011\n]", inside)
    if stop is None:
        return start + 1 if len(inside) == WIDE_CHARS else None
    if stop.group() != "\u3011":
        return start + 1 if inside[: stop.start()].strip() or stop.group() != "\n" else None
    return _pass_behind(text, start, start + 1 + stop.end())
