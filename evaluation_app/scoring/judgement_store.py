"""The accepted annotations of chat models, kept in the database: a repeated run asks nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, Min

from collections_app.services.governance import audit
from evaluation_app.models import KeptJudgement


class StoredJudgements:
    """A `JudgementCache` over the table of kept judgements. Processes may share it: the first of a key stays."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        record = KeptJudgement.objects.filter(pk=key).values_list("value", flat=True).first()
        return None if record is None else dict(record)

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        row, _ = KeptJudgement.objects.get_or_create(key=key, defaults={"model": model, "value": dict(value)})
        return dict(row.value)


@dataclass(frozen=True, slots=True)
class ModelJudgements:
    """How many judgements of one model are kept, and from when to when they were made."""

    model: str
    count: int
    oldest: datetime
    newest: datetime


def count_stored() -> list[ModelJudgements]:
    """By model name; [] when nothing is kept."""
    rows = KeptJudgement.objects.order_by("model").values("model")
    counted = rows.annotate(count=Count("pk"), oldest=Min("created_at"), newest=Max("created_at"))
    return [ModelJudgements(row["model"], row["count"], row["oldest"], row["newest"]) for row in counted]


@transaction.atomic
def clear_stored(model: str | None = None, *, actor: audit.Actor) -> int:
    """Forget the judgements of one model, None: of all; returns how many went. The next run asks the model again.

    What runs have stored stays as it is.
    """
    rows = KeptJudgement.objects.all() if model is None else KeptJudgement.objects.filter(model=model)
    deleted, _ = rows.delete()
    if deleted:
        message = "of every model" if model is None else f"of {model}"
        subject = KeptJudgement(key="", model=model or "every model")
        audit.record(actor, [subject], audit.DELETION, f"forgot {deleted} kept judgements {message}")
    return deleted
