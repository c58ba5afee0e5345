"""What is done with threads: a question is added or replaced, a thread is renamed, shared, deleted.

An answer while it is written: its message says that a process is at it, and a person can stop it from any page.

A thread as a file: Markdown to read, JSON for programs.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import Max, Q
from django.utils import timezone

from collections_app.access.context import Access, system_access
from collections_app.audit import services
from ragd.errors import InvalidInput
from ragd.normalization import normalize
from retrieval_app.chat.models import TITLE_CHARS_MAX
from retrieval_app.llm.chat_completion import stops_with
from retrieval_app.models import ChatMessage, ChatThread, QueryRun


@transaction.atomic
def add_message(
    thread: ChatThread,
    question: str,
    run: QueryRun,
    *,
    replaces: ChatMessage | None = None,
    writing_until: datetime | None = None,
    other_run_id: UUID | None = None,
) -> ChatMessage:
    """The question at the end of the thread, which is stored with its first one; the run need not be stored yet.

    The thread's `rewrites` is stored with it.

    replaces: a message of the thread; it and those after it go, and the question stands in its place. writing_until,
    other_run_id: as `ChatMessage` has them.
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
        other_run_id=other_run_id,
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
def share(thread: ChatThread, *, shared: bool, actor: services.Actor) -> None:
    """Let those who may read all its collections read the thread, or nobody but its owner again."""
    if thread.shared == shared:
        return
    ChatThread.objects.filter(pk=thread.pk).update(shared=shared)
    verb = "shared a thread" if shared else "stopped sharing a thread"
    after = {"shared": shared, "collection_ids": thread.collection_ids}
    services.record(actor, [thread], "thread.share", verb, before={"shared": not shared}, after=after)


@transaction.atomic
def delete(thread: ChatThread, *, actor: services.Actor) -> None:
    """The thread and its messages; the query runs stay until their retention ends."""
    services.record(actor, [thread], "thread.delete", "deleted a thread")
    thread.delete()


def _title_of(question: str) -> str:
    text = " ".join(normalize(question).split())
    return text if len(text) <= TITLE_CHARS_MAX else f"{text[: TITLE_CHARS_MAX - 1]}…"


log = logging.getLogger(__name__)

BEAT_S = 1.0
LEASE = timedelta(seconds=20)  # a message that nobody has put off for so long belongs to a process that ended


class Writing:
    """The writing of one answer. stopped: set once a person asked to end it.

    It goes on when its reader leaves. Between two beats it holds no connection to the database.
    """

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._ended = threading.Event()
        self._beat: threading.Thread | None = None
        self._message: ChatMessage | None = None

    def begin(self, message: ChatMessage) -> None:
        """Put the message off until `held` ends. Its `writing_until` is stored with it."""
        self._message = message
        self._beat = threading.Thread(target=self._run, name="ragd-writing", daemon=True)
        self._beat.start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around the work. A chat model that is asked in it stops where a person asked for that."""
        try:
            with stops_with(self.stopped):
                yield
        finally:
            self._ended.set()
            if self._beat is not None and self._message is not None:
                self._beat.join()
                with system_access():
                    ChatMessage.objects.filter(pk=self._message.pk).update(writing_until=None)

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self._put_off()
            except (DatabaseError, InterfaceError):
                log.warning("an answer is written and its message could not be put off", exc_info=True)
            finally:
                connection.close()

    def _put_off(self) -> None:
        assert self._message is not None
        with system_access():
            rows = ChatMessage.objects.filter(pk=self._message.pk)
            rows.update(writing_until=timezone.now() + LEASE)
            if rows.filter(stop_requested=True).exists():
                self.stopped.set()


def with_files(access: Access, ids: Sequence[str]) -> Access:
    """The access with the files of the person's own thread that is one of these UUIDs, or whose message's run is."""
    of_runs = ChatMessage.objects.filter(Q(run_id__in=ids) | Q(other_run_id__in=ids)).values("thread_id")
    rows = ChatThread.objects.filter(Q(pk__in=ids) | Q(pk__in=of_runs), user_id=access.user_id or 0, has_files=True)
    with system_access():
        pk = rows.values_list("pk", flat=True).first()
    return access.of_thread(pk) if pk else access


def keep_answer(thread: ChatThread, run_id: UUID | None) -> ChatMessage | None:
    """Go on from one of two answers; the other one stays a query run. None where no answer is of that run."""
    rows = thread.messages.exclude(other_run_id=None).filter(Q(run_id=run_id) | Q(other_run_id=run_id))
    message = rows.first()
    rows.update(run_id=run_id, other_run_id=None)
    return message


def request_stop(message: ChatMessage) -> None:
    """End its answer where it is, within about a second, whichever process writes it."""
    ChatMessage.objects.filter(pk=message.pk).update(stop_requested=True)


def as_markdown(thread: ChatThread, messages: Sequence[ChatMessage]) -> str:
    """The title as a heading, then each question as one, its answer and its cited sources as a numbered list."""
    parts = [f"# {thread.title}\n"]
    for message in messages:
        parts.append(f"## {' '.join(message.question.split())}\n")
        run = message.run
        if run is None:
            continue
        parts.append(f"{run.answer if run.answer is not None else run.error}\n")
        if (other := message.other_run) is not None:
            parts.append(f"### {other.answerer}\n\n{other.answer if other.answer is not None else other.error}\n")
        cited = [source for source in run.sources if source["cited"]]
        if cited:
            parts.append("\n".join(f"{source['marker']}. {name_source(source)}" for source in cited) + "\n")
    return "\n".join(parts)


def as_json(thread: ChatThread, messages: Sequence[ChatMessage]) -> str:
    """{"id", "title", "created_at", "messages": [{"question", "query", "answer", "status", "citations", ...}]}."""
    body = {
        "id": str(thread.pk),
        "title": thread.title,
        "created_at": thread.created_at.isoformat(),
        "messages": [describe_message(message) for message in messages],
    }
    return json.dumps(body, ensure_ascii=False, indent=2) + "\n"


def describe_message(message: ChatMessage) -> dict[str, Any]:
    """A message with what its run says; only the question and the run's id where the run cannot be read."""
    run = message.run
    body: dict[str, Any] = {
        "question": message.question,
        "run_id": str(message.run_id),
        "created_at": message.created_at.isoformat(),
    }
    if message.other_run is not None:
        body["other"] = _describe_run(message.other_run)
    return body if run is None else body | _describe_run(run)


def _describe_run(run: QueryRun) -> dict[str, Any]:
    return {
        "query": run.query,
        "collection": run.collection_name,
        "status": run.status,
        "answer": run.answer,
        "answerer": run.answerer,
        "error": run.error,
        "citations": run.citations,
        "sources": run.sources,
    }


def name_source(source: dict[str, Any]) -> str:
    """Title, document ID and place of a source, in one line."""
    title, place = source.get("title") or "", source.get("place") or ""
    named = f"{title} ({source['doc_id']})" if title and title != source["doc_id"] else source["doc_id"]
    return f"{named}, {place}" if place else str(named)
