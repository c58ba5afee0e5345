"""What was found when two runs were compared, and what a person decided about a fix that was tried."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
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


class TriedFix(models.Model):
    """What a run tried, and what a person decided about it. mode and fix: keys of the table of modes. saved_as: the
    preset that its plan became, "" where it is not kept. decided_at: None while it is open."""

    class Outcome(models.TextChoices):
        OPEN = "open", gettext_lazy("Open")
        KEPT = "kept", gettext_lazy("Kept")
        DISCARDED = "discarded", gettext_lazy("Discarded")

    run = models.OneToOneField(
        "evaluation_app.EvaluationRun", on_delete=models.CASCADE, primary_key=True, related_name="tried_fix"
    )
    mode = models.CharField(max_length=40, default="", blank=True)
    fix = models.CharField(max_length=40, default="", blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome, default=Outcome.OPEN)
    saved_as = models.TextField(default="", blank=True)
    is_default = models.BooleanField(default=False)
    decided_by = models.TextField(default="", blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "evaluation_tried_fixes"
        ordering: ClassVar[list[str]] = ["run"]

    def __str__(self) -> str:
        return f"{self.fix} for {self.mode}"
