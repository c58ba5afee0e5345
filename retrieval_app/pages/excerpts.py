"""What is shown of a source: the part of its text that holds most of the question's words, which are marked."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from ragd.text.chunking import split_sentences
from retrieval_app.answerers.extractive_answerer import DASHES, WORD, list_stems, stems
from retrieval_app.citations.answer_html import HEADING

EXCERPT_CHARS = 420
SEEN_CHARS = 180  # about what two lines show
EMPHASIS = re.compile(r"\*\*|__|`|^\s*[>#*+-]+\s+")
LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
CELLS = re.compile(r"\s*(?<!\\)\|\s*")
SPACES = re.compile(r"\s+")
LEFT_OUT, BETWEEN_CELLS = "… ", " · "


def mark_words(text: str, question: str) -> SafeString:
    """At most EXCERPT_CHARS of the text in one line, each word that the question has in a <mark>.

    It begins with the sentence or row behind which, within SEEN_CHARS, stand most different words of the question: with
    the first such place, as near to the words as it can. An ellipsis says that something stands before. Headings at the
    beginning and marks of Markdown are left out, and the cells of a row stand between points.
    """
    plain, starts = _in_one_line(text)
    requested = stems(question)
    words = ((word.start(), requested.intersection(list_stems(word[0]))) for word in WORD.finditer(plain))
    start = _best_start(starts, [(at, found) for at, found in words if found])
    shown = Truncator(plain[start:]).chars(EXCERPT_CHARS)
    pieces: list[tuple[str, str, str]] = [("", LEFT_OUT if start else "", "")]
    position = 0
    for word in WORD.finditer(shown):
        is_asked = not requested.isdisjoint(list_stems(word[0]))
        pieces.append(("", shown[position : word.start()], ""))
        pieces.append(("<mark>", word[0], "</mark>") if is_asked else ("", word[0], ""))
        position = word.end()
    pieces.append(("", shown[position:], ""))
    return format_html_join("", "{}{}{}", ((SafeString(a), text, SafeString(b)) for a, text, b in pieces))


def _best_start(starts: Sequence[int], held: Sequence[tuple[int, frozenset[str]]]) -> int:
    """held: (where a word of the question stands, its stems), ascending."""
    places = [at for at, _ in held]

    def found_in(first: int, last: int) -> set[str]:
        within = held[bisect_left(places, first) : bisect_right(places, last)]
        return {stem for _, found in within for stem in found}

    first = max(starts, key=lambda start: len(found_in(start, start + SEEN_CHARS)), default=0)
    most = found_in(first, first + SEEN_CHARS)
    last = next((at for at, _ in held if at >= first and found_in(first, at) == most), first)
    if found_in(0, SEEN_CHARS) == most:
        return 0
    return max((start for start in starts if first <= start <= last and found_in(start, last) == most), default=first)


def _in_one_line(text: str) -> tuple[str, list[int]]:
    """The text without marks, and where in it sentences and rows begin."""
    body = text.lstrip()
    while match := HEADING.match(body):
        body = body[match.end() :].lstrip()
    plain, starts = "", []
    for line in (body or text).splitlines():
        if DASHES.fullmatch(line.strip()):
            continue
        if line.lstrip().startswith("|") or line.count(" | ") > 1:  # a cited row stands without its outer bars
            line = CELLS.sub(BETWEEN_CELLS, line.strip().strip("|").strip())
        line = SPACES.sub(" ", EMPHASIS.sub("", LINK.sub(r"\1", line))).strip()
        begin = len(plain) + bool(plain)
        starts += [begin + first for first, _ in split_sentences(line)]
        plain += f" {line}" if plain and line else line
    return plain, starts
