"""Bisections as they are asked for: which two items are meant, at once or in the worker, and what is kept of it."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from collections_app.errors import ServiceError, describe
from collections_app.models import Chunk, Collection
from collections_app.models.key_scope import EVERYTHING, CollectionScope
from collections_app.models.library import Actor, name_actor
from collections_app.services.collections.collections import get_collection
from collections_app.work.delivery import enqueue
from evaluation_app.history.bisection import bisect_item, choose_measure
from evaluation_app.history.events import Event
from evaluation_app.history.undoing import Undo, take_back
from evaluation_app.models import EvaluationItem, EvaluationRun, StoredBisection
from evaluation_app.runs.requests import find_run
from ragd.errors import RagdError

BISECT = "evaluation.bisect"
AT_ONCE_CHUNKS = 2_000  # of a collection that is searched while the caller waits
LOOKED_BACK = 50  # earlier runs in which a question may have been better
State = StoredBisection.State


def items() -> QuerySet[EvaluationItem]:
    return EvaluationItem.objects.select_related("run__golden_set")


def find_item(run: EvaluationRun, position: int) -> EvaluationItem:
    """ServiceError 404."""
    item = items().filter(run=run, position=position).first()
    if item is None:
        raise ServiceError(
            f"run {run.pk} has no question {position}; its questions are 0 to {max(run.done - 1, 0)}",
            type="unknown_item",
            status=404,
        )
    return item


def find_good(bad: EvaluationItem, run: EvaluationRun | None = None) -> EvaluationItem:
    """The same question in `run`, else in the newest earlier run in which it was better.

    ServiceError: 404 "unknown_item" where the run did not ask it, 409 "not_worse" where it was not better;
    UnknownCollection.
    """
    if run is not None:
        chosen = _same_question(bad).filter(run=run).first()
        if chosen is None:
            raise ServiceError(f"run {run.pk} did not ask this question", type="unknown_item", status=404, field="good")
        choose_measure(chosen, bad)
        return chosen
    for item in _asked_before(bad):
        try:
            choose_measure(item, bad)
        except ServiceError:
            continue
        return item
    raise ServiceError(
        f"the question was not better in any of the {LOOKED_BACK} runs before; name a run in which it was (good)",
        type="not_worse",
        status=409,
        field="good",
    )


def earlier_runs(bad: EvaluationItem) -> QuerySet[EvaluationRun]:
    """Those that asked the same question of the collection, the newest first. UnknownCollection."""
    asked = _asked_before(bad).values("run_id")
    return EvaluationRun.objects.filter(pk__in=asked).order_by("-created_at", "-id")


def _asked_before(bad: EvaluationItem) -> QuerySet[EvaluationItem]:
    made_at = get_collection(bad.run.collection_name).created_at  # earlier runs are of another one of this name
    earlier = _same_question(bad).filter(run__created_at__gte=made_at, run__created_at__lt=bad.run.created_at)
    return earlier.order_by("-run__created_at", "-run_id")[:LOOKED_BACK]


def _same_question(bad: EvaluationItem) -> QuerySet[EvaluationItem]:
    same = Q(question_text=bad.question_text)
    if bad.question_id is not None:
        same |= Q(question_id=bad.question_id)
    return items().filter(same, run__set_name=bad.run.set_name, run__collection_name=bad.run.collection_name)


def request_bisection(good: EvaluationItem, bad: EvaluationItem, actor: Actor = None) -> StoredBisection:
    """What is known, or made now where the collection is small, else by the worker (state "queued").

    One that failed or waits is asked for again. Raises ServiceError 409 and UnknownCollection.
    """
    choose_measure(good, bad)
    collection = get_collection(bad.run.collection_name)
    stored, _ = StoredBisection.objects.get_or_create(good=good, bad=bad, defaults={"created_by": name_actor(actor)})
    if stored.state == State.SUCCEEDED:
        return stored
    StoredBisection.objects.filter(pk=stored.pk).update(state=State.QUEUED, error="")
    if Chunk.objects.of(collection)[: AT_ONCE_CHUNKS + 1].count() > AT_ONCE_CHUNKS:
        with transaction.atomic():
            enqueue(BISECT, str(stored.pk))
    else:
        complete_bisection(stored.pk)
    stored.refresh_from_db()
    return stored


def complete_bisection(pk: int) -> None:
    """Make one that waits; one that is complete stays as it is. What fails is kept with it."""
    stored = StoredBisection.objects.filter(pk=pk, state=State.QUEUED).first()
    if stored is None:
        return
    good, bad = items().get(pk=stored.good_id), items().get(pk=stored.bad_id)
    try:
        values: dict[str, Any] = {"state": State.SUCCEEDED, "report": bisect_item(good, bad).as_dict()}
    except (ServiceError, RagdError) as error:
        values = {"state": State.FAILED, "error": describe(error)[1]["error"]["message"]}
    StoredBisection.objects.filter(pk=pk).update(**values)


def latest_bisection(bad: EvaluationItem, scope: CollectionScope = EVERYTHING) -> StoredBisection | None:
    """The newest of an item, if the earlier run may be seen too."""
    stored = StoredBisection.objects.filter(bad=bad).select_related("good__run", "bad__run").first()
    if stored is not None:
        find_run(stored.good.run_id, scope)
    return stored


def undo_event(stored: StoredBisection, number: int, actor: Actor) -> Undo:
    """Take back the event of that place in the report. ServiceError 404, 409, and what the services raise."""
    events = stored.report.get("events", [])
    if not 0 <= number < len(events):
        raise ServiceError(f"the report names {len(events)} changes", type="unknown_change", status=404)
    collection: Collection = get_collection(stored.bad.run.collection_name)
    return take_back(collection, Event.from_dict(events[number]), stored.good.run, stored.bad.run, actor)


def as_run(text: str | None) -> EvaluationRun | None:
    """A run by its id; None for none. ServiceError 404."""
    return find_run(text) if text else None
