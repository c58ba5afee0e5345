"""Collections in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from collections_app.admin.base import ERASE, ReadOnlyAdmin, list_link, page_link, row_action
from collections_app.admin.form_pages import form_page
from collections_app.admin.readable import readable
from collections_app.admin.uploading import ADD_DOCUMENTS, FilesForm, upload_page
from collections_app.errors import ServiceError
from collections_app.http.downloads import download_response
from collections_app.http.page_requests import find_or_404, whole_number
from collections_app.models import Collection, Document
from collections_app.policies import policy_for
from collections_app.services.collections.collections import create_collection, update_collection
from collections_app.services.collections.deletion import record_deletion
from collections_app.services.collections.invariant_check import request_check
from collections_app.services.documents import documents as document_services
from collections_app.services.endpoints.embedding_model import default_model
from collections_app.services.generations.recall_probes import submit_probe
from collections_app.services.jobs.cancellation import cancel_collection_jobs
from collections_app.services.jobs.queue import submit_index_build
from collections_app.services.jobs.retries import retry_collection_jobs
from collections_app.services.transfer.export import open_export
from collections_app.views.collections import CREATED_WITH, settings_form, usual_policy
from collections_app.views.forms.collections import CollectionForm
from ragd.errors import RagdError


@admin.register(Collection)
class CollectionAdmin(ReadOnlyAdmin):
    list_display = (
        "name", "embed_model", "embed_dims", "hybrid_enabled", "documents_shown", "chunks_shown", "index", "updated_at",
    )  # fmt: skip
    list_filter = ("hybrid_enabled", "embed_model", "language")
    search_fields = ("name", "description")
    ordering = ("name",)
    addable = True
    fieldsets = (
        (None, {"fields": ("name", "description", "documents_shown", "chunks_shown", "created_at", "updated_at")}),
        ("Index", {"fields": ("embed_model", "embed_dims", "hybrid_enabled", "language", "index")}),
        ("Chunking policy", {"fields": ("policy",)}),
        ("Retention and guardrails", {"fields": ("retention", "security")}),
    )
    actions = (
        "reindex_all", "build_index", "probe_recall", "check_stored", "retry_failed", "cancel_jobs", "export",
        "delete_collections",
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Collection]:
        return Collection.objects.live().with_counts()

    def get_urls(self) -> list[Any]:
        guarded = self.admin_site.admin_view
        own = [
            path("<path:object_id>/upload/", guarded(self.upload_view), name="collections_app_collection_upload"),
            path("<path:object_id>/settings/", guarded(self.settings_view), name="collections_app_collection_settings"),
        ]
        return own + super().get_urls()

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        tools = [("Open", reverse("collections:detail", args=[obj.name]))]
        if self.may_change(request):
            tools.append(("Settings", reverse("admin:collections_app_collection_settings", args=[obj.pk])))
        if request.user.has_perm(ADD_DOCUMENTS):
            tools.append(("Upload files", reverse("admin:collections_app_collection_upload", args=[obj.pk])))
        return tools

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        """A collection with its policy, by the fields and the service of the page that makes one."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = CollectionForm(request.POST or None)
        form.suggest(usual_policy(*default_model()))

        def save() -> HttpResponse:
            options = {name: form.cleaned_data[name] for name in CREATED_WITH}
            made = create_collection(**options, chunk_policy=form.chunk_policy(), actor=request.user)
            self.message_user(request, f"Collection {made.name} created.", messages.SUCCESS)
            return redirect("admin:collections_app_collection_change", made.pk)

        return form_page(self, request, form, save, title="Add collection", submit="Create collection")

    def settings_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Description, policy, retention and guardrails, as the settings page has them."""
        if not self.may_change(request):
            raise PermissionDenied
        collection = self._find(object_id)
        form = settings_form(collection, request.POST or None)

        def save() -> HttpResponse:
            update_collection(collection, changes=form.changes(), actor=request.user)
            self.message_user(request, "Settings saved. They apply to newly indexed documents.", messages.SUCCESS)
            return redirect("admin:collections_app_collection_change", collection.pk)

        return form_page(self, request, form, save, title="Settings", submit="Save", original=collection)

    def upload_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Files into this collection; then the page of their batch."""
        if not request.user.has_perm(ADD_DOCUMENTS):
            raise PermissionDenied
        return upload_page(self, request, FilesForm, self._find(object_id))

    def _find(self, object_id: str) -> Collection:
        return find_or_404(Collection.objects.live(), pk=whole_number(object_id) or 0)

    @admin.display(description="policy")
    def policy(self, collection: Collection) -> str:
        return readable(policy_for(collection).as_dict())

    @admin.display(description="documents", ordering="document_total")
    def documents_shown(self, collection: Any) -> SafeString:
        return list_link("document", collection.document_total, collection__id__exact=collection.pk)

    @admin.display(description="chunks", ordering="chunk_total")
    def chunks_shown(self, collection: Any) -> SafeString:
        return list_link("chunk", collection.chunk_total, collection__id__exact=collection.pk)

    @admin.display(description="index")
    def index(self, collection: Collection) -> SafeString:
        generations = list_link("generation", collection.generation, collection__id__exact=collection.pk)
        change = page_link("build another", "collections:generations", collection.name)
        return format_html("version {}, {}", generations, change)

    reindex_all = row_action(
        "Re-index all documents of the selected collections",
        lambda collection, user: len(document_services.reindex_documents(collection, _doc_ids(collection), actor=user)),
        "queued for indexing again",
        noun="document",
    )
    build_index = row_action(
        "Build the vector index of the selected collections",
        lambda collection, _: submit_index_build(collection) is not None,
        "queued; an index that is there stays",
        noun="build",
    )
    probe_recall = row_action(
        "Measure the recall of the selected collections",
        lambda collection, user: submit_probe(collection, actor=user),
        "being measured",
    )
    check_stored = row_action(
        "Check what is stored of the selected collections",
        lambda collection, user: request_check(collection, actor=user),
        "being checked",
    )
    retry_failed = row_action(
        "Retry what failed in the selected collections",
        lambda collection, user: retry_collection_jobs(collection, actor=user),
        "queued again",
        noun="job",
    )
    cancel_jobs = row_action(
        "Cancel every job of the selected collections",
        lambda collection, user: cancel_collection_jobs(collection, actor=user),
        "cancelled",
        noun="job",
    )

    @admin.action(description="Export the selected collection to one file")
    def export(self, request: HttpRequest, rows: QuerySet[Collection]) -> HttpResponseBase | None:
        chosen = list(rows)
        if len(chosen) != 1:
            self.message_user(request, "Choose one collection: each is a file of its own.", messages.WARNING)
            return None
        try:
            export = open_export(chosen[0], actor=request.user)
        except (ServiceError, RagdError) as error:
            self.message_user(request, error.message, messages.WARNING)
            return None
        return download_response(request, export, export.content_type, export.name, reading=None)

    @admin.action(description="Delete the selected collections with everything in them", permissions=[ERASE])
    def delete_collections(self, request: HttpRequest, rows: QuerySet[Collection]) -> None:
        for collection in rows:
            try:
                operation = record_deletion(collection, actor=request.user)
            except (ServiceError, RagdError) as error:
                self.message_user(request, f"{collection}: {error.message}", messages.WARNING)
                continue
            before = operation.report["before"]
            left = sum(operation.report["after"].values())
            proof = page_link("the proof", "collections:operation", operation.pk)
            text = f"Deleted {collection.name}: {before['documents']} documents, {before['chunks']} chunks."
            words = format_html("{} {} rows are left in any table: {}.", text, left, proof)
            self.message_user(request, words, messages.SUCCESS)


def _doc_ids(collection: Collection) -> list[str]:
    return list(Document.objects.filter(collection=collection).values_list("doc_id", flat=True))
