"""Golden sets in Django's admin: checked like everywhere else, and with a version kept of every change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest

from evaluation_app.golden import edits, sets
from evaluation_app.golden.question_rules import FIELDS, clean_golden, clean_name
from evaluation_app.golden.versions import keep_version
from evaluation_app.models import GoldenQuestion, GoldenSet, GoldenSetVersion
from ragd.errors import InvalidInput

if TYPE_CHECKING:
    SetBase = admin.ModelAdmin[GoldenSet]
    QuestionBase = admin.ModelAdmin[GoldenQuestion]
    VersionBase = admin.ModelAdmin[GoldenSetVersion]
    Inline = admin.TabularInline[GoldenQuestion, GoldenSet]
    QuestionModelForm = forms.ModelForm[GoldenQuestion]
    SetModelForm = forms.ModelForm[GoldenSet]
else:
    SetBase = QuestionBase = VersionBase = admin.ModelAdmin
    Inline = admin.TabularInline
    QuestionModelForm = SetModelForm = forms.ModelForm

CHANGED_HERE = "changed in the admin"


class GoldenQuestionForm(QuestionModelForm):
    """Holds a question to the same rules as pages and API."""

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        explicit = {name: data[name] for name in FIELDS if name in data and data[name] is not None}
        if "question" not in explicit:
            return data
        try:
            return data | {name: value for name, value in clean_golden(explicit).as_dict().items() if name in data}
        except InvalidInput as error:
            field = error.field if error.field in self.fields else None
            raise ValidationError({field: error.message} if field else error.message) from None


class GoldenSetForm(SetModelForm):
    def clean_name(self) -> str:
        try:
            return clean_name(self.cleaned_data["name"])
        except InvalidInput as error:
            raise ValidationError(error.message) from None


class GoldenQuestionInline(Inline):
    model = GoldenQuestion
    form = GoldenQuestionForm
    fields = ("position", "question", "expected_doc_ids", "expected_answer", "category")
    extra = 0


class GoldenSetAdmin(SetBase):
    form = GoldenSetForm
    list_display = ("name", "collection_name", "version", "questions_count", "updated_at")
    search_fields = ("name", "collection_name")
    readonly_fields = ("version", "digest", "baseline")
    inlines = (GoldenQuestionInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[GoldenSet]:
        return super().get_queryset(request).annotate(questions_total=models.Count("questions"))

    @admin.display(description="questions", ordering="questions_total")
    def questions_count(self, golden_set: GoldenSet) -> int:
        return int(getattr(golden_set, "questions_total", 0))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        keep_version(form.instance, reason=CHANGED_HERE, actor=request.user)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Versions go with their set, although nobody may delete one alone."""
        shown, counts, refused, protected = super().get_deleted_objects(objs, request)
        return shown, counts, refused - {str(GoldenSetVersion._meta.verbose_name)}, protected

    def delete_model(self, request: HttpRequest, obj: GoldenSet) -> None:
        sets.delete_set(obj, actor=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[GoldenSet]) -> None:
        for golden_set in queryset:
            sets.delete_set(golden_set, actor=request.user)


class GoldenQuestionAdmin(QuestionBase):
    form = GoldenQuestionForm
    list_display = ("question", "golden_set", "category", "expected_doc_ids", "weight", "suggested")
    list_filter = ("golden_set", "category", "suggested")
    list_select_related = ("golden_set",)
    search_fields = ("question", "expected_answer")
    readonly_fields = ("source_run",)
    actions = ("accept", "discard")

    def save_model(self, request: HttpRequest, obj: GoldenQuestion, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        keep_version(obj.golden_set, reason=CHANGED_HERE, actor=request.user)

    def delete_model(self, request: HttpRequest, obj: GoldenQuestion) -> None:
        edits.delete_questions(obj.golden_set, [obj.pk], actor=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[GoldenQuestion]) -> None:
        self._by_set(request, queryset, edits.delete_questions)

    @admin.action(description="Accept the selected generated questions", permissions=["change"])
    def accept(self, request: HttpRequest, queryset: QuerySet[GoldenQuestion]) -> None:
        count = self._by_set(request, queryset, edits.accept_suggestions)
        self.message_user(request, f"{count} questions accepted.")

    @admin.action(description="Reject the selected generated questions", permissions=["delete"])
    def discard(self, request: HttpRequest, queryset: QuerySet[GoldenQuestion]) -> None:
        count = self._by_set(request, queryset, edits.discard_suggestions)
        self.message_user(request, f"{count} questions rejected.")

    def _by_set(self, request: HttpRequest, queryset: QuerySet[GoldenQuestion], act: Any) -> int:
        ids: dict[int, list[int]] = {}
        for pk, set_id in queryset.values_list("pk", "golden_set_id"):
            ids.setdefault(set_id, []).append(pk)
        records = GoldenSet.objects.in_bulk(ids)
        return sum(act(records[set_id], chosen, actor=request.user) for set_id, chosen in ids.items())


class GoldenSetVersionAdmin(VersionBase):
    """To be looked at: a version is kept, never written by hand."""

    list_display = ("golden_set", "version", "reason", "made_by", "created_at")
    list_filter = ("golden_set",)
    list_select_related = ("golden_set",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: GoldenSetVersion | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: GoldenSetVersion | None = None) -> bool:
        return False


def register_admin() -> None:
    """With Django's own site."""
    admin.site.register(GoldenSet, GoldenSetAdmin)
    admin.site.register(GoldenQuestion, GoldenQuestionAdmin)
    admin.site.register(GoldenSetVersion, GoldenSetVersionAdmin)
