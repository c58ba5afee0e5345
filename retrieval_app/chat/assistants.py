"""Assistants: who may make them, and what may stand in them.

Questions to begin with: those that collections state, else some made of their documents' titles, without a model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.text import slugify
from django.utils.translation import gettext

from collections_app.access.context import current_access, require, system_access
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.models import Collection, Document
from ragd.errors import InvalidInput
from ragd.identity import clean_starters
from retrieval_app.models import ChatAssistant, QueryRun
from retrieval_app.search.degrading import known_models

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
    """Those of these that this person asked last, else the first in which they may ask; [] without one."""
    names = [each.name for each in collections]
    newest = QueryRun.objects.filter(user=user, collection_name__in=names).newest_first().first()
    used = newest.collection_names if newest else ()
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
