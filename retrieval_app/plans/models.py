"""Plans that are kept under a name.

The thresholds of the corrective step, fitted for one collection.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone

from collections_app.models import Collection
from ragd.types import RetrievePlan
from retrieval_app.search.confidence import Rule, Weights


class SavedPlanQuerySet(models.QuerySet["SavedPlan"]):
    def of(self, collection: Collection) -> SavedPlanQuerySet:
        return self.filter(collection_id=collection.pk)

    def by_name(self) -> SavedPlanQuerySet:
        return self.order_by("name")


class SavedPlan(models.Model):
    """A plan under a name that is unique in its collection. plan: every field, as `RetrievePlan.as_dict` gives it.

    The default plan of a collection, at most one, is where every channel begins when the caller names none. The rows go
    with their collection, by the database.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        "collections_app.Collection", on_delete=models.CASCADE, db_constraint=False, related_name="plans"
    )
    name = models.TextField(db_collation="C")
    plan = models.JSONField(default=dict)
    description = models.TextField(default="", blank=True)
    is_default = models.BooleanField(default=False)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects = SavedPlanQuerySet.as_manager()

    class Meta:
        ordering: ClassVar[list[str]] = ["collection", "name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["collection", "name"], name="savedplan_name"),
            models.UniqueConstraint(
                fields=["collection"], name="savedplan_one_default", condition=models.Q(is_default=True)
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def retrieve_plan(self) -> RetrievePlan:
        return RetrievePlan.from_dict(self.plan)


class Calibration(models.Model):
    """What tells for one collection whether a retrieval is likely to answer: weights and thresholds, fitted on data.

    weights: `evaluator.Weights.as_dict()`. upper, lower: `rules.Rule`, null where the data gave none. embed_model: it
    holds for this one only. data: what it was fitted on {"set", "version", "digest", "questions", "lists", "plan",
    "plan_hash", "index_version"}. figures: how well it told the held-out questions (`calibration.figures`). corrects:
    whether answers take the corrective step where a request does not say. At most one per collection; it goes with it.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        "collections_app.Collection", on_delete=models.CASCADE, db_constraint=False, related_name="+"
    )
    weights = models.JSONField(default=dict)
    upper = models.FloatField(null=True, blank=True)
    lower = models.FloatField(null=True, blank=True)
    embed_model = models.TextField()
    data = models.JSONField(default=dict)
    figures = models.JSONField(default=dict)
    corrects = models.BooleanField(default=False)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering: ClassVar[list[str]] = ["collection"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["collection"], name="calibration_one")
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """What it was fitted on and when."""
        return f"{self.data.get('set', 'given data')} v{self.data.get('version', 1)}, {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def rule(self) -> Rule:
        return Rule(Weights.from_dict(self.weights), self.upper, self.lower)
