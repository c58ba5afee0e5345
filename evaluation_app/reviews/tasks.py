"""The queue as the pages see it: what is next, what somebody said of it, what is excluded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Count, Q

from collections_app.errors import ServiceError
from collections_app.services.governance import audit
from evaluation_app.models import Review, ReviewTask
from evaluation_app.reviews.labels import check_sentences, read_verdicts, with_faithfulness
from evaluation_app.reviews.queue import waiting_for
from ragd.errors import InvalidInput

State = ReviewTask.State
NOTE_CHARS_MAX = 4000


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """open, done, aside: tasks. waiting: open ones that this person has not judged. mine: reviews of theirs."""

    open: int
    done: int
    aside: int
    waiting: int
    mine: int


def count_queue(reviewer: str) -> QueueCounts:
    counts = ReviewTask.objects.aggregate(
        open=Count("pk", filter=Q(state=State.OPEN)),
        done=Count("pk", filter=Q(state=State.DONE)),
        aside=Count("pk", filter=Q(state=State.SKIPPED)),
    )
    waiting = ReviewTask.objects.filter(waiting_for(reviewer)).count()
    return QueueCounts(**counts, waiting=waiting, mine=Review.objects.filter(reviewer_name=reviewer).count())


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
    held = ReviewTask.objects.select_for_update().get(pk=task.pk)
    read = read_verdicts(verdicts)
    marked = check_sentences(unsupported, held.answer_sentences)
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
    if held.reviews.filter(reviewer_name=actor.get_username()).exists():
        raise ServiceError(
            "you have judged this answer already, and a verdict is not changed once the judge's is seen",
            type="already_reviewed",
            status=409,
        )
    made = Review.objects.create(
        task=held,
        reviewer_id=actor.pk,
        reviewer_name=actor.get_username(),
        verdicts=with_faithfulness(read, marked, held.answer_sentences),
        unsupported=marked,
        note=note.strip(),
    )
    if held.state == State.OPEN and held.reviews.count() >= held.wanted:
        held.state = State.DONE
        held.save(update_fields=["state"])
    audit.record(actor, [held], audit.CHANGE, f"judged the answer to {held.question_text[:80]!r}")
    return made


@transaction.atomic
def set_aside(task: ReviewTask, *, actor: audit.Actor, back: bool = False) -> ReviewTask:
    """Nobody is asked about it any more; back: they are again. What was said of it stays."""
    held = ReviewTask.objects.select_for_update().get(pk=task.pk)
    if back:
        held.state = State.DONE if held.reviews.count() >= held.wanted else State.OPEN
    else:
        held.state = State.SKIPPED
    held.save(update_fields=["state"])
    audit.record(
        actor, [held], audit.CHANGE, f"{'took back' if back else 'excluded'} a review of {held.question_text[:80]!r}"
    )
    return held
