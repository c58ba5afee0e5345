"""Which answerer answers: the chat model when one is set up, else quotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.conf import settings

from collections_app.errors import ServiceError
from collections_app.model_endpoints.endpoints import chat_endpoint
from ragd.types import Embedder
from retrieval_app.answerers.chat_answerer import DEFAULTS, ChatAnswerer
from retrieval_app.answerers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.answerers.protocol import Answerer
from retrieval_app.llm.chat_endpoint import Endpoint
from retrieval_app.llm.model_parameters import ModelParameters


def has_chat_model() -> bool:
    """Whether the environment or the database names a chat endpoint."""
    return chat_endpoint() is not None


def open_answerer(
    embedder: Embedder,
    *,
    llm_model: str | None = None,
    system_prompt: str | None = None,
    history: Sequence[Mapping[str, str]] = (),
    parameters: ModelParameters = DEFAULTS,
    conversation_id: str | None = None,
) -> Answerer:
    """llm_model: another chat model than the default, by its name or that of its setting, or "extractive" for
    quotations. history: earlier turns.

    Raises ServiceError: 422 when a chat model, a prompt or parameters are asked for and quotations answer; 503 when the
    stored key of the model cannot be decrypted.
    """
    named = llm_model or ""
    found = None if named == ExtractiveAnswerer.model else chat_endpoint(named)
    if found is None:
        _refuse_chat_fields(llm_model, system_prompt, parameters)
        return ExtractiveAnswerer(embedder)
    return ChatAnswerer(
        found.model_for(named),
        Endpoint.of(found, timeout_s=settings.RAGD_LLM_TIMEOUT_S, max_tokens=settings.RAGD_LLM_MAX_TOKENS),
        embedder,
        system_prompt=system_prompt or "",
        history=history,
        parameters=parameters,
        conversation_id=conversation_id,
    )


def _refuse_chat_fields(llm_model: str | None, system_prompt: str | None, parameters: ModelParameters) -> None:
    explicit = [(name, name) for name in parameters.stated()]
    for field, value in [("llm_model", llm_model), ("system_prompt", system_prompt), *explicit]:
        if value and value != ExtractiveAnswerer.model:
            raise ServiceError(
                f"{field} needs a chat model, and this answer is made of quotations; add one on the page "
                f"Models, set LLM_BASE_URL or OPENAI_API_KEY, or leave {field} out",
                type="no_chat_model",
                status=422,
                field=field,
            )
