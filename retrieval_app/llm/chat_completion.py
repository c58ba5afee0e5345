"""What a model's server said, read out of the JSON of a chat completion, whole or as it comes piece by piece.

Streams are read leniently, as servers that speak this protocol differ: usage may come or not, [DONE] may be missing
after a finish reason, tool calls come in parts.

The reasoning of a thinking model, told from its answer where both come as one text.

Servers that separate them send reasoning in a field of its own; the others leave the marks of the model's template in
the text: both marks, the closing one alone where the prompt ended with the opening one, or the opening one alone where
the answer was cut off.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ragd.models.openai_client import EndpointError
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
    """

    context_tokens: int = 0
    generation_tokens: int = 0
    estimated: bool = False
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None

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
            raise EndpointError("broken", "broke off in the middle of its answer")
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
