"""Scored runs, the sampling of live traffic and kept judgements in the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest

from evaluation_app.models import KeptJudgement, RunScore, Sampling
from evaluation_app.scoring.judgement_store import clear_stored

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class WrittenAdmin(Base):
    """Rows that services write: to be looked at."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


class RunScoreAdmin(WrittenAdmin):
    list_display = ("question_text", "collection_name", "outcome", "reason", "judge", "asked_at")
    list_filter = ("reason", "outcome", "judge", "collection_name")
    search_fields = ("question_text", "=query_run")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        rows = super().get_queryset(request)
        is_list = getattr(request.resolver_match, "url_name", "") == "evaluation_app_runscore_changelist"
        return rows.defer("context", "annotation", "details", "answer_sentences") if is_list else rows


class SamplingAdmin(WrittenAdmin):
    list_display = ("collection_name", "enabled", "rate", "per_day", "judge", "looked_until", "updated_by")
    list_filter = ("enabled", "judge")
    search_fields = ("collection_name",)


class KeptJudgementAdmin(WrittenAdmin):
    list_display = ("key", "model", "created_at")
    list_filter = ("model",)
    search_fields = ("=key", "model")
    actions = ("forget_models",)

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return bool(request.user.has_perm("evaluation_app.delete_keptjudgement"))

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Without deleting row by row, which the audit log of the server would not tell of."""
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}

    @admin.action(description="Forget every judgement of these models", permissions=["delete"])
    def forget_models(self, request: HttpRequest, queryset: models.QuerySet[KeptJudgement]) -> None:
        chosen = sorted(set(queryset.values_list("model", flat=True)))
        gone = sum(clear_stored(model, actor=request.user) for model in chosen)
        self.message_user(request, f"{gone} judgements of {', '.join(chosen)} were forgotten.")


def register_admin() -> None:
    """With Django's own site."""
    admin.site.register(RunScore, RunScoreAdmin)
    admin.site.register(Sampling, SamplingAdmin)
    admin.site.register(KeptJudgement, KeptJudgementAdmin)
