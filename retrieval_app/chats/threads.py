"""What is done with threads: a question is added or replaced, a thread is renamed, shared, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from collections_app.services.governance import audit
from ragd.errors import InvalidInput
from ragd.normalization import normalize
from retrieval_app.models import ChatMessage, ChatThread, QueryRun
from retrieval_app.models.chats import TITLE_CHARS_MAX


@transaction.atomic
def add_message(
    thread: ChatThread,
    question: str,
    run: QueryRun,
    *,
    replaces: ChatMessage | None = None,
    writing_until: datetime | None = None,
) -> ChatMessage:
    """The question at the end of the thread, which is stored with its first one; the run need not be stored yet.

    The thread's `rewrites` is stored with it.

    replaces: a message of the thread; it and those after it go, and the question stands in its place. writing_until: as
    `ChatMessage` has it.
    """
    if thread._state.adding:
        thread.title = _title_of(question)
        thread.save(force_insert=True)
    locked = ChatThread.objects.select_for_update().get(pk=thread.pk)
    locked.rewrites = thread.rewrites
    if replaces is not None:
        locked.messages.filter(position__gte=replaces.position).delete()
        if not locked.messages.exists() and locked.title == _title_of(replaces.question):
            locked.title = _title_of(question)
    last = locked.messages.aggregate(last=Max("position"))["last"]
    message = ChatMessage.objects.create(
        thread=locked,
        position=0 if last is None else last + 1,
        question=normalize(question).strip(),
        run_id=run.pk,
        writing_until=writing_until,
    )
    locked.collection_ids = sorted({*locked.collection_ids, *collections_of(run)})
    locked.updated_at = timezone.now()
    locked.save(update_fields=["title", "rewrites", "collection_ids", "updated_at"])
    return message


def collections_of(run: QueryRun) -> Sequence[int]:
    """The ids of the collections that the run searched."""
    own = [run.collection_id] if run.collection_id else []
    return [*own, *(int(pk) for pk in run.elsewhere)]


def rename(thread: ChatThread, title: str) -> None:
    """Raises InvalidInput for an empty title, or one that is too long."""
    title = " ".join(normalize(title).split())
    if not title:
        raise InvalidInput("title must hold at least one visible character; it is empty", field="title")
    if len(title) > TITLE_CHARS_MAX:
        raise InvalidInput(f"title may have {TITLE_CHARS_MAX} characters; this has {len(title)}", field="title")
    ChatThread.objects.filter(pk=thread.pk).update(title=title)


@transaction.atomic
def share(thread: ChatThread, *, shared: bool, actor: audit.Actor) -> None:
    """Let those who may read all its collections read the thread, or nobody but its owner again."""
    if thread.shared == shared:
        return
    ChatThread.objects.filter(pk=thread.pk).update(shared=shared)
    verb = "shared a thread" if shared else "stopped sharing a thread"
    audit.record(
        actor, [thread], audit.CHANGE, verb, action="thread.share", before={"shared": not shared},
        after={"shared": shared, "collection_ids": thread.collection_ids},
    )  # fmt: skip


@transaction.atomic
def delete(thread: ChatThread, *, actor: audit.Actor) -> None:
    """The thread and its messages; the query runs stay until their retention ends."""
    audit.record(actor, [thread], audit.DELETION, "deleted a thread", action="thread.delete")
    thread.delete()


def _title_of(question: str) -> str:
    text = " ".join(normalize(question).split())
    return text if len(text) <= TITLE_CHARS_MAX else f"{text[: TITLE_CHARS_MAX - 1]}…"
