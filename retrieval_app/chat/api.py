"""The chat facade: collections as models for any client of OpenAI's chat completions.

The question goes the way of the ask call; only the shape of requests, answers, streams and errors is OpenAI's.

The shapes of OpenAI's chat completions, as far as this server speaks them, with its own fields under `ragd`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from ninja import Field, Router, Schema
from pydantic import ConfigDict

from collections_app import errors
from collections_app.access.auth import BearerAuth, check_collection_scope, check_permission, request_key
from collections_app.access.permissions import Permission
from collections_app.collections.services import get_collection
from collections_app.errors import ServiceError, WrongValueError
from collections_app.http.validation import StrictInt
from collections_app.models import Collection
from ragd.errors import UnknownCollection
from retrieval_app.answers.chat_answerer import has_chat_model
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.answers.question import rewrite
from retrieval_app.answers.streams import HEARTBEAT_S, Event, body_of, encode, event_response, json_response
from retrieval_app.chat.threads import fit_history
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import PLAN_FIELDS
from retrieval_app.search.api import run_ask, stream_ask
from retrieval_app.search.schemas import AnswererOptions, AskRequest, AskResponse, ModelFields, Positive, QueryOptions


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


PREFIX = "ragd/"
PATHS = re.compile(r"/v1/(?:chat/completions|models(?:/.*)?)\Z")
ERRORS: dict[Any, Any] = {frozenset({400, 401, 403, 404, 500, 502, 503, 504}): OpenAIErrorAnswer}
ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
TOOL_ROLES = ("tool", "function")
PARAMETERS = {"query": "messages", "collection": "model"}

router = Router(auth=BearerAuth(changes=Permission.ASK), tags=["chat"])


@router.post("/chat/completions", response={200: ChatCompletion, **ERRORS}, operation_id="chat-completions")
def complete_chat(request: HttpRequest, payload: ChatRequest) -> HttpResponse | StreamingHttpResponse:
    """Answer from a collection in the shape of OpenAI's chat completions.

    With stream: Server-Sent Events of chat.completion.chunk, ended by [DONE]; the last chunk carries `ragd`.
    """
    collection, key = _find_collection(request, payload.model), request_key(request)
    if payload.n not in (None, 1):
        raise WrongValueError(f"n must be 1, not {payload.n}: the same question has one answer here", "n")
    if payload.tools:
        raise WrongValueError("tools cannot be called from here; leave them out, or use the tools at /mcp", "tools")
    if payload.response_format and payload.response_format.type != "text":
        raise WrongValueError(
            f"response_format must be text, not {payload.response_format.type!r}: an answer quotes its sources",
            "response_format",
        )
    system, history, question = read_messages(payload.messages)
    turns = fit_history(history)
    ask_request = _ask_request(payload, searched_text(question, turns), system)
    if not payload.stream:
        answer = run_ask(collection, ask_request, channel=QueryRun.Channel.CHAT, api_key=key, history=turns)
        return json_response(completion(payload.model, body_of(answer)))
    stream = stream_ask(collection, ask_request, channel=QueryRun.Channel.CHAT, api_key=key, history=turns)
    stream.start(("token", "final"), HEARTBEAT_S)  # a model that refuses at once is told by the status
    with_usage = bool(payload.stream_options and payload.stream_options.include_usage)
    return event_response(request, stream, ChunkFrame(payload.model, with_usage=with_usage))


def searched_text(question: str, turns: Sequence[Mapping[str, str]]) -> str:
    """The question as it is searched for, behind the one before it where it leans on that."""
    asked: list[str] = []
    for text in [*(turn["content"] for turn in turns if turn["role"] == "user"), question]:
        asked.append(rewrite(text, asked))
    return asked[-1]


@router.get("/models", response={200: ChatModels, **ERRORS}, operation_id="models-list")
def list_models(request: HttpRequest) -> HttpResponse:
    """The collections as models."""
    rows = Collection.objects.live().allowed_to(request_key(request).visible).by_name()
    return json_response(ChatModels(object="list", data=[model_item(collection) for collection in rows]))


@router.get("/models/{path:model}", response={200: ChatModel, **ERRORS}, operation_id="models-get")
def get_model(request: HttpRequest, model: str) -> HttpResponse:
    return json_response(model_item(_find_collection(request, model)))


def model_item(collection: Collection) -> ChatModel:
    created = int(collection.created_at.timestamp())
    return ChatModel(id=PREFIX + collection.name, object="model", created=created, owned_by="ragd")


def read_messages(messages: Sequence[ChatMessage]) -> tuple[str, list[dict[str, str]], str]:
    """(system prompt, earlier turns, question). The question is the last user message; what follows it is ignored."""
    texts = [
        (message.role, "" if message.role in TOOL_ROLES else _text_of(message, number))
        for number, message in enumerate(messages)
    ]
    positions = [number for number, (role, _) in enumerate(texts) if role == "user"]
    if not positions:
        raise WrongValueError("messages must hold at least one message of role user: the question", "messages")
    system = "\n\n".join(text for role, text in texts if role in ("system", "developer") and text)
    turns = [
        {"role": role, "content": text}
        for role, text in texts[: positions[-1]]
        if role in ("user", "assistant") and text
    ]
    return system, turns, texts[positions[-1]][1]


def completion(model: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `ask` as one chat.completion."""
    message = {"role": "assistant", "content": answer["answer"]}
    end = {"index": 0, "message": message, "finish_reason": _finish_reason(answer), "logprobs": None}
    return _head(model, answer["run_id"], "chat.completion") | {
        "choices": [end],
        "usage": _usage(answer),
        "ragd": _extension(answer),
    }


class ChunkFrame:
    """The events of an answer as chunks: the role, the text in pieces, the end with `ragd`, the usage if wanted."""

    def __init__(self, model: str, *, with_usage: bool) -> None:
        self.model = model
        self.with_usage = with_usage
        self.head: dict[str, Any] = {}

    def __call__(self, event: Event) -> bytes:
        """What is sent for the event; b"" for one that OpenAI's clients are not told."""
        if event.name == "search_results":
            self.head = _head(self.model, event.data["run_id"], "chat.completion.chunk")
            self.head |= {"usage": None} if self.with_usage else {}
            return self._chunk({"role": "assistant", "content": ""})
        if event.name == "token":
            return self._chunk({"content": event.data["text"]})
        if event.name == "final":
            return self._end(event.data)
        return _data(_openai_error(event.data, event.data["status"])) if event.name == "error" else b""

    def _chunk(self, delta: Mapping[str, str], finish_reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _data(self.head | {"choices": [choice]} | more)

    def _end(self, answer: Mapping[str, Any]) -> bytes:
        last = self._chunk({}, _finish_reason(answer), ragd=_extension(answer))
        usage = _data(self.head | {"choices": [], "usage": _usage(answer)}) if self.with_usage else b""
        return last + usage + b"data: [DONE]\n\n"


def _data(value: Any) -> bytes:
    return f"data: {encode(value)}\n\n".encode()


def _finish_reason(answer: Mapping[str, Any]) -> str:
    return str(answer["token_usage"].get("finish_reason") or "stop")


def speaks_openai(path: str) -> bool:
    """Whether the callers of this path expect errors in OpenAI's shape."""
    return PATHS.match(path) is not None


def error_response(request: HttpRequest, exc: BaseException) -> JsonResponse:
    """The same error as everywhere, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

    What is 422 elsewhere is 400 here, as OpenAI's clients expect of a wrong request.
    """
    response = errors.error_response(request, exc)
    _, body = errors.describe(exc)
    status = 400 if response.status_code == 422 else response.status_code
    selected = {name: response[name] for name in ("WWW-Authenticate", "Retry-After") if name in response}
    return JsonResponse(_openai_error(body, status), status=status, headers=selected)


def _openai_error(body: Mapping[str, Any], status: int) -> dict[str, Any]:
    error = body["error"]
    kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    field = error.get("field")
    param = f"ragd.{field}" if field in (*PLAN_FIELDS, "plan", "llm_model") else PARAMETERS.get(field or "", field)
    answer = OpenAIError(message=error["message"], type=kind, param=param, code=error["type"])
    named = {"run_id": body["run_id"]} if body.get("run_id") else {}
    return OpenAIErrorAnswer(error=answer).dict() | named


def _find_collection(request: HttpRequest, model: str) -> Collection:
    """The collection of the model, if the key may use it. Raises ServiceError: 403, or 404 "model_not_found"."""
    name = model.removeprefix(PREFIX)
    try:
        if name == model:
            raise UnknownCollection(f"a model is called {PREFIX}<collection>")
        check_collection_scope(request_key(request), name)
        collection = get_collection(name)
    except UnknownCollection:
        raise ServiceError(
            f"there is no model {model!r}; models are called {PREFIX}<collection>, and GET /v1/models lists them",
            type="model_not_found",
            status=404,
            field="model",
        ) from None
    check_permission(request, collection.pk)
    return collection


def _text_of(message: ChatMessage, number: int) -> str:
    if not isinstance(message.content, list):
        return message.content or ""
    for part in message.content:
        if part.type != "text" or part.text is None:
            raise WrongValueError(
                f"messages[{number}] has a part of type {part.type!r}; only parts of type text can be read", "messages"
            )
    return "\n".join(part.text or "" for part in message.content)


def _ask_request(payload: ChatRequest, question: str, system: str) -> AskRequest:
    """A system message and parameters are for a chat model; where quotations answer there is nothing to instruct."""
    options = payload.ragd or ChatOptions.model_validate({})
    fields: dict[str, Any] = {**options.model_dump(exclude_unset=True), "query": question}
    if options.llm_model == ExtractiveAnswerer.model or not has_chat_model():
        return AskRequest(**fields)
    steering = payload.model_dump(include=set(ModelFields.model_fields), exclude_none=True)
    if payload.max_completion_tokens:
        steering["max_tokens"] = payload.max_completion_tokens
    if payload.response_format:
        steering["response_format"] = payload.response_format.type
    return AskRequest(**fields, **steering, system_prompt=system or None)


def _head(model: str, run_id: str | None, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{run_id or uuid4()}", "object": kind, "created": int(time.time()), "model": model}


def _usage(answer: Mapping[str, Any]) -> dict[str, int]:
    return Usage.from_orm(answer["token_usage"]).dict()


def _extension(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "answer"}
