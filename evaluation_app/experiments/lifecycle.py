"""The life of an experiment: followed, cancelled, decided about, deleted. Its runs are queued, resumed after a lost
worker and kept as all evaluation runs are (`runs.lifecycle`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.collections.services import get_collection
from collections_app.errors import ServiceError, UnknownError
from evaluation_app.experiments.plan_grid import label_of, varied
from evaluation_app.models import EvaluationRun, Experiment
from evaluation_app.runs.lifecycle import cancel_run
from ragd.types import RetrievePlan
from retrieval_app.models import SavedPlan
from retrieval_app.plans.services import save_plan

Kind = Experiment.Kind


@dataclass(frozen=True, slots=True)
class Progress:
    """state: queued, running, succeeded, failed (a run failed) or cancelled. done and total: questions of all runs.

    runs: how many there are in each state. error: of the first run that failed. stage: the name of the run that is
    worked at; embedded: chunks done and in all, where that run tries an embedding model.
    """

    experiment: Experiment
    state: str
    done: int
    total: int
    failed: int
    runs: Mapping[str, int]
    error: str = ""
    stage: str = ""
    embedded: Sequence[int] = ()

    @property
    def is_active(self) -> bool:
        return self.state in ("queued", "running")


def progress_of(experiment: Experiment) -> Progress:
    return read_progress([experiment])[experiment.pk]


def read_progress(experiments: Sequence[Experiment]) -> dict[UUID, Progress]:
    """By experiment. One query over all their runs."""
    runs: dict[UUID, list[dict[str, Any]]] = {experiment.pk: [] for experiment in experiments}
    fields = ("experiment", "name", "state", "done", "total", "failed", "error", "summary__embedded")
    rows = EvaluationRun.objects.filter(experiment__in=list(runs)).order_by("place").values(*fields)
    for row in rows:
        runs[row["experiment"]].append(row)
    return {experiment.pk: _progress(experiment, runs[experiment.pk]) for experiment in experiments}


def _progress(experiment: Experiment, runs: Sequence[Mapping[str, Any]]) -> Progress:
    states = Counter(run["state"] for run in runs)
    done, total, failed = (sum(run[name] for run in runs) for name in ("done", "total", "failed"))
    if states["running"] or (states["queued"] and (done or len(states) > 1)):
        state = "running"
    elif states["queued"]:
        state = "queued"
    else:
        state = next((name for name in ("cancelled", "failed") if states[name]), "succeeded")
    current = next((run for run in runs if run["state"] == "running"), None)
    return Progress(
        experiment=experiment,
        state=state,
        done=done,
        total=total,
        failed=failed,
        runs=dict(states),
        error=next((run["error"] for run in runs if run["state"] == "failed"), ""),
        stage=current["name"] if current else "",
        embedded=current["summary__embedded"] or () if current else (),
    )


def visible_experiments(scope: CollectionScope = EVERYTHING) -> QuerySet[Experiment]:
    """Those over the collections that a key opens, newest first."""
    return Experiment.objects.filter(scope.by_name("collection_name", "created_at"))


def cancel_experiment(experiment: Experiment, actor: services.Actor) -> Experiment:
    """End its runs: those that wait at once, the one that goes on after its question. What was found stays.

    Raises ServiceError 409 when all of them have ended.
    """
    require_in(Permission.EVALUATE, experiment.collection_name)
    with transaction.atomic():
        locked = Experiment.objects.select_for_update().get(pk=experiment.pk)
        cancelled = 0
        for run in locked.runs.filter(state__in=("queued", "running")).order_by("place"):
            try:
                cancel_run(run, actor)
                cancelled += 1
            except ServiceError as error:
                if error.type != "already_ended":  # it may end meanwhile
                    raise
        if not cancelled:
            raise ServiceError(f"{locked} has ended already", type="already_ended")
        services.record(actor, [locked], services.CHANGE, f"cancelled {locked}")
    return locked


def delete_experiment(experiment: Experiment, actor: services.Actor) -> None:
    """With its runs and their items. Raises ServiceError 409 while one of them is under way."""
    require_in(Permission.EVALUATE, experiment.collection_name)
    with transaction.atomic():
        locked = Experiment.objects.select_for_update().get(pk=experiment.pk)
        if locked.runs.filter(state__in=("queued", "running")).exists():
            raise ServiceError(f"{locked} is under way; cancel it, then delete it", type="under_way")
        services.record(actor, [locked], services.DELETION, f"deleted {locked}")
        locked.delete()


@transaction.atomic
def save_variant(
    experiment: Experiment, run_id: UUID, name: str, *, is_default: bool | None = None, actor: services.Actor = None
) -> SavedPlan:
    """Keep the plan of one of its runs under the name, instead of one that has it. Who decided it, and when, is kept.

    Raises ServiceError 404 for a run of another experiment, UnknownCollection, and what `save_plan` raises.
    """
    run = experiment.runs.filter(pk=run_id).first()
    if run is None or experiment.kind == Kind.MODELS:
        raise UnknownError("run", f"{experiment} has no run {run_id} with a plan", field="run")
    collection = get_collection(experiment.collection_name)
    is_fix = experiment.kind == Kind.FIX
    label = f"{run}" if is_fix else f"{experiment}: {label_of(run.plan, varied(experiment.variants))}"
    plan = RetrievePlan.from_dict(run.plan)
    saved = save_plan(collection, name, plan, description=f"From {label}", is_default=is_default, actor=actor)
    _decide(experiment, Experiment.Outcome.KEPT, actor, saved_as=saved.name, is_default=saved.is_default)
    services.record(actor, [experiment], services.CHANGE, f"saved a plan of {experiment} as {saved.name}")
    return saved


@transaction.atomic
def discard(experiment: Experiment, *, actor: services.Actor = None) -> None:
    """What it tried is not wanted; a plan that was saved of it stays."""
    require_in(Permission.EVALUATE, experiment.collection_name)
    _decide(experiment, Experiment.Outcome.DISCARDED, actor, saved_as="", is_default=False)
    services.record(actor, [experiment], services.CHANGE, f"discarded {experiment}")


def _decide(experiment: Experiment, outcome: str, actor: services.Actor, **values: Any) -> None:
    values |= {"outcome": outcome, "decided_by": name_actor(actor), "decided_at": timezone.now()}
    for name, value in values.items():
        setattr(experiment, name, value)
    experiment.save(update_fields=list(values))
