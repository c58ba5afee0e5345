"""API keys in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from collections_app.admin.base import ReadOnlyAdmin, row_action
from collections_app.admin.form_pages import form_page
from collections_app.models import ApiKey
from collections_app.services.governance.api_keys import create_key, revoke_key
from collections_app.views.forms.keys import ApiKeyForm


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Made here, by POST /v1/api-keys or `manage.py ragd create-key`, which show the secret once; never deleted."""

    list_display = (
        "label",
        "prefix",
        "scopes_shown",
        "user",
        "limited_to",
        "status_shown",
        "created_at",
        "last_used_at",
        "expires_at",
    )
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    search_fields = ("label", "prefix")
    ordering = ("-created_at", "-id")
    exclude = ("key_hash", "previous_hash")
    actions = ("revoke",)
    addable = True

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The form; after it the secret, in this answer and nowhere else."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ApiKeyForm(request.POST or None)

        def save() -> HttpResponse:
            key, secret = create_key(**form.values(), actor=request.user)
            context = self.admin_site.each_context(request)
            context |= {"title": "API key", "opts": self.opts, "key": key, "secret": secret}
            return TemplateResponse(request, "admin/collections_app/apikey/made.html", context)

        return form_page(self, request, form, save, title="Add API key", submit="Make the key")

    @admin.display(description="scopes")
    def scopes_shown(self, key: ApiKey) -> str:
        return ", ".join(key.scopes)

    @admin.display(description="collections")
    def limited_to(self, key: ApiKey) -> str:
        return ", ".join(key.collections) or "all"

    @admin.display(description="status")
    def status_shown(self, key: ApiKey) -> str:
        return key.status

    revoke = row_action("Revoke the selected keys for good", lambda key, user: revoke_key(key, actor=user), "revoked")
