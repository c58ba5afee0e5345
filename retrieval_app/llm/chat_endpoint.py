"""One chat completion from an OpenAI-compatible endpoint, whole or as a stream, within one deadline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from collections_app.endpoints.endpoints import ModelEndpoint
from collections_app.errors import ServiceError
from ragd.models.openai_client import (
    OPENAI_URL,
    QUOTED_CHARS,
    EndpointError,
    ReadStoppedError,
    RetryPolicy,
    endpoint_errors,
    open_client,
    request_timeout,
    stopped_by,
)
from retrieval_app.llm.chat_completion import AnswerReader, Completion, OnText, read_completion, reader_left

MAX_RETRIES = 2
BACKOFF_S = 0.5
EVENTS = "text/event-stream"
_open_thinkers: set[tuple[str, str]] = set()  # (base_url, model) of those that reason without an opening mark

# kind of EndpointError -> type of ServiceError, what to do
FAILURES = {
    "timeout": ("llm_timeout", "; ask again, or raise RAGD_LLM_TIMEOUT_S"),
    "connection": ("llm_unreachable", " (the page Models, or LLM_BASE_URL)"),
    "auth": ("llm_refused", " (the page Models, or OPENAI_API_KEY)"),
    "rate_limited": ("llm_rate_limited", "; ask again later, or raise the limit"),
    "quota": ("llm_rate_limited", "; ask again later, or raise the limit"),
    "malformed": ("llm_bad_answer", "; check its address on the page Models, or LLM_BASE_URL"),
    "broken": ("llm_broken_stream", "; ask again"),
}


class ModelError(ServiceError):
    """A model that gave no whole answer. partial: what came of it until then, None where nothing did."""

    partial: Completion | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model lives. base_url "" is OpenAI's own. timeout_s bounds the whole answer, retries included.

    limit_name, seed_name: what this server calls the longest answer and the seed. key_header: as `open_client`.
    """

    base_url: str
    api_key: str
    timeout_s: float
    max_tokens: int
    limit_name: str = "max_tokens"
    seed_name: str = "seed"
    key_header: str = ""

    @classmethod
    def of(cls, found: ModelEndpoint, *, timeout_s: float, max_tokens: int) -> Endpoint:
        """A chat endpoint that is set up. Raises ServiceError when its stored key cannot be decrypted."""
        found.require_key()
        preset = found.preset
        return cls(
            base_url=found.address if found.base_url else "",
            api_key=found.api_key,
            timeout_s=timeout_s,
            max_tokens=max_tokens,
            limit_name=preset.limit_name,
            seed_name=preset.seed_name,
            key_header=preset.key_header,
        )

    @property
    def address(self) -> tuple[str, int]:
        """(host, port)."""
        parts = urlsplit(self.base_url or OPENAI_URL)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def complete(
    endpoint: Endpoint,
    model: str,
    messages: Sequence[Mapping[str, str]],
    *,
    on_text: OnText | None = None,
    **parameters: Any,
) -> Completion:
    """The model's answer. Lost connections, 408, 409, 429 and 5xx are retried (`RetryPolicy`).

    on_text: the answer is requested as a stream, and this gets every piece as it comes; after the first piece nothing
    is retried. Once `reader_left` is set the answer ends with what came until then. None: one whole answer. The text
    is "" only where the model calls tools instead, or was stopped before its first piece.

    Raises ModelError: 504 ("llm_timeout") when the time passes, 502 for all else ("llm_unreachable", "llm_refused",
    "llm_rate_limited", "llm_failed", "llm_bad_answer", "llm_broken_stream").
    """
    request = {"model": model, "messages": list(messages), **parameters}
    if endpoint.seed_name != "seed" and "seed" in request:  # the SDK knows OpenAI's names alone
        request["extra_body"] = {**request.get("extra_body", {}), endpoint.seed_name: request.pop("seed")}
    if on_text is not None:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
    policy = RetryPolicy(MAX_RETRIES, BACKOFF_S, endpoint.timeout_s, endpoint.timeout_s)
    thinker = (endpoint.base_url, model)
    reader = AnswerReader(on_text, opens_thinking=thinker in _open_thinkers) if on_text is not None else None
    try:
        return policy.run(lambda timeout_s: _attempt(endpoint, request, timeout_s, reader))
    except EndpointError as error:
        raise _model_error(error, model, reader) from error.__cause__
    finally:
        if reader is not None and reader.opens_thinking:
            _open_thinkers.add(thinker)


def _attempt(endpoint: Endpoint, request: dict[str, Any], timeout_s: float, reader: AnswerReader | None) -> Completion:
    """One attempt. Raises EndpointError; one is retryable as long as no piece of the answer has come."""
    try:
        with endpoint_errors(timeout_s):
            completion = _send(endpoint, request, timeout_s, reader)
    except ReadStoppedError:
        if reader is None:
            raise EndpointError("stopped", "was stopped: nobody reads the answer", retryable=False) from None
        return reader.stop()
    except EndpointError as error:
        if reader is not None and reader.began:
            error.retryable = False
            if error.kind == "connection":
                raise EndpointError("broken", "broke off in the middle of its answer", retryable=False) from error
        if error.kind == "rejected" and "stream_options" in error.body and request.pop("stream_options", None):
            error.retryable, error.retry_after_s = True, 0.0  # it does not know the option that asks for token counts
        if error.kind == "malformed":
            error.retryable = False  # another answer costs as much, and a server that is none of a model stays one
        raise
    if not completion.text and not completion.tool_calls:
        what = "its reasoning and no answer" if completion.reasoning else "an answer without a text"
        reason = f"gave {what} (finish reason {completion.finish_reason!r})"
        raise EndpointError("malformed", reason, retryable=False)
    return completion


def _send(endpoint: Endpoint, request: dict[str, Any], timeout_s: float, reader: AnswerReader | None) -> Completion:
    """The completion of a 200 answer. Raises what the SDK raises, and EndpointError."""
    client = open_client(endpoint.base_url, endpoint.api_key, endpoint.key_header)
    completions, timeout = client.chat.completions, request_timeout(timeout_s)
    with stopped_by(reader_left.get()):
        if reader is None:
            whole = completions.with_raw_response.create(**request, timeout=timeout)
            return read_body(whole.http_response.content, whole.headers)
        with completions.with_streaming_response.create(**request, timeout=timeout) as response:
            if EVENTS in response.headers.get("content-type", ""):
                return reader.read(_chunks(response.parse()), response.headers)
            completion = read_body(response.read(), response.headers)  # it does not stream, and answered whole
    if completion.text:
        reader.on_text(completion.text)
    return completion


def _chunks(stream: Any) -> Iterator[dict[str, Any]]:
    """The events of a stream as the server wrote them. Raises EndpointError for one that is no JSON object."""
    try:
        for chunk in stream:
            yield chunk.to_dict(warnings=False)
    except (ValueError, AttributeError, RecursionError) as error:
        raise EndpointError("malformed", f"sent an event that is no JSON object ({error})") from error


def read_body(body: bytes, headers: Mapping[str, str]) -> Completion:
    """A whole answer. Raises EndpointError when it is no chat completion."""
    try:
        return read_completion(json.loads(body), headers)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        beginning = body[:80].decode(errors="replace")
        message = f"gave an answer that is no chat completion; it begins with {beginning!r}"
        raise EndpointError("malformed", message) from error


def _model_error(error: EndpointError, model: str, reader: AnswerReader | None) -> ModelError:
    type, hint = FAILURES.get(error.kind, ("llm_failed", ""))
    message = f"the language model {model!r} {error.message[:QUOTED_CHARS]}{hint}"
    failure = ModelError(message, type=type, status=504 if type == "llm_timeout" else 502)
    failure.partial = reader.partial() if reader is not None and reader.began else None
    return failure
