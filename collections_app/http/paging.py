"""Lists of the API in pieces: a limit, and an opaque cursor that stands for the last row seen (keyset, so pages never
shift)."""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db.models import DateTimeField, Field, ForeignKey, IntegerField, Model, Q, QuerySet, UUIDField

from collections_app.errors import ServiceError, WrongValueError

DEFAULT_LIMIT = 50
LIMIT_MAX = 500
PLACE = ("place",)
VALUE_TYPES: dict[type[Field[Any, Any]], type] = {DateTimeField: datetime, UUIDField: uuid.UUID, IntegerField: int}

Row = TypeVar("Row")
Stored = TypeVar("Stored", bound=Model)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Rows in order. next_cursor is None on the last page."""

    items: list[Row]
    next_cursor: str | None


def filter_stated(rows: QuerySet[Stored], values: Mapping[str, Any]) -> QuerySet[Stored]:
    """The rows with these values of fields; those that are None or empty are not stated.

    PostgreSQL's texts hold no NUL: a value with one matches nothing.
    """
    stated = {name: value for name, value in values.items() if value}
    if any(
        "\x00" in str(each) for value in stated.values() for each in (value if isinstance(value, list) else [value])
    ):
        return rows.none()
    return rows.filter(**stated)


def paginate(
    rows: QuerySet[Stored], order: Sequence[str], *, limit: int | None = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[Stored]:
    """One page of `rows` in `order` ("-created_at", "id": unique together, none of them null). One query.

    limit None gives everything. Raises ServiceError (422) for a limit or cursor that is not acceptable.
    """
    if limit is not None and not 1 <= limit <= LIMIT_MAX:
        raise WrongValueError(f"limit must be from 1 to {LIMIT_MAX}, not {limit}", "limit")
    ordered = rows.order_by(*order)
    if cursor:
        ordered = ordered.filter(_after(order, _read_row_key(rows.model, order, cursor)))
    if limit is None:
        return Page(list(ordered), None)
    result = list(ordered[: limit + 1])
    items = result[:limit]
    return Page(items, _encode(items[-1], order) if len(result) > limit else None)


def cut_page(rows: Sequence[Row], *, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[Row]:
    """One page of rows that are all there already; the cursor stands for the place in them.

    Raises ServiceError (422) for a limit or cursor that is not acceptable.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise WrongValueError(f"limit must be from 1 to {LIMIT_MAX}, not {limit}", "limit")
    (first,) = _decode(cursor, PLACE) if cursor else (0,)
    if not isinstance(first, int) or first < 0:
        raise _refuse_cursor()
    after = first + limit
    return Page(list(rows[first:after]), _write(PLACE, [after]) if after < len(rows) else None)


def _read_row_key(model: type[Model], order: Sequence[str], cursor: str) -> list[Any]:
    """The cursor's values of the fields of `order`. Raises ServiceError (422) where one has not its field's type."""
    values = _decode(cursor, order)
    types = [_value_type(model, name.lstrip("-")) for name in order]
    if not all(type(value) is expected for value, expected in zip(values, types, strict=True)):
        raise _refuse_cursor()
    return values


def _value_type(model: type[Model], name: str) -> type:
    field = model._meta.get_field(name)
    if isinstance(field, ForeignKey):
        field = field.target_field
    for kind, value_type in VALUE_TYPES.items():
        if isinstance(field, kind):
            return value_type
    return str


def _after(order: Sequence[str], values: Sequence[Any]) -> Q:
    """Rows behind `values`: (a > x) or (a = x and b > y) or ..."""
    condition = Q()
    equal = Q()
    for name, value in zip(order, values, strict=True):
        field = name.lstrip("-")
        direction = "lt" if name.startswith("-") else "gt"
        condition |= equal & Q(**{f"{field}__{direction}": value})
        equal &= Q(**{field: value})
    return condition


def _encode(row: Model, order: Sequence[str]) -> str:
    return _write(order, [_plain(getattr(row, name.lstrip("-"))) for name in order])


def _write(order: Sequence[str], values: Sequence[Any]) -> str:
    text = json.dumps([list(order), values], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"at": value.isoformat()}
    if isinstance(value, uuid.UUID):
        return {"id": value.hex}
    return value


def _decode(cursor: str, order: Sequence[str]) -> list[Any]:
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        names, values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        restored = [_restore(value) for value in values]
    except (ValueError, TypeError, KeyError, binascii.Error, RecursionError):
        raise _refuse_cursor() from None
    if names != list(order) or len(restored) != len(order):
        raise _refuse_cursor()
    return restored


def _restore(value: Any) -> Any:
    if isinstance(value, dict):
        return _restore_time(value["at"]) if "at" in value else uuid.UUID(value["id"])
    if isinstance(value, bool) or not isinstance(value, (str, int)) or "\x00" in str(value):
        raise ValueError(value)
    str(value).encode()  # half a surrogate pair, which no stored text holds, is a ValueError
    return value


def _restore_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time


def _refuse_cursor() -> ServiceError:
    return WrongValueError(
        "cursor is not one that this list gave; take next_cursor from the page before, or leave it out", "cursor"
    )
