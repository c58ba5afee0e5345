"""Runs and settings as callers name them, and the run that later runs of a set are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, QuerySet, When

from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models.key_scope import EVERYTHING, CollectionScope
from collections_app.services.governance import audit
from collections_app.services.governance.access import require_in
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.scoring.run_settings import RunSettings

LISTED = 10
ITEM_DEFERRED = ("context", "answer_sentences", "annotation", "contributions", "details")


def read_settings(explicit: Mapping[str, Any]) -> RunSettings:
    """Settings from what was stated; what is missing has its default. A run that only searches has no judge by itself.

    Raises InvalidInput for unknown and wrong fields.
    """
    provided = dict(explicit)
    if provided.get("answers") is False:
        provided.setdefault("judge", "none")
    return RunSettings.from_dict(provided)


def listed_runs(scope: CollectionScope = EVERYTHING) -> QuerySet[EvaluationRun]:
    """Newest first, with their sets. scope: what a key may see."""
    rows = EvaluationRun.objects.select_related("golden_set", "experiment").order_by("-created_at", "-id")
    return rows.filter(scope.by_name("collection_name", "created_at"))


def find_run(run_id: UUID | str, scope: CollectionScope = EVERYTHING) -> EvaluationRun:
    """The run, if its collection is in the scope. Raises ServiceError 404."""
    try:
        record = listed_runs(scope).filter(pk=UUID(str(run_id))).first()
    except ValueError:
        record = None
    if record is None:
        raise ServiceError(
            f"there is no evaluation run {str(run_id)!r} that you may see; GET /v1/evaluation-runs lists those that "
            "there are",
            type="unknown_evaluation_run",
            status=404,
        )
    return record


def under_way() -> list[EvaluationRun]:
    """Runs that are worked at, then those that wait, as they will be taken; at most LISTED."""
    experiments_last = Case(When(purpose=EvaluationRun.Purpose.EXPERIMENT, then=1), default=0)
    active = EvaluationRun.objects.filter(state__in=(EvaluationRun.State.QUEUED, EvaluationRun.State.RUNNING))
    return list(active.order_by("-state", experiments_last, "created_at", "id").defer("summary")[:LISTED])


@transaction.atomic
def make_baseline(run: EvaluationRun, *, actor: audit.Actor = None) -> GoldenSet:
    """Later runs of the set are held against this one. Making it twice changes nothing.

    Raises ServiceError 409: "not_finished" for a run that has not succeeded, "set_gone" where the set was deleted.
    """
    require_in(Permission.EVALUATE, run.collection_name)
    golden_set = GoldenSet.objects.select_for_update().filter(pk=run.golden_set_id or 0).first()
    if golden_set is None:
        raise ServiceError(
            f"the golden set {run.set_name!r} of this run was deleted; it has no baseline", type="set_gone", status=409
        )
    if run.state != EvaluationRun.State.SUCCEEDED:
        raise ServiceError(
            f"only a run that is done can be a baseline, and this one is {run.get_state_display().lower()}; wait for "
            "it, or choose another",
            type="not_finished",
            status=409,
        )
    if golden_set.baseline_id != run.pk:
        golden_set.baseline = run
        golden_set.save(update_fields=["baseline", "updated_at"])
        audit.record(actor, [golden_set], audit.CHANGE, f"made run {run} the baseline")
    return golden_set


@transaction.atomic
def clear_baseline(golden_set: GoldenSet, *, actor: audit.Actor = None) -> GoldenSet:
    """Later runs are held against nothing. Without a baseline nothing changes."""
    require_in(Permission.EVALUATE, golden_set.collection_name)
    locked = GoldenSet.objects.select_for_update().get(pk=golden_set.pk)
    if locked.baseline_id is not None:
        locked.baseline = None
        locked.save(update_fields=["baseline", "updated_at"])
        audit.record(actor, [locked], audit.CHANGE, "took the baseline away")
    return locked
