"""A question as the Chat page sends it: to which thread, in place of which message, and how it is answered."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from django.db import connections, transaction
from django.http import Http404, QueryDict
from django.utils import timezone

from collections_app.access.context import current_access, using_access
from collections_app.chunks.finding_scan import policy_of
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404, whole_number
from collections_app.models import Collection
from ragd.errors import RagdError
from retrieval_app.answers.chat_answerer import has_chat_model
from retrieval_app.chat.assistants import collections_of_assistant
from retrieval_app.chat.files import search_files, wait_for_files
from retrieval_app.chat.follow_ups import make_whole, turns_of
from retrieval_app.chat.threads import LEASE, Writing, add_message
from retrieval_app.models import ChatAssistant, ChatMessage, ChatThread, QueryRun
from retrieval_app.runs.forms import AskForm
from retrieval_app.search import query_pipeline
from retrieval_app.search.multi_collection import Beside
from retrieval_app.search.query_pipeline import QueryRequest

SEARCH = "search"
log = logging.getLogger(__name__)


@dataclass
class Question:
    """form: what was sent. thread: not stored before its first question has results. replaces: a message of it.

    rewrites: whether a follow-up question is made whole with the history.
    """

    form: AskForm
    thread: ChatThread
    replaces: ChatMessage | None
    is_search: bool
    rewrites: bool
    user: Any
    message: ChatMessage | None = None
    writing: Writing = field(default_factory=Writing)
    other_run_id: uuid.UUID | None = None

    def ask(self, listener: Listener) -> QueryRun:
        """Answer it, to its end or until a person stops it. Once there are results it is a message of the thread.
        Raises what `plans.choose_plan`, `query_pipeline.search` and `query_pipeline.ask` raise."""
        with using_access(current_access().of_thread(self.thread.pk)):
            return self._ask(listener)

    def _ask(self, listener: Listener) -> QueryRun:
        data = self.form.cleaned_data
        wait_for_files(self.thread, data["collection"], listener.reading_files)
        collection, chosen, beside = self.form.asked()
        if not data["as_of"]:
            beside += search_files(self.thread, data["collection"], chosen.plan)
        earlier = self.earlier()
        query = make_whole(data["query"], earlier, collection) if self.rewrites else data["query"]
        request = QueryRequest(
            collection, query, chosen.plan, QueryRun.Channel.PAGE, plan_name=chosen.name, user=self.user,
            as_of=data["as_of"], beside=beside, conversation_id=str(self.thread.pk),
            history=turns_of(earlier) if has_chat_model() else (), quotes_on_failure=True,
            **self._under(collection, beside),
        )  # fmt: skip
        if self.is_search:
            run = query_pipeline.search(request)
            self.keep(run)
            return run
        with self.writing.held():
            if not data["other_model"]:
                return query_pipeline.ask(request, listener=listener)
            self.other_run_id = uuid.uuid4()
            other = replace(request, run_id=self.other_run_id, llm_model=data["other_model"], system_prompt=None)
            with working_beside(partial(query_pipeline.ask, other, listener=listener.of_other())):
                return query_pipeline.ask(request, listener=listener)

    def _under(self, collection: Collection, beside: Sequence[Beside]) -> dict[str, Any]:
        """The model that was chosen, else the model and the instructions of the thread's assistant; {} without a chat
        model."""
        assistant, model = self.thread.assistant, self.form.cleaned_data["llm_model"]
        if not has_chat_model() or (assistant is None and not model):
            return {}
        if assistant is None or model:
            return {"llm_model": model}
        asked = {collection.pk, *(each.collection.pk for each in beside if not each.collection.is_personal)}
        if not asked <= set(assistant.collection_ids):  # who made it may write in these alone
            return {}
        return {"llm_model": assistant.llm_model or None, "system_prompt": assistant.prompt or None}

    def earlier(self) -> list[ChatMessage]:
        """The messages before it."""
        if self.thread._state.adding:
            return []
        rows = self.thread.messages.all()
        return (rows.filter(position__lt=self.replaces.position) if self.replaces else rows).with_runs()

    def keep(self, run: QueryRun) -> None:
        """Make it a message of the thread. What a collection hides of questions is hidden here too."""
        typed = self.form.cleaned_data["query"]
        for collection in self.form.cleaned_data["collection"]:
            typed = policy_of(collection).hide(typed)
        self.thread.rewrites = "as_typed" not in self.form.data
        until = None if self.is_search else timezone.now() + LEASE
        self.message = add_message(
            self.thread, typed, run, replaces=self.replaces, writing_until=until, other_run_id=self.other_run_id
        )
        if not self.is_search:
            self.writing.begin(self.message)


@contextmanager
def working_beside(work: Callable[[], object]) -> Iterator[None]:
    """Do the work in a thread of its own while the block runs, and wait for it. What fails in it is logged: its run
    says why. Inside a transaction, whose rows a thread would not see, it is done after the block."""

    def run() -> None:
        try:
            work()
        except (ServiceError, RagdError) as error:
            log.warning("the second answer failed: %s", error)

    if transaction.get_connection().in_atomic_block:
        yield
        return run()
    context = copy_context()

    def run_apart() -> None:
        context.run(run)
        connections.close_all()

    worker = threading.Thread(target=run_apart, name="ragd-second-answer")
    worker.start()
    try:
        yield
    finally:
        worker.join()


class Listener(query_pipeline.RunListener, Protocol):
    """Of a question that two models may answer."""

    def of_other(self) -> query_pipeline.RunListener | None:
        """Who is told of the second answer; None: nobody."""

    def reading_files(self) -> None:
        """The question waits for files that are being read."""


class Keeper(Listener):
    """Keeps the message, and is told of the answer by nobody."""

    def __init__(self, question: Question) -> None:
        self.question = question

    def of_other(self) -> None:
        """As `tell`."""

    def reading_files(self) -> None:
        """As `tell`."""

    def retrieved(self, run: QueryRun) -> None:
        self.question.keep(run)

    def tell(self, text: str) -> None:
        """The whole answer is shown in the end."""

    def cite(self, citation: Any) -> None:
        """As `tell`."""

    def restarted(self) -> None:
        """As `tell`."""


def read_question(request: PageRequest, collections: list[Collection], thread: ChatThread | None) -> Question:
    """edit: the message that the question replaces. retry: the message that is asked again as it is; literal: the same,
    searched for as it was typed. as_typed: so are all of the thread from now on. Http404 for a message that is not of
    the thread. thread None: a new one, with the `assistant` of that slug. starter: a question that was offered."""
    data: QueryDict = request.POST
    again = data.get("retry") or data.get("literal") or ""
    replaces = _message_of(thread, again or data.get("edit", ""))
    if again and replaces is not None:
        data = data.copy()
        data["query"] = replaces.question
    own = thread or ChatThread(user=request.user, assistant=find_assistant(data.get("assistant", "")))
    if data.get("starter"):
        data = data.copy()
        data["query"] = request.POST.get("starter", "")
    if own.assistant:
        data = data.copy()
        data.setlist("collection", [each.name for each in collections_of_assistant(own.assistant)])
    form = AskForm(data, collections=collections)
    rewrites = not (data.get("as_typed") or data.get("literal"))
    return Question(form, own, replaces, data.get("do") == SEARCH, rewrites, request.user)


def _message_of(thread: ChatThread | None, number: str) -> ChatMessage | None:
    if not number:
        return None
    pk = whole_number(number)
    if thread is None or pk is None:
        raise Http404("a message is named that is of no thread")
    message: ChatMessage = find_or_404(thread.messages.all(), pk=pk)
    return message


def find_assistant(slug: str) -> ChatAssistant | None:
    """None for "". Http404 for one in whose collections the asker may not ask."""
    if not slug:
        return None
    found: ChatAssistant = find_or_404(ChatAssistant.objects.offered(), slug=slug)
    return found


def find_thread(request: PageRequest, thread_id: str | uuid.UUID) -> ChatThread:
    """The asker's own thread, or Http404."""
    try:
        requested = uuid.UUID(str(thread_id))
    except ValueError:
        raise Http404("no thread has this id") from None
    return find_or_404(ChatThread.objects.of(request.user), pk=requested)
