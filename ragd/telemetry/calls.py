"""The spans of model calls: embeddings and chat, in three vocabularies.

Usage and latency are Required, so they are written when the span closes, whatever happened: what is known by then,
marked `ragd.usage.estimated` unless the provider reported it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Span, SpanKind

from ragd.telemetry import names
from ragd.telemetry.content import Value
from ragd.telemetry.pricing import CURRENCY, Cost, count_cost, price_call
from ragd.telemetry.spans import add_event, open_span, reach_stage, record_error, set_attributes
from ragd.telemetry.threats import rate_answer
from ragd.types import canonical_json

EMBEDDED_TEXTS_MAX = 8  # a call with more texts counts them and does not copy them onto its span


@dataclass(slots=True)
class EmbeddingsCall:
    """An embeddings call that is running. Set `input_tokens` to what the provider reported, `cost` if it said one."""

    span: Span
    started: float
    system: str
    model: str
    estimated_tokens: int = 0
    input_tokens: int | None = None
    response_model: str | None = None
    queue_ms: float | None = None
    cost: Cost | None = None
    has_failed: bool = False

    def fail(self, error: BaseException) -> None:
        """Mark ERROR although the block goes on."""
        self.has_failed = True
        record_error(self.span, error)

    def close(self) -> None:
        estimated = self.input_tokens is None
        tokens = self.estimated_tokens if self.input_tokens is None else self.input_tokens
        set_attributes(
            self.span,
            {
                names.USAGE_INPUT_TOKENS: tokens, names.OI_TOKENS_PROMPT: tokens, names.OI_TOKENS_TOTAL: tokens,
                names.USAGE_ESTIMATED: estimated, names.RESPONSE_MODEL: self.response_model,
                names.LATENCY_QUEUE_MS: self.queue_ms, names.LATENCY_TOTAL_MS: _since_ms(self.started),
            },
        )  # fmt: skip
        if self.cost is not None:
            count_cost(self.cost)
        else:
            self.cost = price_call(
                self.system,
                (self.model, self.response_model),
                input_tokens=tokens,
                is_billed=not (self.has_failed and estimated),
            )
        _write_cost(self.span, self.cost)


@contextmanager
def embeddings_span(
    *,
    system: str,
    model: str,
    dims: int | None = None,
    texts_count: int | None = None,
    texts: Sequence[str] | None = None,
    estimated_tokens: int = 0,
    encoding_format: str | None = None,
    server_address: str | None = None,
    server_port: int | None = None,
) -> Iterator[EmbeddingsCall]:
    """One embeddings request: `embeddings {model}`. estimated_tokens stands until `input_tokens` is set."""
    attributes: dict[str, Value | None] = {
        names.GEN_AI_SYSTEM: system, names.PROVIDER_NAME: system, names.OPERATION_NAME: names.EMBEDDINGS,
        names.REQUEST_MODEL: model, names.REQUEST_DIMENSIONS: dims, names.DIMENSION_COUNT: dims,
        names.REQUEST_ENCODING_FORMAT: encoding_format,
        names.ENCODING_FORMATS: [encoding_format] if encoding_format else None,
        names.SERVER_ADDRESS: server_address, names.SERVER_PORT: server_port,
        names.TEXTS_COUNT: len(texts) if texts is not None else texts_count,
        names.OI_KIND: "EMBEDDING", names.OI_EMBEDDING_MODEL: model,
        names.OI_EMBEDDING_PARAMETERS: _parameters(
            {"model": model, "dimensions": dims, "encoding_format": encoding_format}
        ),
    }  # fmt: skip
    if texts is not None and len(texts) <= EMBEDDED_TEXTS_MAX:
        attributes |= {f"{names.OI_EMBEDDINGS}.{number}.embedding.text": text for number, text in enumerate(texts)}
    with open_span(f"{names.EMBEDDINGS} {model}", SpanKind.CLIENT, attributes) as span:
        call = EmbeddingsCall(span, time.perf_counter(), system, model, estimated_tokens)
        try:
            yield call
        except BaseException:
            call.has_failed = True
            raise
        finally:
            call.close()


@dataclass(slots=True)
class ChatCall:
    """A chat call that is running. `receive` pieces of a stream, or `finish` with the whole answer."""

    span: Span
    started: float
    system: str
    model: str
    input_tokens: int
    output_tokens: int = 0
    estimated: bool = True
    cached_tokens: int | None = None
    response_model: str | None = None
    cost: Cost | None = None
    has_failed: bool = False
    first_token_ms: float | None = None
    finish_reasons: tuple[str, ...] = ()
    parts: list[str] = field(default_factory=list)

    def receive(self, text: str, *, tokens: int = 1) -> None:
        """A piece of the answer arrived: the first one stops the time to first token."""
        if self.first_token_ms is None:
            self.first_token_ms = _since_ms(self.started)
        self.parts.append(text)
        self.output_tokens += tokens

    def finish(
        self,
        text: str | None = None,
        *,
        finish_reasons: Sequence[str] = (),
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        response_id: str | None = None,
        response_model: str | None = None,
        confidence: float | None = None,
    ) -> None:
        """What the provider answered. Token counts that it did not report stay estimates."""
        if text is not None:
            self.parts = [text]
        self.finish_reasons = tuple(finish_reasons)
        self.cached_tokens, self.response_model = cached_tokens, response_model
        self.estimated = input_tokens is None or output_tokens is None
        self.input_tokens = self.input_tokens if input_tokens is None else input_tokens
        self.output_tokens = self.output_tokens if output_tokens is None else output_tokens
        set_attributes(
            self.span,
            {
                names.RESPONSE_ID: response_id, names.RESPONSE_MODEL: response_model,
                names.RESPONSE_FINISH_REASONS: list(finish_reasons) or None,
                names.OI_LLM_FINISH_REASON: finish_reasons[0] if finish_reasons else None,
                names.USAGE_CACHED_TOKENS: cached_tokens, names.CACHE_READ_TOKENS: cached_tokens,
                names.OI_TOKENS_CACHE_READ: cached_tokens, names.USAGE_REASONING_TOKENS: reasoning_tokens,
                names.REASONING_OUTPUT_TOKENS: reasoning_tokens, names.OI_TOKENS_REASONING: reasoning_tokens,
                names.QUALITY_CONFIDENCE: confidence,
            },
        )  # fmt: skip

    def fail(self, error: BaseException) -> None:
        """Mark ERROR although the block goes on, as when another answerer takes over."""
        self.has_failed = True
        record_error(self.span, error)

    def record_cost(self, *, input_cost: float, output_cost: float) -> None:
        """What the provider itself says that the call cost, in US dollars; it goes before what any table says."""
        self.cost = Cost(input_cost, output_cost, "provider")

    def record_timings(self, *, queue_ms: float | None = None, inference_ms: float | None = None) -> None:
        set_attributes(self.span, {names.LATENCY_QUEUE_MS: queue_ms, names.LATENCY_INFERENCE_MS: inference_ms})

    def call_tool(self, name: str, call_id: str, arguments: str | None = None) -> None:
        values = {names.TOOL_NAME: name, names.TOOL_CALL_ID: call_id, names.TOOL_ARGUMENTS: arguments}
        add_event(self.span, names.TOOL_CALL, values)

    def return_tool(self, name: str, call_id: str, result: str | None = None) -> None:
        values = {names.TOOL_NAME: name, names.TOOL_CALL_ID: call_id, names.TOOL_RESULT: result}
        add_event(self.span, names.TOOL_RESULT, values)

    def close(self) -> None:
        total_ms = _since_ms(self.started)
        writing_ms = total_ms - (self.first_token_ms or 0.0)
        seconds_to_first = None if self.first_token_ms is None else self.first_token_ms / 1000
        set_attributes(
            self.span,
            {
                names.USAGE_INPUT_TOKENS: self.input_tokens, names.USAGE_OUTPUT_TOKENS: self.output_tokens,
                names.OI_TOKENS_PROMPT: self.input_tokens, names.OI_TOKENS_COMPLETION: self.output_tokens,
                names.OI_TOKENS_TOTAL: self.input_tokens + self.output_tokens, names.USAGE_ESTIMATED: self.estimated,
                names.LATENCY_TOTAL_MS: total_ms, names.LATENCY_FIRST_TOKEN_MS: self.first_token_ms,
                names.TIME_TO_FIRST_CHUNK: seconds_to_first,
                names.SECURITY_RISK_SCORE: rate_answer("".join(self.parts)),
                names.LATENCY_TOKENS_PER_SECOND: self.output_tokens * 1000 / writing_ms
                if self.output_tokens and writing_ms > 0
                else None,
            },
        )  # fmt: skip
        self._write_answer("".join(self.parts))
        self._price()

    def _price(self) -> None:
        if self.cost is not None:
            count_cost(self.cost)
        else:
            self.cost = price_call(
                self.system,
                (self.model, self.response_model),
                input_tokens=self.input_tokens,
                output_tokens=self.output_tokens,
                cached_tokens=self.cached_tokens or 0,
                is_billed=not (self.has_failed and self.estimated),
            )
        _write_cost(self.span, self.cost)

    def _write_answer(self, text: str) -> None:
        if not text:
            return
        reason = self.finish_reasons[0] if self.finish_reasons else "error"
        message = {"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": reason}
        set_attributes(
            self.span,
            {
                names.OUTPUT_MESSAGES: canonical_json([message]),
                names.OUTPUT_VALUE: text, names.OUTPUT_MIME_TYPE: "text/plain",
                f"{names.OI_LLM_OUTPUT}.0.message.role": "assistant",
                f"{names.OI_LLM_OUTPUT}.0.message.content": text,
            },
        )  # fmt: skip
        add_event(self.span, names.CONTENT_COMPLETION, {names.COMPLETION: text})


@contextmanager
def chat_span(
    system: str,
    model: str,
    *,
    messages: Sequence[Mapping[str, str]] = (),
    estimated_input_tokens: int = 0,
    stream: bool = False,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    stop_sequences: Sequence[str] | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    seed: int | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    tool_choice: str | None = None,
    response_format: str | None = None,
    server_address: str | None = None,
    server_port: int | None = None,
    conversation_id: str | None = None,
) -> Iterator[ChatCall]:
    """One answer: `chat {model}`. messages are {"role", "content"}; the system one also gives the system prompt's hash.

    estimated_input_tokens is what a local tokenizer counts; it stands until `finish` brings the provider's count.
    """
    reach_stage("generate")
    invocation: dict[str, Any] = {
        "max_tokens": max_tokens, "temperature": temperature, "top_p": top_p, "top_k": top_k, "stop": stop_sequences,
        "frequency_penalty": frequency_penalty, "presence_penalty": presence_penalty, "seed": seed, "stream": stream,
        "tool_choice": tool_choice, "response_format": response_format,
    }  # fmt: skip
    attributes: dict[str, Value | None] = {
        names.GEN_AI_SYSTEM: system, names.PROVIDER_NAME: system, names.OPERATION_NAME: names.CHAT,
        names.REQUEST_MODEL: model, names.SERVER_ADDRESS: server_address, names.SERVER_PORT: server_port,
        names.REQUEST_MAX_TOKENS: max_tokens, names.REQUEST_TEMPERATURE: _double(temperature),
        names.REQUEST_TOP_P: _double(top_p), names.REQUEST_TOP_K: top_k,
        names.REQUEST_STOP_SEQUENCES: list(stop_sequences) if stop_sequences else None,
        names.REQUEST_FREQUENCY_PENALTY: _double(frequency_penalty),
        names.REQUEST_PRESENCE_PENALTY: _double(presence_penalty), names.REQUEST_SEED: seed,
        names.REQUEST_STREAM: stream, names.REQUEST_TOOL_CHOICE: tool_choice,
        names.REQUEST_RESPONSE_FORMAT: response_format,
        names.OUTPUT_TYPE: "json" if response_format == "json_object" else "text",
        names.CONVERSATION_ID: conversation_id, names.SESSION_ID: conversation_id,
        names.OI_KIND: "LLM", names.OI_LLM_SYSTEM: system, names.OI_LLM_PROVIDER: system, names.OI_LLM_MODEL: model,
        names.OI_LLM_PARAMETERS: _parameters(invocation),
    }  # fmt: skip
    with open_span(f"{names.CHAT} {model}", SpanKind.CLIENT, attributes) as span:
        if span.is_recording():
            _write_prompt(span, messages)
            _write_tools(span, tools or ())
        call = ChatCall(span, time.perf_counter(), system, model, estimated_input_tokens)
        try:
            yield call
        except BaseException:
            call.has_failed = True
            raise
        finally:
            call.close()


def _write_cost(span: Span, cost: Cost | None) -> None:
    """A call without a known price has no cost attribute at all."""
    if cost is None:
        return
    set_attributes(
        span,
        {
            names.COST_INPUT: cost.input, names.COST_OUTPUT: cost.output, names.COST_TOTAL: cost.total,
            names.OI_COST_PROMPT: cost.input, names.OI_COST_COMPLETION: cost.output, names.OI_COST_TOTAL: cost.total,
            names.COST_CURRENCY: CURRENCY, names.COST_INPUT_PRICE: cost.input_per_million,
            names.COST_OUTPUT_PRICE: cost.output_per_million, names.COST_SOURCE: cost.source,
            names.COST_TABLE_VERSION: cost.version or None,
        },
    )  # fmt: skip


def _write_prompt(span: Span, messages: Sequence[Mapping[str, str]]) -> None:
    if not messages:
        return
    attributes: dict[str, Value | None] = {}
    for number, message in enumerate(messages):
        attributes[f"{names.OI_LLM_INPUT}.{number}.message.role"] = message["role"]
        attributes[f"{names.OI_LLM_INPUT}.{number}.message.content"] = message["content"]
    said = [message for message in messages if message["role"] != "system"]
    instructions = [message["content"] for message in messages if message["role"] == "system"]
    attributes[names.INPUT_MESSAGES] = canonical_json(
        [{"role": item["role"], "parts": [{"type": "text", "content": item["content"]}]} for item in said]
    )
    if instructions:
        attributes[names.SYSTEM_INSTRUCTIONS] = canonical_json(
            [{"type": "text", "content": text} for text in instructions]
        )
        attributes[names.SYSTEM_PROMPT_HASH] = hash_prompt("\n".join(instructions))
    attributes |= {names.INPUT_VALUE: said[-1]["content"] if said else None, names.INPUT_MIME_TYPE: "text/plain"}
    set_attributes(span, attributes)
    add_event(span, names.CONTENT_PROMPT, {names.PROMPT: "\n\n".join(message["content"] for message in messages)})


def _write_tools(span: Span, tools: Sequence[Mapping[str, Any]]) -> None:
    if not tools:
        return
    text = canonical_json(list(tools))
    flat: dict[str, Value | None] = {
        f"{names.OI_LLM_TOOLS}.{number}.tool.json_schema": canonical_json(dict(tool))
        for number, tool in enumerate(tools)
    }
    set_attributes(span, {names.REQUEST_TOOLS: text, names.TOOL_DEFINITIONS: text} | flat)


def hash_prompt(text: str) -> str:
    """SHA-256 of a system prompt, with its prefix: tells a leak without keeping the prompt."""
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def _parameters(values: Mapping[str, Any]) -> str:
    return canonical_json({key: value for key, value in values.items() if value is not None})


def _double(value: float | None) -> float | None:
    return None if value is None else float(value)


def _since_ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000
