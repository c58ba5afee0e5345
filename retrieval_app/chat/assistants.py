"""Assistants: who may make them, what may stand in them, and who may ask on their public pages.

Questions to begin with: those that collections state, else some made of their documents' titles, without a model.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.text import slugify
from django.utils.translation import gettext

from collections_app.access.context import Access, Limit, current_access, require, system_access, using_access
from collections_app.access.limits import count_request, count_tokens
from collections_app.access.permissions import EVERYBODY, Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.endpoints.secrets import UnreadableSecretError, decrypt, encrypt
from collections_app.models import Collection, Document, IngestBatch
from ragd.errors import InvalidInput
from ragd.identity import clean_starters
from retrieval_app.answers.chat_answerer import has_chat_model
from retrieval_app.chat.threads import make_whole, turns_of
from retrieval_app.models import ChatAssistant, ChatMessage, QueryRun
from retrieval_app.plans.services import choose_plan
from retrieval_app.search import query_pipeline
from retrieval_app.search.fallbacks import known_models
from retrieval_app.search.query_pipeline import Beside, QueryRequest, RunListener, lead_first

PROMPT_CHARS_MAX = 8_000
ORIGIN = re.compile(r"https?://(?:[a-z0-9-]+\.)*[a-z0-9-]+(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class AssistantFields:
    """What is said of an assistant, as `ChatAssistant` has it."""

    name: str
    collections: Sequence[Collection]
    llm_model: str = ""
    prompt: str = ""
    greeting: str = ""
    starters: Sequence[str] = ()
    is_public: bool = False
    origins: Sequence[str] = ()
    per_minute: int = 5
    per_day: int = 50


@transaction.atomic
def save_assistant(
    fields: AssistantFields, assistant: ChatAssistant | None = None, *, actor: services.Actor
) -> ChatAssistant:
    """Make one, or change the given one.

    Raises Forbidden without the permission to write in all its collections, as they were and as they will be, and
    InvalidInput that names the field.
    """
    _check(fields)
    with system_access():  # a name that is taken is taken for everybody
        if ChatAssistant.objects.filter(name=fields.name).exclude(pk=assistant.pk if assistant else 0).exists():
            raise InvalidInput(f"there is an assistant {fields.name!r} already; choose another name", field="name")
        slug = assistant.slug if assistant else _free_slug(fields.name)
    own = assistant or ChatAssistant(created_by=name_actor(actor))
    for pk in {*own.collection_ids, *(each.pk for each in fields.collections)}:
        require(Permission.WRITE, pk)
    own.slug = slug
    for name in ("name", "llm_model", "prompt", "greeting", "is_public", "per_minute", "per_day"):
        setattr(own, name, getattr(fields, name))
    own.starters, own.origins = clean_starters(fields.starters), list(fields.origins)
    own.collection_ids = sorted(each.pk for each in fields.collections)
    own.save()
    after = {"collection_ids": own.collection_ids, "is_public": own.is_public, "origins": own.origins}
    verb = services.CHANGE if assistant else services.ADDITION
    services.record(actor, [own], f"assistant.{verb}", "saved an assistant", after=after)
    return own


@transaction.atomic
def delete_assistant(assistant: ChatAssistant, *, actor: services.Actor) -> None:
    """Its threads stay, without it. Raises Forbidden as `save_assistant`."""
    for pk in assistant.collection_ids:
        require(Permission.WRITE, pk)
    services.record(actor, [assistant], "assistant.delete", "deleted an assistant")
    assistant.delete()


def may_write(assistant: ChatAssistant) -> bool:
    """Whether who asks may change it."""
    return all(current_access().may(Permission.WRITE, pk) for pk in assistant.collection_ids)


def collections_of_assistant(assistant: ChatAssistant) -> list[Collection]:
    """Its live collections that who asks may see, by name."""
    return list(Collection.objects.live().filter(pk__in=assistant.collection_ids).by_name())


def _check(fields: AssistantFields) -> None:
    if not fields.name.strip():
        raise InvalidInput("name must hold at least one visible character; it is empty", field="name")
    if not fields.collections:
        raise InvalidInput("an assistant needs at least one collection; choose one", field="collections")
    if fields.llm_model and fields.llm_model not in known_models():
        raise InvalidInput(f"the chat model {fields.llm_model!r} is not set up; leave it empty", field="llm_model")
    if len(fields.prompt) > PROMPT_CHARS_MAX:
        raise InvalidInput(
            f"prompt may have {PROMPT_CHARS_MAX:,} characters; this has {len(fields.prompt):,}", field="prompt"
        )
    for origin in fields.origins:
        if not ORIGIN.fullmatch(origin):
            raise InvalidInput(
                f"an origin is a scheme and a host such as https://www.example.org, without a path; {origin!r} is none",
                field="origins",
            )


def _free_slug(name: str) -> str:
    base = slugify(name)[:70] or "assistant"
    taken = set(ChatAssistant.objects.filter(slug__startswith=base).values_list("slug", flat=True))
    return next(slug for slug in (base, *(f"{base}-{number}" for number in range(2, 10_000))) if slug not in taken)


STATED_SHOWN = 4
MADE_SHOWN = 3


def askable(collections: Sequence[Collection]) -> list[Collection]:
    """Those in which whoever asks may ask, in their order."""
    access = current_access()
    return [each for each in collections if access.may(Permission.ASK, each.pk)]


def usual_collections(user: User, collections: Sequence[Collection]) -> list[Collection]:
    """Those of these that this person asked last, or the one to which they added documents since; else the first in
    which they may ask; [] without one."""
    names = [each.name for each in collections]
    newest = QueryRun.objects.filter(user=user, collection_name__in=names).newest_first().first()
    used: Sequence[str] = newest.collection_names if newest else ()
    shared = [each.pk for each in askable(collections) if not each.is_personal]
    added = IngestBatch.objects.filter(collection__in=shared, created_by=user.get_username())
    added = added.exclude(submitted=0).exclude(kind=IngestBatch.Kind.REINDEX)
    last = added.select_related("collection").order_by("-created_at", "-id").first()
    if last and (newest is None or newest.created_at < last.created_at):
        used = (last.collection.name,)
    return [each for each in collections if each.name in used] or askable(collections)[:1]


def find_starters(collections: Sequence[Collection]) -> list[str]:
    """At most four that these collections state, in turn; without any, at most three about their first titled
    documents by doc_id that the reader may read. Collections in which they may not ask give none."""
    asked = askable(collections)
    stated = chain.from_iterable(zip_longest(*(each.starters for each in asked)))
    if found := list(dict.fromkeys(text for text in stated if text))[:STATED_SHOWN]:
        return found
    rows = Document.objects.in_state("enabled").of_access("open").exclude(title="")
    titled = rows.filter(collection__in=[each.pk for each in asked])
    titles = titled.order_by("collection_id", "doc_id").values_list("title", flat=True)[:MADE_SHOWN]
    return [gettext("What is “%(title)s” about?") % {"title": title} for title in dict.fromkeys(titles)]


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
