"""What was found when two runs were compared."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone


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
