"""Experiments, comparisons of two runs, and questions that were put away from the content gaps of a collection."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy


class RunComparison(models.Model):
    """One run against its base, computed once: both are finished.

    key: of all that decides the figures (`stored_comparisons.key_of`); a row with another key is computed anew. p: of
    the primary measure, two-sided, not adjusted; None without one. The rows of one base are the looks that its verdicts
    are corrected for. figures: `PairFigures` as JSON.
    """

    id = models.BigAutoField(primary_key=True)
    base = models.ForeignKey("evaluation_app.EvaluationRun", on_delete=models.CASCADE, related_name="comparisons")
    other = models.ForeignKey("evaluation_app.EvaluationRun", on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=64)
    p = models.FloatField(null=True, blank=True)
    figures = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "evaluation_comparisons"
        ordering: ClassVar[list[str]] = ["base", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["base", "other"], name="evaluation_comparison_once")
        ]

    def __str__(self) -> str:
        return f"{self.other_id} against {self.base_id}"


class GapDismissal(models.Model):
    """A question, by the SHA-256 of its text, is no content gap until it is asked again after `dismissed_at`."""

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        "collections_app.Collection", on_delete=models.CASCADE, db_constraint=False, related_name="+"
    )
    digest = models.CharField(max_length=64)
    dismissed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "gap_dismissals"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["collection", "digest"], name="gap_dismissals_key")
        ]

    def __str__(self) -> str:
        return self.digest[:12]


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
        return self.name or f"{self.get_kind_display()}, {self.set_name or self.collection_name}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:experiment", args=[self.pk])
