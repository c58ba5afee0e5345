"""Stored values as people read them: structures as tables and lists, durations with units, positions from 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.postgres.fields import ArrayField
from django.db.models import Field, JSONField, Model, TextField
from django.utils.html import format_html, format_html_join

from collections_app.domain import formats

SHOWN_ROWS = 50
CELL_CHARS = 80
NOTHING = "–"
UNITS: dict[str, Callable[[Any], str]] = {
    "_ms": formats.duration,
    "_s": lambda value: formats.duration(value * 1000),
    "_bytes": formats.size,
    "position": lambda value: formats.number(value + 1),
}


def readable(value: Any, name: str = "") -> str:
    """Write a stored value as HTML: an object as a table of names and values, a list as a list.

    name: of the field or key, whose ending says the unit. Of a list the first SHOWN_ROWS and how many more there are;
    an en dash for nothing.
    """
    if value is None or value in ("", {}, [], ()):
        return NOTHING
    if isinstance(value, Mapping):
        pairs = ((formats.words(str(key)), readable(each, str(key))) for key, each in value.items())
        rows = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td></tr>', pairs)
        return format_html('<table class="readable">{}</table>', rows)
    if isinstance(value, Sequence) and not isinstance(value, str):
        first = [readable(each) for each in value[:SHOWN_ROWS]]
        left = len(value) - len(first)
        more = f"and {formats.number(left)} more" if left else ""
        if not any(isinstance(each, Mapping | list) for each in value[:SHOWN_ROWS]):
            return ", ".join([*first, *filter(None, [more])])
        items = format_html_join("", "<li>{}</li>", ((each,) for each in first))
        return format_html('<ul class="readable">{}</ul>{}', items, more)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int | float):
        return unit_of(name)(value)
    return str(value)


def unit_of(name: str) -> Callable[[Any], str]:
    """Return how a number of that name is written."""
    plain: Callable[[Any], str] = lambda value: f"{value:,}" if isinstance(value, int) else f"{value:.4g}"  # noqa: E731
    return next((write for ending, write in UNITS.items() if name.endswith(ending)), plain)


def display_of(model: type[Model], name: str, *, in_list: bool = False) -> Any:
    """Return what shows the model's field of that name: the name itself where Django's own way will do.

    in_list: a text is cut after CELL_CHARS. A name that is no field, such as a property's, is returned as it is.
    """
    field: Field[Any, Any] | None = {each.name: each for each in model._meta.concrete_fields}.get(name)
    is_long = in_list and isinstance(field, TextField) and not field.choices
    if field is None or not (is_long or name.endswith(tuple(UNITS)) or isinstance(field, JSONField | ArrayField)):
        return name
    title = str(field.verbose_name).removesuffix(" ms").removesuffix(" s").removesuffix(" bytes")

    @admin.display(description=title, ordering=name)
    def show(row: Model) -> str:
        value = getattr(row, name)
        cut = is_long and value and len(value) > CELL_CHARS
        return f"{value[:CELL_CHARS]}…" if cut else readable(value, name)

    show.__name__ = name
    return show
