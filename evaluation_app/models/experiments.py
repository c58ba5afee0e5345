"""Experiments: variants tried on the same questions, each by an evaluation run."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy


class Experiment(models.Model):
    """Variants of a plan or an index, asked the same questions. The run of each has its `place` among the variants.

    kind: what varies. grid: what was asked for: of PLANS field -> values, of MODELS nothing, of FIX {"mode", "fix"},
    keys of the table of modes. variants: of PLANS and FIX `RetrievePlan.as_dict()`, of MODELS `Candidate.as_dict()`,
    the one that serves first. settings: the same for all runs, `RunSettings.as_dict()`; of MODELS {"mode", "k",
    "documents_total", "chunks_total"}. measure: by whose mean PLANS are ranked.

    questions: `Golden.as_dict()` of MODELS, fixed at the start; doc_ids: their sample. set_name: "" where the questions
    were made from the documents.

    outcome: what a person decided. saved_as: the preset that a variant became, "" for none.
    """

    class Kind(models.TextChoices):
        PLANS = "plans", gettext_lazy("Retrieval settings")
        MODELS = "models", gettext_lazy("Embedding models")
        FIX = "fix", gettext_lazy("Fix")

    class Outcome(models.TextChoices):
        OPEN = "open", gettext_lazy("Open")
        KEPT = "kept", gettext_lazy("Kept")
        DISCARDED = "discarded", gettext_lazy("Discarded")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=10, choices=Kind)
    golden_set = models.ForeignKey(
        "evaluation_app.GoldenSet", null=True, blank=True, on_delete=models.SET_NULL, related_name="experiments"
    )
    set_name = models.CharField(max_length=200, default="", blank=True)
    set_version = models.IntegerField(default=0)
    set_digest = models.CharField(max_length=64, default="", blank=True)
    collection_name = models.TextField(db_collation="C")
    name = models.TextField(default="", blank=True)
    base = models.ForeignKey(
        "evaluation_app.EvaluationRun", null=True, blank=True, on_delete=models.SET_NULL, related_name="fixes"
    )
    grid: models.JSONField[Any, Any] = models.JSONField(default=dict)
    variants: models.JSONField[Any, Any] = models.JSONField(default=list)
    measure = models.CharField(max_length=60, default="", blank=True)
    settings: models.JSONField[Any, Any] = models.JSONField(default=dict)
    questions: models.JSONField[Any, Any] = models.JSONField(default=list)
    doc_ids: models.JSONField[Any, Any] = models.JSONField(default=list)
    outcome = models.CharField(max_length=10, choices=Outcome, default=Outcome.OPEN)
    saved_as = models.TextField(default="", blank=True)
    is_default = models.BooleanField(default=False)
    decided_by = models.TextField(default="", blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "experiments"
        ordering: ClassVar[list[str]] = ["-created_at", "-id"]

    def __str__(self) -> str:
        if self.name:
            return self.name
        return f"{self.get_kind_display()}, {self.set_name or self.collection_name}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:experiment", args=[self.pk])
