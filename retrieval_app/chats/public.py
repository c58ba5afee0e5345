"""The public page of an assistant: who may ask there without an account, how often, and with what access."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from collections_app.access_context import Access, Limit, system_access, using_access
from collections_app.domain.permissions import EVERYBODY, Permission
from collections_app.models import Collection
from collections_app.services.governance.limits import count_request, count_tokens
from retrieval_app.answerers.selection import has_chat_model
from retrieval_app.models import ChatAssistant, QueryRun
from retrieval_app.runs import query_pipeline
from retrieval_app.runs.plans import choose_plan
from retrieval_app.runs.several import Beside, lead_first

ALL_ADDRESSES = 20  # so many times the questions of one address are answered in a day altogether
QUESTION_CHARS_MAX = 1_000


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


def ask_publicly(assistant: ChatAssistant, question: str) -> QueryRun:
    """The answer from its collections, as far as everybody may read them. Raises as `query_pipeline.ask`."""
    with _access_of(assistant):
        collections = list(Collection.objects.live().filter(pk__in=assistant.collection_ids).by_name())
        first, *others = lead_first(collections)
        beside = [Beside(each, choose_plan(each, None, {}).plan) for each in others]
        steered = has_chat_model()
        return query_pipeline.ask(
            first,
            question,
            choose_plan(first, None, {}).plan,
            door=QueryRun.Door.PAGE,
            llm_model=assistant.llm_model or None if steered else None,
            system_prompt=assistant.prompt or None if steered else None,
            quotes_on_failure=True,
            beside=beside,
        )


@contextmanager
def _access_of(assistant: ChatAssistant) -> Iterator[None]:
    """To ask in its collections, documents with an access list left out."""
    given = frozenset((Permission.READ, Permission.ASK))
    collections = dict.fromkeys(assistant.collection_ids, given)
    with using_access(Access(collections=collections, principals=(EVERYBODY,), name=f"assistant {assistant.slug}")):
        yield
