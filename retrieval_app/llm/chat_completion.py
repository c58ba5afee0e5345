"""What a model's server said, read out of the JSON of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragd.telemetry.providers import read_timings


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


def read_completion(answer: Mapping[str, Any], headers: Mapping[str, str]) -> Completion:
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
