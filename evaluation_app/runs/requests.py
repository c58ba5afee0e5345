"""What every door that starts a run reads in one way: settings from stated fields, runs by their id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from collections_app.errors import ServiceError
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.asking import has_failed
from evaluation_app.scoring.settings import RunSettings

ITEM_DEFERRED = ("context", "answer_sentences", "annotation", "contributions", "details")


def read_settings(stated: Mapping[str, Any]) -> RunSettings:
    """Settings from what was stated; what is missing has its default. A run that only searches has no judge by itself.

    Raises InvalidInput for unknown and wrong fields.
    """
    given = dict(stated)
    if given.get("answers") is False:
        given.setdefault("judge", "none")
    return RunSettings.from_dict(given)


def listed_runs(collections: Iterable[str] = ()) -> QuerySet[EvaluationRun]:
    """Newest first, with their sets. collections: what a limited key may see; none means all."""
    wanted = list(collections)
    rows = EvaluationRun.objects.select_related("golden_set").order_by("-created_at", "-id")
    return rows.filter(collection_name__in=wanted) if wanted else rows


def find_run(run_id: UUID | str, collections: Iterable[str] = ()) -> EvaluationRun:
    """The run, if its collection is among `collections` (none means all). Raises ServiceError 404."""
    try:
        found = listed_runs(collections).filter(pk=UUID(str(run_id))).first()
    except ValueError:
        found = None
    if found is None:
        raise ServiceError(
            f"there is no evaluation run {str(run_id)!r} that you may see; GET /v1/evaluation-runs lists those that "
            "there are",
            type="unknown_evaluation_run",
            status=404,
        )
    return found


def failed_items(run: EvaluationRun) -> list[EvaluationItem]:
    """The holes of a run, by position: questions that failed, and those of which a score did."""
    items = run.items.order_by("position").defer(*ITEM_DEFERRED)
    return [item for item in items if has_failed(item)]
