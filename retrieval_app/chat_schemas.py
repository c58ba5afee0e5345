"""The shapes of OpenAI's chat completions, as far as this server speaks them, with its own fields under `ragd`."""

from __future__ import annotations

from typing import Any, Literal

from ninja import Field, Schema
from pydantic import ConfigDict

from retrieval_app.schemas import AskResponse, QueryOptions


class ContentPart(Schema):
    type: str
    text: str | None = None


class ChatMessage(Schema):
    """content: a text, or parts of type "text"."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart] | None = None


class StreamOptions(Schema):
    include_usage: bool | None = None


class ResponseFormat(Schema):
    type: str = "text"


class ChatOptions(QueryOptions):
    """The plan of the search, field by field as for the ask call, and who answers."""

    llm_model: str | None = Field(
        None, description="Another chat model than the server's, or 'extractive' for quotations"
    )


class ChatRequest(Schema):
    """Fields that only steer a model's sampling (temperature, max_tokens, seed and the like) are taken and unused."""

    model_config = ConfigDict(extra="ignore")

    model: str = Field(description="ragd/<collection>, as GET /v1/models lists them")
    messages: list[ChatMessage] = Field(
        description="The last user message is the question; earlier turns are context for the chat model only"
    )
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    response_format: ResponseFormat | None = None
    ragd: ChatOptions | None = Field(None, description="The search's plan and options")


class AnswerMessage(Schema):
    role: Literal["assistant"]
    content: str


class Choice(Schema):
    index: int
    message: AnswerMessage
    finish_reason: Literal["stop"]
    logprobs: None = None


class Usage(Schema):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatExtension(AskResponse):
    """What the ask call answers, without the answer's text."""

    answer: None = None  # type: ignore[assignment]


class ChatCompletion(Schema):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    ragd: ChatExtension


class ChatModel(Schema):
    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["ragd"]


class ChatModels(Schema):
    object: Literal["list"]
    data: list[ChatModel]


class OpenAIError(Schema):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorAnswer(Schema):
    error: OpenAIError
