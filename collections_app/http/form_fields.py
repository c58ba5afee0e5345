"""Form fields for what people type here: lists of tags, JSON objects, many files.

Metadata as rows of field, type and value, and as JSON for whoever likes that better.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.forms.renderers import BaseRenderer
from django.http import QueryDict
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from collections_app.documents.filters import read_filter, write_json
from ragd.conditions import DAY_CHARS, parse_period
from ragd.errors import InvalidInput
from ragd.identity import check_language

EMPTY_ROWS = 2  # behind those that are filled in; a script adds more
EXPECTED_OBJECT = 'this must be a JSON object such as {"year": 2024}'
KINDS = (
    ("text", gettext_lazy("Text")),
    ("number", gettext_lazy("Number")),
    ("truth", gettext_lazy("Yes/no")),
    ("date", gettext_lazy("Date")),
    ("list", gettext_lazy("List")),
    ("json", "JSON"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One field of metadata as it was typed. kind: of KINDS; an unknown one counts as text."""

    key: str = ""
    kind: str = "text"
    value: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.key.strip() and not self.value.strip()


@dataclass(frozen=True, slots=True)
class Typed:
    """What a form sent. written: the object as JSON; was: the JSON that the page had shown, which the rows replace
    unless somebody changed it."""

    rows: tuple[Row, ...]
    written: str
    was: str

    @property
    def is_written(self) -> bool:
        return _lines(self.written) != _lines(self.was)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def read_object(text: str) -> dict[str, Any]:
    """The object that the JSON states, {} for a blank text. Raises ValidationError."""
    if not text.strip():
        return {}
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{EXPECTED_OBJECT}; it cannot be read: {error}") from None
    if not isinstance(parsed, dict):
        raise ValidationError(f"{EXPECTED_OBJECT}, not {type(parsed).__name__}")
    return parsed


def row_of(key: str, value: Any) -> Row:
    """The row that `value_of` reads as the same value."""
    if isinstance(value, bool):
        return Row(key, "truth", gettext("yes") if value else gettext("no"))
    if isinstance(value, int | float):
        return Row(key, "number", json.dumps(value))
    if isinstance(value, str) and "\n" not in value:
        is_day = len(value) == DAY_CHARS and parse_period(value) is not None
        return Row(key, "date" if is_day else "text", value)
    if isinstance(value, list) and value and all(_is_plain(item) for item in value):
        return Row(key, "list", ", ".join(value))
    return Row(key, "json", json.dumps(value, ensure_ascii=False))


def _is_plain(item: Any) -> bool:
    return isinstance(item, str) and bool(item) and item == item.strip() and not {",", "\n"} & {*item}


def value_of(row: Row) -> Any:
    """What the row states. Raises ValidationError that names the field."""
    try:
        return READERS.get(row.kind, str)(row.value)
    except (ValueError, RecursionError):
        expected = EXPECTED.get(row.kind, "")
        raise ValidationError(
            gettext("%(key)s: expected %(expected)s, not “%(value)s”.")
            % {"key": row.key.strip(), "expected": expected, "value": row.value[:80]}
        ) from None


def _number(text: str) -> int | float:
    number = json.loads(text.strip())
    if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
        return number
    raise ValueError


def _truth(text: str) -> bool:
    said = text.strip().lower()
    if said in ("yes", "true", gettext("yes")):
        return True
    if said in ("no", "false", gettext("no")):
        return False
    raise ValueError


def _date(text: str) -> str:
    if parse_period(text.strip()) is None:
        raise ValueError
    return text.strip()


def _list(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


READERS: dict[str, Callable[[str], Any]] = {
    "text": str, "number": _number, "truth": _truth, "date": _date, "list": _list, "json": json.loads,
}  # fmt: skip
EXPECTED = {
    "number": gettext_lazy("a number such as 3 or 4.5"),
    "truth": gettext_lazy("yes or no"),
    "date": gettext_lazy("a date such as 2024-01-31"),
    "json": "JSON",
}


class MetadataInput(forms.Widget):
    """Rows, and the same as JSON in a fold. collection: whose fields are offered; "" offers none."""

    use_fieldset = True
    collection = ""

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: BaseRenderer | None = None
    ) -> SafeString:
        typed = value if isinstance(value, Typed) else _typed(value)
        context = {
            "name": name,
            "id": (attrs or {}).get("id", name),
            "wrong": "aria-invalid" in (attrs or {}),
            "rows": [*_shown_rows(typed), *[Row()] * EMPTY_ROWS],
            "kinds": KINDS,
            "written": typed.written,
            "was": typed.was,
            "collection": self.collection,
        }
        return render_to_string("components/metadata_rows.html", context)

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> Typed:
        columns = (_list_of(data, f"{name}-{part}") for part in ("key", "kind", "value"))
        rows = tuple(Row(*map(str, cells)) for cells in zip_longest(*columns, fillvalue=""))
        return Typed(rows, str(data.get(name) or ""), str(data.get(f"{name}-was") or ""))

    def value_omitted_from_data(self, data: Mapping[str, Any], files: Any, name: str) -> bool:
        return name not in data and f"{name}-key" not in data

    def id_for_label(self, id_: str) -> str:
        return ""


def _list_of(data: Mapping[str, Any], name: str) -> Sequence[Any]:
    return data.getlist(name) if isinstance(data, QueryDict) else data.get(name) or ()


def _typed(value: Any) -> Typed:
    """What a form that nobody has sent yet shows."""
    values = value if isinstance(value, Mapping) else {}
    text = json.dumps(values, ensure_ascii=False, indent=2) if values else ""
    return Typed(tuple(row_of(key, item) for key, item in values.items()), text, text)


def _shown_rows(typed: Typed) -> list[Row]:
    """Those of the JSON where that holds and can be read, else those that were typed."""
    if typed.is_written:
        try:
            return [row_of(key, item) for key, item in read_object(typed.written).items()]
        except ValidationError:
            return []
    return [row for row in typed.rows if not row.is_empty]


class MetadataField(forms.Field):
    """The object that rows or JSON state; {} when nothing is typed."""

    widget = MetadataInput()

    def complete_in(self, collection: str) -> None:
        """Offer the fields that documents of that collection have."""
        assert isinstance(self.widget, MetadataInput)
        self.widget.collection = collection

    def to_python(self, value: Any) -> dict[str, Any]:
        typed = value if isinstance(value, Typed) else Typed((), str(value or ""), "")
        if typed.is_written:
            return read_object(typed.written)
        values: dict[str, Any] = {}
        wrong: list[str] = []
        for row in typed.rows:
            key = row.key.strip()
            try:
                if row.is_empty:
                    continue
                if not key:
                    raise ValidationError(gettext("A value has no field: “%(value)s”.") % {"value": row.value[:80]})
                if key in values:
                    raise ValidationError(gettext("%(key)s is there twice.") % {"key": key})
                values[key] = value_of(row)
            except ValidationError as error:
                wrong += error.messages
        if wrong:
            raise ValidationError(wrong)
        return values

    def validate(self, value: Any) -> None:
        return


FILTER_ATTRS = {"class": "mono", "spellcheck": "false", "autocomplete": "off"}
FILTER_EXAMPLE = "page >= 3 and language = de"


class ReadField(forms.CharField):
    """A text that is read as another value: no check of texts fits that."""

    def validate(self, value: Any) -> None:
        return

    def run_validators(self, value: Any) -> None:
        return


class TagsField(ReadField):
    """Tags separated by commas; a list of texts in the order typed, each once."""

    def to_python(self, value: Any) -> Any:
        parts = (part.strip() for part in str(value or "").split(","))
        return list(dict.fromkeys(part for part in parts if part))

    def validate(self, value: Any) -> None:
        if self.required and not value:
            raise ValidationError(self.error_messages["required"], code="required")

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


class LinesField(ReadField):
    """One text per line; a list in the order typed, each once."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        lines = (line.strip() for line in str(value or "").splitlines())
        return list(dict.fromkeys(line for line in lines if line))

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value


class LanguageField(forms.CharField):
    """The language of a text as an ISO 639-1 code in lower case; "" when nothing is typed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=2, required=False, **kwargs)

    def clean(self, value: Any) -> Any:
        try:
            return check_language(super().clean(value))
        except InvalidInput as error:
            raise ValidationError(error.message) from None


class WrittenField(ReadField):
    """An object in a language of its own; {} when nothing is typed. read raises InvalidInput; write is its inverse."""

    read: Callable[[str], Mapping[str, Any]]
    write: Callable[[Mapping[str, Any]], str]

    def to_python(self, value: Any) -> Any:
        try:
            return self.read(str(value or ""))
        except InvalidInput as error:
            raise ValidationError(error.message) from None

    def prepare_value(self, value: Any) -> Any:
        return self.write(value) if isinstance(value, Mapping) else value


class ObjectField(WrittenField):
    """One JSON object; {} when nothing is typed."""

    read = staticmethod(read_object)
    write = staticmethod(lambda values: json.dumps(values, ensure_ascii=False) if values else "")


class FilterInput(forms.TextInput):
    """A text with the fields and values of a collection as completions, and rows that write it. collection: its name;
    "" where a field of that name on the page says it. of_documents: without the fields that only chunks have."""

    collection = ""
    of_documents = False

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: BaseRenderer | None = None
    ) -> SafeString:
        own_id = (attrs or {}).get("id", name)
        options = f"{own_id}-options"
        asked = {"field": name} | ({"collection": self.collection} if self.collection else {})
        asked |= {"of": "documents"} if self.of_documents else {}
        more = {
            "list": options,
            "hx-get": reverse("collections:filter-completions", query=asked),
            "hx-trigger": "focus once, input changed delay:150ms",
            "hx-target": f"#{options}",
            "hx-swap": "innerHTML",
            "hx-push-url": "false",
        } | ({} if self.collection else {"hx-include": "[name=collection]"})
        written = super().render(name, value, {**(attrs or {}), **more}, renderer)
        context = {
            "written": written,
            "options": options,
            "id": own_id,
            "collection": self.collection,
            "address": reverse("collections:filter-builder", query=asked | {"id": own_id}),
        }
        return render_to_string("components/filter_input.html", context)


class FilterField(WrittenField):
    """A typed filter in the language of `documents.filters`; its JSON, {} when nothing is typed."""

    widget = FilterInput(attrs={**FILTER_ATTRS, "placeholder": FILTER_EXAMPLE})
    read, write = staticmethod(read_filter), staticmethod(write_json)

    def complete_in(self, collection: str) -> None:
        """Offer the fields and values of that collection."""
        assert isinstance(self.widget, FilterInput)
        self.widget.collection = collection


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Many files; a list of UploadedFile in the order sent. Empty files pass: the service judges each by itself."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> Any:
        files: list[UploadedFile[Any]] = [item for item in (data or []) if item]
        if not files:
            raise ValidationError("choose at least one file", code="required")
        return files
