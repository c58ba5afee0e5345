"""The rows of collections_app in the admin: one line for each model.

Documents and chunks in the admin: files are uploaded, rows enabled, disabled, indexed again and deleted.

People and groups in the admin, which never leaves nobody who administers all collections.

What models cost, entered by the team. The services keep the rows, so that the audit log says who changed them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import EmptyFieldListFilter
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import Model, QuerySet
from django.forms import ModelForm, ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy

from collections_app.access import people as service
from collections_app.access.api_keys import revoke_key
from collections_app.admin.base import ERASE, MANAGE, Action, AuditedAdmin, Listing, ReadOnlyAdmin, register, row_action
from collections_app.chunks.edits import set_chunk_enabled
from collections_app.collections.deletion import record_deletion
from collections_app.collections.forms import FileFields
from collections_app.documents.bulk_changes import BulkChange, change_documents
from collections_app.documents.services import drop_orphans, drop_unneeded_uploads, reindex_documents
from collections_app.endpoints.prices import check_price, delete_price, save_price
from collections_app.errors import ServiceError
from collections_app.http.form_fields import FilesField
from collections_app.http.page_requests import field_of, submit_form, whole_number
from collections_app.index.services import cancel_index_version, drop_index_version
from collections_app.jobs.recovery import cancel_job, cancel_jobs, retry_job, retry_jobs
from collections_app.models import (
    ApiKey,
    Chunk,
    ChunkOverlay,
    Collection,
    Document,
    DocumentRevision,
    FetchedSource,
    IdempotencyRecord,
    IndexVersion,
    IndexVersionDocument,
    IngestBatch,
    IngestJob,
    ModelPrice,
    ModelSetting,
    NearDuplicate,
    Operation,
    Provider,
    RoleGrant,
    Status,
    Upload,
)
from collections_app.uploads.services import UploadOutcome, submit_uploads
from ragd.store.placement import count_nodes


def _reindex(collection: Collection, user: Any) -> int:
    doc_ids = Document.objects.filter(collection=collection).values_list("doc_id", flat=True)
    return len(reindex_documents(collection, list(doc_ids), actor=user))


delete_orphans = row_action(
    "Delete those whose document is gone",
    lambda row, user: drop_orphans(row.collection, [row.doc_id], actor=user),
    "of documents that are gone deleted", name="drop_orphans", noun="row", permission=ERASE,
)  # fmt: skip

TABLE: dict[type[Model], Listing] = {
    Collection: Listing(
        columns=("name", "embed_model", "embed_dims", "hybrid_enabled", "language", "index_version", "updated_at"),
        filters=("hybrid_enabled", "embed_model", "language"),
        search=("name", "description"),
        order=("name",),
        page=lambda row: reverse("collections:detail", args=[row.name]),
        actions=(
            row_action(
                "Re-index all documents of the selected collections", _reindex, "queued for indexing again",
                name="reindex_all", noun="document",
            ),
            row_action(
                "Retry what failed in the selected collections",
                lambda row, user: retry_jobs(row, actor=user), "queued again",
                name="retry_failed", noun="job",
            ),
            row_action(
                "Cancel every job of the selected collections",
                lambda row, user: cancel_jobs(row, actor=user), "cancelled", name="cancel_jobs", noun="job",
            ),
            row_action(
                "Delete the selected collections with everything in them",
                lambda row, user: record_deletion(row, actor=user), "deleted",
                name="delete_collections", permission=ERASE,
            ),
        ),
    ),
    DocumentRevision: Listing(
        columns=("doc_id", "revision", "collection", "title", "size_chars", "reason", "replaced_by", "replaced_at"),
        filters=("collection",),
        search=("doc_id", "title", "reason", "replaced_by"),
        order=("-replaced_at", "-id"),
        dates="replaced_at",
        hidden=("text", "page_map", "cell_map", "segments", "chunks"),
        page=lambda row: reverse("collections:document", args=[row.collection.name, row.doc_id]) + "?view=history",
        actions=(delete_orphans,),
    ),
    ChunkOverlay: Listing(
        columns=("doc_id", "kind", "collection", "applies", "revision", "content", "created_by", "updated_at"),
        filters=("kind", "applies", "collection"),
        search=("doc_id", "content", "anchor_text", "created_by"),
        order=("-updated_at", "-id"),
        actions=(delete_orphans,),
    ),
    NearDuplicate: Listing(
        columns=("doc_id", "chunk_index", "of_doc_id", "of_chunk_index", "share", "collection"),
        filters=("collection",),
        search=("doc_id", "of_doc_id"),
        order=("collection_id", "doc_id", "chunk_index"),
    ),
    FetchedSource: Listing(
        columns=("address", "kind", "size_bytes", "etag", "checked_at"),
        filters=("kind",),
        search=("address", "document__doc_id"),
        order=("-checked_at", "-pk"),
    ),
    Upload: Listing(
        columns=("name", "doc_id", "collection", "media_type", "size_bytes", "created_at"),
        filters=("collection", "media_type"),
        search=("name", "doc_id", "sha256"),
        order=("-created_at", "-id"),
        actions=(
            row_action(
                "Delete those that no document and no job needs",
                lambda row, user: drop_unneeded_uploads([row], actor=user), "deleted; the others are needed",
                name="drop_unneeded", noun="file", permission=ERASE,
            ),
        ),
    ),
    IngestJob: Listing(
        columns=(
            "doc_id", "kind", "collection", "state", "stage", "chunks_done", "attempts", "error_type", "created_at",
            "finished_at",
        ),
        filters=("state", "kind", "stage", "error_type", "collection"),
        search=("doc_id", "source", "error"),
        order=("-created_at", "-id"),
        dates="created_at",
        actions=(
            row_action(
                "Retry the selected jobs", lambda row, user: retry_job(row, actor=user), "queued again", name="retry"
            ),
            row_action(
                "Cancel the selected jobs", lambda row, user: cancel_job(row, actor=user), "cancelled", name="cancel"
            ),
        ),
    ),
    IngestBatch: Listing(
        columns=(
            "label", "kind", "collection", "submitted", "unchanged", "skipped", "rejected", "deleted", "open",
            "created_by", "created_at",
        ),
        filters=("kind", "open", "collection"),
        search=("label", "created_by"),
        order=("-created_at", "-id"),
        dates="created_at",
        page=lambda row: reverse("collections:batch", args=[row.collection.name, row.pk]),
        actions=(
            row_action(
                "Retry what failed of the selected batches", lambda row, user: retry_jobs(row, actor=user),
                "queued again", name="retry_failed", noun="job",
            ),
            row_action(
                "Cancel what is left of the selected batches", lambda row, user: cancel_jobs(row, actor=user),
                "cancelled", name="cancel", noun="job",
            ),
        ),
    ),
    IndexVersion: Listing(
        columns=(
            "number", "collection", "state", "documents_done", "documents_total", "embed_model", "embed_dims",
            "language", "created_at", "swapped_at",
        ),
        filters=("state", "embed_model", "collection"),
        search=("hash", "embed_model"),
        order=("-created_at", "-id"),
        dates="created_at",
        page=lambda row: reverse("collections:index_versions", args=[row.collection.name]),
        actions=(
            row_action(
                "Cancel the selected index builds",
                lambda row, user: cancel_index_version(row, actor=user),
                "cancelled",
                name="cancel",
            ),
            row_action(
                "Delete the selected inactive index versions", lambda row, user: drop_index_version(row, actor=user),
                "deleted", name="drop", permission=ERASE,
            ),
        ),
    ),
    IndexVersionDocument: Listing(
        columns=("doc_id", "index_version", "revision", "enabled", "chunk_count"),
        filters=("enabled",),
        search=("doc_id",),
        order=("index_version_id", "doc_id"),
    ),
    Operation: Listing(
        columns=("kind", "subject", "state", "findings", "error", "created_by", "created_at", "finished_at"),
        filters=("kind", "state"),
        search=("subject", "created_by", "error"),
        order=("-created_at", "-id"),
        dates="created_at",
        page=lambda row: reverse("collections:operation", args=[row.pk]),
    ),
    ApiKey: Listing(
        columns=(
            "label", "prefix", "scopes", "user", "collections", "status", "created_at", "last_used_at", "expires_at",
        ),
        filters=(("revoked_at", EmptyFieldListFilter),),
        search=("label", "prefix"),
        order=("-created_at", "-id"),
        actions=(
            row_action(
                "Revoke the selected keys for good", lambda row, user: revoke_key(row, actor=user), "revoked",
                name="revoke",
            ),
        ),
    ),
    RoleGrant: Listing(
        columns=("user", "group", "role", "collection_id", "created_by", "created_at"),
        filters=("role",),
        search=("user__username", "group__name"),
    ),
    ModelSetting: Listing(
        columns=("name", "purpose", "preset", "base_url", "model", "dims", "is_default", "updated_at"),
        filters=("purpose", "preset"),
        search=("name", "model", "base_url"),
        page=lambda row: reverse("collections:models", query={"view": "edit", "pk": row.pk}),
    ),
    Provider: Listing(columns=("name", "failures", "open_until", "error", "failed_at"), search=("name", "error")),
    Status: Listing(
        columns=("name", "kind", "summary", "made_at"), filters=("kind",), search=("name",), order=("-made_at", "name"),
        deletable=True,
    ),
    IdempotencyRecord: Listing(
        columns=("key", "owner", "status", "created_at"),
        filters=("status",),
        search=("key",),
        order=("-created_at", "-id"),
        hidden=("response",),
    ),
}  # fmt: skip

register(TABLE)


CHOSEN = "collection__id__exact"  # how Django names the filter by collection
TOLD_FILES = 20
NOTE = "Tags and metadata that are left empty stay as they are. A ZIP or TAR is unpacked; each file is a document."


class FilesForm(FileFields):
    """Files, what is said about them, and the collection that they go to."""

    collection = forms.ModelChoiceField(label=gettext_lazy("Collection"), queryset=Collection.objects.none())
    uploads = FilesField(label=gettext_lazy("Files"), help_text=gettext_lazy("One or many."))
    field_order = ("collection", "uploads")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field_of(self, "collection", forms.ModelChoiceField).queryset = Collection.objects.live().by_name()


class DocumentAdmin(ReadOnlyAdmin):
    """Documents; "Add" uploads files."""

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return request.user.has_perm("collections_app.add_document")

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        """The form, then the page of the batch that the files came to."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = FilesForm(request.POST or None, request.FILES or None)

        def save() -> HttpResponse:
            collection, files = form.cleaned_data["collection"], form.cleaned_data["uploads"]
            outcomes = submit_uploads(collection, files, form.options(), actor=request.user)
            batch = outcomes[0].batch
            assert batch is not None  # a submission makes one
            self._tell_of(request, [each for each in outcomes if each.status != "queued"])
            return redirect("collections:batch", collection.name, batch.pk)

        response, status = submit_form(request, form, save)
        context = {**self.admin_site.each_context(request), "title": "Upload files", "opts": self.opts, "form": form}
        return response or TemplateResponse(request, "admin/upload.html", context | {"note": NOTE}, status=status)

    def _tell_of(self, request: HttpRequest, outcomes: list[UploadOutcome]) -> None:
        """Name the files that needed no job; those that were rejected first, their errors stand nowhere else."""
        outcomes.sort(key=lambda each: each.status != "rejected")
        lines = [f"{each.name}: {each.status} ({each.error or each.reason})" for each in outcomes[:TOLD_FILES]]
        if left := len(outcomes) - len(lines):
            lines.append(f"and {left} more")
        if lines:
            self.message_user(request, "; ".join(lines), messages.WARNING)


def bulk_action(description: str, name: str, done: str, *, status: str = "changed", permission: str = MANAGE) -> Action:
    """Return an action that makes the `BulkChange` of that name; its message counts the results of that status."""

    @admin.action(description=description, permissions=[permission])
    def run(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Document]) -> None:
        groups: dict[int, list[str]] = defaultdict(list)
        for collection_id, doc_id in rows.values_list("collection_id", "doc_id"):
            groups[collection_id].append(doc_id)
        count = 0
        for collection in Collection.objects.live().filter(pk__in=groups):
            outcome = change_documents(collection, BulkChange(name), groups[collection.pk], actor=request.user)
            for result in outcome.results:
                if result.error:
                    model_admin.message_user(request, f"{result.doc_id}: {result.error}", messages.WARNING)
            count += outcome.count(status)
        model_admin.tell(request, count, done)

    run.__name__ = name
    return run


class ChunkAdmin(ReadOnlyAdmin):
    """Chunks of the chosen collection by its table, wherever that is; else all that the coordinator holds."""

    def get_queryset(self, request: HttpRequest) -> Any:
        collection = _chosen_collection(request)
        if collection is None:
            return super().get_queryset(request).light()
        return Chunk.objects.of(collection).light().order_by(*self.listing.order).prefetch_related("collection")

    def get_list_select_related(self, request: HttpRequest) -> tuple[str, ...]:
        """Without a join of the chosen collection: rows of nodes allow none to who is bound by row policies."""
        return self.list_select_related if _chosen_collection(request) is None else ()

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if _chosen_collection(request) is None and count_nodes(connection):
            self.message_user(request, "Chunks on nodes are listed by collection: choose one.", messages.INFO)
        return super().changelist_view(request, extra_context)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        collection = _chosen_collection(request)
        answer = super().render_change_form(request, context, *args, **kwargs)
        if collection is not None and "row_actions_address" in context:
            context["row_actions_address"] += f"?{CHOSEN}={collection.pk}"
        return answer


def _chosen_collection(request: HttpRequest) -> Collection | None:
    """The one that the list of rows is filtered by, or was when it led to a row's page; the only one, which Django
    offers no filter for."""
    query = QueryDict(request.GET.get("_changelist_filters", "")).dict() | request.GET.dict()
    live = Collection.objects.live()
    if CHOSEN in query:
        return live.filter(pk=whole_number(query[CHOSEN]) or 0).first()
    first = list(live[:2])
    return first[0] if len(first) == 1 else None


def _enable_chunk(chunk: Chunk, user: Any, *, enabled: bool) -> None:
    set_chunk_enabled(chunk.collection, chunk.doc_id, chunk.chunk_index, enabled=enabled, actor=user)


DOCUMENTS = Listing(
    columns=(
        "doc_id", "title", "collection", "state", "revision", "chunk_count", "token_count",
        "media_type", "updated_at",
    ),
    filters=("state", "collection", "media_type", "language"),
    search=("doc_id", "title", "source"),
    order=("-updated_at", "doc_id"),
    dates="updated_at",
    hidden=("text", "page_map", "cell_map", "segments", "access"),
    page=lambda row: reverse("collections:document", args=[row.collection.name, row.doc_id]),
    actions=(
        bulk_action("Re-index the selected documents", "reindex", "queued for indexing again", status="queued"),
        bulk_action("Enable the selected documents: they are retrieved again", "enable", "enabled"),
        bulk_action("Disable the selected documents: kept, not retrieved", "disable", "disabled"),
        bulk_action(
            "Delete the selected documents with chunks and files", "delete", "deleted", status="deleted",
            permission=ERASE,
        ),
    ),
)  # fmt: skip
CHUNKS = Listing(
    columns=("doc_id", "chunk_index", "collection", "enabled", "switched_off", "token_count", "revision", "content"),
    filters=("enabled", "switched_off", "collection"),
    search=("doc_id", "content"),
    order=("collection_id", "doc_id", "chunk_index"),
    hidden=("access",),
    actions=(
        row_action(
            "Disable the selected chunks: kept, not retrieved", partial(_enable_chunk, enabled=False), "disabled",
            name="disable",
        ),
        row_action(
            "Enable the selected chunks: they are retrieved again", partial(_enable_chunk, enabled=True), "enabled",
            name="enable",
        ),
    ),
)  # fmt: skip

register({Document: DOCUMENTS}, DocumentAdmin)
register({Chunk: CHUNKS}, ChunkAdmin)


class KeepsAnAdministrator(AuditedAdmin):
    """An admin whose changes and deletions are undone where they would leave nobody who administers all collections."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._kept(request, super().changeform_view, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._kept(request, super().delete_view, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._kept(request, super().changelist_view, *args, **kwargs)

    def _kept(
        self, request: HttpRequest, show: Callable[..., HttpResponseBase], *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        if request.method != "POST":
            return show(request, *args, **kwargs)
        try:
            with service.keeping_an_administrator():
                return show(request, *args, **kwargs)
        except ServiceError as error:
            self.message_user(request, error.message, messages.ERROR)
            return redirect(request.get_full_path())


class PeopleAdmin(KeepsAnAdministrator, UserAdmin):  # type: ignore[type-arg]
    pass


class GroupsAdmin(KeepsAnAdministrator, GroupAdmin):
    pass


admin.site.unregister(User)
admin.site.unregister(Group)
admin.site.register(User, PeopleAdmin)
admin.site.register(Group, GroupsAdmin)


NAMED_BY = ("model", "system")
VALUES = ("input_per_million", "output_per_million", "cached_input_per_million")


HELP = {
    "model": "the name that it is asked for, such as gpt-4o",
    "system": "the provider as spans name it, such as openai or openai_compatible; empty for any",
    "input_per_million": "US dollars per million tokens read",
    "output_per_million": "US dollars per million tokens written; empty for embeddings",
    "cached_input_per_million": "US dollars per million tokens that the provider read from its cache; empty: as input",
}


if TYPE_CHECKING:
    PriceForm = ModelForm[ModelPrice]
else:
    PriceForm = ModelForm


class ModelPriceForm(PriceForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["output_per_million"].required = False

    class Meta:
        help_texts = HELP

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if "output_per_million" not in self.errors:
            cleaned["output_per_million"] = cleaned.get("output_per_million") or 0.0
        if not self.errors:
            named = {name: cleaned.get(name, getattr(self.instance, name)) for name in NAMED_BY}
            try:
                check_price(**named, **{name: cleaned[name] for name in VALUES})
            except ServiceError as error:
                raise ValidationError({error.field or "__all__": error.message}) from error
        return cleaned


@admin.register(ModelPrice)
class ModelPriceAdmin(AuditedAdmin):
    """US dollars per million tokens. Model and system name a row, so they stay as they are."""

    form = ModelPriceForm
    fields = (*NAMED_BY, *VALUES, "note")
    list_display = (*NAMED_BY, *VALUES, "note", "updated_at")
    search_fields = NAMED_BY
    ordering = ("model", "system")
    services_record = True

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return NAMED_BY if obj else ()

    def save_model(self, request: HttpRequest, obj: ModelPrice, form: ModelForm[Any], change: bool) -> None:
        values = {name: getattr(obj, name) for name in (*VALUES, "note")}
        obj.pk = save_price(obj.model, system=obj.system, **values, actor=request.user).pk

    def delete_model(self, request: HttpRequest, obj: ModelPrice) -> None:
        delete_price(obj, actor=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ModelPrice]) -> None:
        for row in queryset:
            delete_price(row, actor=request.user)
