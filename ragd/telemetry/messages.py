"""What a model was told and what it said, on its span and in its events."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.trace import Span

from ragd.telemetry import names
from ragd.telemetry.content import Value
from ragd.telemetry.spans import add_event, set_attributes
from ragd.types import canonical_json


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """What a prompt was made of. variables: name -> text. version: tells one template from the next."""

    template: str
    variables: Mapping[str, Any]
    version: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asked for. arguments: JSON as it sent it."""

    name: str
    call_id: str
    arguments: str | None = None


def write_prompt(span: Span, messages: Sequence[Mapping[str, str]]) -> None:
    """messages: {"role", "content"}, in order; the system ones are the instructions. [] writes nothing."""
    if not messages:
        return
    attributes: dict[str, Value | None] = {}
    for number, message in enumerate(messages):
        attributes[f"{names.OI_LLM_INPUT}.{number}.message.role"] = message["role"]
        attributes[f"{names.OI_LLM_INPUT}.{number}.message.content"] = message["content"]
    conversation = [message for message in messages if message["role"] != "system"]
    instructions = [message["content"] for message in messages if message["role"] == "system"]
    attributes[names.INPUT_MESSAGES] = canonical_json(
        [{"role": item["role"], "parts": [{"type": "text", "content": item["content"]}]} for item in conversation]
    )
    if instructions:
        attributes[names.SYSTEM_INSTRUCTIONS] = canonical_json(
            [{"type": "text", "content": text} for text in instructions]
        )
        attributes[names.SYSTEM_PROMPT_HASH] = hash_prompt("\n".join(instructions))
    if conversation:
        attributes |= {names.INPUT_VALUE: conversation[-1]["content"], names.INPUT_MIME_TYPE: "text/plain"}
    set_attributes(span, attributes)
    add_event(span, names.CONTENT_PROMPT, {names.PROMPT: "\n\n".join(message["content"] for message in messages)})


def hash_prompt(text: str) -> str:
    """SHA-256 of a system prompt, with its prefix: tells a leak without keeping the prompt."""
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def write_template(span: Span, template: PromptTemplate) -> None:
    set_attributes(
        span,
        {
            names.OI_LLM_TEMPLATE: template.template,
            names.OI_LLM_TEMPLATE_VARIABLES: canonical_json(dict(template.variables)),
            names.OI_LLM_TEMPLATE_VERSION: template.version,
        },
    )


def write_tools(span: Span, tools: Sequence[Mapping[str, Any]]) -> None:
    """The definitions of what a model may call, as they were sent. [] writes nothing."""
    if not tools:
        return
    text = canonical_json(list(tools))
    flat: dict[str, Value | None] = {
        f"{names.OI_LLM_TOOLS}.{number}.tool.json_schema": canonical_json(dict(tool))
        for number, tool in enumerate(tools)
    }
    set_attributes(span, {names.REQUEST_TOOLS: text, names.TOOL_DEFINITIONS: text} | flat)


def write_answer(span: Span, text: str, reason: str, tools: Sequence[ToolCall], *, reasoning: str = "") -> None:
    """The answer, the calls that it holds, and the reasoning before it as a part of its own. reason: why it ended.

    Nothing of all this: nothing is written.
    """
    if not text and not tools and not reasoning:
        return
    parts: list[dict[str, Any]] = [{"type": "reasoning", "content": reasoning}] if reasoning else []
    parts += [{"type": "text", "content": text}] if text else []
    parts += [
        {"type": "tool_call", "id": tool.call_id, "name": tool.name, "arguments": tool.arguments} for tool in tools
    ]
    base = f"{names.OI_LLM_OUTPUT}.0.message"
    attributes: dict[str, Value | None] = {
        names.OUTPUT_MESSAGES: canonical_json([{"role": "assistant", "parts": parts, "finish_reason": reason}]),
        names.OUTPUT_VALUE: text, names.OUTPUT_MIME_TYPE: "text/plain",
        f"{base}.role": "assistant", f"{base}.content": text,
    }  # fmt: skip
    for number, tool in enumerate(tools):
        attributes[f"{base}.tool_calls.{number}.tool_call.id"] = tool.call_id
        attributes[f"{base}.tool_calls.{number}.tool_call.function.name"] = tool.name
        attributes[f"{base}.tool_calls.{number}.tool_call.function.arguments"] = tool.arguments
    set_attributes(span, attributes)
    add_event(span, names.CONTENT_COMPLETION, {names.COMPLETION: text})


def write_tool_call(span: Span, tool: ToolCall) -> None:
    add_event(
        span,
        names.TOOL_CALL,
        {
            names.TOOL_NAME: tool.name, names.TOOL_CALL_ID: tool.call_id, names.TOOL_ARGUMENTS: tool.arguments,
            names.OTEL_TOOL_CALL_ID: tool.call_id, names.OTEL_TOOL_ARGUMENTS: tool.arguments,
        },
    )  # fmt: skip


def write_tool_result(span: Span, name: str, call_id: str, result: str | None) -> None:
    add_event(
        span,
        names.TOOL_RESULT,
        {
            names.TOOL_NAME: name, names.TOOL_CALL_ID: call_id, names.TOOL_RESULT: result,
            names.OTEL_TOOL_CALL_ID: call_id, names.OTEL_TOOL_RESULT: result,
        },
    )  # fmt: skip
