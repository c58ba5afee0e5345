"""Questions that were put away from the content gaps of a collection."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone


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
