"""Promotion gates in the admin: to be looked at, and deleted. The page of the collection's index sets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest

from collections_app.models import Collection
from evaluation_app.curation.gate_settings import remove_gate
from evaluation_app.models import PromotionGate

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class PromotionGateAdmin(Base):
    list_display = ("collection_name", "set_name", "measure", "k", "margin", "updated_by", "updated_at")
    search_fields = ("collection_name", "set_name")
    actions = ("take_away",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_gates_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("evaluation_app.delete_promotiongate")

    @admin.action(description="Delete the quality gates", permissions=["gates"])
    def take_away(self, request: HttpRequest, queryset: models.QuerySet[PromotionGate]) -> None:
        names = list(queryset.values_list("collection_name", flat=True))
        for collection in Collection.objects.live().filter(name__in=names):
            remove_gate(collection, actor=request.user)
        self.message_user(request, f"{len(names)} deleted.")


def register_admin() -> None:
    admin.site.register(PromotionGate, PromotionGateAdmin)
