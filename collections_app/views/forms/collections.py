"""What people fill in about collections and documents. The services check the content; the forms check the shape."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.db import connection

from collections_app.views.forms.fields import FilesField, ObjectField, TagsField
from ragd.store.store import languages
from ragd.types import ChunkPolicy

CHUNK_KINDS = [
    ("structure", "By structure: headings, paragraphs, lists, code, tables"),
    ("words", "By words: a sliding window"),
]
POLICY_FIELDS = ("kind", "target_tokens", "overlap_tokens", "max_chars")


class ChunkPolicyFields(forms.Form):
    """The chunk policy as fields, to be mixed into forms that set one."""

    kind = forms.ChoiceField(label="Chunks are cut", choices=CHUNK_KINDS, required=False)
    target_tokens = forms.IntegerField(label="Target, words", min_value=1, required=False)
    overlap_tokens = forms.IntegerField(label="Overlap, words", min_value=0, required=False)
    max_chars = forms.IntegerField(label="At most, characters", min_value=1, required=False)

    def suggest(self, usual: ChunkPolicy) -> None:
        """Show what holds when a field stays empty."""
        for name in POLICY_FIELDS[1:]:
            self.fields[name].help_text = f"When empty: {getattr(usual, name):,}"

    def chunk_policy(self) -> dict[str, Any]:
        """The fields that were filled in; what is left out is the service's default, fitted to the embedding model."""
        given = {name: self.cleaned_data.get(name) for name in POLICY_FIELDS}
        return {name: value for name, value in given.items() if value not in (None, "")}


class CollectionForm(ChunkPolicyFields):
    name = forms.CharField(
        label="Name",
        max_length=200,
        help_text="Part of every address of the collection. No slash, ?, # or %.",
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    description = forms.CharField(label="Description", required=False)
    hybrid_enabled = forms.BooleanField(
        label="Keep a lexical index",
        required=False,
        initial=True,
        help_text="Needed for hybrid and lexical search. Finds exact words, names and numbers.",
    )
    language = forms.ChoiceField(
        label="Language", initial="english", help_text="How the lexical index reduces words to stems."
    )
    embed_model = forms.CharField(label="Embedding model", help_text="Changing it later builds the whole index anew.")
    embed_dims = forms.IntegerField(
        label="Dimensions", min_value=1, max_value=4000, help_text="Changing it later builds the whole index anew."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["embed_model"].initial = settings.RAGD_EMBED_MODEL
        self.fields["embed_dims"].initial = settings.RAGD_EMBED_DIMS
        self.fields["language"].choices = [(name, name) for name in languages(connection)]  # type: ignore[attr-defined]


class CollectionSettingsForm(ChunkPolicyFields):
    description = forms.CharField(label="Description", required=False)
    revisions = forms.IntegerField(label="Earlier revisions of each document", min_value=0, required=False)
    runs_days = forms.IntegerField(label="Days that runs are kept", min_value=0, required=False)

    action = forms.ChoiceField(
        label="When something harmful is found",
        required=False,
        choices=[
            ("flag", "Flag: record it, change nothing"),
            ("redact", "Redact: hide secrets and personal data, withhold passages with orders to a model"),
            ("refuse", "Refuse: redact, and turn such questions and answers away"),
        ],
    )
    min_score = forms.FloatField(
        label="From a risk of",
        required=False,
        min_value=0,
        max_value=100,
        help_text="0 to 100; when empty: 0. What is below is only recorded.",
    )

    def suggest_retention(self) -> None:
        """Show what holds when a field stays empty."""
        days = settings.RAGD_RUN_RETENTION_DAYS
        self.fields["revisions"].help_text = f"When empty: {settings.RAGD_REVISIONS_KEPT}. 0 keeps none."
        self.fields["runs_days"].help_text = f"When empty: {days or 'for ever'}. 0 keeps them for ever."

    def retention(self) -> dict[str, int]:
        """The fields that were filled in."""
        given = {name: self.cleaned_data.get(name) for name in ("revisions", "runs_days")}
        return {name: value for name, value in given.items() if value is not None}

    def security(self) -> dict[str, Any]:
        """The fields that were filled in."""
        given = {"action": self.cleaned_data.get("action") or None, "min_score": self.cleaned_data.get("min_score")}
        return {name: value for name, value in given.items() if value is not None}


class ImportForm(forms.Form):
    """A file that a collection was exported to."""

    file = forms.FileField(label="File", help_text="What the export of a collection gave: NAME.ragd.zip.")
    name = forms.CharField(
        label="Name", max_length=128, required=False, help_text="When empty: the name it was exported under."
    )
    replace = forms.BooleanField(
        label="Take the place of the collection of that name",
        required=False,
        help_text="That one is deleted in the moment in which this one is complete.",
    )
    embed_model = forms.CharField(
        label="Another embedding model",
        max_length=200,
        required=False,
        help_text="When empty: the exported vectors stay. Else the index is built anew with it, in the background.",
    )
    embed_dims = forms.IntegerField(label="Its dimensions", min_value=1, max_value=4000, required=False)


class GenerationForm(ChunkPolicyFields):
    """What the next generation of a collection's index is to be."""

    embed_model = forms.CharField(label="Embedding model", max_length=200)
    embed_dims = forms.IntegerField(label="Dimensions", min_value=1, max_value=4000)
    language = forms.ChoiceField(label="Language", help_text="How the lexical index reduces words to stems.")
    hybrid_enabled = forms.BooleanField(label="Keep a lexical index", required=False)
    activate = forms.ChoiceField(
        label="It begins to serve",
        choices=[("automatic", "as soon as it is complete"), ("manual", "when I say so")],
        initial="automatic",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["language"].choices = [(name, name) for name in languages(connection)]  # type: ignore[attr-defined]

    def choices(self) -> dict[str, Any]:
        """What `start_generation` takes."""
        given = {name: self.cleaned_data[name] for name in ("embed_model", "embed_dims", "language", "hybrid_enabled")}
        return given | {"chunk_policy": self.chunk_policy()}


class DeleteCollectionForm(forms.Form):
    """The name must be typed."""

    typed_name = forms.CharField(
        label="Type the collection's name to delete it",
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )

    def __init__(self, *args: Any, name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.name = name

    def clean_typed_name(self) -> str:
        typed: str = self.cleaned_data["typed_name"]
        if typed != self.name:
            raise forms.ValidationError(f"this must be {self.name}; nothing was deleted")
        return typed


class LabelFields(forms.Form):
    """What is said about documents when they come in."""

    tags = TagsField(label="Tags", required=False, help_text="Separated by commas.")
    metadata = ObjectField(
        label="Metadata",
        required=False,
        help_text='A JSON object, for example {"year": 2024}.',
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
    )


class UploadForm(LabelFields):
    uploads = FilesField(label="Files")
    on_clash = forms.ChoiceField(
        label="A document that has other content",
        required=False,
        choices=[
            ("replace", "Replace it with the file"),
            ("skip", "Keep it, skip the file"),
            ("keep_both", "Keep both, number the file"),
        ],
    )
    batch = forms.UUIDField(required=False)


class TextForm(LabelFields):
    doc_id = forms.CharField(
        label="Document id", max_length=512, help_text="Unique in the collection; the same id replaces the document."
    )
    title = forms.CharField(label="Title", max_length=500, required=False)
    content = forms.CharField(label="Text", strip=False, widget=forms.Textarea(attrs={"rows": 14, "data-send": True}))


class ChunkChangeForm(forms.Form):
    """What to do with a chunk. revision: the one that was seen when it was written."""

    action = forms.ChoiceField(
        choices=[(name, name) for name in ("edit", "add", "disable", "enable", "undo", "attach")]
    )
    content = forms.CharField(required=False, strip=False)
    revision = forms.IntegerField(required=False, min_value=1)
    overlay_id = forms.IntegerField(required=False, min_value=1)
    target = forms.IntegerField(
        required=False, min_value=0, error_messages={"invalid": "Say the number of a chunk, such as 3."}
    )
