"""One chat completion from an OpenAI-compatible endpoint, whole or as a stream: attempts, waits, one deadline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from collections_app.errors import ServiceError
from ragd.models.openai_endpoint import read_retry_after
from retrieval_app.llm.chat_completion import Completion, read_completion, read_times
from retrieval_app.llm.completion_stream import AnswerReader, OnText, StreamError

OPENAI_URL = "https://api.openai.com/v1"
ATTEMPTS = 3
PAUSE_S = 0.5
CONNECT_TIMEOUT_S = 5.0
RETRIED_STATUSES = frozenset({408, 409, 429})
QUOTED_CHARS = 300
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model lives. base_url "" is OpenAI's own. timeout_s bounds the whole answer, retries included."""

    base_url: str
    api_key: str
    timeout_s: float
    max_tokens: int

    @property
    def address(self) -> tuple[str, int]:
        """(host, port)."""
        parts = urlsplit(self.base_url or OPENAI_URL)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


class _AttemptError(Exception):
    """One attempt's error; wait_s is None when another attempt is no use.

    refuses_usage: the server does not know the option that asks for token counts, and nothing else was wrong.
    """

    def __init__(self, error: ServiceError, wait_s: float | None = None, *, refuses_usage: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.wait_s = wait_s
        self.refuses_usage = refuses_usage


def complete(
    endpoint: Endpoint,
    model: str,
    messages: Sequence[Mapping[str, str]],
    *,
    on_text: OnText | None = None,
    **parameters: Any,
) -> Completion:
    """The model's answer. Lost connections, 408, 409, 429 and 5xx are tried again while tries and time are left.

    on_text: the answer is asked for as a stream, and this is told every piece as it comes; after the first piece
    nothing is tried again. None: one whole answer. The text is "" only where the model calls tools instead.

    Raises ServiceError: 504 ("llm_timeout") when the time passes, 502 for all else ("llm_unreachable", "llm_refused",
    "llm_rate_limited", "llm_failed", "llm_bad_answer", "llm_broken_stream").
    """
    deadline = time.monotonic() + endpoint.timeout_s
    request = {"model": model, "messages": list(messages), **parameters}
    if on_text is not None:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
    for attempt in range(ATTEMPTS):
        reader = AnswerReader(on_text) if on_text is not None else None
        try:
            return _send(endpoint, request, deadline, attempt, reader)
        except _AttemptError as failure:
            wait_s = failure.wait_s
            has_begun = reader is not None and reader.began
            if has_begun or wait_s is None or attempt + 1 == ATTEMPTS or time.monotonic() + wait_s >= deadline:
                raise failure.error from failure.__cause__
            if failure.refuses_usage:
                request.pop("stream_options", None)
            time.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")


def _send(
    endpoint: Endpoint, request: dict[str, Any], deadline: float, attempt: int, reader: AnswerReader | None
) -> Completion:
    """The completion of a 200 answer. The client's timeout bounds each read, so their sum is watched here."""
    model, pause_s = str(request["model"]), PAUSE_S * 2.0**attempt
    left_s = max(0.05, deadline - time.monotonic())
    timeout = httpx2.Timeout(left_s, connect=min(left_s, CONNECT_TIMEOUT_S))
    client = _client(endpoint.base_url, endpoint.api_key, os.getpid())
    try:
        with client.chat.completions.with_streaming_response.create(**request, timeout=timeout) as response:
            parts = _until(deadline, response.iter_bytes(), model, endpoint)
            if reader is not None and EVENTS in response.headers.get("content-type", ""):
                completion = reader.read(parts)
            else:
                completion = replace(_read(b"".join(parts), model), **read_times(response.headers))
                if reader is not None and completion.text:  # it does not stream, and answered whole
                    reader.on_text(completion.text)
            return _checked(completion, model)
    except (openai.APITimeoutError, httpx2.TimeoutException) as error:
        raise _timed_out(model, endpoint) from error
    except openai.APIStatusError as error:
        raise _status_failure(error, model, pause_s, request) from error
    except StreamError as error:
        raise _stream_failure(error, model, pause_s) from error
    except (openai.APIConnectionError, httpx2.TransportError) as error:
        if reader is not None and reader.began:
            raise _broken(model, pause_s) from error
        message = "the language model's server cannot be reached; check LLM_BASE_URL and that the server runs"
        raise _failed("llm_unreachable", message, wait_s=pause_s) from error
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        raise _bad_answer(model, "it cannot be read") from error


def _until(deadline: float, parts: Iterable[bytes], model: str, endpoint: Endpoint) -> Iterator[bytes]:
    for part in parts:
        yield part
        if time.monotonic() > deadline:
            raise _timed_out(model, endpoint)


@lru_cache(maxsize=8)
def _client(base_url: str, api_key: str, pid: int) -> openai.OpenAI:
    """One client per endpoint and process, so that connections are kept."""
    return openai.OpenAI(base_url=base_url or OPENAI_URL, api_key=api_key or "none", max_retries=0)


def _read(body: bytes, model: str) -> Completion:
    try:
        return read_completion(json.loads(body))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise _bad_answer(model, f"it begins with {body[:80].decode(errors='replace')!r}") from error


def _checked(completion: Completion, model: str) -> Completion:
    if not completion.text and not completion.tool_calls:
        raise _bad_answer(model, f"it holds no text (finish reason {completion.finish_reason!r})")
    return completion


def _status_failure(
    error: openai.APIStatusError, model: str, pause_s: float, request: Mapping[str, Any]
) -> _AttemptError:
    """Never repeats what a server says about a key."""
    status = error.status_code
    if status in (401, 403):
        message = f"the language model's server refused the key (HTTP {status}); check OPENAI_API_KEY"
        return _failed("llm_refused", message)
    asked_s = read_retry_after(error.response.headers)
    wait_s = pause_s if asked_s is None else asked_s
    if status == 429:
        message = f"the language model {model!r} is at its limit (HTTP 429); ask again later, or raise the limit"
        return _failed("llm_rate_limited", message, wait_s=None if error.code == "insufficient_quota" else wait_s)
    said = str(error.message)[:QUOTED_CHARS]
    message = f"the language model {model!r} was expected to answer and its server sent HTTP {status}: {said}"
    if status in (400, 422) and "stream_options" in request and "stream_options" in said:
        return _AttemptError(ServiceError(message, type="llm_failed", status=502), 0.0, refuses_usage=True)
    return _failed("llm_failed", message, wait_s=wait_s if status in RETRIED_STATUSES or status >= 500 else None)


def _stream_failure(error: StreamError, model: str, pause_s: float) -> _AttemptError:
    if error.broken:
        return _broken(model, pause_s)
    if not error.said:
        return _bad_answer(model, error.why)
    message = f"the language model {model!r} began to answer and then said: {error.said[:QUOTED_CHARS]}"
    return _failed("llm_failed", message, wait_s=pause_s)


def _broken(model: str, pause_s: float) -> _AttemptError:
    message = f"the language model {model!r} broke off in the middle of its answer; ask again"
    return _failed("llm_broken_stream", message, wait_s=pause_s)


def _timed_out(model: str, endpoint: Endpoint) -> _AttemptError:
    message = (
        f"the language model {model!r} did not finish its answer within {endpoint.timeout_s:g} s; ask again, or raise "
        "RAGD_LLM_TIMEOUT_S"
    )
    return _AttemptError(ServiceError(message, type="llm_timeout", status=504))


def _bad_answer(model: str, why: str) -> _AttemptError:
    message = (
        f"the language model {model!r} was expected to send a chat completion and did not: {why}; check LLM_BASE_URL"
    )
    return _failed("llm_bad_answer", message)


def _failed(type: str, message: str, *, wait_s: float | None = None) -> _AttemptError:
    return _AttemptError(ServiceError(message, type=type, status=502), wait_s)
