"""The events of a chat completion that comes piece by piece, put together to one completion.

Read leniently, as servers that speak this protocol differ: usage may come or not, [DONE] may be missing after a finish
reason, tool calls come in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragd.models.openai_client import EndpointError
from retrieval_app.llm.chat_completion import Completion, ToolCall, read_usage, text_of

OnText = Callable[[str], object]


@dataclass(slots=True)
class AnswerReader:
    """Gathers one answer and tells each piece of its text as it comes. began: whether a piece was told."""

    on_text: OnText
    began: bool = False
    _texts: list[str] = field(default_factory=list)
    _tools: dict[int, list[str]] = field(default_factory=dict)
    _about: dict[str, Any] = field(default_factory=dict)

    def read(self, chunks: Iterable[dict[str, Any]], headers: Mapping[str, str]) -> Completion:
        """The whole completion; its text may be empty. Raises EndpointError "broken" where the answer did not end."""
        for chunk in chunks:
            self._take(chunk)
        if self.began and "finish_reason" not in self._about:
            raise EndpointError("broken", "broke off in the middle of its answer")
        return self._completion(headers)

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

    def _completion(self, headers: Mapping[str, str]) -> Completion:
        return Completion(
            text="".join(self._texts).strip(),
            finish_reason=self._about.get("finish_reason"),
            id=self._about.get("id"),
            model=self._about.get("model"),
            tool_calls=tuple(ToolCall(*self._tools[index]) for index in sorted(self._tools)),
            **read_usage(self._about.get("usage"), headers),
        )
