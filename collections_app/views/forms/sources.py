"""What people fill in to bring documents from elsewhere."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from collections_app.services.sources.url_lists import UrlEntry, read_list
from collections_app.views.forms.collections import AccessFields, IntakeFields
from ragd.errors import InvalidInput

LIST_MAX_BYTES = 5_000_000


class UrlsForm(AccessFields, IntakeFields):
    either = ("urls", "file")  # one of them is required, so neither is shown as optional

    urls = forms.CharField(
        label=gettext_lazy("URLs"),
        required=False,
        help_text=gettext_lazy("One per line (http or https)."),
        widget=forms.Textarea(attrs={"rows": 8, "class": "mono", "spellcheck": "false", "data-send": True}),
    )
    file = forms.FileField(
        label=gettext_lazy("Or a file with URLs"),
        required=False,
        help_text=gettext_lazy("Text with one URL per line, or CSV with a column url (optional: doc_id, title)."),
        widget=forms.FileInput(attrs={"accept": ".txt,.csv,text/plain,text/csv"}),
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        try:
            self._entries = self._read(data)
        except InvalidInput as error:
            self.add_error("urls", error.message)
        return data

    def _read(self, values: dict[str, Any]) -> list[UrlEntry]:
        file = values.get("file")
        if file is None:
            return read_list(values.get("urls", ""))
        if file.size > LIST_MAX_BYTES:
            raise InvalidInput("the list has more than 5 MB; send it in parts")
        listed = read_list(file.read().decode("utf-8-sig", "replace"))
        return listed + (read_list(values["urls"]) if values.get("urls", "").strip() else [])

    def entries(self) -> list[UrlEntry]:
        """The addresses of a valid form, those of the file first."""
        return self._entries
