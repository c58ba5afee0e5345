"""Evaluation runs as their callers see them: started, worked off, cancelled, resumed, deleted, past their retention."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.conf import settings as server
from django.db import DatabaseError, DataError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from collections_app.access.context import elevated, system_access
from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.collections import retention
from collections_app.collections.invariants import request_check
from collections_app.collections.models import name_actor
from collections_app.collections.retention_periods import kept_for
from collections_app.documents.services import expire_trash, expired_trash
from collections_app.domain.formats import counted
from collections_app.endpoints.server_settings import stored
from collections_app.errors import ServiceError
from collections_app.index.stores import open_rerankers
from collections_app.index.swap import expire_retired, expired_retired
from collections_app.jobs.leases import (
    RESEND_AFTER,
    Lease,
    LeaseLostError,
    database_now,
    enqueue,
    overdue,
    send,
    worker_name,
)
from collections_app.jobs.operations import forget_operations, last_operation, running
from collections_app.models import Collection, Operation
from evaluation_app.golden.sets import keep_version
from evaluation_app.models import EvaluationRun, Experiment, GoldenSet
from evaluation_app.runs.requests import code_version, read_answerer, read_calibration, read_index
from evaluation_app.runs.runner import (
    FINAL,
    OnItem,
    RunExecutor,
    active_runs,
    claim_run,
    has_failed,
    held_runs,
    release_run,
)
from evaluation_app.runs.summaries import check_thresholds
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.sampling import forget_scores
from evaluation_app.scoring.scorer import Scorer
from evaluation_app.telemetry.search.search import in_time
from evaluation_app.telemetry.store.span_store import count_expired, forget_writers, maintain
from ragd.errors import InvalidInput, LexicalDisabled, UnknownCollection
from ragd.identity import clean_line
from ragd.store.store import execute
from ragd.types import SPEC_VERSION, RetrievePlan
from retrieval_app.runs.run_log import delete_old_runs, expired_runs

log = logging.getLogger(__name__)

State = EvaluationRun.State
RUN_EVALUATION = "evaluation.run_evaluation"  # the task of one run, by its id
SLICE_S = 20.0  # of work, after which ingest jobs that wait go first
DELETE_BATCH = 20
NAME_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is stated for a new run. settings: None for the defaults. thresholds: measure -> the least mean that passes.

    base_run: the one that this tries to better, which makes an experiment of it. experiment, place: the one that it
    belongs to, and its place among the runs of it.
    """

    plan: RetrievePlan
    plan_name: str = ""
    settings: RunSettings | None = None
    name: str = ""
    purpose: str = "manual"
    thresholds: Mapping[str, float] | None = None
    base_run: EvaluationRun | None = None
    experiment: Experiment | None = None
    place: int | None = None


def start_run(
    golden_set: GoldenSet, request: RunRequest, *, actor: services.Actor = None, send: bool = True
) -> EvaluationRun:
    """A new run of the set's present version, with its header complete; a worker begins when the transaction ends.

    send: False for a caller that works it off itself, by `run_now`.
    Raises UnknownCollection, LexicalDisabled, InvalidInput for a plan, a name or thresholds that this run cannot have,
    ServiceError: 409 "empty_set" for a set without accepted questions, 422 for a model that is not set up.
    """
    require_in(Permission.EVALUATE, golden_set.collection_name)
    plan, base_run = request.plan, request.base_run
    chosen = replace(request.settings or RunSettings(), rubrics=tuple(golden_set.rubrics))
    collection = _find_collection(golden_set)
    _check_plan(plan, collection)
    bounds = check_thresholds(request.thresholds or {}, chosen)
    answerer, prompt_hash = read_answerer(collection, chosen)
    calibration = read_calibration(collection, chosen)
    index_version, embed_model = read_index(collection, chosen)
    judge_version = Scorer(chosen, collection).judge_version
    with transaction.atomic():
        version = keep_version(golden_set, actor=actor)
        if not version.questions:
            raise ServiceError(
                f"the golden set {golden_set.name!r} has no question to ask; add one, or accept a suggestion",
                type="empty_set",
            )
        run = EvaluationRun.objects.create(
            golden_set=golden_set,
            set_name=golden_set.name,
            set_version=version.version,
            set_digest=version.digest,
            collection_name=collection.name,
            name=_check_name(request.name),
            purpose=request.purpose,
            experiment=request.experiment or (_against(base_run, golden_set, plan, actor) if base_run else None),
            place=request.place,
            plan=plan.as_dict(),
            plan_hash=plan.hash,
            plan_name=request.plan_name,
            settings=chosen.as_dict(),
            answerer=answerer,
            prompt_hash=prompt_hash,
            judge=chosen.judge,
            judge_version=judge_version,
            calibration=calibration,
            index_version=index_version,
            embed_model=embed_model,
            spec_version=SPEC_VERSION,
            code_version=code_version(),
            total=len(version.questions),
            thresholds=bounds,
            cost_usd=0.0,
            judge_cost_usd=0.0,
            created_by=name_actor(actor),
        )
        services.record(
            actor, [run], services.ADDITION, f"started evaluation of {golden_set.name} on {collection.name}"
        )
        if send:
            enqueue(RUN_EVALUATION, str(run.pk))
    return run


def run_now(run: EvaluationRun, on_item: OnItem | None = None) -> EvaluationRun:
    """Work the run off in this process, however many others run; the run as it is then.

    on_item: told of each item as it is stored. Raises ServiceError 409 when the run is not waiting, or is lost to
    another worker meanwhile.
    """
    claimed = claim_run(run.pk, worker_name(), most=None)
    if claimed is None:
        raise ServiceError(
            f"evaluation run {run.pk} is not waiting, it is {_state_of(run)}; resume it, or start a new one",
            type="not_waiting",
        )
    try:
        with _released(claimed):
            RunExecutor(claimed, on_item).work()
    except LeaseLostError:
        raise ServiceError(
            f"evaluation run {run.pk} was taken over or deleted while it ran here", type="run_lost"
        ) from None
    return EvaluationRun.objects.get(pk=run.pk)


def process_run(run_id: str) -> None:
    """The worker's side: go on with the run, for a while when others wait. Nothing happens when somebody has it."""
    claimed = claim_run(run_id, worker_name(), most=server.RAGD_EVALUATION_PROCESSES)
    if claimed is None:
        return
    try:
        with _released(claimed):
            ended = RunExecutor(claimed).work(limit_s=SLICE_S)
    except LeaseLostError:
        log.info("evaluation run %s went on elsewhere, or was cancelled", run_id)
        return
    if ended:
        send_next()
    else:
        send(RUN_EVALUATION, [(run_id,)])


@contextmanager
def _released(claimed: Lease[EvaluationRun]) -> Iterator[None]:
    """What ends an attempt from outside is not its questions' fault: the run waits again, and no attempt is lost.

    What cannot be stored comes of the question, every time: that attempt counts as lost at it.
    """
    try:
        yield
    except LeaseLostError:
        raise
    except BaseException as error:
        try:
            release_run(claimed, is_blamed=isinstance(error, (DataError, ValueError)))
        except DatabaseError:
            log.warning(
                "evaluation run %s was not put back; maintenance does it when its lease is over", claimed.work.pk
            )
        raise


def cancel_run(run: EvaluationRun, actor: services.Actor) -> EvaluationRun:
    """End a run: at once while it waits, else after the question that it is at. What it found stays.

    Raises ServiceError 409 for one that has ended.
    """
    require_in(Permission.EVALUATE, run.collection_name)
    with transaction.atomic():
        locked = EvaluationRun.objects.select_for_update().get(pk=run.pk)
        if not locked.is_active:
            raise ServiceError(
                f"evaluation run {run.pk} has ended already: {locked.get_state_display().lower()}", type="already_ended"
            )
        locked.cancel_requested = True
        is_free = locked.lease_until is None or locked.lease_until < timezone.now()
        if is_free or locked.tries_model:  # which asks no question for minutes; losing its lease interrupts it
            locked.state, locked.finished_at = State.CANCELLED, timezone.now()
            locked.worker, locked.lease_until = "", None
        locked.save(update_fields=["cancel_requested", "state", "finished_at", "worker", "lease_until"])
        services.record(actor, [locked], services.CHANGE, f"cancelled evaluation of {locked.set_name}")
    return locked


def resume_run(run: EvaluationRun, actor: services.Actor, *, send: bool = True) -> EvaluationRun:
    """Go on with a run that was cancelled or stopped: the questions without an item are asked.

    Raises ServiceError 409: it is under way, nothing is left, or it stopped for good.
    """
    require_in(Permission.EVALUATE, run.collection_name)
    with transaction.atomic():
        locked = _require_ended(run)
        if locked.done >= locked.total:
            raise ServiceError(
                f"all {locked.total} questions of evaluation run {run.pk} were asked; retry what failed, or start a "
                "new run",
                type="nothing_left",
            )
        _queue_again(locked)
        services.record(actor, [locked], services.CHANGE, f"resumed evaluation of {locked.set_name}")
        if send:
            enqueue(RUN_EVALUATION, str(locked.pk))
    return locked


def retry_failed(run: EvaluationRun, actor: services.Actor, *, send: bool = True) -> EvaluationRun:
    """Ask those questions again that failed, or score them again where only that failed; the others stay.

    Raises ServiceError 409: it is under way, nothing failed, or it stopped for good.
    """
    require_in(Permission.EVALUATE, run.collection_name)
    with system_access(), transaction.atomic():  # also those questions that who asks may not see
        locked = _require_ended(run)
        items = locked.items.only("run", "outcome", "scores")
        failed = [item.pk for item in items if has_failed(item)]
        if not failed:
            raise ServiceError(f"nothing failed in evaluation run {run.pk}", type="nothing_failed")
        locked.items.filter(pk__in=failed).delete()
        locked.retries += 1
        locked.done, locked.failed = locked.items.count(), 0
        _queue_again(locked)
        services.record(
            actor, [locked], services.CHANGE, f"retried {counted(len(failed), 'failed question')} of {locked.set_name}"
        )
        if send:
            enqueue(RUN_EVALUATION, str(locked.pk))
    return locked


def delete_run(run: EvaluationRun, actor: services.Actor) -> None:
    """With its items, and its experiment where it is the only run. Stored runs of its questions stay, under their own
    retention. 409 while it is under way."""
    require_in(Permission.EVALUATE, run.collection_name)
    with system_access(), transaction.atomic():  # also items that who asks may not see
        locked = EvaluationRun.objects.select_for_update().get(pk=run.pk)
        if locked.is_active:
            raise ServiceError(f"evaluation run {run.pk} is under way; cancel it, then delete it", type="under_way")
        services.record(actor, [locked], services.DELETION, f"deleted evaluation run {locked} of {locked.set_name}")
        locked.delete()
        if locked.experiment_id:
            Experiment.objects.filter(pk=locked.experiment_id, runs=None).delete()


def send_waiting() -> int:
    """Send the next run when a place is free, also one whose worker was lost. Returns 0 or 1."""
    if held_runs().count() >= server.RAGD_EVALUATION_PROCESSES:
        return 0
    now = database_now()
    return _send_first(active_runs().filter(overdue(now, now - RESEND_AFTER)))


def send_next() -> int:
    """Send the run that waits longest, those of experiments behind all others. Returns 0 or 1."""
    return _send_first(EvaluationRun.objects.filter(state=State.QUEUED))


def _send_first(runs: QuerySet[EvaluationRun]) -> int:
    waiting = runs.order_by("created_at", "id")
    first = waiting.exclude(purpose=EvaluationRun.Purpose.EXPERIMENT).first() or waiting.first()
    if first is None:
        return 0
    EvaluationRun.objects.filter(pk=first.pk).update(sent_at=timezone.now())
    send(RUN_EVALUATION, [(str(first.pk),)])
    return 1


def delete_old_evaluations(days: int | None = None) -> int:
    """Delete runs that ended longer ago than they are kept, and experiments that have none left; how many runs went.

    0 days keeps all. A set's baseline and its newest run that went through always stay.
    """
    rows = expired_evaluations(kept_for("evaluation_days") if days is None else days).order_by("created_at", "id")
    deleted = 0
    while batch := list(rows.values_list("pk", flat=True)[:DELETE_BATCH]):
        EvaluationRun.objects.filter(pk__in=batch).delete()
        deleted += len(batch)
    if deleted:
        Experiment.objects.filter(runs=None).exclude(kind=Experiment.Kind.JUDGE).delete()
    return deleted


def expired_evaluations(days: int) -> QuerySet[EvaluationRun]:
    """What `delete_old_evaluations` deletes."""
    if not days:
        return EvaluationRun.objects.none()
    ended = EvaluationRun.objects.filter(finished_at__lt=timezone.now() - timedelta(days=days))
    stored = set(GoldenSet.objects.exclude(baseline=None).values_list("baseline_id", flat=True))
    newest = EvaluationRun.objects.filter(state=State.SUCCEEDED).order_by("golden_set_id", "-created_at", "-id")
    stored |= set(newest.distinct("golden_set_id").values_list("pk", flat=True))
    return ended.exclude(state__in=(State.QUEUED, State.RUNNING)).exclude(pk__in=stored)


def _against(base: EvaluationRun, golden_set: GoldenSet, plan: RetrievePlan, actor: services.Actor) -> Experiment:
    """The experiment of one run that is held against another one."""
    return Experiment.objects.create(
        kind=Experiment.Kind.FIX,
        golden_set=golden_set,
        set_name=golden_set.name,
        set_version=golden_set.version,
        collection_name=golden_set.collection_name,
        base=base,
        variants=[plan.as_dict()],
        created_by=name_actor(actor),
    )


def _find_collection(golden_set: GoldenSet) -> Collection:
    record = Collection.objects.live().filter(name=golden_set.collection_name).first()
    if record is None:
        raise UnknownCollection(
            f"the golden set {golden_set.name!r} asks collection {golden_set.collection_name!r}, which is not there",
            field="collection",
        )
    return record


def _check_plan(plan: RetrievePlan, collection: Collection) -> None:
    """What would make every question fail is told before the first one."""
    if plan.mode != "vector" and not collection.hybrid_enabled:
        raise LexicalDisabled(
            f"collection {collection.name!r} has no keyword search, and the plan's mode is {plan.mode!r}; take mode "
            "'vector'",
            field="mode",
        )
    if plan.rerank is not None and plan.rerank not in (known := open_rerankers()):
        raise InvalidInput(
            f"there is no reranker {plan.rerank!r}; the rerankers here are: {', '.join(sorted(known))}", field="rerank"
        )


def _check_name(name: str) -> str:
    cleaned = clean_line(name)
    if len(cleaned) > NAME_CHARS_MAX:
        raise InvalidInput(f"name must have at most {NAME_CHARS_MAX} characters, not {len(cleaned)}", field="name")
    return cleaned


def _require_ended(run: EvaluationRun) -> EvaluationRun:
    locked = EvaluationRun.objects.select_for_update().get(pk=run.pk)
    if locked.is_active:
        raise ServiceError(f"evaluation run {run.pk} is under way", type="under_way")
    if locked.error_type in FINAL:
        raise ServiceError(
            f"evaluation run {run.pk} cannot go on: {locked.error}. Start a new run", type="cannot_go_on"
        )
    return locked


def _queue_again(locked: EvaluationRun) -> None:
    locked.state, locked.cancel_requested, locked.finished_at, locked.passed = State.QUEUED, False, None, None
    locked.error, locked.error_type, locked.worker, locked.sent_at = "", "", "", timezone.now()
    locked.attempts_forgiven = locked.attempts
    locked.save()


def _state_of(run: EvaluationRun) -> str:
    record = EvaluationRun.objects.filter(pk=run.pk).first()
    return record.get_state_display().lower() if record else "deleted"


CHECK_EVERY = timedelta(hours=24)
COUNT_S = 3.0

# a trace that another run is part of stays
DELETE_SPANS_OF_RUNS = """
DELETE FROM spans s WHERE s.trace_id = ANY(%(traces)s)
  AND NOT EXISTS (SELECT 1 FROM retrieval_app_queryrun r WHERE r.trace_id = s.trace_id)
"""


# by the key of a period: how many rows go at a value of it
COUNTERS: dict[str, Callable[[int], int]] = {
    "runs_days": lambda days: sum(rows.count() for rows in expired_runs(days)),
    "span_days": lambda days: count_expired(timezone.now(), days, 0),
    "span_mb": lambda most: count_expired(timezone.now(), 0, most),
    "evaluation_days": lambda days: expired_evaluations(days).count(),
    "trash_days": lambda days: (
        expired_trash(timezone.now(), days).count()
        + Collection.objects.trashed(timezone.now() - timedelta(days=days)).count()
    ),
    "revisions": retention.count_old_revisions,
    "deleted_days": retention.count_deleted_documents,
    "index_version_days": lambda days: expired_retired(timezone.now(), days).count(),
}


def count_due(values: Mapping[str, int], *, limit_s: float = COUNT_S) -> dict[str, int | None]:
    """How many rows the next deletion would remove of each kind if it were kept for `values`, by the key of a period.

    Nothing is deleted. No statement takes longer than what is left of `limit_s` for all; None: not counted within that.
    """
    ends = time.monotonic() + limit_s
    result: dict[str, int | None] = {}
    for key, value in values.items():
        result[key] = None
        if (left := ends - time.monotonic()) > 0:
            with suppress(TimeoutError), elevated(Permission.ADMINISTER):  # of all that is stored
                result[key] = in_time(partial(COUNTERS[key], value), left)
    return result


@dataclass(frozen=True, slots=True)
class LastDeletion:
    """at: when the last one ran, None before the first; failed: that it did. removed: how many rows it removed, by the
    names of its report. removing: the last one that removed some, by those names: (when, how many)."""

    at: datetime | None
    failed: bool
    removed: Mapping[str, int]
    removing: Mapping[str, tuple[datetime, int]]


def last_deletions() -> LastDeletion:
    """What is known of the deletions of the last days, as far as operations are kept. One query."""
    ended = Operation.objects.filter(kind=Operation.Kind.RETENTION, finished_at__isnull=False)
    rows = list(ended.values_list("finished_at", "state", "report"))
    removing: dict[str, tuple[datetime, int]] = {}
    for at, _, report in rows:
        for name, count in report.items():
            if count and at is not None:
                removing.setdefault(name, (at, count))
    if not rows:
        return LastDeletion(None, False, {}, removing)
    at, state, report = rows[0]
    return LastDeletion(at, state == Operation.State.FAILED, report, removing)


def apply_retention() -> Operation:
    """Once: delete what is too old by the collections' and the server's numbers; the operation says what went."""
    stored.take_over()  # what was set a moment ago holds
    with running(Operation.Kind.RETENTION, "") as progress:
        spans = 0

        def drop_spans(runs: Sequence[tuple[UUID, str]]) -> None:
            nonlocal spans
            forget_scores([run_id for run_id, _ in runs])
            traces = [trace_id for _, trace_id in runs if trace_id]
            spans += execute(connection, DELETE_SPANS_OF_RUNS, {"traces": traces}) if traces else 0
            progress.tell("runs", spans, 0)

        forget_writers()
        runs = delete_old_runs(on_batch=drop_spans)
        report = {
            "runs": runs,
            "spans_of_runs": spans,
            "spans": maintain().spans,
            "revisions": retention.drop_old_revisions(),
            "deleted_documents": retention.drop_deleted_documents(),
            "trashed_documents": expire_trash(timezone.now()),
            "index_versions": expire_retired(timezone.now()),
            "evaluation_runs": delete_old_evaluations(),
            "operations": forget_operations(),
        }
        return progress.succeed(report)


def check_daily() -> bool:
    """Have everything checked when that was not done for a day; returns whether it was asked for."""
    newest = last_operation(Operation.Kind.CHECK, "")
    if newest is not None and newest.created_at > timezone.now() - CHECK_EVERY:
        return False
    request_check()
    return True
