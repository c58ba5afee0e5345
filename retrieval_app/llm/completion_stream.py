"""The events of a chat completion that comes piece by piece, put together to one completion.

Read leniently, as servers that speak this protocol differ: usage may come or not, [DONE] may be missing after a finish
reason, tool calls come in parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from retrieval_app.llm.chat_completion import Completion, ToolCall, read_usage, text_of

EVENT_BYTES_MAX = 4_000_000
DONE = "[DONE]"

OnText = Callable[[str], object]


class StreamError(Exception):
    """The events are not those of a chat completion, or the server reports an error in their midst.

    said: the server's own words, "" where it had none. broken: the stream ended before the answer did.
    """

    def __init__(self, why: str, *, said: str = "", broken: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.said = said
        self.broken = broken


@dataclass(slots=True)
class AnswerReader:
    """Gathers one answer and tells each piece of its text as it comes. began: whether a piece was told."""

    on_text: OnText
    began: bool = False
    _texts: list[str] = field(default_factory=list)
    _tools: dict[int, list[str]] = field(default_factory=dict)
    _about: dict[str, Any] = field(default_factory=dict)

    def read(self, parts: Iterable[bytes]) -> Completion:
        """The whole completion; its text may be empty. Raises StreamError."""
        done = False
        for data in read_data(parts):
            if data == DONE:
                done = True
                break
            self._take(data)
        if not done and "finish_reason" not in self._about:
            raise StreamError("the stream ended before the answer did", broken=True)
        return self._completion()

    def _take(self, data: str) -> None:
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            raise StreamError(f"an event of its stream is no JSON: {data[:80]!r}") from None
        if not isinstance(chunk, dict):
            raise StreamError(f"an event of its stream is no object: {data[:80]!r}")
        if chunk.get("error"):
            error = chunk["error"]
            said = error.get("message") if isinstance(error, dict) else error
            raise StreamError("it reported an error in the middle of the answer", said=str(said))
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
            if text := text_of(delta.get("content")):
                self._texts.append(text)
                self.began = True
                self.on_text(text)
            for call in delta.get("tool_calls") or ():
                self._take_tool(call)
        if reason := text_of(choice.get("finish_reason")):
            self._about["finish_reason"] = reason

    def _take_tool(self, call: Any) -> None:
        """Its id and name come once, its arguments in pieces."""
        if not isinstance(call, dict) or not isinstance(call.get("index", 0), int):
            return
        parts = self._tools.setdefault(call.get("index", 0), ["", "", ""])
        function: dict[str, Any] = call["function"] if isinstance(call.get("function"), dict) else {}
        parts[0] = parts[0] or text_of(call.get("id")) or ""
        parts[1] = parts[1] or text_of(function.get("name")) or ""
        parts[2] += text_of(function.get("arguments")) or ""

    def _completion(self) -> Completion:
        return Completion(
            text="".join(self._texts).strip(),
            finish_reason=self._about.get("finish_reason"),
            id=self._about.get("id"),
            model=self._about.get("model"),
            tool_calls=tuple(ToolCall(*self._tools[index]) for index in sorted(self._tools)),
            **read_usage(self._about.get("usage")),
        )


def read_data(parts: Iterable[bytes]) -> Iterator[str]:
    """The data of each server-sent event, in order. Comments and other fields are passed over.

    Raises StreamError for an event of more than EVENT_BYTES_MAX bytes.
    """
    data: list[str] = []
    for line in _lines(parts):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    if data:
        yield "\n".join(data)


def _lines(parts: Iterable[bytes]) -> Iterator[str]:
    """Lines as they are complete, without their ends, and what is left at the end."""
    waiting = b""
    for part in parts:
        *lines, waiting = (waiting + part).split(b"\n")
        if len(waiting) > EVENT_BYTES_MAX:
            raise StreamError(f"an event of its stream has more than {EVENT_BYTES_MAX} bytes")
        for line in lines:
            yield line.removesuffix(b"\r").decode(errors="replace")
    if waiting:
        yield waiting.removesuffix(b"\r").decode(errors="replace")
