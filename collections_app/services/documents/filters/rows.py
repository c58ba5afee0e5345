"""A typed filter as rows of field, operator and value, and such rows as a filter. The filter stays what holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy

from collections_app.domain.filter_language import read_filter, write_filter
from ragd.conditions import FIELDS, METADATA, ORDER_OPS, Kind, parse_condition
from ragd.errors import InvalidInput

JOINS = ("and", "or")
MISSING = "missing"  # the operator exists with the value false
LISTS = ("in", "nin")
OPERATORS = {
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
    def kind(self) -> Kind:
        return "json" if self.field.startswith(METADATA) else FIELDS.get(self.field, "json")

    @property
    def takes_value(self) -> bool:
        return self.op not in ("exists", MISSING)

    @property
    def is_complete(self) -> bool:
        return bool(self.field) and (not self.takes_value or bool(self.value.strip()))

    @property
    def operators(self) -> list[tuple[str, Any]]:
        """Those that its field takes, each with its words."""
        without = {
            "text": ORDER_OPS, "texts": ORDER_OPS, "time": ("prefix",), "number": ("prefix",), "pages": ("prefix",),
        }.get(self.kind, ())  # fmt: skip
        return [(op, words) for op, words in OPERATORS.items() if op not in without]

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
    stated = [parse_condition(row.as_json()) for row in rows if row.is_complete]
    return f" {join if join in JOINS else 'and'} ".join(write_filter(condition) for condition in stated if condition)
