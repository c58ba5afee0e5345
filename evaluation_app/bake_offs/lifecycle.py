"""Bake-offs as they are asked for: begun, done by a worker model by model, cancelled, gone on with after a crash."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone

from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError, describe
from collections_app.models import Collection, Document
from collections_app.models.key_scope import EVERYTHING, CollectionScope
from collections_app.models.library import name_actor
from collections_app.services.collections.collections import get_collection
from collections_app.services.governance import audit
from collections_app.services.governance.access import require_in
from collections_app.work.delivery import enqueue, job_retry_policy, sweep
from collections_app.work.leases import LeaseLostError, Progress, cancel, claim, database_now, worker_name
from evaluation_app.bake_offs.candidates import Candidate, read_candidates
from evaluation_app.bake_offs.sample import SAMPLE_CHUNKS, draw_sample
from evaluation_app.bake_offs.trial import try_candidate
from evaluation_app.golden.questions import Golden
from evaluation_app.models import BakeOff, GoldenSet
from ragd.errors import InvalidInput, RagdError
from retrieval_app.runs.plans import default_plans

log = logging.getLogger(__name__)

RUN_BAKE_OFF = "evaluation.run_bake_off"
K, K_MAX = 10, 100


def start_bake_off(
    collection: Collection,
    models: Sequence[Mapping[str, Any]],
    *,
    golden_set: GoldenSet | None = None,
    k: int = K,
    sample: int = SAMPLE_CHUNKS,
    send: bool = True,
    actor: audit.Actor = None,
) -> BakeOff:
    """A new one, which a worker does; the collection's own model is always among the candidates.

    models: as `read_candidates` takes them. golden_set: None: questions are made from the documents. send: False for a
    process that does it itself (`process_bake_off`). Raises ServiceError 409 while another one of the collection is
    under way, InvalidInput, and what `read_candidates` and `draw_sample` raise.
    """
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
    with transaction.atomic():
        Collection.objects.select_for_update(no_key=True).get(pk=collection.pk)
        if BakeOff.objects.under_way().filter(collection_name=collection.name).exists():
            raise ServiceError(
                "another bake-off of this collection is running; wait for it, or cancel it", type="conflict", status=409
            )
        bake_off = BakeOff.objects.create(
            collection_name=collection.name,
            set_name=golden_set.name if golden_set else "",
            mode=default_plans([collection])[collection.name].plan.mode,
            k=k,
            candidates=[candidate.as_dict() for candidate in candidates],
            questions=[golden.as_dict() for golden in drawn.questions],
            doc_ids=drawn.doc_ids,
            documents_total=documents.count(),
            chunks_total=documents.aggregate(total=Sum("chunk_count"))["total"] or 0,
            created_by=name_actor(actor),
        )
        audit.record(actor, [collection], audit.CHANGE, f"started a bake-off of {len(candidates)} models")
        if send:
            enqueue(RUN_BAKE_OFF, str(bake_off.pk))
    return bake_off


def process_bake_off(pk: str | UUID) -> None:
    """The worker's side. One that somebody has, or that has ended, is left alone. Finished candidates are kept."""
    lease = claim(BakeOff, pk, worker_name(), "finished_at IS NULL")
    if lease is None:
        return
    bake_off, progress = lease.work, Progress(lease)
    try:
        with lease.hold(interrupts=True):
            collection = get_collection(bake_off.collection_name)
            questions = [Golden.from_dict(values) for values in bake_off.questions]
            chosen = default_plans([collection])[collection.name]
            for values in bake_off.candidates[len(bake_off.results) :]:
                candidate = Candidate(**values)
                progress.write(stage=candidate.label, done=0, total=0)
                trial = try_candidate(
                    collection,
                    candidate,
                    bake_off.doc_ids,
                    questions,
                    mode=bake_off.mode,
                    k=bake_off.k,
                    advance=lambda done, total: progress.write(done=done, total=total) if progress.is_due else None,
                    stated=chosen.plan if chosen.name else None,
                )
                progress.write(results=[*bake_off.results, trial.as_dict()], attempts_forgiven=lease.attempt)
        lease.release(state=BakeOff.State.SUCCEEDED, finished_at=timezone.now(), stage="")
    except LeaseLostError:
        log.info("bake-off %s was cancelled or went on elsewhere", pk)
    except (ServiceError, RagdError) as error:
        body = describe(error)[1]["error"]
        lease.release(
            state=BakeOff.State.FAILED, finished_at=timezone.now(), error_type=body["type"], error=body["message"]
        )


def cancel_bake_off(bake_off: BakeOff, actor: audit.Actor = None) -> BakeOff:
    """End it; what is finished stays. ServiceError 409 when it has ended."""
    require_in(Permission.EVALUATE, bake_off.collection_name)
    if not cancel(BakeOff.objects.under_way().filter(pk=bake_off.pk), f"cancelled by {name_actor(actor)}"):
        raise ServiceError("this bake-off has ended", type="conflict", status=409)
    bake_off.refresh_from_db()
    return bake_off


def sweep_bake_offs() -> int:
    """Send again what lost its worker or its message; returns how many."""
    return sweep(BakeOff.objects.under_way(), RUN_BAKE_OFF, job_retry_policy(), _give_up, database_now())


def _give_up(bake_off: BakeOff) -> None:
    BakeOff.objects.filter(pk=bake_off.pk).update(
        state=BakeOff.State.FAILED,
        finished_at=timezone.now(),
        lease_until=None,
        error_type="worker_lost",
        error=f"given up after {bake_off.tries} attempts: its worker ended while it tried {bake_off.stage}; look at "
        "the worker's log",
    )


def visible_bake_offs(scope: CollectionScope = EVERYTHING) -> QuerySet[BakeOff]:
    """Those over the collections that a key opens, newest first."""
    return BakeOff.objects.filter(scope.by_name("collection_name", "created_at"))
