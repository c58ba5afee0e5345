"""Threads of the chat: a new one, one with its messages, what is done with it, and a question to it."""

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
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.text import slugify
from django.utils.translation import gettext
from django_htmx.http import push_url, replace_url

from collections_app.access.context import current_access, set_access, using_access
from collections_app.access.people import name_administrators
from collections_app.access.rules import ASK, READ, needs
from collections_app.access.services import access_of_user
from collections_app.chunks.finding_scan import policy_of
from collections_app.documents.reading_views import read_passage
from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    is_part,
    read_uuid,
    refuse,
    render_page,
    tell,
    whole_number,
)
from collections_app.jobs.operations import arriving_collection
from collections_app.models import Collection, Operation
from ragd.errors import RagdError
from retrieval_app.answers.chat_answerer import has_chat_model
from retrieval_app.chat import threads
from retrieval_app.chat.assistants import askable, collections_of_assistant, find_starters, usual_collections
from retrieval_app.chat.threads import (
    DroppedFiles,
    FilesForm,
    add_files,
    files_of_thread,
    find_drop,
    may_add_files,
    search_files,
    wait_for_files,
)
from retrieval_app.llm.chat_model import ModelParameters
from retrieval_app.models import ChatAssistant, ChatMessage, ChatThread, QueryRun
from retrieval_app.runs.presenters import describe_run
from retrieval_app.runs.views import AskForm, initial_of
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import Beside, QueryRequest

SEARCH = "search"
log = logging.getLogger(__name__)


@dataclass
class Question:
    """form: what was sent. thread: not stored before its first question has results. replaces: a message of it.

    rewrites: whether a follow-up question is made whole with the history. repairs: whether a chat model corrects
    sentences without support.
    """

    form: AskForm
    thread: ChatThread
    replaces: ChatMessage | None
    is_search: bool
    rewrites: bool
    repairs: bool
    user: Any
    message: ChatMessage | None = None
    writing: threads.Writing = field(default_factory=threads.Writing)
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
        query = threads.make_whole(data["query"], earlier, collection) if self.rewrites else data["query"]
        request = QueryRequest(
            collection, query, chosen.plan, QueryRun.Channel.PAGE, plan_name=chosen.name, user=self.user,
            as_of=data["as_of"], beside=beside, conversation_id=str(self.thread.pk),
            history=threads.turns_of(earlier) if has_chat_model() else (), quotes_on_failure=True,
            parameters=ModelParameters(repair=(self.repairs and has_chat_model()) or None),
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
        until = None if self.is_search else timezone.now() + threads.LEASE
        self.message = threads.add_message(
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
    searched for as it was typed; repair: the same, with sentences without support corrected. as_typed: all of the
    thread is searched for as typed from now on. Http404 for a message that is not of the thread. thread None: a new
    one, with the `assistant` of that slug. starter: a question that was offered."""
    data: QueryDict = request.POST
    again = data.get("retry") or data.get("literal") or data.get("repair") or ""
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
    return Question(form, own, replaces, data.get("do") == SEARCH, rewrites, bool(data.get("repair")), request.user)


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
    # without an assistant that was deleted, or whose collections the asker may not read any more
    return find_or_404(ChatThread.objects.of(request.user).select_related("assistant"), pk=requested)


PARTS = {
    "chat": "retrieval/chat/chat.html",
    "starters": "retrieval/chat/starters.html",
    "threads": "retrieval/chat/around.html",
    "thread-list": "retrieval/chat/thread_list.html",
    "chat-files": "retrieval/chat/files.html",
}
CARDS = {"chat-jobs": "retrieval/chat/file_cards.html"}  # of files that are read, asked for every second
THREADS_LISTED = 50
ASSISTANTS_OFFERED = 12
EXPORTS = {"md": (threads.as_markdown, "text/markdown"), "json": (threads.as_json, "application/json")}


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message with what is shown of its run, and of that of a second model; {} where there is none."""

    message: ChatMessage
    shown: dict[str, Any]
    other: dict[str, Any] = field(default_factory=dict)


@needs(ASK, methods="GET POST")
def chat(request: PageRequest) -> HttpResponse:
    """A new thread. collection, q: what the form begins with. run: the thread of a run, else a form like its."""
    if is_part(request, CARDS) and (dropped := _dropped(request)):
        context = {"dropped": dropped, "starters": find_starters([dropped.collection])}
        return render_page(request, "retrieval/chat/page.html", context, parts=CARDS)
    collections = list(Collection.objects.live().by_name())
    if request.method == "POST":
        return _ask(request, collections, None)
    run = _run_of(request)
    if run and (message := ChatMessage.objects.filter(run_id=run.pk, thread__user=request.user).first()):
        return redirect(message)
    return show_part(request, describe_page(request, None, collections, run=run))


@needs(READ, ASK, methods="GET POST")
def thread(request: PageRequest, thread_id: uuid.UUID) -> HttpResponse:
    """One's own thread, or one that somebody shares. edit: the message whose question is to be replaced."""
    collections = list(Collection.objects.live().by_name())
    if request.method == "POST":
        own = find_thread(request, thread_id)
        if request.POST.get("keep"):
            message = threads.keep_answer(own, read_uuid(request.POST["keep"]))
            return redirect(message or own)
        return _ask(request, collections, own)
    found = find_or_404(ChatThread.objects.readable_by(request.user).select_related("user", "assistant"), pk=thread_id)
    if is_part(request, CARDS) and (drop := _dropped(request, found)):
        return render_page(request, "retrieval/chat/page.html", {"dropped": drop}, parts=CARDS)
    if request.GET.get("source"):
        return _show_source(request, found)
    return show_part(request, describe_page(request, found, collections))


def _show_source(request: PageRequest, thread: ChatThread) -> HttpResponse:
    """A place that an answer cites, as the panel shows it while the answer is written; leads to the stored run."""
    run_id = read_uuid(request.GET.get("run", ""))
    run = QueryRun.objects.filter(pk=run_id).first() if run_id else None
    place = (request.GET.get("doc_id"), request.GET.get("start"), request.GET.get("end"))
    for number, citation in enumerate(run.citations if run else (), 1):
        if (citation["doc_id"], str(citation["start"]), str(citation["end"])) == place:
            return redirect(f"{reverse('evaluation:query-run', args=[run_id])}?citation={number}")
    name, doc_id = request.GET["source"], request.GET.get("doc_id", "")
    first, last = (whole_number(each) or 0 for each in f"{request.GET.get('passage', '')}-".split("-")[:2])
    passage, index = read_passage(name, doc_id, request.GET, (first, last)), whole_number(request.GET.get("chunk")) or 0
    if passage is None:
        raise Http404("the document is not there, or it may not be read")
    row = {
        "title": passage.document.name,
        "result": {"doc_id": doc_id, "chunk_index": index},
        "chunk_href": reverse("collections:chunk", args=[name, index, doc_id]),
    }
    href = f"{reverse('collections:document', args=[name, doc_id])}?{request.GET.urlencode()}#cited"
    context = {"thread": thread, "evidence": {"row": row, "href": href, "passage": passage}}
    return render_page(request, "retrieval/chat/source.html", context)


@needs(ASK, methods="POST")
def drop_files(request: PageRequest) -> HttpResponse:
    """Files in, a card each out. Files of a `thread` are searched by its questions; else the next question asks the
    collection that they went into."""
    form, status, dropped = FilesForm(request.POST, request.FILES), 422, None
    thread = find_thread(request, request.POST["thread"]) if request.POST.get("thread") else None
    if form.is_valid():
        names, files = request.POST.getlist("collection"), form.cleaned_data["uploads"]
        try:
            dropped = add_files(request.user, names, files, thread)
        except (ServiceError, RagdError) as error:
            status = refuse(form, error)
        else:
            if not request.htmx:
                return redirect(dropped.address)
    if dropped and dropped.collection.is_personal:
        set_access(access_of_user(request.user))  # their collection may be new
    context = describe_page(request, thread, list(Collection.objects.live().by_name()))
    context |= {"files_form": form, "dropped": dropped}
    if dropped is None or thread:
        return show_part(request, context, status=200 if request.htmx else status)
    context["stated"] = True
    context["starters"] = find_starters([dropped.collection])
    context["form"] = AskForm(initial={"collection": [dropped.collection.name]}, collections=context["collections"])
    return replace_url(show_part(request, context), dropped.address)


def show_part(request: PageRequest, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    """The page or its part, at the thread's address."""
    response = render_page(request, "retrieval/chat/page.html", context, parts=PARTS, status=status)
    thread = context["thread"]
    if not thread or not is_part(request, ("chat", "threads")):
        return response
    address, current = thread.get_absolute_url(), request.htmx.current_url_abs_path or ""
    return response if current.partition("#")[0] == address else push_url(response, address)


def describe_page(
    request: PageRequest,
    thread: ChatThread | None,
    collections: Sequence[Collection],
    *,
    run: QueryRun | None = None,
    unstored: ChatMessage | None = None,
) -> dict[str, Any]:
    """What the page shows. run: whose question and settings the form begins with; None: those of the last message.

    unstored: a message whose run could not be stored, to be shown this once.
    """
    is_own = thread is None or thread.user_id == request.user.pk
    listed = [] if thread is None else thread.messages.all().with_runs()
    for message in listed:
        if unstored and message.pk == unstored.pk:
            message.run = unstored.run
    edited = _edited(request, listed) if is_own else None
    last = next((message.run for message in reversed(listed) if message.run), None)
    offered = askable(collections)
    unasked = [each.label for each in collections if each not in offered]
    initial = initial_of(run) if run else _initial(request, offered, last)
    if edited:
        initial["query"] = edited.question
    assistant = thread.assistant if thread else find_assistant(request.GET.get("assistant", ""))
    if assistant:
        initial["collection"] = [each.name for each in collections_of_assistant(assistant)]
    chosen = [each for each in collections if each.name in initial["collection"]]
    own = ChatThread.objects.of(request.user)
    words, archived = request.GET.get("find", "").replace("\x00", "").strip(), "archived" in request.GET
    return {
        "thread": thread,
        "assistant": assistant,
        "starters": [] if listed else assistant.starters if assistant else find_starters(chosen),
        "assistants": [] if thread else ChatAssistant.objects.offered().by_name()[:ASSISTANTS_OFFERED],
        "is_own": is_own,
        "messages_shown": _shown(listed, {collection.name for collection in collections}),
        "form": AskForm(initial=initial, collections=offered),
        "replaces": edited,
        "collections": offered,
        "unasked": unasked,
        "whom_to_ask": name_administrators() if unasked else [],
        "arriving": None if thread else _arriving(collections),
        "stated": bool(request.GET.getlist("collection")),
        "may_add": is_own and may_add_files(collections),
        "dropped": _dropped(request, thread) if is_own else None,
        "thread_files": files_of_thread(thread),
        "quotes_only": not has_chat_model(),
        "threads": own.found(words, archived=archived).newest_first()[:THREADS_LISTED],
        "thread_words": words,
        "archived": archived,
        "shared_threads": ChatThread.objects.filter(shared=True)
        .exclude(user=request.user)
        .select_related("user")
        .newest_first()[:THREADS_LISTED],
    }


def _dropped(request: PageRequest, thread: ChatThread | None = None) -> DroppedFiles | None:
    """The files that the address names."""
    return find_drop(request.GET.get("collection", ""), request.GET.get("batch", ""), thread)


def _arriving(collections: Sequence[Collection]) -> Operation | None:
    """The import to wait for, where there is nothing else to ask."""
    if len(collections) > 1:
        return None
    found = arriving_collection()
    return found if found and {each.name for each in collections} <= {found.subject} else None


def _shown(listed: Sequence[ChatMessage], living: set[str]) -> list[ShownMessage]:
    rows = []
    for message in listed:
        both = [message.run, message.other_run]
        rows.append(
            ShownMessage(
                message, *(describe_run(run, lives=run.collection_name in living) if run else {} for run in both)
            )
        )
    return rows


def _ask(request: PageRequest, collections: list[Collection], thread: ChatThread | None) -> HttpResponse:
    question = read_question(request, collections, thread)
    status, failed = 422, None
    if question.form.is_valid():
        try:
            run = question.ask(Keeper(question))
        except (ServiceError, RagdError) as error:
            status, failed = refuse(question.form, error), describe(error)[1].get("run_id")
        else:
            return _show_answer(request, collections, question, run)
        if question.message:  # it failed after it was a message, which says why
            return redirect(question.message)
    context = describe_page(request, thread, collections)
    context |= {"form": question.form, "failed_run": failed, "replaces": question.replaces}
    return show_part(request, context, status=status)


def _show_answer(
    request: PageRequest, collections: list[Collection], question: Question, run: QueryRun
) -> HttpResponse:
    message = question.message
    assert message is not None
    if run.pk and not request.htmx:
        return redirect(message)
    message.run = run
    context = describe_page(request, message.thread, collections, unstored=None if run.pk else message)
    return show_part(request, context)


def _edited(request: PageRequest, listed: Sequence[ChatMessage]) -> ChatMessage | None:
    pk = whole_number(request.GET.get("edit"))
    return next((message for message in listed if message.pk == pk), None)


def _run_of(request: PageRequest) -> QueryRun | None:
    run_id = read_uuid(request.GET.get("run", ""))
    if run_id is None:
        return None
    found: QueryRun = find_or_404(QueryRun.objects.all(), pk=run_id)
    return found


def _initial(request: PageRequest, collections: Sequence[Collection], last: QueryRun | None) -> dict[str, Any]:
    """The settings of the last answer; else the collections that the address names, else those that this person
    used last, else the first in which they may ask."""
    if last is not None:
        return initial_of(last) | {"query": ""}
    names = [collection.name for collection in collections]
    chosen = [name for name in request.GET.getlist("collection") if name in names]
    chosen = chosen or [each.name for each in usual_collections(request.user, collections)]
    return {"collection": chosen, "query": request.GET.get("q", "")}


@needs(ASK, methods="POST")
def rename_thread(request: PageRequest, thread_id: uuid.UUID) -> HttpResponse:
    found = find_thread(request, thread_id)
    with RefusalMessages(request):
        threads.rename(found, request.POST.get("title", ""))
    return redirect(found)


@needs(ASK, methods="POST")
def stop_answer(request: PageRequest, pk: int) -> HttpResponse:
    """End the answer to a message of one's own where it is."""
    found: ChatMessage = find_or_404(ChatMessage.objects.filter(thread__in=ChatThread.objects.of(request.user)), pk=pk)
    threads.request_stop(found)
    return HttpResponse(status=204) if request.htmx else redirect(found)


@needs(ASK, methods="POST")
def share_thread(request: PageRequest, thread_id: uuid.UUID) -> HttpResponse:
    """shared=on lets the others read it; anything else ends that. pinned, archived: on or off, for one's own list."""
    found = find_thread(request, thread_id)
    if changes := {name: request.POST[name] == "on" for name in ("pinned", "archived") if name in request.POST}:
        ChatThread.objects.filter(pk=found.pk).update(**changes)
        return redirect(found)
    is_shared = request.POST.get("shared") == "on"
    threads.share(found, shared=is_shared, actor=request.user)
    done = gettext("Thread shared.") if is_shared else gettext("Sharing stopped.")
    return tell(request, done, found)


@needs(ASK, methods="GET POST")
def delete_thread(request: PageRequest, thread_id: uuid.UUID) -> HttpResponse:
    found = find_thread(request, thread_id)
    if request.method == "POST":
        threads.delete(found, actor=request.user)
        return tell(request, gettext("Thread deleted."), "retrieval:chat")
    return render_page(request, "retrieval/chat/delete.html", {"thread": found})


@needs(READ, methods="GET")
def export_thread(request: PageRequest, thread_id: uuid.UUID, extension: str) -> HttpResponse:
    """extension: md or json."""
    if extension not in EXPORTS:
        raise Http404(f"a thread is exported as {' or '.join(EXPORTS)}, not {extension}")
    found = find_or_404(ChatThread.objects.readable_by(request.user), pk=thread_id)
    write, media_type = EXPORTS[extension]
    body = write(found, found.messages.all().with_runs())
    name = f"{slugify(found.title)[:60] or 'thread'}.{extension}"
    headers = {"Content-Disposition": content_disposition_header(True, name)}
    return HttpResponse(body, content_type=f"{media_type}; charset=utf-8", headers=headers)
