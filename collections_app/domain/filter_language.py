"""Typed filters as people write them: `page >= 3 and language = de and metadata.price < 10`.

GRAMMAR states the language, in the style of the span filter's. A text stands in quotes, or bare where it is one word; a
key of metadata that is no word is written metadata['...']. Reading gives the JSON of `ragd.conditions`, and writing is
its inverse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lark import Token, v_args

from collections_app.domain.expressions import Builder, Language, Literal, quote, unquote, words_of
from ragd.conditions import FIELDS, METADATA, AllOf, AnyOf, Comparison, Condition, Kind, Negation, parse_condition
from ragd.errors import InvalidInput

LENGTH_MAX = 10_000
SIGNS = {"=": "eq", "==": "eq", "!=": "ne", "<>": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
WRITTEN_SIGNS = {op: sign for sign, op in reversed(SIGNS.items())}
KEYWORDS = frozenset({"and", "or", "not", "in", "is", "starts", "with", "true", "false", "none", "null"})
GRAMMAR = r"""
    start: expression
    ?expression: conjunction | expression OR conjunction -> any_of
    ?conjunction: negation | conjunction AND negation -> all_of
    ?negation: NOT negation -> negated | LPAR expression RPAR -> grouped | comparison
    ?comparison: name SIGN value -> compared
        | name [NOT] IN LPAR [values] RPAR -> one_of
        | name STARTS [WITH] value -> begins
        | name STARTS [WITH] LPAR values RPAR -> begins_with_all
        | name IS [NOT] (NONE | NULL) -> missing
    name: NAME | NAME LSQB TEXT RSQB
    values: value (COMMA value)*
    value: TEXT | DATE | NUMBER | TRUE | FALSE | NAME

    %declare AND OR NOT IN IS STARTS WITH TRUE FALSE NONE NULL
    DATE.3: /[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]+(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?(?![\w.])/
    NAME: /\w[\w.\-\/]*/
"""
LABELS = {"SIGN": "an operator (=, !=, >, >=, <, <=)", "TEXT": "a text"}
EQUALS, ORDERS, TESTS = ("=", "!="), (">", ">=", "<", "<="), ("in (", "not in (", "is none", "is not none")
OPERATORS: dict[Kind, tuple[str, ...]] = {
    "text": (*EQUALS, *TESTS, "starts with"), "texts": (*EQUALS, *TESTS, "starts with"),
    "number": (*EQUALS, *ORDERS, *TESTS), "pages": (*EQUALS, *ORDERS, *TESTS), "time": (*EQUALS, *ORDERS, *TESTS),
    "json": (*EQUALS, *ORDERS, *TESTS, "starts with"),
}  # fmt: skip
_WORD = re.compile(r"[^\W\d][\w.\-]*\Z")


def read_filter(text: str) -> dict[str, Any]:
    """The JSON of the filter, {} for an empty text.

    Raises InvalidInput (field "filter") that says what was expected and at which character, counted from 1.
    """
    if not text.strip():
        return {}
    values = LANGUAGE.read(text)
    parse_condition(values)
    return values


def complete_filter(text: str, fields: Sequence[str], values_of: Callable[[str, str], Sequence[Literal]]) -> list[str]:
    """The text with each word that may come next. fields: what is offered of FIELDS and metadata.KEY; values_of: what
    a field holds that begins so."""

    def offer(accepted: set[str], named: str, word: str) -> list[str]:
        words = words_of(accepted, "and", "or", "not")
        if "NUMBER" in accepted:
            return [*map(_write_value, values_of(named, word.lstrip("'\""))), *words_of(accepted, "none")]
        if "NAME" in accepted:
            return [*map(_write_name, fields), *words]
        if "SIGN" in accepted:
            return list(OPERATORS["json" if named.startswith(METADATA) else FIELDS.get(named, "json")])
        return words + words_of(accepted, "in", "none")

    return LANGUAGE.complete(text, offer)


def write_filter(condition: Condition) -> str:
    """The condition in the language: what `read_filter` reads as the same."""
    if isinstance(condition, Comparison):
        return _write_comparison(condition)
    if isinstance(condition, Negation):
        return f"not ({write_filter(condition.part)})"
    word = " and " if isinstance(condition, AllOf) else " or "
    parts = (write_filter(part) for part in condition.parts)
    return word.join(
        f"({text})" if isinstance(part, AnyOf | AllOf) else text
        for part, text in zip(condition.parts, parts, strict=True)
    )


def write_json(values: Mapping[str, Any]) -> str:
    """`write_filter` of a filter's JSON; JSON itself where it cannot be read."""
    try:
        condition = parse_condition(values)
    except InvalidInput:
        return json.dumps(values, ensure_ascii=False)
    return write_filter(condition) if condition else ""


def _write_comparison(comparison: Comparison) -> str:
    name, op, value = _write_name(comparison.field), comparison.op, comparison.value
    if op == "exists":
        return f"{name} is {'not ' if value else ''}none"
    written = f"({', '.join(map(_write_value, value))})" if isinstance(value, tuple) else _write_value(value)
    word = {"in": "in", "nin": "not in", "prefix": "starts with"}.get(op) or WRITTEN_SIGNS[op]
    return f"{name} {word} {written}"


def _write_name(field: str) -> str:
    key = field.removeprefix(METADATA)
    if field in FIELDS or (_WORD.match(field) and key.lower() not in KEYWORDS):
        return field
    return f"metadata[{_write_value(key)}]"


def _write_value(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    return json.dumps(value)


Json = dict[str, Any]


@v_args(inline=True)
class _JsonBuilder(Builder[Json]):
    def any_of(self, left: Json, _or: Token, right: Json) -> Json:
        return {"or": [*left.get("or", [left]), right]}

    def all_of(self, left: Json, _and: Token, right: Json) -> Json:
        return {"and": [*left.get("and", [left]), right]}

    def negated(self, _not: Token, values: Json) -> Json:
        return {"not": values}

    def compared(self, name: Token, sign: Token, value: Any) -> Json:
        return _comparison(name, SIGNS[sign], value)

    def one_of(self, name: Token, negation: Token | None, _in: Token, _open: Token, values: Any, _end: Token) -> Json:
        return _comparison(name, "nin" if negation else "in", values or [])

    def begins(self, name: Token, _starts: Token, _with: Token | None, value: Any) -> Json:
        return _comparison(name, "prefix", value)

    def begins_with_all(
        self, name: Token, _starts: Token, _with: Token | None, _open: Token, values: Any, _end: Token
    ) -> Json:
        return _comparison(name, "prefix", values)

    def missing(self, name: Token, _is: Token, negation: Token | None, _none: Token) -> Json:
        return _comparison(name, "exists", negation is not None)

    def name(self, first: Token, *rest: Token) -> Token:
        return first.update(value=f"{first}.{unquote(rest[1])}") if rest else first


def _comparison(name: Token, op: str, value: Any) -> Json:
    values = {"field": str(name), "op": op, "value": value}
    try:
        parse_condition(values)
    except InvalidInput as error:
        message = error.message.replace(f"{name}: {op} ", f"{name}: {WRITTEN_SIGNS.get(op, op)} ", 1)
        raise LANGUAGE.wrong(f"{message} (at position {(name.start_pos or 0) + 1})") from None
    return values


LANGUAGE = Language[Json](
    GRAMMAR, _JsonBuilder(), keywords=KEYWORDS, labels=LABELS, field="filter", length_max=LENGTH_MAX
)
