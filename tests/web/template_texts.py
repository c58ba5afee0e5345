"""The texts of a template that people read."""

from __future__ import annotations

import re
from html.parser import HTMLParser

READ_ATTRIBUTES = {"title", "aria-label", "placeholder", "alt", "data-confirm", "data-confirm-do", "value"}

_TAG = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')
_SEPARATOR = "\x1f"


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in ("script", "style")
        readable = [value for name, value in attrs if name in READ_ATTRIBUTES and value]
        self.texts += [part for value in readable for part in value.split(_SEPARATOR)]

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.texts += data.split(_SEPARATOR)


def template_texts(source: str) -> list[str]:
    """What a template shows, in order: its text between tags, its readable attributes, what its tags quote."""
    quoted = [text for tag in _TAG.findall(source) if tag.startswith("{%") for text in _QUOTED.findall(tag)]
    parser = _Texts()
    parser.feed(_TAG.sub(_SEPARATOR, source))
    texts = [" ".join(text.split()).strip(" ·,.:;()–") for text in parser.texts]
    return [text for text in texts if re.search(r"[A-Za-z]{2}", text)] + [text for text in quoted if _reads(text)]


def _reads(text: str) -> bool:
    prose = " " in text.strip() or bool(re.match(r"[A-Z][a-z]", text))
    return prose and bool(re.search(r"[A-Za-z]{2}", text))
