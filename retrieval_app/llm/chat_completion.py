"""What a model's server said, read out of the JSON of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MS_HEADERS = {"queue_ms": ("x-queue-time",), "inference_ms": ("x-inference-time", "openai-processing-ms")}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants to be called. arguments: JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. Counts and times that the server did not report are None. text: "" only beside tool calls."""

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


def read_completion(answer: Mapping[str, Any]) -> Completion:
    """Raises KeyError, IndexError or TypeError when it is no chat completion. The text may be empty."""
    choice = answer["choices"][0]
    message = choice["message"]
    text = message["content"] if message.get("content") is not None else ""
    if not isinstance(text, str):
        raise TypeError(f"content is {type(text).__name__}")
    return Completion(
        text=text.strip(),
        finish_reason=text_of(choice.get("finish_reason")),
        id=text_of(answer.get("id")),
        model=text_of(answer.get("model")),
        tool_calls=tuple(_tool_call(call) for call in message.get("tool_calls") or ()),
        **read_usage(answer.get("usage")),
    )


def read_usage(value: Any) -> dict[str, Any]:
    """The token counts as fields of Completion, and the times of servers that tell them there, in seconds."""
    usage = _dict(value)
    return {
        "input_tokens": _count(usage.get("prompt_tokens")),
        "output_tokens": _count(usage.get("completion_tokens")),
        "cached_tokens": _count(_dict(usage.get("prompt_tokens_details")).get("cached_tokens")),
        "reasoning_tokens": _count(_dict(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        "queue_ms": _scaled(usage.get("queue_time"), 1000),
        "inference_ms": _scaled(usage.get("total_time"), 1000),
    }


def read_times(headers: Mapping[str, str]) -> dict[str, Any]:
    """queue_ms and inference_ms, as far as the headers of a whole answer tell them (milliseconds)."""
    found: dict[str, Any] = {}
    for name, wanted in MS_HEADERS.items():
        values = [_scaled(headers.get(header), 1) for header in wanted]
        if known := [value for value in values if value is not None]:
            found[name] = known[0]
    return found


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


def _scaled(value: Any, factor: float) -> float | None:
    """A finite number that is not negative, times the factor; None for anything else."""
    try:
        number = float(value) * factor
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < float("inf") else None
