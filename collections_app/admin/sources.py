"""Where documents were fetched from, and how the hosts want to be asked."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from collections_app.admin.base import ReadOnlyAdmin
from collections_app.models import FetchedSource, FetchHost


@admin.register(FetchedSource)
class FetchedSourceAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("address", "kind", "collection", "doc_id", "size_bytes", "etag", "checked_at")
    list_filter = ("kind", "document__collection__name")
    search_fields = ("address", "document__doc_id")
    ordering = ("-checked_at", "-pk")

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request).select_related("document__collection")
        return rows.defer("document__text", "document__page_map", "document__segments")

    @admin.display(ordering="document__collection__name")
    def collection(self, source: FetchedSource) -> str:
        return source.document.collection.name

    @admin.display(ordering="document__doc_id")
    def doc_id(self, source: FetchedSource) -> str:
        return source.document.doc_id


@admin.register(FetchHost)
class FetchHostAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("host", "next_at", "asked_at")
    search_fields = ("host",)
    ordering = ("-asked_at", "host")
