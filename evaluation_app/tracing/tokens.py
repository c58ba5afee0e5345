"""The filter language cut into names, texts, numbers and signs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ragd.errors import InvalidInput

TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))"""
    r"""|(?P<name>[A-Za-z_][\w.\-]*)|(?P<sign>==|!=|<>|>=|<=|[=<>()\[\],]))"""
)


@dataclass(frozen=True, slots=True)
class Token:
    """kind: text, number, name, sign or end. place: where it begins, from 1."""

    kind: str
    value: str
    place: int


def split_tokens(text: str) -> list[Token]:
    """In order, then one of kind end. Raises InvalidInput for what is none of them."""
    tokens, place = [], 0
    while text[place:].strip():
        match = TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            at = len(text) - len(text[place:].lstrip())
            raise wrong_filter(
                f"{text[at : at + 12]!r} at place {at + 1} is no name, value or operator (texts need quotes)"
            )
        kind = match.lastgroup
        value = match[kind]
        tokens.append(Token(kind, _unquoted(value) if kind == "text" else value, match.start(kind) + 1))
        place = match.end()
    return [*tokens, Token("end", "", len(text) + 1)]


def wrong_filter(message: str) -> InvalidInput:
    """The error of a filter that cannot be read, to be raised."""
    return InvalidInput(message, field="where")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])
