"""The shapes of OpenAI's chat completions, as far as this server speaks them, with its own fields under `ragd`."""

from __future__ import annotations

from typing import Any, Literal

from ninja import Field, Schema
from pydantic import ConfigDict

from collections_app.validation import StrictInt
from retrieval_app.api.schemas import AnswererOptions, AskResponse, ModelFields, Positive, QueryOptions


class ContentPart(Schema):
    type: str
    text: str | None = None


class ChatMessage(Schema):
    """content: a text, or parts of type "text". Tool calls and what tools gave back are accepted and passed over."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None


class StreamOptions(Schema):
    include_usage: bool | None = None


class ResponseFormat(Schema):
    type: str = "text"


class ChatOptions(AnswererOptions, QueryOptions):
    """The plan of the search, field by field as for the ask call, who answers, and whose conversation it is."""


class ChatRequest(ModelFields):
    """What steers a model's writing is passed on to the chat model, and unused where quotations answer."""

    model_config = ConfigDict(extra="ignore")

    model: str = Field(description="ragd/<collection>, as GET /v1/models lists them")
    messages: list[ChatMessage] = Field(
        description="The last user message is the question; earlier turns are context for the chat model only"
    )
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: StrictInt | None = None
    tools: list[Any] | None = None
    response_format: ResponseFormat | None = None
    max_completion_tokens: Positive | None = Field(None, description="The newer name of max_tokens; it goes before it")
    ragd: ChatOptions | None = Field(None, description="The search's plan and options")


class AnswerMessage(Schema):
    role: Literal["assistant"]
    content: str


class Choice(Schema):
    index: int
    message: AnswerMessage
    finish_reason: str = Field(description="As the chat model gave it; stop where quotations answer")
    logprobs: None = None


class Usage(Schema):
    prompt_tokens: int = Field(validation_alias="context_tokens")
    completion_tokens: int = Field(validation_alias="generation_tokens")
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
