"""Typed filters as people write them: `page >= 3 and language = de and metadata.price < 10`.

Reading the language of `collections_app.domain.expressions` gives the JSON of `ragd.conditions`, and writing is its
inverse. Forms edit a filter as rows of field, operator and value; completions offer the fields and values that a
collection has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils.translation import gettext_lazy

from collections_app.domain.expressions import SYMBOLS, Compiler, Literal, quote
from collections_app.models import Collection
from ragd import conditions
from ragd.errors import InvalidInput
from ragd.search.conditions import OF_DOCUMENT, json_path

EQUALS, ORDERS, TESTS = ("=", "!="), (">", ">=", "<", "<="), ("in (", "not in (", "is none", "is not none")
OPERATORS: dict[conditions.Kind, tuple[str, ...]] = {
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
    conditions.parse_condition(values)
    return values


def complete_filter(text: str, fields: Sequence[str], values_of: Callable[[str, str], Sequence[Literal]]) -> list[str]:
    """The text with each word that may come next. fields: what is offered of FIELDS and metadata.KEY; values_of: what
    a field holds that begins so."""
    return LANGUAGE.complete(
        text,
        lambda word: [*map(_write_name, fields)],
        lambda field: OPERATORS[
            "json" if field.startswith(conditions.METADATA) else conditions.FIELDS.get(field, "json")
        ],
        lambda field, begun: [*map(_write_value, values_of(field, begun))],
    )


def write_filter(condition: conditions.Condition) -> str:
    """The condition in the language: what `read_filter` reads as the same."""
    if isinstance(condition, conditions.Comparison):
        return _write_comparison(condition)
    if isinstance(condition, conditions.Negation):
        return f"not ({write_filter(condition.part)})"
    word = " and " if isinstance(condition, conditions.AllOf) else " or "
    parts = (write_filter(part) for part in condition.parts)
    return word.join(
        f"({text})" if isinstance(part, conditions.AnyOf | conditions.AllOf) else text
        for part, text in zip(condition.parts, parts, strict=True)
    )


def write_json(values: Mapping[str, Any]) -> str:
    """`write_filter` of a filter's JSON; JSON itself where it cannot be read."""
    try:
        condition = conditions.parse_condition(values)
    except InvalidInput:
        return json.dumps(values, ensure_ascii=False)
    return write_filter(condition) if condition else ""


def _write_comparison(comparison: conditions.Comparison) -> str:
    name, op, value = _write_name(comparison.field), comparison.op, comparison.value
    if op == "exists":
        return f"{name} is {'not ' if value else ''}none"
    written = f"({', '.join(map(_write_value, value))})" if isinstance(value, tuple) else _write_value(value)
    return f"{name} {SYMBOLS[op]} {written}"


def _write_name(field: str) -> str:
    if field in conditions.FIELDS or _WORD.match(field):
        return field
    return f"metadata[{_write_value(field.removeprefix(conditions.METADATA))}]"


def _write_value(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    return json.dumps(value)


Json = dict[str, Any]


class _JsonCompiler(Compiler[Json]):
    """Makes the JSON of `ragd.conditions`."""

    field = "filter"
    length_max = 10_000

    def compare(self, name: str, position: int, op: str, value: Any) -> Json:
        values = {"field": name, "op": op, "value": value}
        try:
            if op == "contains":
                raise InvalidInput(f"{name}: contains is for spans; here a text is compared by =, in or starts with")
            conditions.parse_condition(values)
        except InvalidInput as error:
            message = error.message.replace(f"{name}: {op} ", f"{name}: {SYMBOLS.get(op, op)} ", 1)
            raise self.wrong(f"{message} (at position {position})") from None
        return values

    def join(self, word: str, left: Json, right: Json) -> Json:
        return {word: [*left.get(word, [left]), right]}

    def negate(self, condition: Json) -> Json:
        return {"not": condition}


LANGUAGE = _JsonCompiler()


ROWS_READ = 10_000  # chunks and documents that are looked at
VALUES_MAX = 40
SOUGHT_CHARS_MAX = 200

KEYS = """
SELECT DISTINCT key FROM (SELECT {column} FROM {table} WHERE collection_id = %(collection_id)s LIMIT %(rows)s) AS read,
    jsonb_object_keys({column}) AS key
ORDER BY key
"""
VALUES = """
SELECT DISTINCT value FROM (SELECT {column} FROM {table} WHERE collection_id = %(collection_id)s LIMIT %(rows)s)
    AS read, {values} AS value
WHERE starts_with(lower(value #>> '{{}}'), %(begun)s) ORDER BY value LIMIT %(most)s
"""


def metadata_keys(collection: Collection) -> list[str]:
    """The fields of metadata that its first ROWS_READ documents have, by name."""
    return [str(key) for key in _read(collection, KEYS, "documents", "metadata")]


def complete(collection: Collection | None, text: str, *, of_documents: bool = False) -> list[str]:
    """The text with each word that may come next. of_documents: without the fields that only chunks have.

    Of the first ROWS_READ documents and chunks; [] for a text that is wrong already or too long. Without a collection:
    no keys of metadata and no values.
    """
    fields = offered_fields(collection, of_documents=of_documents)
    return complete_filter(text, fields, lambda field, begun: values_of(collection, field, begun))


def offered_fields(collection: Collection | None, *, of_documents: bool = False) -> list[str]:
    """The fields that a filter may name: those of metadata first, then those that its documents and chunks have."""
    known = OF_DOCUMENT if of_documents else tuple(conditions.FIELDS)
    if collection is None:
        return list(known)
    keys = [conditions.METADATA + key for key in metadata_keys(collection)]
    if not of_documents:
        held = {*OF_DOCUMENT, *_read(collection, KEYS, collection.chunks_table, "attributes")}
        known = tuple(field for field in known if field in held)
    return [*keys, *known]


def values_of(collection: Collection | None, field: str, begun: str = "") -> Sequence[Literal]:
    """What the field holds that begins so, at most VALUES_MAX; [] without a collection."""
    if collection is None:
        return []
    if len(begun) > SOUGHT_CHARS_MAX or (field not in conditions.FIELDS and not field.startswith(conditions.METADATA)):
        return []
    table, column, values, path = "documents", field, f"to_jsonb({field})", ""
    if field == "tags":
        values = "jsonb_array_elements(to_jsonb(tags))"
    elif field.startswith(conditions.METADATA):
        column, values = "metadata", "jsonb_path_query(metadata, %(path)s::jsonpath)"
        path = json_path(conditions.metadata_paths(field)[-1]) + "[*]"
    elif field not in {"doc_id", *conditions.DOCUMENT_FIELDS, *conditions.INHERITED_FIELDS}:
        table, column = collection.chunks_table, "attributes"
        values, path = "jsonb_path_query(attributes, %(path)s::jsonpath)", json_path([field]) + "[*]"
    found = _read(collection, VALUES, table, column, values=values, begun=begun.lower(), path=path)
    return [value for value in found if isinstance(value, Literal) and value != ""]


def _read(collection: Collection, sql: str, table: str, column: str, values: str = "", **more: Any) -> list[Any]:
    params = {"collection_id": collection.pk, "rows": ROWS_READ, "most": VALUES_MAX, **more}
    with connection.cursor() as cursor:
        cursor.execute(sql.format(table=table, column=column, values=values), params)
        rows = [row[0] for row in cursor.fetchall()]
    return [json.loads(each) for each in rows] if values else rows


JOINS = ("and", "or")
MISSING = "missing"  # the operator exists with the value false
LISTS = ("in", "nin")
OPERATOR_LABELS = {
    "eq": gettext_lazy("is"), "ne": gettext_lazy("is not"), "gt": ">", "gte": "≥", "lt": "<", "lte": "≤",
    "prefix": gettext_lazy("starts with"), "in": gettext_lazy("is one of"), "nin": gettext_lazy("is none of"),
    "exists": gettext_lazy("has a value"), MISSING: gettext_lazy("has no value"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FilterRow:
    """One comparison as it was typed. op: of OPERATORS; value: a text; of "in" and "nin" several, with commas."""

    field: str = ""
    op: str = "eq"
    value: str = ""

    @property
    def kind(self) -> conditions.Kind:
        return "json" if self.field.startswith(conditions.METADATA) else conditions.FIELDS.get(self.field, "json")

    @property
    def takes_value(self) -> bool:
        return self.op not in ("exists", MISSING)

    @property
    def is_complete(self) -> bool:
        return bool(self.field) and (not self.takes_value or bool(self.value.strip()))

    @property
    def operators(self) -> list[tuple[str, Any]]:
        """Those that its field takes, each with its words."""
        orders = {"text": conditions.ORDER_OPS, "texts": conditions.ORDER_OPS}
        without = (orders | dict.fromkeys(("time", "number", "pages"), ("prefix",))).get(self.kind, ())
        return [(op, words) for op, words in OPERATOR_LABELS.items() if op not in without]

    def as_json(self) -> dict[str, Any]:
        """As `ragd.conditions` takes it. Raises InvalidInput for a value of another type."""
        if not self.takes_value:
            return {"field": self.field, "op": "exists", "value": self.op == "exists"}
        value: Any = self._read(self.value)
        if self.op in LISTS:
            value = [self._read(part) for part in self.value.split(",") if part.strip()]
        return {"field": self.field, "op": self.op, "value": value}

    def _read(self, text: str) -> Any:
        """A number or a truth where the field may hold one; "3" in quotes is a text."""
        stated = text.strip()
        if self.kind in ("text", "texts", "time"):
            return stated
        try:
            value = json.loads(stated)
        except (ValueError, RecursionError):
            return stated
        return value if isinstance(value, str | int | float) else stated


def rows_of_filter(text: str) -> tuple[str, list[FilterRow]] | None:
    """(how they are joined, the rows) of a filter; None for one that rows cannot show, or that is wrong."""
    try:
        values = read_filter(text)
    except InvalidInput:
        return None
    join = next((name for name in JOINS if name in values), "and")
    parts = values.get(join, [values] if values else [])
    if not all("field" in part for part in parts):
        return None
    return join, [_row_of(part) for part in parts]


def _row_of(part: Mapping[str, Any]) -> FilterRow:
    field, op, value = str(part["field"]), str(part["op"]), part["value"]
    if op == "exists":
        return FilterRow(field, op if value else MISSING)
    values = value if isinstance(value, list) else [value]
    return FilterRow(field, op, ", ".join(write_value(field, each) for each in values))


def write_value(field: str, value: Any) -> str:
    """What the row reads as the same value."""
    if isinstance(value, str) and FilterRow(field)._read(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def filter_of_rows(join: str, rows: Sequence[FilterRow]) -> str:
    """The filter that the complete rows state. Raises InvalidInput that names the field."""
    stated = [conditions.parse_condition(row.as_json()) for row in rows if row.is_complete]
    return f" {join if join in JOINS else 'and'} ".join(write_filter(condition) for condition in stated if condition)
