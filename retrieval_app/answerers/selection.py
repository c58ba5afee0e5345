"""Which answerer answers: the chat model when one is set up, else quotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.conf import settings

from collections_app.errors import ServiceError
from ragd.models.embedding import Embedder
from retrieval_app.answerers.chat_answerer import DEFAULTS, ChatAnswerer
from retrieval_app.answerers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.answerers.protocol import Answerer
from retrieval_app.llm.chat_endpoint import Endpoint
from retrieval_app.llm.model_parameters import ModelParameters


def has_chat_model() -> bool:
    """Whether LLM_BASE_URL or OPENAI_API_KEY is set."""
    return bool(settings.RAGD_LLM_BASE_URL or settings.RAGD_LLM_API_KEY)


def open_answerer(
    embedder: Embedder,
    *,
    llm_model: str | None = None,
    system_prompt: str | None = None,
    history: Sequence[Mapping[str, str]] = (),
    parameters: ModelParameters = DEFAULTS,
    conversation_id: str | None = None,
) -> Answerer:
    """llm_model: another chat model than RAGD_LLM_MODEL, or "extractive" for quotations. history: earlier turns.

    Raises ServiceError (422) when a chat model, a prompt or parameters are asked for and quotations answer.
    """
    if llm_model == ExtractiveAnswerer.model or not has_chat_model():
        _refuse_chat_fields(llm_model, system_prompt, parameters)
        return ExtractiveAnswerer(embedder)
    endpoint = Endpoint(
        base_url=settings.RAGD_LLM_BASE_URL or "",
        api_key=settings.RAGD_LLM_API_KEY or "",
        timeout_s=settings.RAGD_LLM_TIMEOUT_S,
        max_tokens=settings.RAGD_LLM_MAX_TOKENS,
    )
    model = llm_model or settings.RAGD_LLM_MODEL
    return ChatAnswerer(
        model,
        endpoint,
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
                f"{field} needs a chat model, and this answer is made of quotations; set LLM_BASE_URL or "
                f"OPENAI_API_KEY, or leave {field} out",
                type="no_chat_model",
                status=422,
                field=field,
            )
