"""What golden questions must say of a generation before it serves."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class PromotionGate(models.Model):
    """A generation of the collection serves only if the set's mean of the measure is not lower by more than `margin`.

    measure: a name of `measures.ranking.MEASURES`, over documents, at the cut k. set_name: stays when the set is
    deleted, so that it can be said which one is missing. No row: every generation may serve.
    """

    collection_name = models.TextField(db_collation="C", primary_key=True)
    golden_set = models.ForeignKey(
        "evaluation_app.GoldenSet", null=True, blank=True, on_delete=models.SET_NULL, related_name="gates"
    )
    set_name = models.CharField(max_length=200)
    measure = models.CharField(max_length=20, default="recall")
    k = models.IntegerField(default=10)
    margin = models.FloatField(default=0.02)
    updated_by = models.TextField(default="", blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "promotion_gates"
        ordering: ClassVar[list[str]] = ["collection_name"]

    def __str__(self) -> str:
        return f"{self.measure}@{self.k} of {self.set_name} for {self.collection_name}"
