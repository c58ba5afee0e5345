"""What people who asked say of an answer: correct or not, why, and what the right answer is.

It is kept as reviews are, in a task of its own with the reason "feedback". Who gives feedback chose the answer, so it
stands for that answer alone: anchored scores leave it out. It goes when its run goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from collections_app.audit import services
from collections_app.chunks.finding_scan import SecurityPolicy, policy_of
from collections_app.collections.models import name_actor
from collections_app.errors import ServiceError
from collections_app.models import ApiKey
from evaluation_app.measures.trace import key_answer, key_documents
from evaluation_app.models import Review, ReviewTask
from evaluation_app.reviews.labels import NOTE_CHARS_MAX
from evaluation_app.scoring.cases import RunCase, sentences_of
from ragd.errors import InvalidInput
from ragd.normalization import normalize
from retrieval_app.models import QueryRun

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
