"""Experiments: one queued evaluation run per variant, followed, cancelled, decided about, deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone

from collections_app.access.context import system_access
from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.collections.services import get_collection
from collections_app.errors import ServiceError, UnknownError
from collections_app.jobs.leases import enqueue
from collections_app.models import Collection, Document
from evaluation_app.experiments.model_trial import read_candidates
from evaluation_app.experiments.plan_grid import Draft, label_of, varied
from evaluation_app.experiments.ranking import SAMPLE_CHUNKS, draw_sample
from evaluation_app.failures.fixes import propose_fixes, refresh_modes, same_set
from evaluation_app.golden.sets import keep_version
from evaluation_app.models import EvaluationRun, Experiment, GoldenSet
from evaluation_app.runs.lifecycle import NAME_CHARS_MAX, RUN_EVALUATION, RunRequest, cancel_run, start_run
from evaluation_app.runs.requests import code_version
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.modes import find_mode
from ragd.errors import InvalidInput
from ragd.identity import clean_line
from ragd.types import SPEC_VERSION, RetrievePlan
from retrieval_app.models import SavedPlan
from retrieval_app.plans.services import choose_plan, save_plan

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
    """Those over the collections that a key opens, newest first, without the calibrations of judges."""
    return Experiment.objects.filter(scope.by_name("collection_name", "created_at")).exclude(kind=Kind.JUDGE)


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
    with system_access(), transaction.atomic():  # also items that who asks may not see
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


K, K_MAX = 10, 100
Purpose = EvaluationRun.Purpose


def start_plans(golden_set: GoldenSet, draft: Draft, *, name: str = "", actor: services.Actor = None) -> Experiment:
    """The plans of a grid. Raises what `start_run` raises; then nothing is written."""
    require_in(Permission.EVALUATE, golden_set.collection_name)
    kept_name = clean_line(name)
    if len(kept_name) > NAME_CHARS_MAX:
        raise InvalidInput(f"name must have at most {NAME_CHARS_MAX} characters, not {len(kept_name)}", field="name")
    with transaction.atomic():
        plans = [plan.as_dict() for plan in draft.plans]
        experiment = _create(
            Experiment.Kind.PLANS,
            draft.collection.name,
            golden_set,
            actor,
            name=kept_name,
            grid=dict(draft.grid),
            variants=plans,
            measure=draft.measure,
            settings=draft.settings.as_dict(),
        )
        names = varied(plans)
        for place, plan in enumerate(draft.plans):
            start_run(
                golden_set,
                RunRequest(
                    plan=plan,
                    settings=draft.settings,
                    name=_run_name(label_of(plan.as_dict(), names)),
                    purpose=Purpose.EXPERIMENT,
                    experiment=experiment,
                    place=place,
                ),
                actor=actor,
                send=place == 0,
            )
    return experiment


def start_models(
    collection: Collection,
    models: Sequence[Mapping[str, Any]],
    *,
    golden_set: GoldenSet | None = None,
    k: int = K,
    sample: int = SAMPLE_CHUNKS,
    send: bool = True,
    actor: services.Actor = None,
) -> Experiment:
    """Embedding models; the collection's own is always among the candidates.

    models: as `read_candidates` takes them. golden_set: None: questions are made from the documents. send: False for a
    process that works the runs off itself (`run_now`). Raises ServiceError 409 while another one of the collection is
    under way, InvalidInput, and what `read_candidates` and `draw_sample` raise.
    """
    require_in(Permission.EVALUATE, collection.name)
    if not 1 <= k <= K_MAX:
        raise InvalidInput(f"k must be from 1 to {K_MAX}, not {k}", field="k")
    if golden_set is not None and golden_set.collection_name != collection.name:
        raise InvalidInput(
            f"the test set {golden_set.name!r} is of the collection {golden_set.collection_name!r}, not of "
            f"{collection.name!r}",
            field="golden_set",
        )
    candidates = read_candidates(collection, models)
    drawn = draw_sample(collection, golden_set, sample)
    documents = Document.objects.filter(collection=collection, enabled=True)
    chosen = choose_plan(collection, None, {}).plan
    with transaction.atomic():
        active = EvaluationRun.objects.filter(
            experiment__kind=Experiment.Kind.MODELS, collection_name=collection.name, state__in=("queued", "running")
        )
        with system_access():  # who evaluates may not lock the collection, nor see every experiment of it
            Collection.objects.select_for_update(no_key=True).get(pk=collection.pk)
            is_active = active.exists()
        if is_active:
            raise ServiceError(
                "another experiment with models of this collection is running; wait for it, or cancel it"
            )
        experiment = _create(
            Experiment.Kind.MODELS,
            collection.name,
            golden_set,
            actor,
            variants=[candidate.as_dict() for candidate in candidates],
            questions=[golden.as_dict() for golden in drawn.questions],
            doc_ids=drawn.doc_ids,
            settings={
                "mode": chosen.mode,
                "k": k,
                "documents_total": documents.count(),
                "chunks_total": documents.aggregate(total=Sum("chunk_count"))["total"] or 0,
            },
        )
        for place, candidate in enumerate(candidates):
            run = EvaluationRun.objects.create(
                set_name="",  # it says nothing of how the set does, over a sample
                set_version=0,
                collection_name=collection.name,
                name=candidate.label,
                purpose=Purpose.EXPERIMENT,
                experiment=experiment,
                place=place,
                plan=chosen.as_dict(),
                plan_hash=chosen.hash,
                settings=RunSettings(answers=False, judge="none", cut=k).as_dict(),
                index_version=collection.index_version,
                embed_model=candidate.embed_model,
                spec_version=SPEC_VERSION,
                code_version=code_version(),
                total=len(drawn.questions),
                created_by=name_actor(actor),
            )
            if send and place == 0:
                enqueue(RUN_EVALUATION, str(run.pk))
    return experiment


def try_fix(
    run: EvaluationRun, mode_key: str, fix_key: str, *, actor: services.Actor = None, send: bool = True
) -> Experiment:
    """A run of the set with the changed plan, held against the given one, whose thresholds it has.

    The base run's modes are found again, so that both are by the thresholds of now.

    Raises InvalidInput for a mode or a fix that is not known, ServiceError 409: "set_gone" without the set,
    "set_changed" when it asks other questions now, so that the two could not be compared, "fix_unavailable" with the
    reason; and what `start_run` raises.
    """
    mode = find_mode(mode_key)
    proposal = next((item for item in propose_fixes(mode, run) if item.fix.key == fix_key), None)
    if proposal is None:
        known = ", ".join(fix.key for fix in mode.fixes) or "none"
        raise InvalidInput(f"{mode.title} has no fix {fix_key!r}; it has {known}", field="fix")
    if proposal.reason:
        raise ServiceError(
            f"{proposal.fix.title} cannot be tried on this run: {proposal.reason}", type="fix_unavailable"
        )
    golden_set = same_set(run)
    if not run.is_active:
        refresh_modes(run, actor=actor)
    with transaction.atomic():
        name = f"{mode.title}: {proposal.fix.title}"
        experiment = _create(
            Experiment.Kind.FIX,
            run.collection_name,
            golden_set,
            actor,
            name=name,
            base=run,
            grid={"mode": mode_key, "fix": fix_key},
            variants=[proposal.plan.as_dict()],
            settings=proposal.settings.as_dict(),
        )
        start_run(
            golden_set,
            RunRequest(
                plan=proposal.plan,
                settings=proposal.settings,
                name=name,
                purpose=Purpose.FIX,
                thresholds=run.thresholds,
                experiment=experiment,
                place=0,
            ),
            actor=actor,
            send=send,
        )
    return experiment


def _create(
    kind: str, collection_name: str, golden_set: GoldenSet | None, actor: services.Actor, **values: Any
) -> Experiment:
    if golden_set is not None:
        version = keep_version(golden_set, actor=actor)
        values |= {"set_name": golden_set.name, "set_version": version.version, "set_digest": version.digest}
    experiment = Experiment.objects.create(
        kind=kind, collection_name=collection_name, golden_set=golden_set, created_by=name_actor(actor), **values
    )
    count = len(experiment.variants)
    services.record(actor, [experiment], services.ADDITION, f"started an experiment with {count} variants ({kind})")
    return experiment


def _run_name(label: str) -> str:
    return label if len(label) <= NAME_CHARS_MAX else f"{label[: NAME_CHARS_MAX - 1]}…"
