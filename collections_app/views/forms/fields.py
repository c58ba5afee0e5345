"""Form fields for what people type here: lists of tags, JSON objects, many files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.forms.renderers import BaseRenderer
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from collections_app.domain.filter_language import read_filter, write_json
from collections_app.domain.identity import check_language
from collections_app.views.forms.metadata import read_object
from ragd.errors import InvalidInput

FILTER_ATTRS = {"class": "mono", "spellcheck": "false", "autocomplete": "off"}
FILTER_EXAMPLE = "page >= 3 and language = de"


class TagsField(forms.CharField):
    """Tags separated by commas; a list of texts in the order typed, each once."""

    def to_python(self, value: Any) -> Any:
        parts = (part.strip() for part in str(value or "").split(","))
        return list(dict.fromkeys(part for part in parts if part))

    def validate(self, value: Any) -> None:
        if self.required and not value:
            raise ValidationError(self.error_messages["required"], code="required")

    def run_validators(self, value: Any) -> None:
        return

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


class LinesField(forms.CharField):
    """One text per line; a list in the order typed, each once."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        lines = (line.strip() for line in str(value or "").splitlines())
        return list(dict.fromkeys(line for line in lines if line))

    def validate(self, value: Any) -> None:
        return

    def run_validators(self, value: Any) -> None:
        return

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


class ObjectField(forms.CharField):
    """One JSON object; {} when nothing is typed."""

    def to_python(self, value: Any) -> Any:
        return read_object(str(value or ""))

    def validate(self, value: Any) -> None:
        return

    def run_validators(self, value: Any) -> None:
        return

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return json.dumps(value, ensure_ascii=False) if value else ""
        return value


class WrittenField(forms.CharField):
    """An object in a language of its own; {} when nothing is typed. read raises InvalidInput; write is its inverse."""

    read: Callable[[str], Mapping[str, Any]]
    write: Callable[[Mapping[str, Any]], str]

    def to_python(self, value: Any) -> Any:
        try:
            return self.read(str(value or ""))
        except InvalidInput as error:
            raise ValidationError(error.message) from None

    def validate(self, value: Any) -> None:
        return

    def run_validators(self, value: Any) -> None:
        return

    def prepare_value(self, value: Any) -> Any:
        return self.write(value) if isinstance(value, Mapping) else value


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
            "hx-get": f"{reverse('collections:filter-completions')}?{urlencode(asked)}",
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
            "address": f"{reverse('collections:filter-builder')}?{urlencode(asked | {'id': own_id})}",
        }
        return render_to_string("components/filter_input.html", context)


class FilterField(WrittenField):
    """A typed filter in the language of `filter_language`; its JSON, {} when nothing is typed."""

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
