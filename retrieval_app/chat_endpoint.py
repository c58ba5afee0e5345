"""One chat completion from an OpenAI-compatible endpoint: attempts, waits, one deadline, a checked answer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from collections_app.errors import ServiceError
from ragd.openai_endpoint import read_retry_after

OPENAI_URL = "https://api.openai.com/v1"
ATTEMPTS = 3
PAUSE_S = 0.5
CONNECT_TIMEOUT_S = 5.0
RETRIED_STATUSES = frozenset({408, 409, 429})
QUOTED_CHARS = 300


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model lives. base_url "" is OpenAI's own. timeout_s bounds the whole answer, retries included."""

    base_url: str
    api_key: str
    timeout_s: float
    max_tokens: int

    @property
    def address(self) -> tuple[str, int | None]:
        """(host, port or None)."""
        parts = urlsplit(self.base_url or OPENAI_URL)
        return parts.hostname or "", parts.port


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model's server said. Counts that it did not report are None."""

    text: str
    finish_reason: str | None = None
    id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _AttemptError(Exception):
    """One attempt's error; wait_s is None when another attempt is no use."""

    def __init__(self, error: ServiceError, wait_s: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.wait_s = wait_s


def complete(endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]], **parameters: Any) -> Completion:
    """The model's answer. Lost connections, 408, 409, 429 and 5xx are tried again while tries and time are left.

    Raises ServiceError: 504 ("llm_timeout") when the time passes, 502 for all else ("llm_unreachable", "llm_refused",
    "llm_rate_limited", "llm_failed", "llm_bad_answer").
    """
    deadline = time.monotonic() + endpoint.timeout_s
    request = {"model": model, "messages": list(messages), **parameters}
    for attempt in range(ATTEMPTS):
        try:
            return _read(_send(endpoint, request, deadline, attempt), model)
        except _AttemptError as failure:
            wait_s = failure.wait_s
            if wait_s is None or attempt + 1 == ATTEMPTS or time.monotonic() + wait_s >= deadline:
                raise failure.error from failure.__cause__
            time.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")


def _send(endpoint: Endpoint, request: dict[str, Any], deadline: float, attempt: int) -> bytes:
    """The body of a 200 answer. The client's timeout bounds each read, so their sum is watched here."""
    model, pause_s = str(request["model"]), PAUSE_S * 2.0**attempt
    left_s = max(0.05, deadline - time.monotonic())
    timeout = httpx2.Timeout(left_s, connect=min(left_s, CONNECT_TIMEOUT_S))
    client = _client(endpoint.base_url, endpoint.api_key, os.getpid())
    body = bytearray()
    try:
        with client.chat.completions.with_streaming_response.create(**request, timeout=timeout) as response:
            for part in response.iter_bytes():
                body += part
                if time.monotonic() > deadline:
                    raise _timed_out(model, endpoint)
    except (openai.APITimeoutError, httpx2.TimeoutException) as error:
        raise _timed_out(model, endpoint) from error
    except openai.APIStatusError as error:
        raise _status_failure(error, model, pause_s) from error
    except (openai.APIConnectionError, httpx2.TransportError) as error:
        message = "the language model's server cannot be reached; check LLM_BASE_URL and that the server runs"
        raise _failed("llm_unreachable", message, wait_s=pause_s) from error
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        raise _bad_answer(model, "it cannot be read") from error
    return bytes(body)


@lru_cache(maxsize=8)
def _client(base_url: str, api_key: str, pid: int) -> openai.OpenAI:
    """One client per endpoint and process, so that connections are kept."""
    return openai.OpenAI(base_url=base_url or OPENAI_URL, api_key=api_key or "none", max_retries=0)


def _read(body: bytes, model: str) -> Completion:
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise _bad_answer(model, f"it begins with {body[:80].decode(errors='replace')!r}") from error
    reason = choice.get("finish_reason")
    if not isinstance(text, str) or not text.strip():
        raise _bad_answer(model, f"it holds no text (finish reason {reason!r})")
    usage = _dict(answer.get("usage"))
    return Completion(
        text=text.strip(),
        finish_reason=_text(reason),
        id=_text(answer.get("id")),
        model=_text(answer.get("model")),
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(_dict(usage.get("prompt_tokens_details")).get("cached_tokens")),
        reasoning_tokens=_count(_dict(usage.get("completion_tokens_details")).get("reasoning_tokens")),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _status_failure(error: openai.APIStatusError, model: str, pause_s: float) -> _AttemptError:
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
    return _failed("llm_failed", message, wait_s=wait_s if status in RETRIED_STATUSES or status >= 500 else None)


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
