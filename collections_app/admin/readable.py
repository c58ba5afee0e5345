"""Stored values as people read them: structures as tables and lists, durations with units, positions from 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.postgres.fields import ArrayField
from django.db.models import Field, JSONField, Model
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from collections_app.domain import formats

SHOWN_ROWS = 50
NOTHING = "–"


def readable(value: Any, name: str = "") -> str:
    """A JSON value as HTML: an object as a table of names and values, a list of objects as a table with a head, other
    lists as lists. name: that of the field or key, which says the unit. The first SHOWN_ROWS of a list, and how many
    more there are; an en dash for nothing.
    """
    if isinstance(value, Mapping):
        return _pairs(value) if value else NOTHING
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _listed(value) if value else NOTHING
    return _plain(value, name)


def _plain(value: Any, name: str) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int | float):
        return unit_of(name)(value)
    return str(value)


def unit_of(name: str) -> Callable[[Any], str]:
    """How a number of that name is written."""
    if name.endswith("_ms"):
        return formats.duration
    if name.endswith("_s"):
        return lambda value: formats.duration(value * 1000)
    if name.endswith("_bytes"):
        return formats.size
    if name == "position":
        return lambda value: formats.number(value + 1)
    return lambda value: formats.number(value) if isinstance(value, int) else f"{value:.4g}"


def _pairs(value: Mapping[str, Any]) -> SafeString:
    rows = format_html_join(
        "", '<tr><th scope="row">{}</th><td>{}</td></tr>',
        ((formats.words(str(name)), readable(each, str(name))) for name, each in value.items()),
    )  # fmt: skip
    return format_html('<table class="readable">{}</table>', rows)


def _listed(values: Sequence[Any]) -> SafeString:
    first = values[:SHOWN_ROWS]
    left = len(values) - len(first)
    more = format_html("<p>and {} more</p>", formats.number(left)) if left else ""
    if all(isinstance(each, Mapping) and each for each in first):
        return format_html("{}{}", _table(first), more)
    if not any(isinstance(each, Mapping | list) for each in first):
        return format_html("{}{}", ", ".join(_plain(each, "") for each in first), more)
    items = format_html_join("", "<li>{}</li>", ((readable(each),) for each in first))
    return format_html('<ul class="readable">{}</ul>{}', items, more)


def _table(rows: Sequence[Mapping[str, Any]]) -> SafeString:
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = format_html_join("", '<th scope="col">{}</th>', ((formats.words(name),) for name in names))
    body = format_html_join(
        "", "<tr>{}</tr>",
        (
            (format_html_join("", "<td>{}</td>", ((readable(row.get(name), name),) for name in names)),)
            for row in rows
        ),
    )  # fmt: skip
    return format_html('<table class="readable"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>', head, body)


def display_of(model: type[Model], name: str) -> Any:
    """What shows the model's field of that name to people: its name where Django's own way will do."""
    field: Field[Any, Any] = model._meta.get_field(name)  # type: ignore[assignment]  # names of a form are fields
    has_unit = name.endswith(("_ms", "_s", "_bytes")) or name == "position"
    if not has_unit and not isinstance(field, JSONField | ArrayField):
        return name

    @admin.display(description=str(field.verbose_name).removesuffix(" ms").removesuffix(" s").removesuffix(" bytes"))
    def show(row: Model) -> str:
        return readable(getattr(row, name), name)

    show.__name__ = name
    return show


def column(name: str, description: str) -> Any:
    """A column of a list that shows the field of that name with its unit, sorted by it."""

    @admin.display(description=description, ordering=name)
    def show(_: Any, row: Model) -> str:
        return readable(getattr(row, name), name)

    return show
