"""Typed filters as people write them: `page >= 3 and language = de and metadata.price < 10`.

GRAMMAR states the language, in the style of the span filter's. A text stands in quotes, or bare where it is one word; a
key of metadata that is no word is written metadata['...']. Reading gives the JSON of `ragd.conditions`, and writing is
its inverse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from ragd.conditions import FIELDS, METADATA, AllOf, AnyOf, Comparison, Condition, Negation, parse_condition
from ragd.errors import InvalidInput

LENGTH_MAX = 10_000
DEPTH_MAX = 40
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
    TEXT: /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/s
    DATE.3: /[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]+(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?(?![\w.])/
    NUMBER.2: /-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])/
    NAME: /\w[\w.\-\/]*/
    SIGN: /==|!=|<>|>=|<=|[=<>]/
    LPAR: "("
    RPAR: ")"
    LSQB: "["
    RSQB: "]"
    COMMA: ","
    %ignore /\s+/
"""
LABELS = {
    "NAME": "a name", "SIGN": "an operator (=, !=, >, >=, <, <=)", "TEXT": "a text", "NUMBER": "a number",
    "LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "COMMA": ",",
    **{word.upper(): word for word in sorted(KEYWORDS - {"null"})}, "$END": "the end",
}  # fmt: skip
EXAMPLES = (
    "page >= 3", "language = de", "tags in (manual, draft)", "section = 'Installation'",
    "media_type starts with 'text/'", "created_at >= 2024-01-31", "metadata.price < 10", "metadata.author is not none",
    "not title starts with 'Draft'",
)  # fmt: skip
_WORD = re.compile(r"[^\W\d][\w.\-]*\Z")


def read_filter(text: str) -> dict[str, Any]:
    """The JSON of the filter, {} for an empty text.

    Raises InvalidInput (field "filter") that says what was expected and at which character, counted from 1.
    """
    if not text.strip():
        return {}
    if len(text) > LENGTH_MAX:
        raise _wrong(f"a filter has at most {LENGTH_MAX} characters, not {len(text)}")
    try:
        _check_depth(text)
        values: dict[str, Any] = PARSER.parse(text)  # type: ignore[assignment]  # the transformer makes it of the tree
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        raise _wrong(f"{text[at : at + 12]!r} at position {at + 1} is no name, value or operator") from None
    except UnexpectedToken as error:
        expected = ", ".join(label for terminal, label in LABELS.items() if terminal in error.accepts)
        at_end = error.token.type == "$END"
        position = len(text) + 1 if at_end else (error.token.start_pos or 0) + 1
        actual = "the filter ends" if at_end else f"there is {str(error.token)!r}"
        raise _wrong(f"expected {expected} at position {position}, but {actual}") from None
    parse_condition(values)
    return values


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
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return json.dumps(value)


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(message, field="filter")


def _check_depth(text: str) -> None:
    depth = negations = 0
    for token in PARSER.lex(text):
        depth += (token.type == "LPAR") - (token.type == "RPAR")
        negations = negations + 1 if token.type == "NOT" else 0 if token.type != "LPAR" else negations
        if max(depth, negations) > DEPTH_MAX:
            raise _wrong(f"a filter nests at most {DEPTH_MAX} deep")


Json = dict[str, Any]


@v_args(inline=True)
class _JsonBuilder(Transformer[Token, Json]):
    """Makes the JSON while the text is parsed: one method for each rule of GRAMMAR."""

    def start(self, values: Json) -> Json:
        return values

    def any_of(self, left: Json, _or: Token, right: Json) -> Json:
        return {"or": [*left.get("or", [left]), right]}

    def all_of(self, left: Json, _and: Token, right: Json) -> Json:
        return {"and": [*left.get("and", [left]), right]}

    def negated(self, _not: Token, values: Json) -> Json:
        return {"not": values}

    def grouped(self, _open: Token, values: Json, _close: Token) -> Json:
        return values

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
        return first.update(value=f"{first}.{_unquoted(rest[1])}") if rest else first

    def values(self, *values: Any) -> list[Any]:
        return list(values[::2])  # every other one is a comma

    def value(self, token: Token) -> Any:
        if token.type == "TEXT":
            return _unquoted(token)
        if token.type == "NUMBER":
            return float(token) if re.search(r"[.eE]", token) else int(token)
        return token.type == "TRUE" if token.type in ("TRUE", "FALSE") else str(token)


def _comparison(name: Token, op: str, value: Any) -> Json:
    values = {"field": str(name), "op": op, "value": value}
    try:
        parse_condition(values)
    except InvalidInput as error:
        raise _wrong(f"{error.message} (at position {(name.start_pos or 0) + 1})") from None
    return values


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def _keyword(token: Token) -> Token:
    """A name that is a word of the language becomes its terminal."""
    return token.update(type=token.upper()) if token.lower() in KEYWORDS else token


PARSER = Lark(
    GRAMMAR, parser="lalr", lexer="basic", transformer=_JsonBuilder(), lexer_callbacks={"NAME": _keyword},
    maybe_placeholders=True,
)  # fmt: skip
