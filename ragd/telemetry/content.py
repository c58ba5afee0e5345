"""The one content switch: what spans may say of a user's, a document's or a model's text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from ragd.telemetry import names
from ragd.telemetry.pricing import Pricer, use_pricer
from ragd.types import canonical_json

Capture = Literal["full", "hash", "none"]
CAPTURES: tuple[Capture, ...] = ("full", "hash", "none")
REDACTED = "__REDACTED__"
ERROR_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*")

# What carries text of a user, a document or a model: the switch applies to exactly these.
TEXT_NAMES = frozenset(
    {
        names.RAG_QUERY, names.RETRIEVE_FILTER, names.PROMPT, names.COMPLETION, names.TOOL_ARGUMENTS, names.TOOL_RESULT,
        names.RETRIEVAL_QUERY_TEXT, names.INPUT_VALUE, names.OUTPUT_VALUE, names.OI_RERANKER_QUERY,
        names.EVALUATION_EXPLANATION, names.EXCEPTION_MESSAGE, names.EXCEPTION_STACKTRACE, names.URL_QUERY,
        names.OTEL_TOOL_ARGUMENTS, names.OTEL_TOOL_RESULT, names.OI_LLM_TEMPLATE, names.OI_LLM_TEMPLATE_VARIABLES,
        f"{names.OWN}query", f"{names.OWN}text", f"{names.OWN}title",
    }
)  # fmt: skip
TEXT_SUFFIXES = (
    ".document.content", ".document.metadata", ".message.content", ".embedding.text", ".evaluation.explanation",
    ".tool_call.function.arguments",
)  # fmt: skip
VECTOR_SUFFIX = ".embedding.vector"
TEXT_JSON_NAMES = frozenset(
    {
        names.RETRIEVAL_DOCS, names.INPUT_MESSAGES, names.OUTPUT_MESSAGES, names.SYSTEM_INSTRUCTIONS,
        names.OI_LLM_PARAMETERS,
    }
)  # fmt: skip
TEXT_JSON_KEYS = frozenset({"snippet", "content", "arguments", "result", "response", "stop"})
TEXT_LIST_NAMES = frozenset({names.REQUEST_STOP_SEQUENCES, f"{names.OWN}terms", f"{names.OWN}links"})
URL_NAMES = frozenset({names.URL_FULL, names.HTTP_URL, names.HTTP_TARGET})  # the part after "?" is text

Value = str | bool | int | float | Sequence[str] | Sequence[bool] | Sequence[int] | Sequence[float]

Redact = Callable[[str], str]

_capture: Capture = "full"
_keep_vectors = False
_redact: ContextVar[Redact | None] = ContextVar("ragd_redact", default=None)


def configure(*, capture: Capture = "full", pricer: Pricer | None = None, vectors: bool = False) -> None:
    """Set the telemetry of this process anew; what is left out becomes its default.

    capture: the content switch, "full", "hash" (SHA-256 with prefix) or "none" (a fixed literal). pricer: tells what a
    model call costs; None: no call has a cost. vectors: whether embeddings spans show the vectors of their texts, which
    tell much of them, so the switch applies. Raises ValueError for another capture.
    """
    global _capture, _keep_vectors
    if capture not in CAPTURES:
        raise ValueError(f"capture must be one of {', '.join(CAPTURES)}, not {capture!r}")
    _capture, _keep_vectors = capture, vectors
    use_pricer(pricer)


def capture_mode() -> Capture:
    return _capture


@contextmanager
def redacting(redact: Redact | None) -> Iterator[None]:
    """Inside, every text goes through `redact` before it reaches a span; None changes nothing."""
    token = _redact.set(redact)
    try:
        yield
    finally:
        _redact.reset(token)


def redacted_text(text: str) -> str:
    """The text as `redacting` lets it through: before it is cut, so that no half of what it hides stays."""
    redact = _redact.get()
    return redact(text) if redact else text


def keeps_vectors() -> bool:
    return _keep_vectors


def lets_all_through() -> bool:
    """Whether no value would be changed, so that nobody need ask for each."""
    return _capture == "full" and _redact.get() is None


def captured_text(text: str, capture: Capture | None = None) -> str:
    """`text` as the switch lets it through. What was redacted before stays as it is."""
    mode = capture or _capture
    text = redacted_text(text)
    if mode == "full" or text == REDACTED:
        return text
    if mode == "none":
        return REDACTED
    return text if _is_hash(text) else f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def captured(name: str, value: Value, capture: Capture | None = None) -> Value:
    """One attribute value as the switch lets it through. Names that carry no text are returned unchanged."""
    mode = capture or _capture
    if mode != "full" and name.endswith(VECTOR_SUFFIX):
        return REDACTED
    if mode == "full" and _redact.get() is None:
        return value
    if name in TEXT_LIST_NAMES and isinstance(value, list | tuple):
        return [captured_text(str(item), mode) for item in value]
    if not isinstance(value, str):
        return value
    if name in TEXT_NAMES or name.endswith(TEXT_SUFFIXES):
        return captured_text(value, mode)
    if name in TEXT_JSON_NAMES:
        return _captured_json(value, mode)
    if name in URL_NAMES and "?" in value:
        path, _, query = value.partition("?")
        return f"{path}?{captured_text(query, mode)}"
    return value


def captured_status(description: str, capture: Capture | None = None) -> str:
    """A status description as the switch lets it through. Of "ErrorName: message" the name stays; "" stays."""
    kind, colon, message = description.partition(": ")
    if not ERROR_NAME.fullmatch(kind):
        return captured_text(description, capture) if description else ""
    return f"{kind}: {captured_text(message, capture)}" if colon else kind


def _is_hash(text: str) -> bool:
    return len(text) == 71 and text.startswith("sha256:")


def _captured_json(value: str, mode: Capture) -> str:
    try:
        return canonical_json(_captured_node(json.loads(value), mode))
    except ValueError:
        return captured_text(value, mode)


def _captured_node(node: Any, mode: Capture) -> Any:
    if isinstance(node, list):
        return [_captured_node(item, mode) for item in node]
    if isinstance(node, dict):
        return {
            key: _captured_item(item, mode)
            if key in TEXT_JSON_KEYS and item is not None
            else _captured_node(item, mode)
            for key, item in node.items()
        }
    return node


def _captured_item(item: Any, mode: Capture) -> Any:
    """Content keeps its shape where it may be shown; else it is one text."""
    if isinstance(item, str) or mode != "full":
        return captured_text(item if isinstance(item, str) else canonical_json(item), mode)
    if isinstance(item, list):
        return [_captured_item(one, mode) for one in item]
    if isinstance(item, dict):
        return {key: _captured_item(one, mode) for key, one in item.items()}
    return item
