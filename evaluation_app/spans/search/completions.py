"""What may follow in a filter expression that is being written: names, operators and values, as the grammar allows."""

from __future__ import annotations

from collections_app.domain.expressions import words_of
from evaluation_app.spans.search import scores
from evaluation_app.spans.search.conditions import WRITTEN
from evaluation_app.spans.search.language import CLOSED, COLUMNS, FIELD_NAMES, LANGUAGE, SIGNS

TEXT_OPERATORS = ("==", "!=", "contains", "starts with", "in (", "is none", "is not none")
NUMBER_OPERATORS = (*dict.fromkeys(SIGNS.values()), "in (", "is none", "is not none")


def complete(text: str) -> list[str]:
    """The expression with each word that may stand next, or that the last word may become, fields before attributes.
    [] where it is wrong already."""
    return LANGUAGE.complete(text, _words)


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
    return words + words_of(accepted, "and", "or", "not")
