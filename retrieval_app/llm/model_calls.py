"""One call of a chat model with the span that tells of it: what was asked, the tokens, the times, the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from collections_app.errors import ServiceError
from ragd import telemetry
from retrieval_app.llm.chat_completion import STOPPED, Completion, OnText, TokenUsage
from retrieval_app.llm.chat_endpoint import Endpoint, ModelError, complete
from retrieval_app.llm.model_parameters import ModelParameters


class TokenCounter(Protocol):
    def count_tokens(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """first_token_ms: milliseconds to the first piece, None when nothing was streamed. The text is "" only where the
    model was stopped before its first piece."""

    completion: Completion
    usage: TokenUsage
    first_token_ms: float | None = None


def call_model(
    endpoint: Endpoint,
    model: str,
    messages: Sequence[Mapping[str, str]],
    counter: TokenCounter,
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

    Raises ModelError as `chat_endpoint.complete`, and "llm_bad_answer" where the model only asks for tools.
    """
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
        usage = _usage(completion, estimated, counter)
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
