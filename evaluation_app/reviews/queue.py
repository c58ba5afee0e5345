"""Which answers people are to judge: taken from a run or from live traffic, each once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_noop

from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.collections.models import name_actor
from evaluation_app.models import EvaluationItem, EvaluationRun, ReviewTask, RunScore
from evaluation_app.scoring.modes import mode_title
from ragd.errors import InvalidInput

Which = Literal["all", "failing", "random", "unsure"]
WHICH: tuple[Which, ...] = get_args(Which)
WORDS: Mapping[Which, str] = {
    "all": gettext_noop("All answers"),
    "failing": gettext_noop("Answers with a failure mode"),
    "random": gettext_noop("Random sample"),
    "unsure": gettext_noop("Least confident judgements"),
}
RANDOM = "random sample"  # the reason with which chance alone chose: such labels stand for all answers
TASKS_MAX = 1000
WANTED_MAX = 20
LONG = ("context", "answer_sentences", "annotation", "contributions", "answer", "retrieved_ids")  # nothing to choose by


@dataclass(frozen=True, slots=True)
class QueuedCount:
    """created: new tasks; known: answers that were in the queue already."""

    created: int
    known: int


@dataclass(frozen=True, slots=True)
class TaskCandidate:
    """An answer with why it is chosen and how early it comes: the higher the earlier."""

    row: EvaluationItem | RunScore
    reason: str
    priority: float


def queue_run(
    run: EvaluationRun,
    which: str,
    *,
    number: int = 50,
    wanted: int = 1,
    without: Collection[int] = (),
    actor: services.Actor = None,
) -> QueuedCount:
    """Tasks of at most `number` answered questions of the run. wanted: how many people are to judge each. without:
    positions that are left out.

    all: as they were asked. failing: those in most modes first. random: the same ones each time for the same run.
    unsure: those where the judge was nearest to its limits first (`unsureness`). An answer that is in the queue already
    stays there once; where chance draws it now, its reason says so, since a sample without it would not stand for all.
    Raises InvalidInput for another `which`, number or wanted.
    """
    require_in(Permission.EVALUATE, run.collection_name)
    answered = run.items.filter(outcome=EvaluationItem.Outcome.ANSWERED).exclude(position__in=without)
    chosen = _choose(list(answered.order_by("position").defer(*LONG)), which, number, wanted)
    known = set(ReviewTask.objects.filter(item__run=run).values_list("item", flat=True))
    whole = run.items.in_bulk([each.row.pk for each in chosen if each.row.pk not in known])
    fresh = [replace(each, row=whole[each.row.pk]) for each in chosen if each.row.pk in whole]
    with transaction.atomic():
        tasks = [_task_of_item(each, run, wanted, actor) for each in fresh]
        made = ReviewTask.objects.bulk_create(tasks, ignore_conflicts=True)
        _tell_drawn(chosen, ReviewTask.objects.filter(item__in=[each.row.pk for each in chosen]))
        services.record(actor, [run], services.CHANGE, f"queued {len(made)} answers of {run} for review ({which})")
    return QueuedCount(len(fresh), len(chosen) - len(fresh))


def queue_live(
    collection_name: str, which: str, *, number: int = 50, wanted: int = 1, actor: services.Actor = None
) -> QueuedCount:
    """The same for scored live traffic of a collection, the newest first where `which` is "all"."""
    rows = RunScore.objects.filter(collection_name=collection_name, outcome=EvaluationItem.Outcome.ANSWERED)
    chosen = _choose(list(rows.order_by("-asked_at", "-query_run")[:TASKS_MAX]), which, number, wanted)
    with transaction.atomic():
        ids = [each.row.query_run for each in chosen]
        queued = ReviewTask.objects.filter(query_run__in=ids, item=None).exclude(reason=ReviewTask.FEEDBACK)
        known = set(queued.values_list("query_run", flat=True))
        fresh = [each for each in chosen if each.row.query_run not in known]
        tasks = [_task_of_score(each, wanted, actor) for each in fresh]
        made = ReviewTask.objects.bulk_create(tasks)
        _tell_drawn(chosen, queued)
        services.record(
            actor, made[:1], services.ADDITION, f"queued {len(made)} live answers of {collection_name} for review"
        )
    return QueuedCount(len(made), len(chosen) - len(fresh))


def unsureness(row: EvaluationItem | RunScore) -> float:
    """How near the judge was to saying the opposite, 0 to 1.

    With probabilities: the highest 1 - 2 * |p - 0.5| over "unsupported" of the answer's sentences. Else, by how far
    faithfulness is from 0 and 1: 1 - 2 * |f - 0.5|. 0 where neither is known.
    """
    likely = row.details.get("likely") or {}
    chances = list((likely.get("unsupported") or {}).values())
    if not chances:
        score = row.scores.get("faithfulness") or {}
        chances = [score["value"]] if score.get("value") is not None else []
    return max((1 - 2 * abs(chance - 0.5) for chance in chances), default=0.0)


def _choose(rows: Sequence[EvaluationItem | RunScore], which: str, number: int, requested: int) -> list[TaskCandidate]:
    if which not in WHICH:
        raise InvalidInput(f"which must be one of {', '.join(WHICH)}, not {which!r}", field="which")
    _between("number", number, TASKS_MAX)
    _between("wanted", requested, WANTED_MAX)
    return CHOICES[which](rows)[:number]


def _tell_drawn(chosen: Sequence[TaskCandidate], tasks: QuerySet[ReviewTask]) -> None:
    if chosen and chosen[0].reason == RANDOM:
        tasks.update(reason=RANDOM)


def _all(rows: Iterable[EvaluationItem | RunScore]) -> list[TaskCandidate]:
    return [TaskCandidate(row, "all answers", 0.0) for row in rows]


def _failing(rows: Iterable[EvaluationItem | RunScore]) -> list[TaskCandidate]:
    result = [
        TaskCandidate(row, ", ".join(mode_title(key) for key in row.modes).lower(), float(len(row.modes)))
        for row in rows
        if row.modes
    ]
    return sorted(result, key=lambda each: -each.priority)


def _random(rows: Iterable[EvaluationItem | RunScore]) -> list[TaskCandidate]:
    return [TaskCandidate(row, RANDOM, 0.0) for row in sorted(rows, key=_lot)]


def _lot(row: EvaluationItem | RunScore) -> str:
    name = f"{row.run_id}:{row.position}" if isinstance(row, EvaluationItem) else str(row.query_run)
    return hashlib.sha256(name.encode()).hexdigest()


def _unsure(rows: Iterable[EvaluationItem | RunScore]) -> list[TaskCandidate]:
    result = [TaskCandidate(row, "low judge confidence", unsureness(row)) for row in rows]
    return sorted((each for each in result if each.priority > 0), key=lambda each: -each.priority)


CHOICES: Mapping[str, Callable[[Iterable[EvaluationItem | RunScore]], list[TaskCandidate]]] = {
    "all": _all,
    "failing": _failing,
    "random": _random,
    "unsure": _unsure,
}


def _task_of_item(chosen: TaskCandidate, run: EvaluationRun, requested: int, actor: services.Actor) -> ReviewTask:
    item = chosen.row
    assert isinstance(item, EvaluationItem)
    return _task(
        chosen,
        requested,
        actor,
        item=item,
        query_run=item.query_run,
        set_name=run.set_name,
        collection_name=run.collection_name,
        expected_answer=item.golden.get("expected_answer", ""),
        judge=run.judge,
    )


def _task_of_score(chosen: TaskCandidate, requested: int, actor: services.Actor) -> ReviewTask:
    score = chosen.row
    assert isinstance(score, RunScore)
    return _task(
        chosen,
        requested,
        actor,
        query_run=score.query_run,
        collection_name=score.collection_name,
        judge=score.judge,
    )


def _task(chosen: TaskCandidate, requested: int, actor: services.Actor, **values: Any) -> ReviewTask:
    row = chosen.row
    return ReviewTask(
        question_text=row.question_text,
        answer=row.answer,
        context=row.context,
        answer_sentences=row.answer_sentences,
        judged=row.scores,
        reason=chosen.reason,
        priority=chosen.priority,
        wanted=requested,
        created_by=name_actor(actor),
        **values,
    )


def _between(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from 1 to {most}, not {value!r}", field=name)


def waiting_for(reviewer: str) -> Q:
    """Tasks that this person can judge: open, and not judged by them."""
    return Q(state=ReviewTask.State.OPEN) & ~Q(reviews__reviewer_name=reviewer)
