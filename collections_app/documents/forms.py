"""What people fill in to change documents: which ones, and what of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy

from collections_app.access.document_access import Readers
from collections_app.collections.forms import AccessFields, LanguageFields
from collections_app.documents.bulk_changes import (
    BulkChange,
    DocumentFilter,
    choose_matching,
    choose_named,
    read_filter,
)
from collections_app.http.form_fields import LanguageField, MetadataField, TagsField
from collections_app.models import Collection, Document
from ragd.identity import TITLE_MAX_CHARS

DOCUMENT_SORTS = {
    "-updated": ("-updated_at", "doc_id"),
    "doc_id": ("doc_id",),
    "-doc_id": ("-doc_id",),
    "source": ("source", "doc_id"),
    "-source": ("-source", "doc_id"),
    "chunks": ("chunk_count", "doc_id"),
    "-chunks": ("-chunk_count", "doc_id"),
    "revision": ("revision", "doc_id"),
    "-revision": ("-revision", "doc_id"),
    "updated": ("updated_at", "doc_id"),
}
FILTER_PREFIX = "f_"  # of a filter's fields in a form about documents


@dataclass(frozen=True, slots=True)
class Selection:
    """The documents that a form is about: named ones, or all that a filter lets through."""

    doc_ids: tuple[str, ...] = ()
    filter: DocumentFilter | None = None
    expected: int | None = None

    @classmethod
    def read(cls, posted: QueryDict) -> Selection:
        """From the boxes of the documents table, or from the hidden fields of a page that asks back. Raises
        InvalidInput for an expression that cannot be read."""
        if not posted.get("all_matching"):
            return cls(tuple(posted.getlist("doc_id")))
        expected = posted.get("expected", "")
        expected_count = int(expected) if expected.isascii() and expected.isdecimal() else None
        return cls((), read_filter(posted, FILTER_PREFIX), expected_count)

    def choose(self, collection: Collection) -> list[str]:
        """The ids. Raises InvalidInput, and ServiceError 409 when the filter matches others than were counted."""
        if self.filter is None:
            return choose_named(self.doc_ids)
        return choose_matching(collection, self.filter, expected=self.expected)

    def hidden_fields(self, count: int) -> list[tuple[str, str]]:
        """What a form carries to mean the same documents again."""
        if self.filter is None:
            return [("doc_id", doc_id) for doc_id in self.doc_ids]
        return [("all_matching", "on"), ("expected", str(count)), *self.filter.as_params(FILTER_PREFIX)]


class BulkLabelForm(forms.Form):
    """Tags and metadata of many documents; what is left empty changes nothing."""

    add_tags = TagsField(label=gettext_lazy("Add tags"), required=False, help_text=gettext_lazy("Separated by commas."))
    remove_tags = TagsField(
        label=gettext_lazy("Remove tags"), required=False, help_text=gettext_lazy("Separated by commas.")
    )
    metadata = MetadataField(label=gettext_lazy("Set metadata fields"), required=False)
    scope = forms.ChoiceField(
        label=gettext_lazy("Apply to"),
        required=False,
        choices=[("all", gettext_lazy("All")), ("existing", gettext_lazy("Only documents that have the field"))],
        initial="all",
    )
    remove_key = forms.CharField(label=gettext_lazy("Remove metadata field"), max_length=200, required=False)
    language = LanguageField(
        label=gettext_lazy("Set language"),
        help_text=gettext_lazy("Two letters, such as en or zh. Documents are indexed again; embeddings are kept."),
    )
    detect_language = forms.BooleanField(label=gettext_lazy("Detect the language from the text"), required=False)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if not self.errors and not self.changes():
            raise forms.ValidationError(gettext_lazy("Enter a tag, a metadata field or a language to change."))
        return data

    def changes(self) -> list[BulkChange]:
        """One change per part that was filled in, in the order of the form."""
        data = self.cleaned_data
        changes = [BulkChange(name, tags=tuple(data[name])) for name in ("add_tags", "remove_tags") if data.get(name)]
        only = data.get("scope") == "existing"
        for key, value in data.get("metadata", {}).items():
            changes.append(BulkChange("set_metadata", key=key, value=value, only_existing=only))
        if data.get("remove_key"):
            changes.append(BulkChange("remove_metadata", key=data["remove_key"]))
        if data.get("language") or data.get("detect_language"):
            changes.append(BulkChange("set_language", language=data["language"]))
        return changes


class ReadersForm(AccessFields):
    """Who may read documents that are there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = self.fields["access"]
        assert isinstance(choices, forms.ChoiceField)
        choices.choices = [choice for choice in AccessFields.base_fields["access"].choices if choice[0]]  # type: ignore[attr-defined]
        choices.required = True

    @classmethod
    def of(cls, readers: Readers) -> ReadersForm:
        """Filled in with who may read a document."""
        return cls(
            initial={
                "access": "restricted" if readers.restricted else "open",
                "access_groups": list(readers.groups),
                "access_users": list(readers.users),
            }
        )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("access") == "open":
            data["access_groups"] = data["access_users"] = ()
        return data


class DocumentTextForm(forms.Form):
    """The text of a document. expected_revision: the one that was looked at."""

    content = forms.CharField(
        label=gettext_lazy("Text"), strip=False, widget=forms.Textarea(attrs={"rows": 24, "data-send": True})
    )
    expected_revision = forms.IntegerField(min_value=1, widget=forms.HiddenInput)


class TitleForm(forms.Form):
    """What a document is called. expected_revision: the one that was looked at."""

    title = forms.CharField(
        label=gettext_lazy("Title"),
        max_length=TITLE_MAX_CHARS,
        required=False,
        help_text=gettext_lazy("Part of every embedding; a change re-embeds all chunks."),
    )
    expected_revision = forms.IntegerField(min_value=1, widget=forms.HiddenInput)


class DocumentForm(LanguageFields, TitleForm):
    """What can be edited of one document."""

    tags = TagsField(label=gettext_lazy("Tags"), required=False, help_text=gettext_lazy("Separated by commas."))
    metadata = MetadataField(label=gettext_lazy("Metadata"), required=False)

    @classmethod
    def of(cls, document: Document) -> DocumentForm:
        """Filled in with what the document is."""
        values: dict[str, Any] = {
            "title": document.title,
            "tags": document.tags,
            "language": document.language_stated,
            "metadata": document.metadata,
            "expected_revision": document.revision,
        }
        return cls(initial=values)

    def changes(self, document: Document) -> dict[str, Any]:
        """The fields that differ from what the document is, for `edit_document`."""
        requested = {name: self.cleaned_data[name] for name in ("title", "tags", "metadata")}
        changes = {name: value for name, value in requested.items() if value != getattr(document, name)}
        if self.cleaned_data["language"] != document.language_stated:
            changes["language"] = self.cleaned_data["language"]
        return changes
