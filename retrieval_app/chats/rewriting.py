"""Make follow-up questions whole: by the chat model where there is one, else by the question before."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.conf import settings

from collections_app.errors import ServiceError
from collections_app.model_endpoints.endpoints import chat_endpoint
from collections_app.models import Collection
from collections_app.services.governance.limits import count_tokens
from collections_app.services.governance.security_policy import policy_of
from collections_app.stores import embedder_for
from retrieval_app.chats.follow_ups import QUESTION_CHARS_MAX, rewrite
from retrieval_app.chats.history import turns_of
from retrieval_app.llm.chat_endpoint import Endpoint
from retrieval_app.llm.model_calls import call_model
from retrieval_app.llm.model_parameters import ModelParameters
from retrieval_app.models import ChatMessage, QueryRun

log = logging.getLogger(__name__)

TIMEOUT_S = 15.0
TOKENS_MAX = 200
TURNS_READ = 6
READABLE = (QueryRun.Status.OK, QueryRun.Status.ABSTAINED)
INSTRUCTIONS = (
    "Rewrite the last question of a conversation so that it can be understood without the conversation. Replace what "
    "refers back (it, they, there, that one) by what it stands for. Keep the language of the question. Add nothing "
    "else. A question that stands by itself is returned unchanged. Reply with the question alone, in one line."
)
REQUEST = "Conversation:\n{turns}\n\nLast question: {question}"


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
    try:
        answer = call_model(
            Endpoint.of(found, timeout_s=min(TIMEOUT_S, settings.RAGD_LLM_TIMEOUT_S), max_tokens=TOKENS_MAX),
            found.model_for(""),
            messages,
            embedder,
            estimated=embedder.count_tokens(request),
            parameters=ModelParameters(),
        )
    except ServiceError as error:
        log.warning("a follow-up question is searched for with the question before it: %s", error.message)
        return ""
    count_tokens(answer.usage.context_tokens + answer.usage.generation_tokens)
    text = answer.completion.text.strip().strip('"“”„')
    return text if text and "\n" not in text and len(text) <= QUESTION_CHARS_MAX else ""
