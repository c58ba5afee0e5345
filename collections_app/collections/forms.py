"""What people fill in about collections and documents. The services check the content; the forms check the shape."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db import connection
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.document_access import StatedAccess, read_access
from collections_app.access.permissions import Role
from collections_app.collections.retention_periods import kept_for
from collections_app.collections.services import default_model
from collections_app.domain.formats import size as format_size
from collections_app.domain.formats import stemming
from collections_app.endpoints.endpoints import environment_endpoint
from collections_app.endpoints.model_presets import EMBEDDINGS
from collections_app.endpoints.registry import ModelEntry, embedding_models
from collections_app.http.form_fields import FilesField, LanguageField, LinesField, MetadataField, TagsField
from collections_app.http.page_requests import field_of
from collections_app.uploads.options import IngestOptions
from ragd.identity import COLLECTION_TITLE_MAX_CHARS
from ragd.store.placement import count_nodes
from ragd.store.tables import languages
from ragd.text.languages import AUTO
from ragd.types import ChunkPolicy

CHUNK_KINDS = [
    ("structure", gettext_lazy("Structure-aware: headings, paragraphs, lists, code, tables")),
    ("words", gettext_lazy("Sliding window: a fixed number of words")),
]
POLICY_FIELDS = ("kind", "target_tokens", "overlap_tokens", "max_chars")


class ChunkPolicyFields(forms.Form):
    """The chunk policy as fields, to be mixed into forms that set one."""

    kind = forms.ChoiceField(label=gettext_lazy("Chunking strategy"), choices=CHUNK_KINDS, required=False)
    target_tokens = forms.IntegerField(label=gettext_lazy("Chunk size (words)"), min_value=1, required=False)
    overlap_tokens = forms.IntegerField(label=gettext_lazy("Overlap (words)"), min_value=0, required=False)
    max_chars = forms.IntegerField(label=gettext_lazy("Max length (characters)"), min_value=1, required=False)

    def suggest(self, usual: ChunkPolicy) -> None:
        """Show what holds when a field stays empty."""
        for name in POLICY_FIELDS[1:]:
            self.fields[name].widget.attrs["placeholder"] = gettext("Default: %(value)s") % {
                "value": getattr(usual, name)
            }

    def chunk_policy(self) -> dict[str, Any]:
        """The fields that were filled in; what is left out is the service's default, fitted to the embedding model."""
        data = {name: self.cleaned_data.get(name) for name in POLICY_FIELDS}
        return {name: value for name, value in data.items() if value not in (None, "")}


LANGUAGE_HELP = gettext_lazy(
    "Stemming for keyword search. By document: by each document's detected language, and by pairs of characters in "
    "Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese."
)


def describe_model(entry: ModelEntry) -> str:
    """An embedding model as an option of a list: its name, dimensions, and languages and size where they are known."""
    words = [gettext("%(dims)s dimensions") % {"dims": entry.dims}]
    words += [gettext(entry.languages)] if entry.languages else []
    words += [format_size(entry.size_bytes)] if entry.size_bytes else []
    return f"{entry.index_name}: {', '.join(words)}"


class IndexFields(ChunkPolicyFields):
    """What an index is built with, to be mixed into forms that set it."""

    hybrid_enabled = forms.BooleanField(label=gettext_lazy("Enable keyword (BM25) search"), required=False)
    language = forms.ChoiceField(label=gettext_lazy("Language"), help_text=LANGUAGE_HELP)
    embed_model = forms.CharField(label=gettext_lazy("Embedding model"), max_length=200)
    embed_dims = forms.IntegerField(
        label=gettext_lazy("Dimensions"),
        min_value=1,
        max_value=4000,
        required=False,
        widget=forms.NumberInput(attrs={"placeholder": gettext_lazy("Default: the model's")}),
    )

    placement = forms.ChoiceField(
        label=gettext_lazy("Placement"),
        required=False,
        choices=[
            ("", gettext_lazy("Default")),
            ("local", gettext_lazy("On the coordinator")),
            ("node", gettext_lazy("On one node")),
            ("spread", gettext_lazy("Spread over all nodes")),
        ],
        help_text=gettext_lazy("Where the chunks are: one node answers faster, all nodes hold more."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer_models()
        if not count_nodes(connection):
            del self.fields["placement"]
        field_of(self, "language", forms.ChoiceField).choices = [
            (name, capfirst(gettext("by document") if name == AUTO else stemming(name)))
            for name in languages(connection)
        ]

    def _offer_models(self) -> None:
        """The models that are set up, to choose from; to type as well where an endpoint may know others."""
        field, model = self.fields["embed_model"], self["embed_model"].value()
        offered = [(entry.index_name, describe_model(entry)) for entry in embedding_models()]
        if environment_endpoint(EMBEDDINGS) is not None:
            field.widget.attrs["list"] = "embed-models"
            self.embed_models = offered
            return
        if model and model not in dict(offered):
            offered.append((model, gettext("%(model)s: not set up") % {"model": model}))
        field.widget = forms.Select(choices=offered)


class CollectionForm(IndexFields):
    field_order = ("name", "title", "description", "hybrid_enabled", "language", "embed_model", "embed_dims")
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=200,
        help_text=gettext_lazy("Used in URLs. No slash, ?, # or %."),
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    title = forms.CharField(
        label=gettext_lazy("Display name"),
        max_length=COLLECTION_TITLE_MAX_CHARS,
        required=False,
        help_text=gettext_lazy("Defaults to the name."),
    )
    description = forms.CharField(label=gettext_lazy("Description"), required=False)
    open_role = forms.ChoiceField(
        label=gettext_lazy("Access"),
        required=False,
        choices=[
            ("", gettext_lazy("Private: you, and whom you share it with")),
            (Role.VIEWER, gettext_lazy("Open: everybody who is logged in may read")),
            (Role.ASKER, gettext_lazy("Open: everybody who is logged in may read and ask")),
            (Role.CURATOR, gettext_lazy("Open: everybody who is logged in may read, ask and change documents")),
            (Role.EVALUATOR, gettext_lazy("Open: everybody who is logged in may read, ask and evaluate")),
        ],
        help_text=gettext_lazy("Can be changed under Sharing, where people and groups are given roles."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        model, _ = default_model()
        for name, initial, help_text in (
            ("hybrid_enabled", True, gettext_lazy("Required for hybrid search. Finds exact words, names and numbers.")),
            ("language", AUTO, LANGUAGE_HELP),
            ("embed_model", model, gettext_lazy("Changing it later rebuilds the index.")),
        ):
            self.fields[name].initial, self.fields[name].help_text = initial, help_text


SAID = ("title", "description", "starters", "access_from")  # fields of a collection that its settings state as they are


class CollectionSettingsForm(forms.Form):
    title = forms.CharField(
        label=gettext_lazy("Display name"),
        max_length=COLLECTION_TITLE_MAX_CHARS,
        required=False,
        help_text=gettext_lazy("Defaults to the name, which addresses and the API keep."),
    )
    description = forms.CharField(label=gettext_lazy("Description"), required=False)
    starters = LinesField(
        label=gettext_lazy("Starter questions"), required=False, help_text=gettext_lazy("One a line, up to 8.")
    )
    revisions = forms.IntegerField(label=gettext_lazy("Revisions kept per document"), min_value=0, required=False)
    runs_days = forms.IntegerField(label=gettext_lazy("Query log retention (days)"), min_value=0, required=False)
    deleted_days = forms.IntegerField(label=gettext_lazy("Deleted documents kept (days)"), min_value=0, required=False)

    action = forms.ChoiceField(
        label=gettext_lazy("Guardrail action"),
        required=False,
        choices=[
            ("flag", gettext_lazy("Flag: record findings only")),
            ("redact", gettext_lazy("Redact: hide secrets and personal data, withhold chunks with prompt injection")),
            ("refuse", gettext_lazy("Block: redact, and block such questions and answers")),
        ],
    )
    min_score = forms.FloatField(
        label=gettext_lazy("Risk threshold"),
        required=False,
        min_value=0,
        max_value=100,
        help_text=gettext_lazy("0 to 100. Default: 0. Findings below it are only recorded."),
    )
    allow_overrides = forms.BooleanField(
        label=gettext_lazy("API: whoever may ask may choose any chat model and system prompt"), required=False
    )

    access_from = forms.CharField(
        label=gettext_lazy("Readers from metadata"),
        required=False,
        max_length=200,
        help_text=gettext_lazy(
            "A metadata field, such as acl, whose value names the groups and people that may read a document."
        ),
    )

    def suggest_retention(self) -> None:
        """Show what holds when a field stays empty."""
        days = kept_for("runs_days")
        for name, default, zero in (
            ("revisions", kept_for("revisions"), gettext("0 keeps none.")),
            ("runs_days", days or gettext("unlimited"), gettext("0 is unlimited.")),
            ("deleted_days", kept_for("deleted_days"), gettext("Needed to search as of a time before a deletion.")),
        ):
            self.fields[name].widget.attrs["placeholder"] = gettext("Default: %(value)s") % {"value": default}
            self.fields[name].help_text = zero

    def changes(self) -> dict[str, Any]:
        """What `update_collection` takes."""
        stated = {name: self.cleaned_data[name] for name in SAID}
        return stated | {"retention": self.retention(), "security": self.security()}

    def retention(self) -> dict[str, int]:
        """The fields that were filled in."""
        data = {name: self.cleaned_data.get(name) for name in ("revisions", "runs_days", "deleted_days")}
        return {name: value for name, value in data.items() if value is not None}

    def security(self) -> dict[str, Any]:
        """The fields that were filled in."""
        data = {"action": self.cleaned_data.get("action") or None, "min_score": self.cleaned_data.get("min_score")}
        data["allow_overrides"] = self.cleaned_data.get("allow_overrides") or None
        return {name: value for name, value in data.items() if value is not None}


class ImportForm(forms.Form):
    """A file that a collection was exported to."""

    file = forms.FileField(label=gettext_lazy("File"), help_text=gettext_lazy("An exported collection: NAME.ragd.zip."))
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=128,
        required=False,
        help_text=gettext_lazy("Default: the exported name."),
    )
    replace = forms.BooleanField(
        label=gettext_lazy("Replace the collection of this name"),
        required=False,
        help_text=gettext_lazy("The existing one is deleted when the import is complete."),
    )
    embed_model = forms.CharField(
        label=gettext_lazy("Embedding model"),
        max_length=200,
        required=False,
        help_text=gettext_lazy("Default: the exported embeddings. Another model rebuilds the index in the background."),
    )
    embed_dims = forms.IntegerField(label=gettext_lazy("Dimensions"), min_value=1, max_value=4000, required=False)


class IndexVersionForm(IndexFields):
    """What the next index version of a collection's index is to be."""

    vector_type = forms.ChoiceField(
        label=gettext_lazy("Vector index precision"),
        choices=[("vector", gettext_lazy("32 bits (vector)")), ("halfvec", gettext_lazy("16 bits (halfvec)"))],
        required=False,
        help_text=gettext_lazy("16 bits halve the vector index. An experiment measures the loss."),
    )
    activate = forms.ChoiceField(
        label=gettext_lazy("Activation"),
        choices=[("automatic", gettext_lazy("Activate automatically")), ("manual", gettext_lazy("Activate manually"))],
        initial="automatic",
    )

    def choices(self) -> dict[str, Any]:
        """What `start_index_version` takes."""
        data = {name: self.cleaned_data[name] for name in ("embed_model", "embed_dims", "language", "hybrid_enabled")}
        data["vector_type"] = self.cleaned_data["vector_type"] or None
        return data | {"chunk_policy": self.chunk_policy(), "placement": self.cleaned_data.get("placement") or None}


class DeleteCollectionForm(forms.Form):
    """The name must be typed."""

    typed_name = forms.CharField(
        label=gettext_lazy("Type the collection name to confirm"),
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )

    def __init__(self, *args: Any, name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.name = name

    def clean_typed_name(self) -> str:
        typed: str = self.cleaned_data["typed_name"]
        if typed != self.name:
            raise forms.ValidationError(f"enter {self.name} to confirm; nothing was deleted")
        return typed


class LabelFields(forms.Form):
    """What is said about documents when they come in."""

    tags = TagsField(label=gettext_lazy("Tags"), required=False, help_text=gettext_lazy("Separated by commas."))
    metadata = MetadataField(label=gettext_lazy("Metadata"), required=False)


class IntakeFields(LabelFields):
    """The same, and what is done about documents that are there already."""

    on_clash = forms.ChoiceField(
        label=gettext_lazy("If a document already exists"),
        required=False,
        choices=[
            ("replace", gettext_lazy("Replace")),
            ("skip", gettext_lazy("Skip")),
            ("keep_both", gettext_lazy("Keep both (numbered)")),
        ],
    )

    def options(self, access: tuple[int, ...] | None = None) -> IngestOptions:
        """Tags, metadata and a language that are left empty stay as they are."""
        data = self.cleaned_data
        language = data.get("language") or None
        return IngestOptions(
            data["tags"] or None, data["metadata"] or None, None, language, access, data["on_clash"] or "replace"
        )


class AccessFields(forms.Form):
    """Who may read documents, to be mixed into forms that state it. A name that is typed restricts."""

    access = forms.ChoiceField(
        label=gettext_lazy("Who may read it"),
        required=False,
        choices=[
            ("", gettext_lazy("Unchanged (new: everybody in the collection)")),
            ("open", gettext_lazy("Everybody in the collection")),
            ("restricted", gettext_lazy("Only these groups and people")),
        ],
    )
    access_groups = TagsField(
        label=gettext_lazy("Groups"), required=False, help_text=gettext_lazy("Names, separated by commas.")
    )
    access_users = TagsField(
        label=gettext_lazy("People"),
        required=False,
        help_text=gettext_lazy("Usernames, separated by commas. Administrators always may."),
    )

    def stated_access(self) -> StatedAccess | None:
        """None: nothing was said. InvalidInput for names beside an open choice."""
        data = self.cleaned_data
        names = {"users": list(data["access_users"] or ()), "groups": list(data["access_groups"] or ())}
        if not data["access"] and not any(names.values()):
            return None
        return read_access({"restricted": data["access"] != "open", **names})


class LanguageFields(forms.Form):
    """What language a text is in, to be mixed into forms that state it."""

    language = LanguageField(
        label=gettext_lazy("Language"),
        help_text=gettext_lazy("Two letters, such as en or zh. Detected from the text if empty."),
    )


class FileFields(LanguageFields, IntakeFields):
    """What is said about files; a language that is left empty stays as it was stated."""


class UploadForm(AccessFields, FileFields):
    uploads = FilesField(label=gettext_lazy("Files"))
    batch = forms.UUIDField(required=False)


class TextForm(AccessFields, LanguageFields, LabelFields):
    doc_id = forms.CharField(
        label=gettext_lazy("Document ID"),
        max_length=512,
        help_text=gettext_lazy("Unique in the collection. An existing document with this ID is replaced."),
    )
    title = forms.CharField(label=gettext_lazy("Title"), max_length=500, required=False)
    content = forms.CharField(
        label=gettext_lazy("Text"), strip=False, widget=forms.Textarea(attrs={"rows": 14, "data-send": True})
    )


class ChunkChangeForm(forms.Form):
    """What to do with a chunk. revision: the one that was seen when it was written."""

    action = forms.ChoiceField(
        choices=[(name, name) for name in ("edit", "add", "disable", "enable", "undo", "attach")]
    )
    content = forms.CharField(required=False, strip=False)
    revision = forms.IntegerField(required=False, min_value=1)
    overlay_id = forms.IntegerField(required=False, min_value=1)
    target = forms.IntegerField(
        required=False, min_value=0, error_messages={"invalid": gettext_lazy("Enter a chunk number, such as 3.")}
    )
