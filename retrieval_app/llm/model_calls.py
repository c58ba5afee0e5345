"""One call of a chat model with the span that tells of it: what was asked, the tokens, the times, the price.

How a chat model is asked to write: what a caller may say of it, and what holds otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from collections_app.errors import ServiceError
from ragd import telemetry
from retrieval_app.llm.chat_completion import STOPPED, Completion, OnText, TokenUsage
from retrieval_app.llm.chat_endpoint import Endpoint, ModelError, complete

SEED = 7
TEMPERATURE = 0.0


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """None or (): not said. Then temperature is 0 and the seed fixed; of the rest nothing is sent to the model.

    temperature: 0 to 2. top_p: 0 to 1. top_k: 1 or more. max_tokens: at most RAGD_LLM_MAX_TOKENS holds. stop: up to
    four texts that end the answer. frequency_penalty, presence_penalty: -2 to 2. response_format: "text" or
    "json_object".
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

    Raises ModelError as `chat_endpoint.complete`, and "llm_bad_answer" where the model only asks for tools.
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
