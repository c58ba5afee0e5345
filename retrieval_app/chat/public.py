"""The public page of an assistant: who may ask there without an account, how often, and with what access."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from collections_app.access.context import Access, Limit, system_access, using_access
from collections_app.access.limits import count_request, count_tokens
from collections_app.access.permissions import EVERYBODY, Permission
from collections_app.endpoints.secrets import UnreadableSecretError, decrypt, encrypt
from collections_app.models import Collection, Document
from retrieval_app.answers.chat_answerer import has_chat_model
from retrieval_app.chat.follow_ups import make_whole, turns_of
from retrieval_app.models import ChatAssistant, ChatMessage, QueryRun
from retrieval_app.plans.services import choose_plan
from retrieval_app.search import query_pipeline
from retrieval_app.search.multi_collection import Beside, lead_first
from retrieval_app.search.query_pipeline import QueryRequest, RunListener

ALL_ADDRESSES = 20  # so many times the questions of one address are answered in a day altogether
QUESTION_CHARS_MAX = 1_000
RUNS_KEPT = 8  # of a thread, the latest
THREAD_S = 4 * 3600  # after its last question


@dataclass(frozen=True, slots=True)
class PublicThread:
    """What a visitor asked one after the other. Only the visitor's page holds it, encrypted: the server keeps the runs,
    and without the page nobody can go on with it. runs: the latest, oldest first."""

    pk: str
    runs: tuple[str, ...] = ()

    def with_run(self, run: QueryRun) -> PublicThread:
        kept = [each for each in self.runs if each != str(run.pk)]
        return PublicThread(self.pk, (*kept, str(run.pk))[-RUNS_KEPT:])

    def token(self, assistant: ChatAssistant) -> str:
        return encrypt(json.dumps([assistant.pk, int(time.time()), self.pk, *self.runs]))


def read_thread(assistant: ChatAssistant, token: str) -> PublicThread:
    """A new one for "", for what this server did not write, for another assistant's, and after THREAD_S."""
    try:
        of, written, pk, *runs = json.loads(decrypt(token)) if token else (0, 0, "")
    except (UnreadableSecretError, ValueError):
        of, written, pk, runs = 0, 0, "", []
    if of != assistant.pk or time.time() - written > THREAD_S:
        return PublicThread(str(uuid.uuid4()))
    return PublicThread(pk, tuple(runs))


def earlier_messages(assistant: ChatAssistant, thread: PublicThread) -> list[ChatMessage]:
    """What was asked and answered before, as far as it is kept and everybody may still read its documents."""
    with system_access():
        found = QueryRun.objects.in_bulk([uuid.UUID(run) for run in thread.runs])
    runs = [run for pk in thread.runs if (run := found.get(uuid.UUID(pk)))]
    names = {run.pk: {(each.get("collection") or run.collection_name, each["doc_id"]) for each in run.results}
             for run in runs}  # fmt: skip
    quoted = {doc_id for pairs in names.values() for _, doc_id in pairs}
    with _access_of(assistant):
        rows = Document.objects.filter(collection_id__in=assistant.collection_ids, doc_id__in=quoted)
        readable = set(rows.values_list("collection__name", "doc_id"))
    return [_message(run) for run in runs if names[run.pk] <= readable]


def _message(run: QueryRun) -> ChatMessage:
    message = ChatMessage(question=run.query, run_id=run.pk)
    message.run = run
    return message


def find_public(slug: str) -> ChatAssistant | None:
    """The assistant of that slug, where its public page is switched on."""
    with system_access():
        return ChatAssistant.objects.filter(slug=slug, is_public=True).first()


def count_question(assistant: ChatAssistant, address: str) -> None:
    """Count a question of an address. Raises LimitReached where it, or all together, asked too often."""
    own = Limit(f"assistant:{assistant.pk}:{address}", assistant.per_minute, assistant.per_day)
    everybody = Limit(f"assistant:{assistant.pk}", 0, assistant.per_day * ALL_ADDRESSES)
    counted = Access(limits=(own, everybody))
    count_request(counted)
    with using_access(counted):
        count_tokens(1)  # of a day, one for each question


def ask_publicly(
    assistant: ChatAssistant, question: str, thread: PublicThread, listener: RunListener | None = None
) -> QueryRun:
    """The answer from its collections, as far as everybody may read them, to the question made whole with what the
    thread asked before. Raises as `query_pipeline.ask`."""
    earlier: Sequence[ChatMessage] = earlier_messages(assistant, thread) if thread.runs else ()
    with _access_of(assistant):
        collections = list(Collection.objects.live().filter(pk__in=assistant.collection_ids).by_name())
        first, *others = lead_first(collections)
        beside = [Beside(each, choose_plan(each, None, {}).plan) for each in others]
        steered = has_chat_model()
        request = QueryRequest(
            first, make_whole(question, earlier, first), choose_plan(first, None, {}).plan, QueryRun.Channel.PAGE,
            llm_model=assistant.llm_model or None if steered else None,
            system_prompt=assistant.prompt or None if steered else None,
            history=turns_of(earlier) if steered else (), conversation_id=thread.pk, quotes_on_failure=True,
            beside=beside,
        )  # fmt: skip
        return query_pipeline.ask(request, listener=listener)


@contextmanager
def _access_of(assistant: ChatAssistant) -> Iterator[None]:
    """To ask in its collections, documents with an access list left out."""
    collections = dict.fromkeys(assistant.collection_ids, frozenset((Permission.READ, Permission.ASK)))
    with using_access(Access(collections=collections, principals=(EVERYBODY,), name=f"assistant {assistant.slug}")):
        yield
