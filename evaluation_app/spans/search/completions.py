"""What may follow in a filter expression that is being written: names, operators and values, as the grammar allows."""

from __future__ import annotations

import re

from lark import UnexpectedInput

from evaluation_app.spans.search import scores
from evaluation_app.spans.search.conditions import WRITTEN
from evaluation_app.spans.search.language import CLOSED, COLUMNS, FIELD_NAMES, PARSER, SIGNS
from ragd.errors import InvalidInput

OFFERED_MAX = 40
WHOLE_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
BEGUN = re.compile(r"['\"].*$|[<>=!]+$|[\w.@:\-]*$", re.DOTALL)  # the word at the end, which may be incomplete
TEXT_OPERATORS = ("==", "!=", "contains", "starts with", "in (", "is none", "is not none")
NUMBER_OPERATORS = (*dict.fromkeys(SIGNS.values()), "in (", "is none", "is not none")


def complete(text: str) -> list[str]:
    """The expression with each word that may stand next, or that the last word may become; at most OFFERED_MAX, fields
    before attributes. [] where it is wrong already."""
    begun = BEGUN.search(WHOLE_TEXT.sub(lambda whole: " " * len(whole[0]), text))
    before = text[: begun.start()] if begun else text
    word = text[len(before) :]
    try:
        tokens = list(PARSER.lex(before))
        parser = PARSER.parse_interactive(before)
        parser.exhaust_lexer()
        accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    except (UnexpectedInput, InvalidInput):
        return []
    named = next((str(token) for token in reversed(tokens) if token.type == "NAME"), "")
    words = _words(accepted, named, word)
    fitting = [each for each in words if each.casefold().startswith(word.casefold()) and each != word]
    return [f"{before}{each}" for each in dict.fromkeys(fitting)][:OFFERED_MAX]


def _words(accepted: set[str], named: str, word: str) -> list[str]:
    """named: the last name before, whose operators and values are meant."""
    column = COLUMNS.get(named)
    words: list[str] = []
    if "NAME" in accepted:
        measures = [f"{scores.PREFIX}{name}" for name in scores.OFFERED]
        attributes = sorted(WRITTEN) if word else []
        words += [*FIELD_NAMES, *(measures if word else measures[:1]), *attributes]
    if "SIGN" in accepted:
        is_number = named.startswith(scores.PREFIX) or (column is not None and column.holds == "number")
        words += NUMBER_OPERATORS if is_number else TEXT_OPERATORS
    if "TEXT" in accepted and "NAME" not in accepted and column is not None and column.column in CLOSED:
        words += [f"'{value}'" for value in CLOSED[column.column]()]
    return words + [each.lower() for each in ("AND", "OR", "NOT") if each in accepted]
