"""Sweeps as the doors see them: started, followed, cancelled, deleted, the best plan saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from collections_app.domain.identity import clean_line
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection
from collections_app.models.library import name_actor
from collections_app.services.governance import audit
from collections_app.services.governance.access import require_in
from evaluation_app.analysis.sweeps.plan_grid import build_plans, label_of, read_grid, varied
from evaluation_app.golden.versions import keep_version
from evaluation_app.measures.catalogue import CUTS, find
from evaluation_app.models import EvaluationRun, GoldenSet, Sweep
from evaluation_app.runs.lifecycle import cancel_run, start_run
from evaluation_app.scoring.run_settings import RunSettings
from ragd.errors import InvalidInput, UnknownCollection
from ragd.types import RetrievePlan
from retrieval_app.models import SavedPlan
from retrieval_app.runs.plans import choose_plan, save_plan

NAME_CHARS_MAX = 200
SEARCH_ONLY = RunSettings(answers=False, judge="none")


@dataclass(frozen=True, slots=True)
class Progress:
    """state: queued, running, succeeded, failed (a run failed) or cancelled. done and total: questions of all runs."""

    sweep: Sweep
    state: str
    done: int
    total: int
    failed: int
    runs: Mapping[str, int]

    @property
    def is_active(self) -> bool:
        return self.state in ("queued", "running")


@dataclass(frozen=True, slots=True)
class Draft:
    """What a sweep would try, checked and not started."""

    collection: Collection
    grid: Mapping[str, Any]
    plans: tuple[RetrievePlan, ...]
    measure: str
    settings: RunSettings
    plan_name: str


def draft_sweep(
    golden_set: GoldenSet,
    *,
    grid: Mapping[str, Any],
    measure: str = "",
    plan: str | None = None,
    stated: Mapping[str, Any] | None = None,
    settings: RunSettings = SEARCH_ONLY,
) -> Draft:
    """The plans of a grid over a plan of the set's collection. Writes nothing.

    plan and stated: as `choose_plan` takes them; fields of the grid go over both. measure: "" for nDCG at the
    settings' cut. Raises UnknownCollection, InvalidInput that names the field, ServiceError 404 for an unknown plan.
    """
    collection = Collection.objects.live().filter(name=golden_set.collection_name).first()
    if collection is None:
        raise UnknownCollection(
            f"the golden set {golden_set.name!r} asks collection {golden_set.collection_name!r}, which is not there",
            field="collection",
        )
    chosen = choose_plan(collection, plan, stated or {})
    stored = read_grid(grid)
    _check_lexical(collection, stored)
    requested = measure or f"ndcg@{settings.cut}"
    check_measure(requested, settings)
    return Draft(
        collection, stored, tuple(build_plans(chosen.plan, stored, settings)), requested, settings, chosen.name
    )


def check_measure(measure: str, settings: RunSettings) -> None:
    """Raises InvalidInput (field "measure") for a measure that runs of these settings do not have."""
    result = find(measure)
    base, _, cut = measure.partition("@")
    if base.removeprefix("chunk_") in CUTS and cut != str(settings.cut):
        raise InvalidInput(
            f"the sweep uses k {settings.cut}, so {measure} is never scored; rank by {base}@{settings.cut}",
            field="measure",
        )
    missing = {
        "trace": settings.judge == "none",
        "noise": settings.judge == "none",
        "answer": not settings.answers,
        "erag": not settings.contributions,
    }.get(result.group, False)
    if missing:
        needed = {"answer": "answers", "erag": "contributions"}.get(result.group, "a judge")
        raise InvalidInput(
            f"{result.title} needs {needed}, and this sweep has none; rank by a retrieval measure, or switch it on",
            field="measure",
        )


def start_sweep(golden_set: GoldenSet, draft: Draft, *, name: str = "", actor: audit.Actor = None) -> Sweep:
    """One evaluation run per plan, one after the other behind all other runs.

    Raises what `start_run` raises; then nothing is written.
    """
    require_in(Permission.EVALUATE, golden_set.collection_name)
    kept_name = clean_line(name)
    if len(kept_name) > NAME_CHARS_MAX:
        raise InvalidInput(f"name must have at most {NAME_CHARS_MAX} characters, not {len(kept_name)}", field="name")
    with transaction.atomic():
        version = keep_version(golden_set, actor=actor)
        plans = [plan.as_dict() for plan in draft.plans]
        sweep = Sweep.objects.create(
            golden_set=golden_set,
            set_name=golden_set.name,
            set_version=version.version,
            set_digest=version.digest,
            collection_name=draft.collection.name,
            name=kept_name,
            grid=dict(draft.grid),
            plans=plans,
            measure=draft.measure,
            settings=draft.settings.as_dict(),
            created_by=name_actor(actor),
        )
        audit.record(actor, [sweep], audit.ADDITION, f"started a sweep of {len(plans)} plans over {golden_set.name}")
        names = varied(plans)
        for index, plan in enumerate(draft.plans):
            start_run(
                golden_set,
                plan=plan,
                settings=draft.settings,
                name=_run_name(label_of(plan.as_dict(), names)),
                purpose=EvaluationRun.Purpose.SWEEP,
                sweep=sweep,
                sweep_place=index,
                actor=actor,
                send=index == 0,  # each run that ends sends the next
            )
    return sweep


def progress_of(sweep: Sweep) -> Progress:
    return read_progress([sweep])[sweep.pk]


def read_progress(sweeps: Sequence[Sweep]) -> dict[int, Progress]:
    """By sweep. One query over all their runs."""
    result: dict[int, list[tuple[str, int, int, int]]] = {sweep.pk: [] for sweep in sweeps}
    runs = EvaluationRun.objects.filter(sweep__in=list(result)).order_by()
    for pk, state, done, total, failed in runs.values_list("sweep_id", "state", "done", "total", "failed"):
        result[pk or 0].append((state, done, total, failed))
    return {sweep.pk: _progress(sweep, result[sweep.pk]) for sweep in sweeps}


def _progress(sweep: Sweep, runs: Sequence[tuple[str, int, int, int]]) -> Progress:
    states = Counter(run[0] for run in runs)
    done, total, failed = sum(run[1] for run in runs), sum(run[2] for run in runs), sum(run[3] for run in runs)
    if states["running"] or (states["queued"] and done):
        state = "running"
    elif states["queued"]:
        state = "queued"
    else:
        state = next((name for name in ("cancelled", "failed") if states[name]), "succeeded")
    return Progress(sweep, state, done, total, failed, dict(states))


def cancel_sweep(sweep: Sweep, actor: audit.Actor) -> Sweep:
    """End its runs: those that wait at once, the one that goes on after its question. What was found stays.

    Raises ServiceError 409 when all of them have ended.
    """
    require_in(Permission.EVALUATE, sweep.collection_name)
    with transaction.atomic():
        locked = Sweep.objects.select_for_update().get(pk=sweep.pk)
        if not _cancel_active(locked, actor):
            raise ServiceError(f"{locked} has ended already", type="already_ended", status=409)
        locked.cancel_requested = True
        locked.save(update_fields=["cancel_requested"])
        audit.record(actor, [locked], audit.CHANGE, f"cancelled {locked}")
    return locked


def _cancel_active(sweep: Sweep, actor: audit.Actor) -> int:
    cancelled = 0
    for run in sweep.runs.filter(state__in=("queued", "running")).order_by("-sweep_place"):
        try:
            cancel_run(run, actor)
        except ServiceError:  # it ended meanwhile
            continue
        cancelled += 1
    return cancelled


def delete_sweep(sweep: Sweep, actor: audit.Actor) -> None:
    """With its runs and their items. Raises ServiceError 409 while one of them is under way."""
    require_in(Permission.EVALUATE, sweep.collection_name)
    with transaction.atomic():
        locked = Sweep.objects.select_for_update().get(pk=sweep.pk)
        if locked.runs.filter(state__in=("queued", "running")).exists():
            raise ServiceError(f"{locked} is under way; cancel it, then delete it", type="under_way", status=409)
        audit.record(actor, [locked], audit.DELETION, f"deleted {locked}")
        locked.delete()


def save_swept_plan(
    sweep: Sweep, run_id: UUID, name: str, *, is_default: bool | None = None, actor: audit.Actor = None
) -> SavedPlan:
    """Keep the plan of one of the sweep's runs under the name, instead of one that has it.

    Raises ServiceError 404 for a run of another sweep, UnknownCollection, and what `save_plan` raises.
    """
    run = sweep.runs.filter(pk=run_id).first()
    if run is None:
        raise ServiceError(f"{sweep} has no run {run_id}", type="unknown_run", status=404, field="run")
    collection = Collection.objects.live().filter(name=sweep.collection_name).first()
    if collection is None:
        raise UnknownCollection(f"collection {sweep.collection_name!r} was deleted", field="collection")
    plan = RetrievePlan.from_dict(run.plan)
    description = f"From {sweep}: {label_of(run.plan, varied(sweep.plans))}"
    with transaction.atomic():
        saved = save_plan(collection, name, plan, description=description, is_default=is_default, actor=actor)
        sweep.saved_as = saved.name
        sweep.save(update_fields=["saved_as"])
        audit.record(actor, [sweep], audit.CHANGE, f"saved a plan of {sweep} as {saved.name}")
    return saved


def _run_name(label: str) -> str:
    return label if len(label) <= NAME_CHARS_MAX else f"{label[: NAME_CHARS_MAX - 1]}…"


def _check_lexical(collection: Collection, grid: Mapping[str, Any]) -> None:
    requested = [mode for mode in grid.get("mode", ()) if mode != "vector"]
    if requested and not collection.hybrid_enabled:
        raise InvalidInput(
            f"collection {collection.name!r} has no keyword search, so mode {requested[0]!r} cannot be tried",
            field="grid",
        )
