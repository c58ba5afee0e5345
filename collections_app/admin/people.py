"""People and groups in the admin, which never leaves nobody who administers all collections.

What models cost, entered by the team. The services keep the rows, so that the audit log says who changed them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.forms import ModelForm, ValidationError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from collections_app.access import people as service
from collections_app.admin.base import AuditedAdmin
from collections_app.endpoints.prices import check_price, delete_price, save_price
from collections_app.errors import ServiceError
from collections_app.models import ModelPrice


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


if TYPE_CHECKING:
    PriceForm = ModelForm[ModelPrice]
else:
    PriceForm = ModelForm


HELP = {
    "model": "the name that it is asked for, such as gpt-4o",
    "system": "the provider as spans name it, such as openai or openai_compatible; empty for any",
    "input_per_million": "US dollars per million tokens read",
    "output_per_million": "US dollars per million tokens written; empty for embeddings",
    "cached_input_per_million": "US dollars per million tokens that the provider read from its cache; empty: as input",
}


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
