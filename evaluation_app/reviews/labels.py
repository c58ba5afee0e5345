"""What people say of an answer, and the queue as the pages see it: what is next, what is skipped or excluded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Count, Q
from django.utils.translation import gettext_noop

from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.errors import ServiceError
from evaluation_app.models import Review, ReviewTask
from evaluation_app.reviews.queue import waiting_for
from ragd.errors import InvalidInput

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
