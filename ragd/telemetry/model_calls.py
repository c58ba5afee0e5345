"""Model calls: one record each, which opens a span and becomes its attributes in three vocabularies when it closes.

Usage and latency are Required, so they are written whatever happened: what is known by then, marked
`ragd.usage.estimated` unless the provider reported it.

Whose model answers at an address, by the names that OpenTelemetry GenAI v1.41.1 gives providers; and what a provider
says of its own time.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from ragd.telemetry import names
from ragd.telemetry.content import Value, keeps_vectors
from ragd.telemetry.documents import rate_answer
from ragd.telemetry.pricing import Cost, count_cost, count_tokens, price_call
from ragd.telemetry.records import attributes_of
from ragd.telemetry.spans import add_event, open_span, reach_stage, record_error, set_attributes
from ragd.types import canonical_json

EMBEDDED_TEXTS_MAX = 8  # a call with more texts counts them and does not copy them onto its span

_waited_ms: ContextVar[list[float] | None] = ContextVar("ragd_waited_ms", default=None)


@contextmanager
def waited(milliseconds: float) -> Iterator[None]:
    """The first embeddings call inside waited so long on this side, as for a limit per minute. 0 says nothing."""
    token = _waited_ms.set([milliseconds] if milliseconds > 0 else None)
    try:
        yield
    finally:
        _waited_ms.reset(token)


def hash_prompt(text: str) -> str:
    """SHA-256 of a system prompt, with its prefix: tells a leak without keeping the prompt."""
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """What a prompt was made of. variables: name -> text. version: tells one template from the next."""

    template: Annotated[str, names.OI_LLM_TEMPLATE]
    variables: Mapping[str, Any]
    version: Annotated[str, "llm.prompt_template.version"]

    @property
    def variables_text(self) -> Annotated[str, names.OI_LLM_TEMPLATE_VARIABLES]:
        return canonical_json(dict(self.variables))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asked for. arguments: JSON as it sent it."""

    name: Annotated[str, names.TOOL_NAME]
    call_id: Annotated[str, names.TOOL_CALL_ID, names.OTEL_TOOL_CALL_ID]
    arguments: Annotated[str | None, names.TOOL_ARGUMENTS, names.OTEL_TOOL_ARGUMENTS] = None


@dataclass(kw_only=True)
class ModelCall:
    """A model call that is running, as a context. What it sets is written when the span closes.

    cost: set it to what the provider itself says; it goes before what any table says. queue_ms, inference_ms: what the
    provider says of its own time (see `providers.read_timings`).
    """

    system: str
    model: str
    server_address: Annotated[str | None, names.SERVER_ADDRESS] = None
    server_port: Annotated[int | None, names.SERVER_PORT] = None
    response_model: str | None = None
    inference_ms: Annotated[float | None, names.LATENCY_INFERENCE_MS] = None
    total_ms: Annotated[float, names.LATENCY_TOTAL_MS] = 0.0
    cost: Cost | None = None
    has_failed: bool = False
    span: Span = trace.INVALID_SPAN
    operation: ClassVar[str] = ""
    kind: ClassVar[str] = ""  # of OpenInference

    def __enter__(self) -> Self:
        self._running = self._run()
        return self._running.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._running.__exit__(*error)

    @contextmanager
    def _run(self) -> Iterator[Self]:
        fixed = {names.OPERATION_NAME: self.operation, names.OI_KIND: self.kind}
        with open_span(f"{self.operation} {self.model}", SpanKind.CLIENT, fixed) as self.span:
            self.started = time.perf_counter()
            self._begin()
            try:
                yield self
            except BaseException:
                self.has_failed = True
                raise
            finally:
                self.total_ms = self._elapsed_ms()
                self._end()
                if self.span.is_recording():
                    set_attributes(self.span, attributes_of(self) | (attributes_of(self.cost) if self.cost else {}))

    def fail(self, error: BaseException) -> None:
        """Mark ERROR although the block goes on, as when another answerer takes over."""
        self.has_failed = True
        record_error(self.span, error)

    def _begin(self) -> None:
        """The span was opened."""

    def _end(self) -> None:
        """The block was left: whatever is still missing is found out."""

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000

    def _price(self, input_tokens: int, output_tokens: int, cached_tokens: int, *, estimated: bool) -> None:
        count_tokens(input_tokens + output_tokens)
        if self.cost is not None:
            count_cost(self.cost)
            return
        self.cost = price_call(
            self.system,
            (self.model, self.response_model),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_tokens=cached_tokens,
            is_billed=not (self.has_failed and estimated),
        )


@dataclass
class ChatCall(ModelCall):
    """One answer: `chat {model}`. `receive` pieces of a stream, or `finish` with the whole answer.

    messages are {"role", "content"}; the system one also gives the system prompt's hash. input_tokens is what a local
    tokenizer counts until `finish` brings the provider's count. conversation_id: that of the pipeline when None.
    template: what the messages were made of. reasoning: what the model thought before its answer. confidence: how sure
    the answerer is of its answer, where it knows that; written as 0..1.
    """

    operation = names.CHAT
    kind = "LLM"

    system: Annotated[str, names.GEN_AI_SYSTEM, names.PROVIDER_NAME, "llm.system", "llm.provider"]
    model: Annotated[str, names.REQUEST_MODEL, "llm.model_name", "llm.request.model_name"]
    messages: Sequence[Mapping[str, str]] = ()
    input_tokens: Annotated[int, names.USAGE_INPUT_TOKENS, "llm.token_count.prompt"] = 0
    stream: Annotated[bool, names.REQUEST_STREAM] = False
    max_tokens: Annotated[int | None, names.REQUEST_MAX_TOKENS] = None
    temperature: Annotated[float | None, names.REQUEST_TEMPERATURE] = None
    top_p: Annotated[float | None, names.REQUEST_TOP_P] = None
    top_k: Annotated[int | None, names.REQUEST_TOP_K] = None
    stop_sequences: Annotated[Sequence[str] | None, names.REQUEST_STOP_SEQUENCES] = None
    frequency_penalty: Annotated[float | None, names.REQUEST_FREQUENCY_PENALTY] = None
    presence_penalty: Annotated[float | None, names.REQUEST_PRESENCE_PENALTY] = None
    seed: Annotated[int | None, names.REQUEST_SEED] = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: Annotated[str | None, names.REQUEST_TOOL_CHOICE] = None
    response_format: Annotated[str | None, names.REQUEST_RESPONSE_FORMAT] = None
    conversation_id: Annotated[str | None, names.CONVERSATION_ID, names.SESSION_ID] = None
    template: PromptTemplate | None = None

    output_tokens: Annotated[int, names.USAGE_OUTPUT_TOKENS, "llm.token_count.completion"] = 0
    estimated: Annotated[bool, names.USAGE_ESTIMATED] = True
    cached_tokens: Annotated[
        int | None, names.USAGE_CACHED_TOKENS, "gen_ai.usage.cache_read.input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ] = None  # fmt: skip
    cache_creation_tokens: Annotated[
        int | None, "gen_ai.usage.cache_creation.input_tokens", "llm.token_count.prompt_details.cache_write"
    ] = None
    reasoning_tokens: Annotated[
        int | None, names.USAGE_REASONING_TOKENS, "gen_ai.usage.reasoning.output_tokens",
        "llm.token_count.completion_details.reasoning",
    ] = None  # fmt: skip
    finish_reasons: Annotated[Sequence[str], names.RESPONSE_FINISH_REASONS] = ()
    response_id: Annotated[str | None, names.RESPONSE_ID] = None
    response_model: Annotated[str | None, names.RESPONSE_MODEL, "llm.response.model_name"] = None
    queue_ms: Annotated[float | None, names.LATENCY_QUEUE_MS] = None
    first_token_ms: Annotated[float | None, names.LATENCY_FIRST_TOKEN_MS] = None
    confidence: float | None = None
    reasoning: str = ""
    parts: list[str] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def total_tokens(self) -> Annotated[int, "llm.token_count.total"]:
        return self.input_tokens + self.output_tokens

    @property
    def output_type(self) -> Annotated[str, "gen_ai.output.type"]:
        return "json" if self.response_format == "json_object" else "text"

    @property
    def parameters(self) -> Annotated[str, names.OI_LLM_PARAMETERS]:
        shared = ("max_tokens", "temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed",
                  "stream", "tool_choice", "response_format")  # fmt: skip
        return _parameters(stop=self.stop_sequences, **{name: getattr(self, name) for name in shared})

    @property
    def finish_reason(self) -> Annotated[str | None, "llm.finish_reason"]:
        return self.finish_reasons[0] if self.finish_reasons else None

    @property
    def seconds_to_first(self) -> Annotated[float | None, names.TIME_TO_FIRST_CHUNK]:
        return None if self.first_token_ms is None else self.first_token_ms / 1000

    @property
    def tokens_per_second(self) -> Annotated[float | None, names.LATENCY_TOKENS_PER_SECOND]:
        writing_ms = self.total_ms - (self.first_token_ms or 0.0)
        return self.output_tokens * 1000 / writing_ms if self.output_tokens and writing_ms > 0 else None

    @property
    def certainty(self) -> Annotated[float | None, names.QUALITY_CONFIDENCE]:
        return None if self.confidence is None else min(1.0, max(0.0, self.confidence))

    @property
    def risk_score(self) -> Annotated[float | None, names.SECURITY_RISK_SCORE]:
        return rate_answer(self.text)

    def __enter__(self) -> Self:
        reach_stage("generate")
        return super().__enter__()

    def receive(self, text: str, *, tokens: int = 1) -> None:
        """A piece of the answer arrived: the first one stops the time to first token."""
        if self.first_token_ms is None:
            self.first_token_ms = self._elapsed_ms()
        self.parts.append(text)
        self.output_tokens += tokens

    def finish(
        self,
        text: str | None = None,
        *,
        finish_reasons: Sequence[str] = (),
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        """What the provider answered. Token counts that it did not report stay estimates."""
        if text is not None:
            self.parts = [text]
        self.finish_reasons = tuple(finish_reasons)
        self.estimated = input_tokens is None or output_tokens is None
        self.input_tokens = self.input_tokens if input_tokens is None else input_tokens
        self.output_tokens = self.output_tokens if output_tokens is None else output_tokens

    def call_tool(self, name: str, call_id: str, arguments: str | None = None) -> None:
        """The model asked for a tool. arguments: JSON as it came."""
        self.tool_calls.append(ToolCall(name, call_id, arguments))
        add_event(self.span, names.TOOL_CALL, attributes_of(self.tool_calls[-1]))

    def return_tool(self, name: str, call_id: str, result: str | None = None) -> None:
        """What a tool gave back to the model."""
        add_event(
            self.span,
            names.TOOL_RESULT,
            attributes_of(ToolCall(name, call_id)) | {names.TOOL_RESULT: result, names.OTEL_TOOL_RESULT: result},
        )

    def _begin(self) -> None:
        if self.span.is_recording() and self.messages:
            text = "\n\n".join(message["content"] for message in self.messages)
            add_event(self.span, names.CONTENT_PROMPT, {names.PROMPT: text})

    def _end(self) -> None:
        self._price(self.input_tokens, self.output_tokens, self.cached_tokens or 0, estimated=self.estimated)
        if not self.span.is_recording():
            return
        template = attributes_of(self.template) if self.template else {}
        set_attributes(self.span, self._prompt() | self._definitions() | template | self._answer())
        if self.text or self.tool_calls or self.reasoning:
            add_event(self.span, names.CONTENT_COMPLETION, {names.COMPLETION: self.text})

    def _prompt(self) -> dict[str, Value | None]:
        """The messages in order; the system ones are the instructions."""
        if not self.messages:
            return {}
        conversation = [message for message in self.messages if message["role"] != "system"]
        instructions = [message["content"] for message in self.messages if message["role"] == "system"]
        attributes: dict[str, Value | None] = {
            f"{names.OI_LLM_INPUT}.{number}.message.{key}": message[key]
            for number, message in enumerate(self.messages)
            for key in ("role", "content")
        }
        attributes[names.INPUT_MESSAGES] = canonical_json(
            [{"role": item["role"], "parts": [{"type": "text", "content": item["content"]}]} for item in conversation]
        )
        if instructions:
            parts = [{"type": "text", "content": text} for text in instructions]
            attributes[names.SYSTEM_INSTRUCTIONS] = canonical_json(parts)
            attributes[names.SYSTEM_PROMPT_HASH] = hash_prompt("\n".join(instructions))
        if conversation:
            attributes |= {names.INPUT_VALUE: conversation[-1]["content"], names.INPUT_MIME_TYPE: "text/plain"}
        return attributes

    def _definitions(self) -> dict[str, Value | None]:
        """What the model may call, as it was sent."""
        if not self.tools:
            return {}
        flat: dict[str, Value | None] = {
            f"{names.OI_LLM_TOOLS}.{number}.tool.json_schema": canonical_json(dict(tool))
            for number, tool in enumerate(self.tools)
        }
        return flat | dict.fromkeys((names.REQUEST_TOOLS, names.TOOL_DEFINITIONS), canonical_json(list(self.tools)))

    def _answer(self) -> dict[str, Value | None]:
        """The answer, the calls that it holds, and the reasoning before it as a part of its own."""
        if not self.text and not self.tool_calls and not self.reasoning:
            return {}
        parts: list[dict[str, Any]] = [{"type": "reasoning", "content": self.reasoning}] if self.reasoning else []
        parts += [{"type": "text", "content": self.text}] if self.text else []
        parts += [
            {"type": "tool_call", "id": tool.call_id, "name": tool.name, "arguments": tool.arguments}
            for tool in self.tool_calls
        ]
        message = {"role": "assistant", "parts": parts, "finish_reason": self.finish_reason or "error"}
        base = f"{names.OI_LLM_OUTPUT}.0.message"
        attributes: dict[str, Value | None] = {
            names.OUTPUT_MESSAGES: canonical_json([message]), names.OUTPUT_VALUE: self.text,
            names.OUTPUT_MIME_TYPE: "text/plain", f"{base}.role": "assistant", f"{base}.content": self.text,
        }  # fmt: skip
        for number, tool in enumerate(self.tool_calls):
            call = f"{base}.tool_calls.{number}.tool_call"
            attributes |= {
                f"{call}.id": tool.call_id, f"{call}.function.name": tool.name,
                f"{call}.function.arguments": tool.arguments,
            }  # fmt: skip
        return attributes


@dataclass
class EmbeddingsCall(ModelCall):
    """One embeddings request: `embeddings {model}`. Set input_tokens to what the provider reported.

    dims: of the vectors; requested_dims: what the request asks for, None where it leaves that to the model.
    """

    operation = names.EMBEDDINGS
    kind = "EMBEDDING"

    system: Annotated[str, names.GEN_AI_SYSTEM, names.PROVIDER_NAME]
    model: Annotated[str, names.REQUEST_MODEL, "embedding.model_name"]
    dims: Annotated[int | None, names.DIMENSION_COUNT] = None
    requested_dims: Annotated[int | None, names.REQUEST_DIMENSIONS] = None
    texts_count: Annotated[int | None, names.TEXTS_COUNT] = None
    texts: Sequence[str] | None = None
    estimated_tokens: int = 0
    encoding_format: Annotated[str | None, names.REQUEST_ENCODING_FORMAT] = None
    input_tokens: int | None = None
    response_model: Annotated[str | None, names.RESPONSE_MODEL] = None
    queue_ms: float | None = None
    waited_ms: float | None = None

    @property
    def tokens(self) -> Annotated[int, names.USAGE_INPUT_TOKENS, "llm.token_count.prompt", "llm.token_count.total"]:
        return self.estimated_tokens if self.input_tokens is None else self.input_tokens

    @property
    def estimated(self) -> Annotated[bool, names.USAGE_ESTIMATED]:
        return self.input_tokens is None

    @property
    def encoding_formats(self) -> Annotated[Sequence[str], "gen_ai.request.encoding_formats"]:
        return [self.encoding_format] if self.encoding_format else []

    @property
    def parameters(self) -> Annotated[str, names.OI_EMBEDDING_PARAMETERS]:
        return _parameters(model=self.model, dimensions=self.requested_dims, encoding_format=self.encoding_format)

    @property
    def whole_queue_ms(self) -> Annotated[float | None, names.LATENCY_QUEUE_MS]:
        waits = [wait for wait in (self.waited_ms, self.queue_ms) if wait is not None]
        return sum(waits) if waits else None

    @property
    def listed(self) -> Sequence[str]:
        """The texts that the span shows."""
        return self.texts if self.texts is not None and len(self.texts) <= EMBEDDED_TEXTS_MAX else ()

    def record_vectors(self, vectors: Sequence[Iterable[float]]) -> None:
        """The vectors of the texts that the span shows, in order, where this process keeps vectors."""
        if keeps_vectors() and self.span.is_recording():
            self._write("vector", [[float(value) for value in vector] for vector in vectors[: len(self.listed)]])

    def _begin(self) -> None:
        if self.texts is not None:
            self.texts_count = len(self.texts)
        waits = _waited_ms.get()
        self.waited_ms = waits.pop() if waits else None  # no other call takes it
        self._write("text", self.listed)

    def _end(self) -> None:
        self._price(self.tokens, 0, 0, estimated=self.estimated)

    def _write(self, member: str, values: Sequence[Value]) -> None:
        base = names.OI_EMBEDDINGS
        set_attributes(self.span, {f"{base}.{number}.embedding.{member}": value for number, value in enumerate(values)})


def _parameters(**values: Any) -> str:
    return canonical_json({name: value for name, value in values.items() if value is not None})


COMPATIBLE = "openai_compatible"  # a server of one's own, or of somebody who is not known here

# Hosts, and what the hosts end in when it begins with a point. Names without an entry in the conventions are own ones.
HOSTS = {
    "api.openai.com": "openai",
    ".openai.azure.com": "azure.ai.openai",
    ".cognitiveservices.azure.com": "azure.ai.openai",
    ".services.ai.azure.com": "azure.ai.inference",
    ".models.ai.azure.com": "azure.ai.inference",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "-aiplatform.googleapis.com": "gcp.vertex_ai",
    ".amazonaws.com": "aws.bedrock",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "openrouter.ai": "openrouter",
    "api.together.xyz": "together",
    "api.fireworks.ai": "fireworks",
    "api.voyageai.com": "voyageai",
    "api.cerebras.ai": "cerebras",
}


def provider_of(host: str | None) -> str:
    """`gen_ai.provider.name` for a host, such as "mistral_ai" for api.mistral.ai; COMPATIBLE for any other."""
    name = (host or "").lower().rstrip(".")
    if name in HOSTS:
        return HOSTS[name]
    return next((match for end, match in HOSTS.items() if end[0] in ".-" and name.endswith(end)), COMPATIBLE)


# Where servers say how long a request waited and was worked on: name of the header -> milliseconds per unit.
QUEUE_HEADERS = {"x-queue-time": 1.0, "fireworks-prefill-queue-duration": 1000.0}
INFERENCE_HEADERS = {"x-inference-time": 1.0, "openai-processing-ms": 1.0, "fireworks-server-processing-time": 1000.0}
# Fields of `usage`, in seconds, that add up to one time.
QUEUE_USAGE = ("queue_time",)
INFERENCE_USAGE = ("prompt_time", "completion_time")


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds; None where the provider said nothing that can be read."""

    queue_ms: float | None = None
    inference_ms: float | None = None


def read_timings(headers: Mapping[str, str], usage: Mapping[str, Any] | None = None) -> Timings:
    """What the headers of an answer, in lower case, or its `usage` say. A header goes before `usage`."""
    details = usage or {}
    queue_ms, inference_ms = _from_headers(headers, QUEUE_HEADERS), _from_headers(headers, INFERENCE_HEADERS)
    return Timings(
        _from_usage(details, QUEUE_USAGE) if queue_ms is None else queue_ms,
        _from_usage(details, INFERENCE_USAGE) if inference_ms is None else inference_ms,
    )


def _from_headers(headers: Mapping[str, str], units: Mapping[str, float]) -> float | None:
    for name, unit in units.items():
        if (value := _number(headers.get(name))) is not None:
            return value * unit
    return None


def _from_usage(usage: Mapping[str, Any], fields: tuple[str, ...]) -> float | None:
    result = [value for field in fields if (value := _number(usage.get(field))) is not None]
    return sum(result) * 1000 if result else None


def _number(value: Any) -> float | None:
    """A time that makes sense, else None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
