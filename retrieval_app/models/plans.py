"""Plans that are kept under a name."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone

from collections_app.models import Collection
from ragd.types import RetrievePlan


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
