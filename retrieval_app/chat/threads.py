"""What is done with threads: questions are added or replaced, made whole, and threads renamed, shared, deleted.

An answer while it is written: its message says that a process is at it, and a person can stop it from any page.

A thread as a file: Markdown to read, JSON for programs.

The earlier turns of a conversation are given to a chat model as it reads them.

Files that are dropped into the chat: into the chosen collection, or into the person's own *My files*.

A file of a thread is a document of *My files* whose access list holds the thread alone. Its id begins with the thread.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import Exists, Max, OuterRef, Q
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext

from collections_app.access.context import PERSONAL, Access, current_access, set_access, system_access, using_access
from collections_app.access.limits import count_tokens
from collections_app.access.permissions import Permission, Role, thread_principal
from collections_app.access.services import access_of_user
from collections_app.audit import services
from collections_app.chunks.finding_scan import policy_of
from collections_app.collections.services import create_collection, get_collection
from collections_app.endpoints.endpoints import chat_endpoint
from collections_app.errors import ServiceError
from collections_app.http.form_fields import FilesField
from collections_app.index.stores import embedder_for
from collections_app.jobs.batches import BatchProgress, batch_jobs, batch_progress
from collections_app.models import Collection, Document, IngestBatch, IngestJob, RoleGrant
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.services import UploadOutcome, close_batch, find_batch, open_batch, submit_uploads
from ragd.errors import InvalidInput
from ragd.normalization import normalize
from ragd.types import RetrievePlan
from retrieval_app.answers.question import QUESTION_CHARS_MAX, rewrite
from retrieval_app.chat.models import TITLE_CHARS_MAX
from retrieval_app.llm.chat_model import ChatModel, Endpoint, ModelParameters, call_model, stops_with
from retrieval_app.models import ChatMessage, ChatThread, QueryRun
from retrieval_app.search.query_pipeline import THREAD, Beside


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


HISTORY_CHARS_MAX = 20_000


def fit_history(history: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The latest turns that have at most HISTORY_CHARS_MAX characters together, in their order."""
    selected: list[dict[str, str]] = []
    chars = 0
    for turn in reversed(history):
        chars += len(turn["content"])
        if chars > HISTORY_CHARS_MAX:
            break
        selected.append(turn)
    return selected[::-1]


def turns_of(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    """[{"role", "content"}] of the messages that were answered, the latest as far as they fit."""
    turns = []
    for message in messages:
        if message.run is not None and message.run.status == QueryRun.Status.OK and message.run.answer:
            turns.append({"role": "user", "content": message.question})
            turns.append({"role": "assistant", "content": message.run.answer})
    return fit_history(turns)


TIMEOUT_S = 15.0
TOKENS_MAX = 200
TURNS_READ = 6
READABLE = (QueryRun.Status.OK, QueryRun.Status.ABSTAINED)
_WORDS = tomllib.loads(Path(__file__).with_name("follow_ups.toml").read_text(encoding="utf-8"))
INSTRUCTIONS, REQUEST = _WORDS["instructions"], _WORDS["request"]


def make_whole(question: str, earlier: Sequence[ChatMessage], collection: Collection) -> str:
    """The question as it is searched for. Unchanged without earlier messages.

    Where the collection's guardrails act, no model reads the question before they have.
    """
    if not earlier or len(question) > QUESTION_CHARS_MAX:
        return question
    if not policy_of(collection).acts and (written := _ask_model(question, earlier, collection)):
        return written
    return rewrite(
        question, [message.run.query for message in earlier if message.run and message.run.status in READABLE]
    )


def _ask_model(question: str, earlier: Sequence[ChatMessage], collection: Collection) -> str:
    """ "" where no model is set up, or where it fails or writes something else than a question."""
    found = chat_endpoint()
    if found is None:
        return ""
    turns = turns_of(earlier)[-TURNS_READ:]
    request = REQUEST.format(turns="\n".join(f"{turn['role']}: {turn['content']}" for turn in turns), question=question)
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": request}]
    embedder = embedder_for(collection.embed_model, collection.embed_dims)
    endpoint = Endpoint.of(found, timeout_s=min(TIMEOUT_S, settings.RAGD_LLM_TIMEOUT_S), max_tokens=TOKENS_MAX)
    try:
        answer = call_model(
            ChatModel(endpoint, found.model_for(""), embedder),
            messages,
            estimated=embedder.count_tokens(request),
            parameters=ModelParameters(),
        )
    except ServiceError as error:
        log.warning("a follow-up question is searched for with the question before it: %s", error.message)
        return ""
    count_tokens(answer.usage.context_tokens + answer.usage.generation_tokens)
    text = answer.completion.text.strip().strip('"“”„')
    return text if text and "\n" not in text and len(text) <= QUESTION_CHARS_MAX else ""


CARDS = 12
PATIENCE_S, POLL_S = 20.0, 0.25


class FilesForm(forms.Form):
    uploads = FilesField()


@dataclass(frozen=True, slots=True)
class DroppedFiles:
    """What one drop brought. jobs: those that need attention first, at most `CARDS`. refused: what made no job."""

    collection: Collection
    progress: BatchProgress
    jobs: list[IngestJob]
    refused: list[UploadOutcome]
    thread: ChatThread | None = None

    @property
    def address(self) -> str:
        """Of the thread, or a new one that asks the collection; it shows the files."""
        query = urlencode({"collection": self.collection.name, "batch": str(self.progress.batch.pk)})
        return f"{self.thread.get_absolute_url() if self.thread else reverse('retrieval:chat')}?{query}"


def may_add_files(collections: Sequence[Collection]) -> bool:
    """Whether a drop has somewhere to go."""
    access = current_access()
    own = access.may_make_collections or settings.RAGD_OWN_FILES_MB > 0
    return own or any(access.may(Permission.WRITE, each.pk) for each in collections)


def personal_name(user: Any) -> str:
    """Of the person's own collection. Nobody else can guess it, and so have it first and read what is dropped."""
    return f"{PERSONAL}{user.pk}-{sha256(user.date_joined.isoformat().encode()).hexdigest()[:12]}"


def find_target(user: Any, writable: Sequence[Collection]) -> Collection:
    """The one of these; else the person's own collection, made where it is missing. Raises Forbidden where they may not
    make one, and those who may only ask may add no files either."""
    if len(writable) == 1:
        return writable[0]
    name = personal_name(user)
    if found := Collection.objects.live().filter(name=name).first():
        return found
    try:
        if current_access().may_make_collections or not settings.RAGD_OWN_FILES_MB:
            return create_collection(name=name, title=gettext("My files"), actor=user)
        with system_access():
            own_files = create_collection(name=name, title=gettext("My files"))
            RoleGrant.objects.create(user=user, collection_id=own_files.pk, role=Role.CURATOR)
        return own_files
    except ServiceError as error:
        if error.type != "name_taken":
            raise
    return get_collection(name)  # another drop made it meanwhile


def find_drop(name: str, batch_id: str, thread: ChatThread | None = None) -> DroppedFiles | None:
    """None without a batch, and for one that is not of the collection, or that may not be read."""
    collection = Collection.objects.live().filter(name=name).first() if batch_id else None
    try:
        return _describe(find_batch(collection, batch_id), thread=thread) if collection else None
    except ServiceError:
        return None


def add_files(user: Any, names: Sequence[str], files: Sequence[Any], thread: ChatThread | None = None) -> DroppedFiles:
    """Files into the collection of these names where it is one in which they may write, else into their own: as files
    of the thread, where there is one.

    Raises what `find_target` and `submit_uploads` raise, and ServiceError 413 beyond RAGD_OWN_FILES_MB.
    """
    writable = _writable(names)
    collection = find_target(user, writable)
    thread = None if writable else thread
    with using_access(access_of_user(user) if collection.is_personal else current_access()):  # it may be new
        if thread is None:
            outcomes = submit_uploads(collection, files, actor=user)
            batch = outcomes[0].batch
            assert batch is not None  # all are of the one that was opened for them
        else:
            batch, outcomes = _add_to_thread(collection, thread, files, user)
        batch.collection = collection
        return _describe(batch, [each for each in outcomes if each.job is None], thread)


def _add_to_thread(
    collection: Collection, thread: ChatThread, files: Sequence[Any], user: Any
) -> tuple[IngestBatch, list[UploadOutcome]]:
    set_access(current_access().of_thread(thread.pk))
    options = IngestOptions(access=(thread_principal(thread.pk),), metadata={THREAD: str(thread.pk)})
    with transaction.atomic():
        ChatThread.objects.filter(pk=thread.pk).update(has_files=True)
        batch = open_batch(collection, actor=user)  # without a label: that would name the file to others
        doc_ids = [f"{folder_of_thread(thread)}{file.name}" for file in files]
        outcomes = submit_uploads(collection, files, options, doc_ids=doc_ids, batch=batch, actor=user)
        close_batch(batch)
    return batch, outcomes


def folder_of_thread(thread: ChatThread) -> str:
    """What the ids of its files begin with."""
    return f"{THREAD}-{thread.pk}/"


def files_of_thread(thread: ChatThread | None) -> list[Document]:
    """Those that were read, by id; as whoever has the thread's access."""
    if thread is None or not thread.has_files:
        return []
    rows = Document.objects.listed().filter(collection__name__startswith=PERSONAL).in_folder(folder_of_thread(thread))
    return list(rows.select_related("collection").by_doc_id())


def search_files(thread: ChatThread, collections: Sequence[Collection], plan: RetrievePlan) -> list[Beside]:
    """The files of a thread as a collection that is searched beside these, which may hold them already."""
    own = {each.collection_id: each.collection for each in files_of_thread(thread)}
    only = replace(plan, filters=replace(plan.filters, metadata={**plan.filters.metadata, THREAD: str(thread.pk)}))
    return [Beside(collection, only) for pk, collection in own.items() if pk not in {each.pk for each in collections}]


def wait_for_files(thread: ChatThread, collections: Sequence[Collection], tell: Callable[[], None]) -> None:
    """Wait, at most `PATIENCE_S`, while files of the thread are read, and for the first of what its owner added to the
    collections. Calls `tell` where that takes time. Raises ServiceError 409 if there is no document to ask then."""
    until = time.monotonic() + PATIENCE_S
    if not _is_reading(thread, collections):
        return
    tell()
    while (reading := _is_reading(thread, collections)) and time.monotonic() < until:
        time.sleep(POLL_S)
    if reading and not Document.objects.filter(collection__in=collections).exists():
        message = gettext("Your files are still being read. Ask again in a moment.")
        raise ServiceError(message, type="files_being_read", status=409)


def _is_reading(thread: ChatThread, collections: Sequence[Collection]) -> bool:
    """Whether files are being read that the owner of the thread is likely to ask: any of the thread, and those of an
    upload of which nothing is ready yet."""
    jobs = IngestJob.objects.active()
    if thread.has_files and jobs.filter(doc_id__startswith=folder_of_thread(thread)).exists():
        return True
    ready = IngestJob.objects.filter(batch=OuterRef("batch"), state="succeeded")
    own = jobs.filter(collection__in=collections, batch__created_by=thread.user.get_username())
    return bool(own.exclude(Exists(ready)).exists())


def _describe(
    batch: IngestBatch, refused: Sequence[UploadOutcome] = (), thread: ChatThread | None = None
) -> DroppedFiles:
    (progress,) = batch_progress([batch])
    return DroppedFiles(batch.collection, progress, list(batch_jobs(batch)[:CARDS]), list(refused), thread)


def _writable(names: Sequence[str]) -> list[Collection]:
    access = current_access()
    chosen = Collection.objects.live().filter(name__in=[name for name in names if "\x00" not in name])
    return [each for each in chosen if access.may(Permission.WRITE, each.pk)]
