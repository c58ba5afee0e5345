"""Ask a chat model behind an OpenAI-compatible endpoint, within one deadline, and read its JSON.

Streams are read leniently, as servers that speak this protocol differ: usage may come or not, [DONE] may be missing
after a finish reason, tool calls come in parts.

The reasoning of a thinking model, told from its answer where both come as one text.

Servers that separate them send reasoning in a field of its own; the others leave the marks of the model's template in
the text: both marks, the closing one alone where the prompt ended with the opening one, or the opening one alone where
the answer was cut off.

How a chat model is asked to write: what a caller may say of it, and what holds otherwise.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from collections_app.endpoints.endpoints import ModelEndpoint
from collections_app.errors import ServiceError
from ragd import telemetry
from ragd.models import openai_client
from ragd.telemetry.model_calls import read_timings

_WORDS = "(?:think(?:ing)?|thought|reasoning)"
_HARMONY = r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>"
OPENING = re.compile(rf"(?:\A|(?<=\n))[ \t]*(?:<{_WORDS}>|\[THINK\]|◁think▷|{_HARMONY})", re.IGNORECASE)
CLOSING = re.compile(rf"(?<!`)(?:</{_WORDS}>|\[/THINK\]|◁/think▷|<\|channel\|>final<\|message\|>)", re.IGNORECASE)
IN_PROSE = re.compile(r"[`'\"”»]|[ ]+[a-z]|[ ]?[,.;:)]")  # what follows a mark that a sentence speaks of
PARTIAL = re.compile(r"(?:<[^<>\n]{0,30}|\[/?[THINK]{0,5}|◁[^▷\n]{0,8})\Z", re.IGNORECASE)


def split_reasoning(text: str) -> tuple[str, str]:
    """(answer, reasoning), both stripped. Reasoning that never ends leaves the answer "" or what stood before it."""
    answer, reasoning = _split(text.lstrip())
    return answer.strip(), "\n\n".join(part.strip() for part in reasoning if part.strip())


def answer_so_far(text: str, *, opens_thinking: bool) -> str:
    """What is sure to be answer in the beginning of a text. opens_thinking: it begins with reasoning without a mark."""
    text = text.lstrip()
    if opens_thinking and not CLOSING.search(text):
        return ""
    answer, _ = _split(text)
    partial = PARTIAL.search(answer)
    return answer[: partial.start()] if partial else answer


def _split(text: str) -> tuple[str, list[str]]:
    reasoning: list[str] = []
    position = 0
    while closing := CLOSING.search(text, position):
        opening = OPENING.search(text, 0, closing.start())
        if opening is None and IN_PROSE.match(text, closing.end()):
            position = closing.end()
            continue
        start = opening.start() if opening else 0
        reasoning.append(text[opening.end() if opening else 0 : closing.start()])
        text = text[:start] + text[closing.end() :]
        position = 0
    if opening := OPENING.search(text):
        reasoning.append(text[opening.end() :])
        text = text[: opening.start()]
    return text, reasoning


OnText = Callable[[str], object]
STOPPED = "stopped"  # the finish reason of an answer that its reader ended


# set once nobody reads the answer any more; a model that is asked as a stream stops then
reader_left: ContextVar[threading.Event | None] = ContextVar("ragd_reader_left", default=None)


@contextmanager
def stops_with(left: threading.Event) -> Iterator[None]:
    """In the block `reader_left` is this event."""
    token = reader_left.set(left)
    try:
        yield
    finally:
        reader_left.reset(token)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens read and written. estimated: counted here, not reported by the model's server.

    finish_reason: why the model stopped, in its server's own word ("stop", "length", ...); None where none was told.
    repaired: how many sentences without support a second call has corrected; None for no such call.
    """

    context_tokens: int = 0
    generation_tokens: int = 0
    estimated: bool = False
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    repaired: int | None = None

    def plus(self, other: TokenUsage) -> TokenUsage:
        """Of two calls for one answer, whose end is the first one's."""
        counts: dict[str, Any] = {
            name: (getattr(self, name) or 0) + (getattr(other, name) or 0)
            for name in ("context_tokens", "generation_tokens", "cached_tokens", "reasoning_tokens")
            if (getattr(self, name), getattr(other, name)) != (None, None)
        }
        return replace(self, **counts, estimated=self.estimated or other.estimated)

    def as_dict(self) -> dict[str, Any]:
        usage: dict[str, Any] = {
            "context_tokens": self.context_tokens,
            "generation_tokens": self.generation_tokens,
            "total_tokens": self.context_tokens + self.generation_tokens,
            "estimated": self.estimated,
        }
        extra = {
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "finish_reason": self.finish_reason,
            "repaired": self.repaired,
        }
        return usage | {name: value for name, value in extra.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants to be called. arguments: JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. Counts and times that the server did not report are None. text: "" only beside tool calls, and what
    came of it where it broke off. reasoning: what the model thought before it, never a part of the text.
    told_reasoning: pieces that were told as answer turned out to be reasoning."""

    text: str
    finish_reason: str | None = None
    id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    queue_ms: float | None = None
    inference_ms: float | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    told_reasoning: bool = False


def read_completion(answer: Mapping[str, Any], headers: Mapping[str, str]) -> Completion:
    """Raises KeyError, IndexError or TypeError when it is no chat completion. The text may be empty."""
    choice = answer["choices"][0]
    message = choice["message"]
    text, thought = _read_texts(message)
    said, reasoning = split_reasoning(text)
    return Completion(
        text=said,
        reasoning=thought or reasoning,
        finish_reason=text_of(choice.get("finish_reason")),
        id=text_of(answer.get("id")),
        model=text_of(answer.get("model")),
        tool_calls=tuple(_tool_call(call) for call in message.get("tool_calls") or ()),
        **read_usage(answer.get("usage"), headers),
    )


def read_usage(value: Any, headers: Mapping[str, str]) -> dict[str, Any]:
    """The token counts and the server's own times as fields of Completion. value: `usage` as the server sent it."""
    usage = _dict(value)
    timings = read_timings(headers, usage)
    return {
        "input_tokens": _count(usage.get("prompt_tokens")),
        "output_tokens": _count(usage.get("completion_tokens")),
        "cached_tokens": _count(_dict(usage.get("prompt_tokens_details")).get("cached_tokens")),
        "reasoning_tokens": _count(_dict(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        "queue_ms": timings.queue_ms,
        "inference_ms": timings.inference_ms,
    }


def _read_texts(message: Mapping[str, Any]) -> tuple[str, str]:
    """(content, reasoning) of a message or of a piece of one. Raises TypeError for content that is no text."""
    content = message.get("content") or ""
    thought = text_of(message.get("reasoning_content")) or text_of(message.get("reasoning")) or ""
    if isinstance(content, list):  # of parts, as Mistral's thinking models answer
        parts = [_dict(part) for part in content]
        thought += "".join(_read_texts({"content": part["thinking"]})[0] for part in parts if part.get("thinking"))
        content = "".join(text_of(part.get("text")) or "" for part in parts)
    if not isinstance(content, str):
        raise TypeError(f"content is {type(content).__name__}")
    return content, thought


def text_of(value: Any) -> str | None:
    """The value if it is a text with something in it."""
    return value if isinstance(value, str) and value else None


def _tool_call(call: Any) -> ToolCall:
    function = _dict(_dict(call).get("function"))
    texts = (_dict(call).get("id"), function.get("name"), function.get("arguments"))
    return ToolCall(*(text_of(text) or "" for text in texts))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@dataclass(slots=True)
class AnswerReader:
    """Gathers one answer and tells each piece of its text as it comes, without reasoning.

    began: whether a piece came. opens_thinking: the model is known to begin with reasoning without a mark; set when
    that is found out, and then what was told already was no answer.
    """

    on_text: OnText
    began: bool = False
    opens_thinking: bool = False
    _text: str = ""
    _thought: str = ""
    _told: str = ""
    _tools: dict[int, list[str]] = field(default_factory=dict)
    _about: dict[str, Any] = field(default_factory=dict)

    def read(self, chunks: Iterable[dict[str, Any]], headers: Mapping[str, str]) -> Completion:
        """The whole completion; its text may be empty. Raises EndpointError "broken" where the answer did not end."""
        for chunk in chunks:
            self._take(chunk)
        if self.began and "finish_reason" not in self._about:
            raise openai_client.EndpointError("broken", "broke off in the middle of its answer")
        return self._completion(headers)

    def stop(self) -> Completion:
        """What was read until nobody wanted more; its text may be empty."""
        self._about["finish_reason"] = STOPPED
        return self._completion({})

    def _take(self, chunk: dict[str, Any]) -> None:
        for name in ("id", "model"):
            if text := text_of(chunk.get(name)):
                self._about[name] = text
        if isinstance(chunk.get("usage"), dict):
            self._about["usage"] = chunk["usage"]
        for choice in chunk.get("choices") or ():
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            text, thought = _read_texts(delta)
            self._thought += thought
            self.began = self.began or bool(text or thought)
            if text:
                self._text += text
                self._tell()
            for call in delta.get("tool_calls") or ():
                self._take_tool(call)
        if reason := text_of(choice.get("finish_reason")):
            self._about["finish_reason"] = reason

    def _tell(self) -> None:
        answer = answer_so_far(self._text, opens_thinking=self.opens_thinking)
        if not answer.startswith(self._told):
            self.opens_thinking = True
        elif text := answer[len(self._told) :]:
            self._told = answer
            self.on_text(text)

    def _take_tool(self, call: Any) -> None:
        """Its id and name come once, its arguments in pieces."""
        if not isinstance(call, dict) or not isinstance(call.get("index", 0), int):
            return
        parts = self._tools.setdefault(call.get("index", 0), ["", "", ""])
        function: dict[str, Any] = call["function"] if isinstance(call.get("function"), dict) else {}
        parts[0] = parts[0] or text_of(call.get("id")) or ""
        parts[1] = parts[1] or text_of(function.get("name")) or ""
        parts[2] += text_of(function.get("arguments")) or ""

    def partial(self) -> Completion:
        """What came of an answer that broke off."""
        return self._completion({})

    def _completion(self, headers: Mapping[str, str]) -> Completion:
        answer, reasoning = split_reasoning(self._text)
        return Completion(
            text=answer,
            reasoning=self._thought.strip() or reasoning,
            told_reasoning=not answer.startswith(self._told.strip()),
            finish_reason=self._about.get("finish_reason"),
            id=self._about.get("id"),
            model=self._about.get("model"),
            tool_calls=tuple(ToolCall(*self._tools[index]) for index in sorted(self._tools)),
            **read_usage(self._about.get("usage"), headers),
        )


MAX_RETRIES = 2
BACKOFF_S = 0.5
EVENTS = "text/event-stream"
_open_thinkers: set[tuple[str, str]] = set()  # (base_url, model) of those that reason without an opening mark

# kind of EndpointError -> type of ServiceError, what to do
FAILURES = {
    "timeout": ("llm_timeout", "; ask again, or raise RAGD_LLM_TIMEOUT_S"),
    "connection": ("llm_unreachable", " (the page Models, or LLM_BASE_URL)"),
    "auth": ("llm_refused", " (the page Models, or OPENAI_API_KEY)"),
    "rate_limited": ("llm_rate_limited", "; ask again later, or raise the limit"),
    "quota": ("llm_rate_limited", "; ask again later, or raise the limit"),
    "malformed": ("llm_bad_answer", "; check its address on the page Models, or LLM_BASE_URL"),
    "broken": ("llm_broken_stream", "; ask again"),
}


class ModelError(ServiceError):
    """A model that gave no whole answer. partial: what came of it until then, None where nothing did."""

    partial: Completion | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model lives. base_url "" is OpenAI's own. timeout_s bounds the whole answer, retries included.

    limit_name, seed_name: what this server calls the longest answer and the seed. key_header: as `open_client`.
    """

    base_url: str
    api_key: str
    timeout_s: float
    max_tokens: int
    limit_name: str = "max_tokens"
    seed_name: str = "seed"
    key_header: str = ""

    @classmethod
    def of(cls, found: ModelEndpoint, *, timeout_s: float, max_tokens: int) -> Endpoint:
        """A chat endpoint that is set up. Raises ServiceError when its stored key cannot be decrypted."""
        found.require_key()
        preset = found.preset
        return cls(
            base_url=found.address if found.base_url else "",
            api_key=found.api_key,
            timeout_s=timeout_s,
            max_tokens=max_tokens,
            limit_name=preset.limit_name,
            seed_name=preset.seed_name,
            key_header=preset.key_header,
        )

    @property
    def address(self) -> tuple[str, int]:
        """(host, port)."""
        parts = urlsplit(self.base_url or openai_client.OPENAI_URL)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def complete(
    endpoint: Endpoint,
    model: str,
    messages: Sequence[Mapping[str, str]],
    *,
    on_text: OnText | None = None,
    **parameters: Any,
) -> Completion:
    """The model's answer. Lost connections, 408, 409, 429 and 5xx are retried (`RetryPolicy`).

    on_text: the answer is requested as a stream, and this gets every piece as it comes; after the first piece nothing
    is retried. Once `reader_left` is set the answer ends with what came until then. None: one whole answer. The text
    is "" only where the model calls tools instead, or was stopped before its first piece.

    Raises ModelError: 504 ("llm_timeout") when the time passes, 502 for all else ("llm_unreachable", "llm_refused",
    "llm_rate_limited", "llm_failed", "llm_bad_answer", "llm_broken_stream").
    """
    request = {"model": model, "messages": list(messages), **parameters}
    if endpoint.seed_name != "seed" and "seed" in request:  # the SDK knows OpenAI's names alone
        request["extra_body"] = {**request.get("extra_body", {}), endpoint.seed_name: request.pop("seed")}
    if on_text is not None:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
    policy = openai_client.RetryPolicy(MAX_RETRIES, BACKOFF_S, endpoint.timeout_s, endpoint.timeout_s)
    thinker = (endpoint.base_url, model)
    reader = AnswerReader(on_text, opens_thinking=thinker in _open_thinkers) if on_text is not None else None
    try:
        return policy.run(lambda timeout_s: _attempt(endpoint, request, timeout_s, reader))
    except openai_client.EndpointError as error:
        raise _model_error(error, model, reader) from error.__cause__
    finally:
        if reader is not None and reader.opens_thinking:
            _open_thinkers.add(thinker)


def _attempt(endpoint: Endpoint, request: dict[str, Any], timeout_s: float, reader: AnswerReader | None) -> Completion:
    """One attempt. Raises EndpointError; one is retryable as long as no piece of the answer has come."""
    try:
        with openai_client.endpoint_errors(timeout_s):
            completion = _send(endpoint, request, timeout_s, reader)
    except openai_client.ReadStoppedError:
        if reader is None:
            raise openai_client.EndpointError(
                "stopped", "was stopped: nobody reads the answer", retryable=False
            ) from None
        return reader.stop()
    except openai_client.EndpointError as error:
        if reader is not None and reader.began:
            error.retryable = False
            if error.kind == "connection":
                raise openai_client.EndpointError(
                    "broken", "broke off in the middle of its answer", retryable=False
                ) from error
        if error.kind == "rejected" and "stream_options" in error.body and request.pop("stream_options", None):
            error.retryable, error.retry_after_s = True, 0.0  # it does not know the option that asks for token counts
        if error.kind == "malformed":
            error.retryable = False  # another answer costs as much, and a server that is none of a model stays one
        raise
    if not completion.text and not completion.tool_calls:
        what = "its reasoning and no answer" if completion.reasoning else "an answer without a text"
        reason = f"gave {what} (finish reason {completion.finish_reason!r})"
        raise openai_client.EndpointError("malformed", reason, retryable=False)
    return completion


def _send(endpoint: Endpoint, request: dict[str, Any], timeout_s: float, reader: AnswerReader | None) -> Completion:
    """The completion of a 200 answer. Raises what the SDK raises, and EndpointError."""
    client = openai_client.open_client(endpoint.base_url, endpoint.api_key, endpoint.key_header)
    completions, timeout = client.chat.completions, openai_client.request_timeout(timeout_s)
    with openai_client.stopped_by(reader_left.get()):
        if reader is None:
            whole = completions.with_raw_response.create(**request, timeout=timeout)
            return read_body(whole.http_response.content, whole.headers)
        with completions.with_streaming_response.create(**request, timeout=timeout) as response:
            if EVENTS in response.headers.get("content-type", ""):
                return reader.read(_chunks(response.parse()), response.headers)
            completion = read_body(response.read(), response.headers)  # it does not stream, and answered whole
    if completion.text:
        reader.on_text(completion.text)
    return completion


def _chunks(stream: Any) -> Iterator[dict[str, Any]]:
    """The events of a stream as the server wrote them. Raises EndpointError for one that is no JSON object."""
    try:
        for chunk in stream:
            yield chunk.to_dict(warnings=False)
    except (ValueError, AttributeError, RecursionError) as error:
        raise openai_client.EndpointError("malformed", f"sent an event that is no JSON object ({error})") from error


def read_body(body: bytes, headers: Mapping[str, str]) -> Completion:
    """A whole answer. Raises EndpointError when it is no chat completion."""
    try:
        return read_completion(json.loads(body), headers)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        beginning = body[:80].decode(errors="replace")
        message = f"gave an answer that is no chat completion; it begins with {beginning!r}"
        raise openai_client.EndpointError("malformed", message) from error


def _model_error(error: openai_client.EndpointError, model: str, reader: AnswerReader | None) -> ModelError:
    type, hint = FAILURES.get(error.kind, ("llm_failed", ""))
    message = f"the language model {model!r} {error.message[: openai_client.QUOTED_CHARS]}{hint}"
    failure = ModelError(message, type=type, status=504 if type == "llm_timeout" else 502)
    failure.partial = reader.partial() if reader is not None and reader.began else None
    return failure


SEED = 7
TEMPERATURE = 0.0


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """None or (): not said. Then temperature is 0 and the seed fixed; of the rest nothing is sent to the model.

    temperature: 0 to 2. top_p: 0 to 1. top_k: 1 or more. max_tokens: at most RAGD_LLM_MAX_TOKENS holds. stop: up to
    four texts that end the answer. frequency_penalty, presence_penalty: -2 to 2. response_format: "text" or
    "json_object". repair: whether sentences without support are corrected by a second call, where the caller repairs.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    response_format: str | None = None
    repair: bool | None = None

    def stated(self) -> list[str]:
        """The names of what was said."""
        return [name for name, value in asdict(self).items() if value not in (None, ())]

    def request(self, *, max_tokens: int, limit_name: str) -> dict[str, Any]:
        """The fields of the request. max_tokens: the server's own limit, limit_name: what this model calls it."""
        fields = self.span_fields(max_tokens=max_tokens)
        top_k, response_format = fields.pop("top_k"), fields.pop("response_format")
        fields |= {
            limit_name: fields.pop("max_tokens"),
            "stop": fields.pop("stop_sequences"),
            "response_format": {"type": response_format} if response_format else None,
            "extra_body": {"top_k": top_k} if top_k else None,  # no parameter of OpenAI's own
        }
        return {name: value for name, value in fields.items() if value is not None}

    def span_fields(self, *, max_tokens: int) -> dict[str, Any]:
        """All that holds, as `telemetry.ChatCall` names it; None for what is not sent."""
        return {
            "temperature": TEMPERATURE if self.temperature is None else self.temperature,
            "seed": SEED if self.seed is None else self.seed,
            "max_tokens": self.limit(max_tokens),
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop_sequences": list(self.stop) or None,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "response_format": self.response_format,
        }

    def limit(self, max_tokens: int) -> int:
        """Tokens of the longest answer: what was asked for, never more than the server's limit."""
        return max_tokens if self.max_tokens is None else min(self.max_tokens, max_tokens)


class TokenCounter(Protocol):
    def count_tokens(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """first_token_ms: milliseconds to the first piece, None when nothing was streamed. The text is "" only where the
    model was stopped before its first piece."""

    completion: Completion
    usage: TokenUsage
    first_token_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A model behind an endpoint, by the name that the endpoint knows, and what counts its tokens."""

    endpoint: Endpoint
    name: str
    counter: TokenCounter


def call_model(
    chat: ChatModel,
    messages: Sequence[Mapping[str, str]],
    *,
    estimated: int,
    parameters: ModelParameters,
    template: telemetry.PromptTemplate | None = None,
    conversation_id: str | None = None,
    on_text: OnText | None = None,
) -> ModelAnswer:
    """The model's answer to these messages, in a chat span.

    estimated: the tokens of the messages as counted here, which stand where the server reports none. on_text: the
    answer streams, and this is told each piece.

    Raises ModelError as `complete`, and "llm_bad_answer" where the model only asks for tools.
    """
    endpoint, model = chat.endpoint, chat.name
    host, port = endpoint.address
    with telemetry.ChatCall(
        telemetry.provider_of(host),
        model,
        messages=messages,
        input_tokens=estimated,
        stream=on_text is not None,
        server_address=host,
        server_port=port,
        conversation_id=conversation_id,
        template=template,
        **parameters.span_fields(max_tokens=endpoint.max_tokens),
    ) as call:
        try:
            completion = complete(
                endpoint,
                model,
                messages,
                on_text=_both(call.receive, on_text) if on_text else None,
                **parameters.request(max_tokens=endpoint.max_tokens, limit_name=endpoint.limit_name),
            )
        except ModelError as error:
            if partial := error.partial:
                call.response_id, call.response_model = partial.id, partial.model
                call.reasoning = partial.reasoning
            raise
        usage = _usage(completion, estimated, chat.counter)
        _record(call, completion, usage)
        if not completion.text and completion.finish_reason != STOPPED:
            raise _no_tools(model, completion)
    return ModelAnswer(completion, usage, call.first_token_ms)


def _usage(completion: Completion, estimated: int, counter: TokenCounter) -> TokenUsage:
    """As reported; counted here when the server reports nothing."""
    if completion.input_tokens is None or completion.output_tokens is None:
        written = counter.count_tokens(completion.text)
        return TokenUsage(estimated, written, estimated=True, finish_reason=completion.finish_reason)
    return TokenUsage(
        completion.input_tokens,
        completion.output_tokens,
        cached_tokens=completion.cached_tokens,
        reasoning_tokens=completion.reasoning_tokens,
        finish_reason=completion.finish_reason,
    )


def _record(call: telemetry.ChatCall, completion: Completion, usage: TokenUsage) -> None:
    for tool in completion.tool_calls:
        call.call_tool(tool.name, tool.id, tool.arguments)
    call.reasoning = completion.reasoning
    call.queue_ms, call.inference_ms = completion.queue_ms, completion.inference_ms
    call.response_id, call.response_model = completion.id, completion.model
    call.cached_tokens, call.reasoning_tokens = usage.cached_tokens, usage.reasoning_tokens
    if usage.estimated:
        call.output_tokens = usage.generation_tokens  # counted here rather than by pieces
    call.finish(
        completion.text,
        finish_reasons=[completion.finish_reason] if completion.finish_reason else [],
        input_tokens=None if usage.estimated else usage.context_tokens,
        output_tokens=None if usage.estimated else usage.generation_tokens,
    )


def _both(first: OnText, second: OnText) -> OnText:
    def tell(text: str) -> None:
        first(text)
        second(text)

    return tell


def _no_tools(model: str, completion: Completion) -> ServiceError:
    names = ", ".join(sorted({repr(tool.name) for tool in completion.tool_calls}))
    return ServiceError(
        f"the language model {model!r} was expected to answer and asked for the tool {names}, which it was not "
        "offered; choose a model that answers, or check its settings",
        type="llm_bad_answer",
        status=502,
    )
