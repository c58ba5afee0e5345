"""The spans of chat calls, in three vocabularies.

Usage and latency are Required, so they are written when the span closes, whatever happened: what is known by then,
marked `ragd.usage.estimated` unless the provider reported it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Span, SpanKind

from ragd.telemetry import names
from ragd.telemetry.call_attributes import double, parameters, since_ms, write_cost
from ragd.telemetry.content import Value
from ragd.telemetry.messages import (
    PromptTemplate,
    ToolCall,
    write_answer,
    write_prompt,
    write_template,
    write_tool_call,
    write_tool_result,
    write_tools,
)
from ragd.telemetry.pricing import Cost, count_cost, count_tokens, price_call
from ragd.telemetry.spans import open_span, reach_stage, record_error, set_attributes
from ragd.telemetry.threats import rate_answer


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
    tools: list[ToolCall] = field(default_factory=list)
    reasoning: str = ""  # what the model thought before its answer

    def receive(self, text: str, *, tokens: int = 1) -> None:
        """A piece of the answer arrived: the first one stops the time to first token."""
        if self.first_token_ms is None:
            self.first_token_ms = since_ms(self.started)
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
        cache_creation_tokens: int | None = None,
        response_id: str | None = None,
        response_model: str | None = None,
        confidence: float | None = None,
    ) -> None:
        """What the provider answered. Token counts that it did not report stay estimates.

        confidence: 0..1, how sure the answerer is of its answer, where it knows that.
        """
        if text is not None:
            self.parts = [text]
        self.finish_reasons = tuple(finish_reasons)
        self.cached_tokens = cached_tokens
        self.estimated = input_tokens is None or output_tokens is None
        self.input_tokens = self.input_tokens if input_tokens is None else input_tokens
        self.output_tokens = self.output_tokens if output_tokens is None else output_tokens
        self.name_response(response_id, response_model)
        set_attributes(
            self.span,
            {
                names.CACHE_CREATION_TOKENS: cache_creation_tokens, names.OI_TOKENS_CACHE_WRITE: cache_creation_tokens,
                names.RESPONSE_FINISH_REASONS: list(finish_reasons) or None,
                names.OI_LLM_FINISH_REASON: finish_reasons[0] if finish_reasons else None,
                names.USAGE_CACHED_TOKENS: cached_tokens, names.CACHE_READ_TOKENS: cached_tokens,
                names.OI_TOKENS_CACHE_READ: cached_tokens, names.USAGE_REASONING_TOKENS: reasoning_tokens,
                names.REASONING_OUTPUT_TOKENS: reasoning_tokens, names.OI_TOKENS_REASONING: reasoning_tokens,
                names.QUALITY_CONFIDENCE: None if confidence is None else min(1.0, max(0.0, float(confidence))),
            },
        )  # fmt: skip

    def name_response(self, response_id: str | None, response_model: str | None) -> None:
        """The answer's id and model as the provider names them; known of a stream that breaks off, too."""
        self.response_model = response_model
        set_attributes(
            self.span,
            {
                names.RESPONSE_ID: response_id, names.RESPONSE_MODEL: response_model,
                names.OI_LLM_RESPONSE_MODEL: response_model,
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
        """What the provider says of its own time, in milliseconds (see `providers.read_timings`)."""
        set_attributes(self.span, {names.LATENCY_QUEUE_MS: queue_ms, names.LATENCY_INFERENCE_MS: inference_ms})

    def call_tool(self, name: str, call_id: str, arguments: str | None = None) -> None:
        """The model asked for a tool. arguments: JSON as it came."""
        tool = ToolCall(name, call_id, arguments)
        self.tools.append(tool)
        write_tool_call(self.span, tool)

    def return_tool(self, name: str, call_id: str, result: str | None = None) -> None:
        """What a tool gave back to the model."""
        write_tool_result(self.span, name, call_id, result)

    def close(self) -> None:
        total_ms = since_ms(self.started)
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
        reason = self.finish_reasons[0] if self.finish_reasons else "error"
        write_answer(self.span, "".join(self.parts), reason, self.tools, reasoning=self.reasoning)
        self._price()

    def _price(self) -> None:
        count_tokens(self.input_tokens + self.output_tokens)
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
        write_cost(self.span, self.cost)


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
    template: PromptTemplate | None = None,
) -> Iterator[ChatCall]:
    """One answer: `chat {model}`. messages are {"role", "content"}; the system one also gives the system prompt's hash.

    estimated_input_tokens is what a local tokenizer counts; it stands until `finish` brings the provider's count.
    conversation_id: that of the pipeline when None. template: what the messages were made of.
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
        names.REQUEST_MAX_TOKENS: max_tokens, names.REQUEST_TEMPERATURE: double(temperature),
        names.REQUEST_TOP_P: double(top_p), names.REQUEST_TOP_K: top_k,
        names.REQUEST_STOP_SEQUENCES: list(stop_sequences) if stop_sequences else None,
        names.REQUEST_FREQUENCY_PENALTY: double(frequency_penalty),
        names.REQUEST_PRESENCE_PENALTY: double(presence_penalty), names.REQUEST_SEED: seed,
        names.REQUEST_STREAM: stream, names.REQUEST_TOOL_CHOICE: tool_choice,
        names.REQUEST_RESPONSE_FORMAT: response_format,
        names.OUTPUT_TYPE: "json" if response_format == "json_object" else "text",
        names.CONVERSATION_ID: conversation_id, names.SESSION_ID: conversation_id,
        names.OI_KIND: "LLM", names.OI_LLM_SYSTEM: system, names.OI_LLM_PROVIDER: system, names.OI_LLM_MODEL: model,
        names.OI_LLM_REQUEST_MODEL: model,
        names.OI_LLM_PARAMETERS: parameters(invocation),
    }  # fmt: skip
    with open_span(f"{names.CHAT} {model}", SpanKind.CLIENT, attributes) as span:
        if span.is_recording():
            write_prompt(span, messages)
            write_tools(span, tools or ())
            if template is not None:
                write_template(span, template)
        call = ChatCall(span, time.perf_counter(), system, model, estimated_input_tokens)
        try:
            yield call
        except BaseException:
            call.has_failed = True
            raise
        finally:
            call.close()
