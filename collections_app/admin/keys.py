"""API keys in the admin."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy

from collections_app.admin.base import ReadOnlyAdmin, row_action
from collections_app.admin.form_pages import form_page
from collections_app.models import ApiKey, Collection
from collections_app.services.governance.api_keys import create_key, revoke_key


class ApiKeyForm(forms.Form):
    label = forms.CharField(help_text=gettext_lazy("What the key is for."))
    scope = forms.ChoiceField(choices=ApiKey.Scope.choices, initial=ApiKey.Scope.READ)
    collections = forms.MultipleChoiceField(
        required=False,
        choices=lambda: [(each.name, each.name) for each in Collection.objects.live().by_name()],
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None: the key opens all of them."),
    )
    expires_at = forms.DateTimeField(
        required=False,
        label=gettext_lazy("Expires at (UTC)"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text=gettext_lazy("Within ten years. Empty: never."),
    )


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Made here, by POST /v1/api-keys or `manage.py ragd create-key`, which show the secret once; never deleted."""

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
    addable = True

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The form; after it the secret, in this answer and nowhere else."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ApiKeyForm(request.POST or None)

        def save() -> HttpResponse:
            key, secret = create_key(**form.cleaned_data, actor=request.user)
            context = self.admin_site.each_context(request)
            context |= {"title": "API key", "opts": self.opts, "key": key, "secret": secret}
            return TemplateResponse(request, "admin/collections_app/apikey/made.html", context)

        return form_page(self, request, form, save, title="Add API key", submit="Make the key")

    @admin.display(description="collections")
    def limited_to(self, key: ApiKey) -> str:
        return ", ".join(key.collections) or "all"

    @admin.display(description="status")
    def status_shown(self, key: ApiKey) -> str:
        return key.status

    revoke = row_action("Revoke the selected keys for good", lambda key, user: revoke_key(key, actor=user), "revoked")
