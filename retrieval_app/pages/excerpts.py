"""What is shown of a source: its text in short, the words of the question marked."""

from __future__ import annotations

import re

from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from retrieval_app.answerers.extractive_answerer import WORD, list_stems, stems

EXCERPT_CHARS = 420
EMPHASIS = re.compile(r"\*\*|__|`|(?m:^\s*[|>#*+-]+\s*)|\s*\|\s*(?=\||$)")
LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")


def mark_words(text: str, question: str) -> SafeString:
    """The text without the marks of Markdown, shortened, each word that the question has in a <mark>."""
    plain = Truncator(EMPHASIS.sub("", LINK.sub(r"\1", text))).chars(EXCERPT_CHARS)
    requested = stems(question)
    pieces: list[tuple[str, str, str]] = []
    position = 0
    for word in WORD.finditer(plain):
        pieces.append(("", plain[position : word.start()], ""))
        is_asked = not requested.isdisjoint(list_stems(word[0]))
        pieces.append(("<mark>", word[0], "</mark>") if is_asked else ("", word[0], ""))
        position = word.end()
    pieces.append(("", plain[position:], ""))
    return format_html_join("", "{}{}{}", ((SafeString(a), text, SafeString(b)) for a, text, b in pieces))
