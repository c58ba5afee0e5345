"""What was found when it was asked which change broke a golden question."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy


class StoredBisection(models.Model):
    """A question in two runs, and which change between them made it worse.

    report: `history.bisection.Bisection.as_dict()`, {} until it succeeded. error: why it failed.
    """

    class State(models.TextChoices):
        QUEUED = "queued", gettext_lazy("Queued")
        SUCCEEDED = "succeeded", gettext_lazy("Succeeded")
        FAILED = "failed", gettext_lazy("Failed")

    id = models.BigAutoField(primary_key=True)
    good = models.ForeignKey("evaluation_app.EvaluationItem", on_delete=models.CASCADE, related_name="+")
    bad = models.ForeignKey("evaluation_app.EvaluationItem", on_delete=models.CASCADE, related_name="bisections")
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    report = models.JSONField(default=dict, blank=True)
    error = models.TextField(default="", blank=True)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "evaluation_bisections"
        ordering: ClassVar[list[str]] = ["-created_at", "-id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["good", "bad"], name="evaluation_bisection_once")
        ]

    def __str__(self) -> str:
        return f"{self.get_state_display()}: {self.bad_id}"
