"""API keys in the admin."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from collections_app.admin.base import ReadOnlyAdmin
from collections_app.models import ApiKey
from collections_app.services.governance.api_keys import revoke_key


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Keys are made by POST /v1/api-keys or `manage.py ragd`, which show the secret once, and never deleted."""

    list_display = (
        "label",
        "prefix",
        "scope",
        "limited_to",
        "status_shown",
        "created_at",
        "last_used_at",
        "expires_at",
    )
    list_filter = ("scope", ("revoked_at", admin.EmptyFieldListFilter))
    search_fields = ("label", "prefix")
    ordering = ("-created_at", "-id")
    exclude = ("key_hash",)
    actions = ("revoke",)

    @admin.display(description="collections")
    def limited_to(self, key: ApiKey) -> str:
        return ", ".join(key.collections) or "all"

    @admin.display(description="status")
    def status_shown(self, key: ApiKey) -> str:
        return key.status

    @admin.action(description="Revoke the selected keys for good", permissions=["manage"])
    def revoke(self, request: HttpRequest, rows: QuerySet[ApiKey]) -> None:
        for key in rows:
            revoke_key(key, actor=request.user)
        self.message_user(request, f"{len(rows)} keys revoked.", messages.SUCCESS)
