"""Bisections as they are asked for: which two items are meant, at once or in the worker, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q, QuerySet

from collections_app.collections.models import Actor
from collections_app.collections.services import get_collection
from collections_app.errors import ServiceError, UnknownError
from collections_app.jobs.operations import OperationProgress, handles, perform_operation, request_operation
from collections_app.models import Chunk, Operation
from evaluation_app.failures.bisection import Undo, bisect_item, choose_measure, take_back
from evaluation_app.failures.events import Event
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.requests import find_run

BISECTION = Operation.Kind.BISECTION
AT_ONCE_CHUNKS = 2_000  # of a collection that is searched while the caller waits
LOOKED_BACK = 50  # earlier runs in which a question may have been better


def items() -> QuerySet[EvaluationItem]:
    return EvaluationItem.objects.select_related("run__golden_set")


def find_item(run: EvaluationRun, position: int) -> EvaluationItem:
    """ServiceError 404."""
    item = items().filter(run=run, position=position).first()
    if item is None:
        raise UnknownError(
            "item", f"run {run.pk} has no question {position}; its questions are 0 to {max(run.done - 1, 0)}"
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
            raise UnknownError("item", f"run {run.pk} did not ask this question", field="good")
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


def request_bisection(good: EvaluationItem, bad: EvaluationItem, actor: Actor = None) -> Operation:
    """What is known or under way, else a new one: made now where the collection is small, else by a worker.

    Raises ServiceError 409 and UnknownCollection.
    """
    choose_measure(good, bad)
    collection = get_collection(bad.run.collection_name)
    arguments = {"good": good.pk, "bad": bad.pk}
    newest = bisections_of([bad.pk]).filter(arguments=arguments).first()
    if newest is not None and newest.state in (Operation.State.RUNNING, Operation.State.SUCCEEDED):
        return newest
    is_large = Chunk.objects.of(collection)[: AT_ONCE_CHUNKS + 1].count() > AT_ONCE_CHUNKS
    make = request_operation if is_large else perform_operation
    return make(BISECTION, collection.name, arguments, actor=actor)


@handles(BISECTION)
def complete_bisection(progress: OperationProgress) -> None:
    """report: `history.bisection.Bisection.as_dict()`."""
    good, bad = find_pair(progress.operation)
    progress.succeed(bisect_item(good, bad).as_dict())


def find_pair(bisection: Operation) -> tuple[EvaluationItem, EvaluationItem]:
    """The question in the earlier and in the later run. ServiceError 404 where one is gone."""
    found = items().in_bulk([bisection.arguments["good"], bisection.arguments["bad"]])
    if len(found) < 2:
        raise UnknownError("item", "a run of the bisection was deleted")
    return found[bisection.arguments["good"]], found[bisection.arguments["bad"]]


def bisections_of(item_ids: Iterable[int]) -> QuerySet[Operation]:
    """Those in which one of these items is the earlier or the later one, newest first."""
    ids = list(item_ids)
    return Operation.objects.filter(Q(arguments__good__in=ids) | Q(arguments__bad__in=ids), kind=BISECTION)


def forget_bisections() -> int:
    """Delete those of runs that are gone; returns how many."""
    rows = list(Operation.objects.filter(kind=BISECTION).values_list("pk", "arguments"))
    asked = [pk for _, arguments in rows for pk in arguments.values()]
    there = set(EvaluationItem.objects.filter(pk__in=asked).values_list("pk", flat=True))
    gone = [pk for pk, arguments in rows if not there.issuperset(arguments.values())]
    return Operation.objects.filter(pk__in=gone).delete()[0]


def latest_bisection(bad: EvaluationItem) -> Operation | None:
    return Operation.objects.filter(kind=BISECTION, arguments__bad=bad.pk).first()


def undo_event(stored: Operation, number: int, actor: Actor) -> Undo:
    """Take back the event of that place in the report. ServiceError 404, 409, and what the services raise."""
    events = stored.report.get("events", [])
    if not 0 <= number < len(events):
        raise UnknownError("change", f"the report names {len(events)} changes")
    good, bad = find_pair(stored)
    return take_back(get_collection(stored.subject), Event.from_dict(events[number]), good.run, bad.run, actor)


def as_run(text: str | None) -> EvaluationRun | None:
    """A run by its id; None for none. ServiceError 404."""
    return find_run(text) if text else None
