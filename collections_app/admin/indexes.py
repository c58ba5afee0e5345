"""Generations of an index and probes of its recall in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from collections_app.admin.base import ERASE, MANAGE, CollectionRowsAdmin, ReadOnlyAdmin, row_action
from collections_app.models import Collection, Generation, GenerationDocument, StoredProbe
from collections_app.services.generations.generations import activate_generation, cancel_generation, drop_generation
from collections_app.services.generations.recall_probes import submit_probe


@admin.register(Generation)
class GenerationAdmin(CollectionRowsAdmin):
    """What each collection's index was, is and is to be."""

    list_display = (
        "number", "collection", "state", "progress", "embed_model", "embed_dims", "language", "short_hash",
        "created_at", "swapped_at",
    )  # fmt: skip
    list_filter = ("state", "embed_model", "collection")
    search_fields = ("hash", "embed_model")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("activate", "cancel", "drop")

    @admin.display(description="documents")
    def progress(self, generation: Generation) -> str:
        return f"{generation.documents_done} of {generation.documents_total}" if generation.documents_total else "–"

    @admin.display(description="hash", ordering="hash")
    def short_hash(self, generation: Generation) -> str:
        return generation.hash[:12]

    activate = row_action(
        "Activate the selected index versions",
        lambda row, user: activate_generation(row, actor=user),
        "queued for activation",
    )
    cancel = row_action(
        "Cancel the selected index builds", lambda row, user: cancel_generation(row, actor=user), "cancelled"
    )
    drop = row_action(
        "Delete the selected inactive index versions",
        lambda row, user: drop_generation(row, actor=user),
        "dropped",
        permission=ERASE,
    )


@admin.register(GenerationDocument)
class GenerationDocumentAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("doc_id", "generation", "revision", "enabled", "chunk_count")
    list_filter = ("enabled",)
    list_select_related = ("generation",)
    search_fields = ("doc_id",)
    ordering = ("generation_id", "doc_id")


@admin.register(StoredProbe)
class StoredProbeAdmin(CollectionRowsAdmin):
    internal = True
    list_display = (
        "collection", "generation", "chunk_count", "k", "recall", "filtered_recall", "index_ms", "exact_ms",
        "created_at",
    )  # fmt: skip
    list_filter = ("collection",)
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("measure_again",)

    @admin.action(description="Measure the collections of the selected probes again", permissions=[MANAGE])
    def measure_again(self, request: HttpRequest, rows: QuerySet[StoredProbe]) -> None:
        collections = Collection.objects.live().filter(pk__in=rows.values("collection_id"))
        self.do_each(request, collections, lambda each, user: submit_probe(each, actor=user), "being measured")
