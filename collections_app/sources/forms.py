"""Forms of a source, and of a list of addresses."""

from __future__ import annotations

from typing import Any

from django import forms
from django.forms import BoundField
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, ngettext

from collections_app.access.document_access import Codes
from collections_app.collections.forms import AccessFields, IntakeFields
from collections_app.http.form_fields import LinesField, TagsField
from collections_app.http.page_requests import field_of
from collections_app.models import Source
from collections_app.sources.kinds.protocol import BaseSource, Field
from collections_app.sources.records import SourceValues, complete_settings
from collections_app.sources.source_jobs import UrlEntry, read_list
from ragd.errors import InvalidInput

SCHEDULES: tuple[tuple[int, str | Promise], ...] = (
    (0, gettext_lazy("By hand")),
    (1, gettext_lazy("Every minute")),
    (15, gettext_lazy("Every 15 minutes")),
    (60, gettext_lazy("Hourly")),
    (360, gettext_lazy("Every 6 hours")),
    (1440, gettext_lazy("Daily")),
    (10080, gettext_lazy("Weekly")),
)
USUAL_SCHEDULE = 1440


def schedule_words(minutes: int) -> str:
    """How often, such as "Hourly"."""
    known = dict(SCHEDULES)
    if minutes in known:
        return str(known[minutes])
    return ngettext("Every %(n)s minute", "Every %(n)s minutes", minutes) % {"n": minutes}


class SourceForm(AccessFields, forms.Form):
    """Of one kind. row: the source to be changed."""

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    schedule = forms.TypedChoiceField(label=gettext_lazy("Sync"), coerce=int, initial=USUAL_SCHEDULE)
    keep_missing = forms.BooleanField(
        label=gettext_lazy("Keep documents that the source no longer has"), required=False
    )
    enabled = forms.BooleanField(label=gettext_lazy("Sync on schedule"), required=False, initial=True)
    doc_prefix = forms.CharField(
        label=gettext_lazy("Folder in the collection"),
        max_length=400,
        required=False,
        help_text=gettext_lazy("Put before the ID of each document."),
    )
    tags = TagsField(label=gettext_lazy("Tags"), required=False, help_text=gettext_lazy("Separated by commas."))

    def __init__(self, data: Any = None, *, kind: type[BaseSource], row: Source | None = None) -> None:
        stored = row.settings if row is not None else {}
        initial: dict[str, Any] = complete_settings(kind, stored)
        if row is None:
            initial["name"] = str(kind.title)
        else:
            initial |= {name: getattr(row, name) for name in ("name", "schedule", "keep_missing", "enabled", "tags")}
            initial["doc_prefix"] = row.prefix.rstrip("/")
        super().__init__(data, initial=initial)
        self.kind, self.row = kind, row
        field_of(self, "schedule", forms.TypedChoiceField).choices = _schedules(row)
        self.own_names = [each.name for each in kind.fields]
        for each in kind.fields:
            self.fields[each.name] = _form_field(each, has_secret=row is not None and bool(row.secret))
        if any(each.kind == "secret" and not each.required for each in kind.fields) and row is not None and row.secret:
            self.fields["forget_secret"] = forms.BooleanField(label=gettext("Remove the stored secret"), required=False)
            self.own_names.append("forget_secret")

    def own_fields(self) -> list[BoundField]:
        """Those of the kind, in its order."""
        return [self[name] for name in self.own_names]

    def values(self, access: Codes | None) -> SourceValues:
        """What the service takes. access: as it was stated; None: as it is."""
        data = self.cleaned_data
        secret: str | None = None
        stated: dict[str, Any] = {}
        for each in self.kind.fields:
            if each.kind == "secret":
                secret = data[each.name] or ("" if data.get("forget_secret") else None)
            else:
                stated[each.name] = data[each.name]
        if access is None and self.row is not None and self.row.access is not None:
            access = tuple(self.row.access)
        return SourceValues(
            kind=self.kind.kind,
            name=data["name"],
            settings=stated,
            secret=secret,
            prefix=data["doc_prefix"],
            tags=data["tags"],
            access=access,
            schedule=data["schedule"],
            keep_missing=data["keep_missing"],
            enabled=data["enabled"],
        )


class DeleteSourceForm(forms.Form):
    with_documents = forms.BooleanField(label=gettext_lazy("Also delete the documents that it brought"), required=False)


def _schedules(row: Source | None) -> list[tuple[int, str]]:
    listed = [(minutes, str(label)) for minutes, label in SCHEDULES]
    if row is not None and row.schedule not in dict(listed):
        listed.append((row.schedule, schedule_words(row.schedule)))
    return listed


def _form_field(each: Field, *, has_secret: bool) -> forms.Field:
    shared: dict[str, Any] = {"label": each.label, "help_text": each.help, "required": each.required}
    if each.kind == "switch":
        return forms.BooleanField(**shared | {"required": False})
    if each.kind == "number":
        return forms.IntegerField(**shared, min_value=each.minimum, max_value=each.maximum)
    if each.kind == "choice":
        return forms.ChoiceField(**shared | {"required": True}, choices=each.choices)
    if each.kind == "lines":
        return LinesField(**shared, widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"}))
    if each.kind == "secret":
        if has_secret:
            shared |= {"required": False, "help_text": gettext("One is stored. Leave this empty to keep it.")}
        widget = forms.PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False)
        return forms.CharField(**shared, widget=widget)
    return forms.CharField(**shared, widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}))


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
