"""One embeddings request to an OpenAI-compatible endpoint: attempts, waits, a deadline, and a checked answer."""

from __future__ import annotations

import base64
import json
import math
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from ragd.errors import DimensionMismatch, EmbedderError, InvalidInput
from ragd.telemetry.providers import Timings, read_timings
from ragd.text.windows import FloatArray, unit_vector

if TYPE_CHECKING:
    from openai import OpenAI

T = TypeVar("T")

BACKOFF_MAX_S = 8.0
JITTER = 1.25  # so that clients which failed together do not come back together
CONNECT_TIMEOUT_S = 5.0
RETRIED_STATUSES = frozenset({408, 409, 429})
QUOTED_CHARS = 300


@dataclass(frozen=True, slots=True)
class EmbeddingAnswer:
    """vectors: unit length, in the order of the texts. input_tokens, model, timings: as the endpoint reports them."""

    vectors: list[FloatArray]
    input_tokens: int | None
    model: str | None
    timings: Timings


class _AttemptError(Exception):
    """One attempt's error, and how long the endpoint asked to wait."""

    def __init__(self, error: EmbedderError, retry_after_s: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.retry_after_s = retry_after_s


class OpenAIEndpoint:
    """`request` sends texts and returns their vectors. Threads may share it; after a fork a new client is opened.

    An attempt is repeated after a timeout, a lost connection, an unreadable answer and the statuses 408, 409, 429 and
    5xx, at most `max_retries` times: after the endpoint's Retry-After, else after backoff_s * 2^n (8 s at most) and up
    to a quarter more. It is given up at once when that wait would pass the deadline.
    """

    def __init__(
        self,
        model: str,
        dims: int,
        base_url: str,
        api_key: str | None,
        *,
        send_dimensions: bool,
        timeout_s: float,
        deadline_s: float,
        max_retries: int,
        backoff_s: float,
    ) -> None:
        if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname:
            raise InvalidInput(
                f"base_url must be an http or https address such as https://host/v1, not {base_url!r}", field="base_url"
            )
        for name, value in (("timeout_s", timeout_s), ("deadline_s", deadline_s)):
            if not 0 < value < math.inf:
                raise InvalidInput(f"{name} must be a number of seconds above 0, not {value!r}", field=name)
        for name, value in (("max_retries", max_retries), ("backoff_s", backoff_s)):
            if not 0 <= value < math.inf:
                raise InvalidInput(f"{name} must be 0 or more, not {value!r}", field=name)
        self.model, self.dims, self.base_url, self._api_key = model, dims, base_url, api_key
        self.timeout_s, self.deadline_s = timeout_s, deadline_s
        self.max_retries, self.backoff_s = max_retries, backoff_s
        self._dimensions = {"dimensions": dims} if send_dimensions else {}
        self._clients: dict[int, OpenAI] = {}

    def request(self, texts: list[str]) -> EmbeddingAnswer:
        """Vectors for the texts.

        Raises DimensionMismatch, or EmbedderError of one of the kinds "timeout", "connection", "rate_limited", "quota",
        "auth", "rejected", "server", "malformed", "count" and "invalid_vector".
        """
        started = time.monotonic()
        attempts = 0
        while True:
            attempts += 1
            left_s = self.deadline_s - (time.monotonic() - started)
            try:
                return self._read(*self._send(texts, min(self.timeout_s, left_s)), texts)
            except _AttemptError as failure:
                wait_s = failure.retry_after_s
                if wait_s is None:
                    wait_s = min(self.backoff_s * 2.0 ** min(attempts - 1, 16), BACKOFF_MAX_S)
                    wait_s *= random.uniform(1.0, JITTER)  # noqa: S311
                passed_s = time.monotonic() - started
                if not failure.error.retryable or attempts > self.max_retries or passed_s + wait_s >= self.deadline_s:
                    raise self._final(failure, attempts, passed_s) from failure.__cause__
            time.sleep(wait_s)

    def _send(self, texts: list[str], timeout_s: float) -> tuple[bytes, Mapping[str, str]]:
        """The body and the headers of a 200 answer."""
        import httpx2
        import openai

        ends = time.monotonic() + timeout_s
        body = bytearray()
        try:
            with self._client().embeddings.with_streaming_response.create(
                input=texts,
                model=self.model,
                encoding_format="base64",
                timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
                extra_body=self._dimensions or None,
            ) as response:
                for part in response.iter_bytes():
                    body += part
                    if time.monotonic() > ends:  # the client's timeout bounds each read, not their sum
                        raise self._failed("timeout", f"did not finish its answer within {timeout_s:.3g} s")
        except (openai.APITimeoutError, httpx2.TimeoutException) as error:
            raise self._failed("timeout", f"did not answer within {timeout_s:.3g} s") from error
        except openai.APIStatusError as error:
            raise self._status_failure(error) from error
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            reason = error.__cause__ or error
            raise self._failed("connection", f"cannot be reached ({type(reason).__name__}: {reason})") from error
        except (openai.APIError, httpx2.HTTPError) as error:
            raise self._failed("malformed", f"gave an answer that cannot be read ({error})") from error
        return bytes(body), response.headers

    def _client(self) -> OpenAI:
        from openai import OpenAI

        pid = os.getpid()
        if pid not in self._clients:  # a lock could be held in a forked child for ever; two threads may open one each
            self._clients[pid] = OpenAI(api_key=self._api_key or "none", base_url=self.base_url, max_retries=0)
        return self._clients[pid]

    def _status_failure(self, error: Any) -> _AttemptError:
        status: int = error.status_code
        body = error.body if isinstance(error.body, Mapping) else {}
        said = f"answered {status} ({_quoted(str(body.get('message') or error.message))})"
        retry_after_s = read_retry_after(error.response.headers)
        if status == 429 and error.code == "insufficient_quota":
            return self._failed("quota", said, retryable=False)
        if status == 429:
            return self._failed("rate_limited", said, retry_after_s=retry_after_s)
        if status in (401, 403):
            return self._failed("auth", f"{said}; check the API key", retryable=False)
        if status in RETRIED_STATUSES or status >= 500:
            return self._failed("server", said, retry_after_s=retry_after_s)
        return self._failed("rejected", said, retryable=False)

    def _read(self, body: bytes, headers: Mapping[str, str], texts: list[str]) -> EmbeddingAnswer:
        try:
            answer = json.loads(body)
            rows = answer["data"]
            places = [row.get("index", place) for place, row in enumerate(rows)]
            vectors = [_decode(row["embedding"]) for row in rows]
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            begins = body[:QUOTED_CHARS].decode(errors="replace")
            said = f"gave an answer that is not the embeddings JSON of OpenAI's protocol; it begins with {begins!r}"
            raise self._failed("malformed", said) from error
        if len(rows) != len(texts):
            raise self._failed("count", f"gave {len(rows)} vectors for {len(texts)} texts", retryable=False)
        if sorted(places, key=str) != sorted(range(len(texts)), key=str):
            said = f"gave vectors with the indexes {_quoted(str(places))}, expected 0 to {len(texts) - 1}"
            raise self._failed("count", said, retryable=False)
        for vector in vectors:
            self._check_vector(vector)
        ordered = [unit_vector(vectors[row]) for row in np.argsort(np.asarray(places), kind="stable")]
        usage = answer.get("usage")
        told = usage if isinstance(usage, Mapping) else {}
        return EmbeddingAnswer(
            vectors=ordered,
            input_tokens=_only(int, told.get("prompt_tokens")),
            model=_only(str, answer.get("model")),
            timings=read_timings(headers, told),
        )

    def _check_vector(self, vector: FloatArray) -> None:
        if len(vector) != self.dims:
            raise DimensionMismatch(
                f"the embedding model {self.model!r} was expected to give vectors of {self.dims} dimensions and gave "
                f"{len(vector)}; use a collection with embed_dims {len(vector)} or another model",
                field="embed_dims",
            )
        if not np.isfinite(vector).all() or not vector.any():
            raise self._failed("invalid_vector", "gave a vector with NaN, infinity or only zeros", retryable=False)

    def _failed(
        self, kind: str, said: str, *, retryable: bool = True, retry_after_s: float | None = None
    ) -> _AttemptError:
        address = urlsplit(self.base_url)
        where = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"
        message = f"the embedding endpoint {where} (model {self.model!r}) {said}"
        return _AttemptError(EmbedderError(message, kind=kind, retryable=retryable), retry_after_s)

    def _final(self, failure: _AttemptError, attempts: int, passed_s: float) -> EmbedderError:
        """The error with what was tried and, where waiting may help, for how long."""
        error = failure.error
        message = f"{error.message}; gave up after {attempts} attempt{'s' if attempts > 1 else ''} in {passed_s:.1f} s"
        if failure.retry_after_s is not None:
            message += f"; it asks to wait {failure.retry_after_s:.0f} s"
        return EmbedderError(message, kind=error.kind, retryable=error.retryable, retry_after_s=failure.retry_after_s)


def read_retry_after(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """Seconds to wait by retry-after-ms or Retry-After (seconds or an HTTP date), at least 0; None without them."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            wait_s = float(value) / divisor
        except ValueError:
            wait_s = _seconds_until(value, time.time() if now_s is None else now_s)
        if math.isfinite(wait_s):
            return max(0.0, wait_s)
    return None


def _seconds_until(http_date: str, now_s: float) -> float:
    try:
        return parsedate_to_datetime(http_date).timestamp() - now_s
    except (ValueError, OverflowError):
        return math.nan


def _decode(embedding: Any) -> FloatArray:
    """A vector from base64 (little-endian float32) or from a JSON list of numbers."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    if not isinstance(embedding, list) or not all(type(value) in (int, float) for value in embedding):
        raise ValueError("an embedding must be a list of numbers or base64")
    with np.errstate(over="ignore"):
        return np.asarray(embedding, dtype=np.float32)


def _only(kind: type[T], value: object) -> T | None:
    return value if isinstance(value, kind) else None


def _quoted(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "..."
