"""What people say of answers: the queue of answers to judge, their labels, and the feedback of who asked.

It is kept as reviews are, in a task of its own with the reason "feedback". Who gives feedback chose the answer, so it
stands for that answer alone: anchored scores leave it out. It goes when its run goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext_noop

from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.chunks.finding_scan import SecurityPolicy, policy_of
from collections_app.collections.models import name_actor
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.models import ApiKey
from evaluation_app.measures.scores import key_answer, key_documents
from evaluation_app.models import EvaluationItem, EvaluationRun, Review, ReviewTask, RunScore
from evaluation_app.scoring.contributions import RunCase, sentences_of
from evaluation_app.scoring.modes import mode_title
from ragd.errors import InvalidInput
from ragd.normalization import normalize
from retrieval_app.models import QueryRun

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
        services.record(
            actor, [run], services.CHANGE, f"queued {counted(len(made), 'answer')} of {run} for review ({which})"
        )
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
        chosen, requested, actor, query_run=score.query_run, collection_name=score.collection_name, judge=score.judge
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


CANNOT_TELL = gettext_noop("cannot tell")
LEVELS: tuple[tuple[float, str], ...] = (
    (0.0, gettext_noop("not at all")),
    (0.25, gettext_noop("a little")),
    (0.5, gettext_noop("half")),
    (0.75, gettext_noop("mostly")),
    (1.0, gettext_noop("fully")),
)
CORRECT: tuple[tuple[float, str], ...] = (
    (1.0, gettext_noop("yes")),
    (0.5, gettext_noop("in part")),
    (0.0, gettext_noop("no")),
)
YES_NO: tuple[tuple[float, str], ...] = ((1.0, gettext_noop("yes")), (0.0, gettext_noop("no")))
State = ReviewTask.State
NOTE_CHARS_MAX = 4000


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """One question to the person, to be translated where it is shown. choices: (value, word)."""

    measure: str
    question: str
    choices: tuple[tuple[float, str], ...]


LABEL_REQUESTS: tuple[LabelRequest, ...] = (
    LabelRequest("correctness", gettext_noop("Is the answer correct?"), CORRECT),
    LabelRequest("adherence", gettext_noop("Is the whole answer supported by the context?"), YES_NO),
    LabelRequest("answer_relevance", gettext_noop("How well does the answer address the question?"), LEVELS),
    LabelRequest("completeness", gettext_noop("How much of the relevant context is in the answer?"), LEVELS),
    LabelRequest("context_relevance", gettext_noop("How much of the context is relevant to the question?"), LEVELS),
    LabelRequest("context_utilization", gettext_noop("How much of the context does the answer use?"), LEVELS),
)
DERIVED = "faithfulness"  # follows from the sentences that are marked
MEASURES = (*(item.measure for item in LABEL_REQUESTS), DERIVED)
TWO_VALUED = frozenset(item.measure for item in LABEL_REQUESTS if item.choices is YES_NO)


def read_verdicts(values: Mapping[str, object]) -> dict[str, float | None]:
    """measure -> a value of its choices, or None for "cannot tell". What was not answered is left out.

    Raises InvalidInput (field: the measure) for anything else.
    """
    if unknown := sorted(set(values) - {item.measure for item in LABEL_REQUESTS}):
        raise InvalidInput(
            f"{unknown[0]!r} is not asked; asked are {', '.join(item.measure for item in LABEL_REQUESTS)}",
            field=unknown[0],
        )
    return {item.measure: _read(item, values[item.measure]) for item in LABEL_REQUESTS if item.measure in values}


def with_faithfulness(
    verdicts: Mapping[str, float | None], unsupported: Sequence[str], sentences: Sequence[Sequence[str]]
) -> dict[str, float | None]:
    """The verdicts with the share of sentences that are not marked as unsupported.

    Without a mark and without a yes to adherence the sentences were not judged one by one: None.
    """
    total = len(sentences)
    details = bool(unsupported) or verdicts.get("adherence") == 1.0
    return {**verdicts, DERIVED: 1 - len(unsupported) / total if details and total else None}


def check_sentences(unsupported: Sequence[str], sentences: Sequence[Sequence[str]]) -> list[str]:
    """The keys, each once, in the answer's order. Raises InvalidInput (field unsupported) for one that it lacks."""
    known = [str(pair[0]) for pair in sentences]
    if strange := sorted(set(unsupported) - set(known)):
        raise InvalidInput(
            f"unsupported names {strange[0]!r}, and the answer's sentences are {', '.join(known) or 'none'}",
            field="unsupported",
        )
    return [key for key in known if key in set(unsupported)]


def format_value(measure: str, value: Any) -> str:
    """A verdict in words."""
    if value is None:
        return CANNOT_TELL
    label = next((item for item in LABEL_REQUESTS if item.measure == measure), None)
    words = dict(label.choices) if label else {}
    return words.get(value, f"{value:.2f}")


def _read(item: LabelRequest, value: object) -> float | None:
    if value is None:
        return None
    allowed = [number for number, _ in item.choices]
    if isinstance(value, bool) or not isinstance(value, int | float) or float(value) not in allowed:
        raise InvalidInput(
            f"{item.measure} must be one of {', '.join(f'{number:g}' for number in allowed)}, or none for "
            f"{CANNOT_TELL!r}, not {value!r}",
            field=item.measure,
        )
    return float(value)


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Tasks by state; feedback: those that were never in the queue. waiting: open ones that this person has not judged.
    mine: reviews of theirs."""

    open: int
    done: int
    skipped: int
    feedback: int
    waiting: int
    mine: int


def count_queue(reviewer: str) -> QueueCounts:
    is_feedback = Q(reason=ReviewTask.FEEDBACK)
    states = {state.value: Count("pk", filter=Q(state=state) & ~is_feedback) for state in State}
    counts = ReviewTask.objects.aggregate(**states, feedback=Count("pk", filter=is_feedback))
    waiting = ReviewTask.objects.filter(waiting_for(reviewer)).count()
    own = Review.objects.filter(reviewer_name=reviewer).exclude(task__reason=ReviewTask.FEEDBACK)
    return QueueCounts(**counts, waiting=waiting, mine=own.count())


def next_task(reviewer: str, later: Collection[int] = ()) -> ReviewTask | None:
    """The first by priority that this person has not judged; those of `later` only when there is no other."""
    rows = ReviewTask.objects.filter(waiting_for(reviewer))
    return rows.exclude(pk__in=later).first() or rows.filter(pk__in=later).first()


@transaction.atomic
def review(
    task: ReviewTask,
    verdicts: Mapping[str, object],
    *,
    unsupported: Sequence[str] = (),
    note: str = "",
    actor: AbstractBaseUser,
) -> Review:
    """What this person says. The task is done when as many as are wanted have judged it.

    Raises InvalidInput for wrong verdicts, for none at all, for marked sentences beside a yes to adherence;
    ServiceError 409 "already_reviewed": a person judges a task once, because then they have seen what the judge said.
    """
    require_in(Permission.EVALUATE, task.collection_name)
    locked = ReviewTask.objects.select_for_update().get(pk=task.pk)
    read = read_verdicts(verdicts)
    marked = check_sentences(unsupported, locked.answer_sentences)
    if not read and not marked:
        raise InvalidInput(
            "a review needs at least one verdict, or a marked sentence; nothing was said", field="verdicts"
        )
    if marked and read.get("adherence") == 1.0:
        raise InvalidInput(
            f"adherence is yes, and {len(marked)} of the answer's sentences are marked as unsupported; change one",
            field="adherence",
        )
    if len(note) > NOTE_CHARS_MAX:
        raise InvalidInput(f"note may have {NOTE_CHARS_MAX} characters; this has {len(note)}", field="note")
    if locked.reviews.filter(reviewer_name=actor.get_username()).exists():
        raise ServiceError(
            "you have judged this answer already, and a verdict is not changed once the judge's is seen",
            type="already_reviewed",
        )
    made = Review.objects.create(
        task=locked,
        reviewer_id=actor.pk,
        reviewer_name=actor.get_username(),
        verdicts=with_faithfulness(read, marked, locked.answer_sentences),
        unsupported=marked,
        note=note.strip(),
    )
    if locked.state == State.OPEN and locked.reviews.count() >= locked.wanted:
        locked.state = State.DONE
        locked.save(update_fields=["state"])
    services.record(actor, [locked], services.CHANGE, "judged an answer")
    return made


@transaction.atomic
def set_aside(task: ReviewTask, *, actor: services.Actor, back: bool = False) -> ReviewTask:
    """Nobody is asked about it any more; back: they are again. What was said of it stays."""
    require_in(Permission.EVALUATE, task.collection_name)
    locked = ReviewTask.objects.select_for_update().get(pk=task.pk)
    if back:
        locked.state = State.DONE if locked.reviews.count() >= locked.wanted else State.OPEN
    else:
        locked.state = State.SKIPPED
    locked.save(update_fields=["state"])
    verb = "took back" if back else "excluded"
    services.record(actor, [locked], services.CHANGE, f"{verb} a review")
    return locked


CORRECTION_CHARS_MAX = 20_000
USER_CHARS_MAX = 200
ANSWERED = ("answered", "abstained")


@transaction.atomic
def give_feedback(
    run: QueryRun,
    *,
    correct: bool | None = None,
    comment: str = "",
    correction: str = "",
    reason: str = "",
    user: str = "",
    actor: services.Actor,
) -> Review:
    """What the actor says of the answer of a run, in place of what they said of it before.

    correction: the right answer, as a person writes it. reason: of `Review.Reason`, what is wrong.
    user: whom a key speaks for, "" for itself. Raises InvalidInput where nothing is said or a text is too long;
    ServiceError 409 "not_answered" for a search, a failed run, or one that guardrails blocked.
    """
    comment, correction, user = (normalize(text).strip() for text in (comment, correction, user))
    if correct is None and not comment and not correction and not reason:
        raise InvalidInput("feedback needs correct, a comment or a correction; nothing was said", field="correct")
    if reason and (reason not in Review.Reason.values or correct):
        raise InvalidInput(
            f"reason must be one of {', '.join(Review.Reason.values)} and goes with an answer that is not correct;"
            f" it is {reason!r}",
            field="reason",
        )
    limits = (("comment", comment, NOTE_CHARS_MAX), ("correction", correction, CORRECTION_CHARS_MAX),
              ("user", user, USER_CHARS_MAX))  # fmt: skip
    for name, text, most in limits:
        if len(text) > most:
            raise InvalidInput(f"{name} may have {most:,} characters; this has {len(text):,}", field=name)
    locked = QueryRun.objects.select_for_update(of=("self",)).select_related("collection").get(pk=run.pk)
    task = ReviewTask.objects.filter(query_run=run.pk, item=None, reason=ReviewTask.FEEDBACK).first() or _open_task(
        locked
    )
    name = f"{name_actor(actor)}, {user}" if user else name_actor(actor)
    stored, _ = Review.objects.update_or_create(
        task=task,
        reviewer_name=name,
        defaults={
            "reviewer_id": None if actor is None or isinstance(actor, ApiKey) else actor.pk,
            "verdicts": {} if correct is None else {"correctness": float(correct)},
            "note": comment,
            "correction": correction,
            "reason": reason,
        },
    )
    services.record(actor, [task], services.CHANGE, "gave feedback on an answer")
    return stored


def feedback_of(run: UUID) -> Sequence[Review]:
    """All feedback on the run's answer, the newest first."""
    rows = Review.objects.filter(task__query_run=run, task__reason=ReviewTask.FEEDBACK)
    return list(rows.order_by("-created_at", "-id"))


def _open_task(run: QueryRun) -> ReviewTask:
    case = RunCase.of(run, policy_of(run.collection) if run.collection else SecurityPolicy())
    if case.outcome not in ANSWERED:
        raise ServiceError(
            f"the run {run.pk} has no answer to give feedback on; choose one that was answered", type="not_answered"
        )
    passages = zip(case.keys, key_documents(case.texts), strict=True)
    return ReviewTask.objects.create(
        query_run=run.pk,
        collection_name=run.collection_name,
        question_text=case.question,
        answer=case.answer,
        context=[{"key": key, "sentences": sentences_of(sentences)} for key, sentences in passages],
        answer_sentences=sentences_of(key_answer(case.answer)),
        reason=ReviewTask.FEEDBACK,
        state=ReviewTask.State.DONE,
    )
