"""The run that later runs of a set are held against."""

from __future__ import annotations

from django.db import transaction

from collections_app.errors import ServiceError
from collections_app.services.governance import audit
from evaluation_app.models import EvaluationRun, GoldenSet


@transaction.atomic
def make_baseline(run: EvaluationRun, *, actor: audit.Actor = None) -> GoldenSet:
    """Later runs of the set are held against this one. Making it twice changes nothing.

    Raises ServiceError 409: "not_finished" for a run that has not succeeded, "set_gone" where the set was deleted.
    """
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
    held = GoldenSet.objects.select_for_update().get(pk=golden_set.pk)
    if held.baseline_id is not None:
        held.baseline = None
        held.save(update_fields=["baseline", "updated_at"])
        audit.record(actor, [held], audit.CHANGE, "took the baseline away")
    return held
