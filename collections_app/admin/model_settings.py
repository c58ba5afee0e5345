"""Model endpoints in the admin: looked at here, changed on the page Models by the same services."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from collections_app.admin.base import ReadOnlyAdmin
from collections_app.models import ModelSetting


@admin.register(ModelSetting)
class ModelSettingAdmin(ReadOnlyAdmin):
    """The key is in no field: not even its ciphertext is shown."""

    list_display = ("name", "purpose", "preset", "base_url", "model", "dims", "is_default", "updated_at")
    list_filter = ("purpose", "preset")
    search_fields = ("name", "model", "base_url")
    list_deferred = ("secret",)
    fields = (
        "name", "purpose", "preset", "base_url", "model", "identity", "dims", "window", "query_prompt",
        "passage_prompt", "send_dimensions", "api_version", "is_default", "created_by", "created_at", "updated_at",
        "edit_page",
    )  # fmt: skip
    readonly_fields = ("edit_page",)

    @admin.display(description="change")
    def edit_page(self, row: ModelSetting) -> SafeString:
        return format_html('<a href="{}">Models page</a>', reverse("collections:model-edit", args=[row.pk]))

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        return [("Edit and test", reverse("collections:model-edit", args=[obj.pk]))] if self.may_change(request) else []
