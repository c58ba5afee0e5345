"""Reads of query runs, named for their purpose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from collections_app.domain.identity import can_be_stored

if TYPE_CHECKING:
    from collections_app.models import Collection
    from retrieval_app.models import QueryRun, SavedPlan  # noqa: F401

LOOKED_AT = 1000  # newest runs whose models are offered to choose from
TOOK_MS = Cast(KeyTextTransform("total", "timings_ms"), models.FloatField())
LIST_DEFERRED = ("results", "lists", "sources", "sentences", "citations", "system_prompt", "history")


class QueryRunQuerySet(models.QuerySet["QueryRun"]):
    def newest_first(self) -> QueryRunQuerySet:
        """By creation time, newest first; ties by id, so that pages never overlap."""
        return self.order_by("-created_at", "-id")

    def for_lists(self) -> QueryRunQuerySet:
        """Rows for a table: the columns that hold whole result texts stay in the database."""
        return self.newest_first().select_related("user").defer(*LIST_DEFERRED)

    def of_people(self) -> QueryRunQuerySet:
        """Those that somebody asked for, at any door; without those that evaluations and tasks of the worker made."""
        return self.exclude(door="worker")

    def of_collection(self, name: str) -> QueryRunQuerySet:
        return self.filter(collection_name=name)

    def visible_to(self, collection_names: Sequence[str]) -> QueryRunQuerySet:
        """Runs of the named collections; an empty sequence is no restriction, as on an API key."""
        return self.filter(collection_name__in=list(collection_names)) if collection_names else self.all()

    def filtered(
        self,
        *,
        collection: str | None = None,
        kind: str | None = None,
        status: str | None = None,
        door: str | None = None,
        text: str | None = None,
        model: str | None = None,
        min_ms: float | None = None,
        max_ms: float | None = None,
        min_cost: float | None = None,
        max_cost: float | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> QueryRunQuerySet:
        """All given conditions hold; None or "" leaves one out. text is looked up in the query, case-insensitively.

        model: what wrote the answer, or embedded the question. Bounds are included; a run whose cost is not known is
        outside of any bound of the cost. since is included, until is not; a time without a zone is one of the server's.
        """
        wanted = {"collection_name": collection, "kind": kind, "status": status, "door": door, "query__icontains": text}
        if not all(can_be_stored(value) for value in (*wanted.values(), model) if value):
            return self.none()
        rows = self.filter(**{name: value for name, value in wanted.items() if value})
        if model:
            rows = rows.filter(models.Q(answerer=model) | models.Q(embed_model=model))
        if min_ms is not None or max_ms is not None:
            rows = rows.annotate(measured_ms=TOOK_MS)
        bounds = {
            "measured_ms__gte": min_ms, "measured_ms__lte": max_ms, "cost_usd__gte": min_cost,
            "cost_usd__lte": max_cost, "created_at__gte": _aware(since), "created_at__lt": _aware(until),
        }  # fmt: skip
        return rows.filter(**{name: value for name, value in bounds.items() if value is not None})

    def recent_models(self) -> list[str]:
        """The models that wrote the newest answers or embedded the newest questions, by name."""
        newest = self.newest_first().values_list("answerer", "embed_model")[:LOOKED_AT]
        return sorted({model for pair in newest for model in pair if model})

    def beside(self, run: QueryRun) -> tuple[QueryRun | None, QueryRun | None]:
        """(the next newer one, the next older one) of these rows, None at an end; the run need not be among them."""
        later = models.Q(created_at__gt=run.created_at) | models.Q(created_at=run.created_at, id__gt=run.pk)
        earlier = models.Q(created_at__lt=run.created_at) | models.Q(created_at=run.created_at, id__lt=run.pk)
        rows = self.only("id", "query")
        newer = rows.filter(later).order_by("created_at", "id").first()
        return newer, rows.filter(earlier).newest_first().first()

    def older_than(self, moment: datetime) -> QueryRunQuerySet:
        return self.filter(created_at__lt=moment)


def _aware(moment: datetime | None) -> datetime | None:
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment


class SavedPlanQuerySet(models.QuerySet["SavedPlan"]):
    def of(self, collection: Collection) -> SavedPlanQuerySet:
        return self.filter(collection_id=collection.pk)

    def by_name(self) -> SavedPlanQuerySet:
        return self.order_by("name")
