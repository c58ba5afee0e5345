"""What models cost, entered by the team. The services keep the rows, so that the audit log says who changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.forms import ModelForm, ValidationError
from django.http import HttpRequest

from collections_app.admin.base import AuditedAdmin
from collections_app.errors import ServiceError
from collections_app.models import ModelPrice
from collections_app.services.governance.prices import check_price, delete_price, save_price

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
