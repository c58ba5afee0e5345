"""Requests to OpenAI-compatible endpoints through the OpenAI SDK: one client, one retry policy, one deadline.

Chat, embeddings and rerank use it. The SDK's own retries are off, since they know no deadline.

A request that another thread may end while it waits for the server: the connection is closed within POLL_S.

One embeddings request to an OpenAI-compatible endpoint, or one in a form near to it, and its checked answer.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import lru_cache
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import httpcore2
import httpx2
import numpy as np

from ragd.errors import DimensionMismatch, EmbedderError, InvalidInput
from ragd.telemetry.model_calls import Timings, read_timings
from ragd.text.windows import FloatArray, unit_vector

if TYPE_CHECKING:
    import openai


POLL_S = 0.1
_stop: ContextVar[threading.Event | None] = ContextVar("ragd_stop", default=None)


class ReadStoppedError(BaseException):
    """The event of `stopped_by` was set while an answer was awaited. No Exception: a client would take it for a fault
    of the network, and ask again."""


@contextmanager
def stopped_by(event: threading.Event | None) -> Iterator[None]:
    """Requests of this thread in the block end with ReadStoppedError once the event is set. None: none of them do."""
    token = _stop.set(event)
    try:
        yield
    finally:
        _stop.reset(token)


class InterruptibleStream(httpcore2.NetworkStream):
    """A connection whose reads look every POLL_S whether they are to stop."""

    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        stop = _stop.get()
        if stop is None:
            return self._inner.read(max_bytes, timeout)
        ends = math.inf if timeout is None else time.monotonic() + timeout
        while not stop.is_set():
            try:
                return self._inner.read(max_bytes, min(POLL_S, max(ends - time.monotonic(), 1e-3)))
            except httpcore2.ReadTimeout:
                if time.monotonic() >= ends:
                    raise
        raise ReadStoppedError

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return InterruptibleStream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class InterruptibleBackend(httpcore2.SyncBackend):
    """Opens such connections."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        return InterruptibleStream(super().connect_tcp(host, port, timeout, local_address, socket_options))


T = TypeVar("T")

OPENAI_URL = "https://api.openai.com/v1"
BACKOFF_MAX_S = 8.0
JITTER = 1.25  # so that clients which failed together do not retry together
CONNECT_TIMEOUT_S = 5.0
RETRIED_STATUSES = frozenset({408, 409, 429})
QUOTED_CHARS = 300
NO_KEY, MASK = "none", "***"
KEY_HEADERS = ("Authorization", "api-key")  # that presets put a key into

_once = ContextVar("ragd_asked_once", default=False)


@contextmanager
def asked_once() -> Iterator[None]:
    """Send each request of the block once, whatever the retry policy says."""
    token = _once.set(True)
    try:
        yield
    finally:
        _once.reset(token)


class EndpointError(Exception):
    """A request that failed. The message continues a sentence that begins with the endpoint, such as "answered 500".

    kind: "timeout", "connection", "rate_limited", "quota", "auth", "rejected", "server", "malformed", or one that the
    caller of `request` raised. retry_after_s: as the endpoint asked. status, body: of an answer that is not 2xx, else
    None and "". attempts, elapsed_s: of the whole request, once it is given up.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retryable: bool = True,
        retry_after_s: float | None = None,
        status: int | None = None,
        body: str = "",
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.retryable, self.retry_after_s = kind, message, retryable, retry_after_s
        self.status, self.body = status, body
        self.attempts, self.elapsed_s = 1, 0.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where an endpoint is, and what it lets in. key_header: the header of its key (`open_client`)."""

    base_url: str = OPENAI_URL
    api_key: str | None = field(default=None, repr=False)
    key_header: str = ""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts are repeated at most max_retries times: after the endpoint's Retry-After, else after backoff_s * 2^n
    (8 s at most) and up to a quarter more. timeout_s bounds one attempt, deadline_s all of them with their waits.

    Raises InvalidInput that names the field.
    """

    max_retries: int = 4
    backoff_s: float = 0.5
    timeout_s: float = 30.0
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        for name, low in (("timeout_s", 1e-3), ("deadline_s", 1e-3), ("max_retries", 0), ("backoff_s", 0)):
            value = getattr(self, name)
            if not low <= value < math.inf:
                raise InvalidInput(f"{name} must be a number of at least {low:g}, not {value!r}", field=name)

    def wait_s(self, retries: int, retry_after_s: float | None) -> float:
        """Before the next attempt. retries: how many there were before it, from 0."""
        if retry_after_s is not None:
            return retry_after_s
        return min(self.backoff_s * 2.0 ** min(retries, 16), BACKOFF_MAX_S) * random.uniform(1.0, JITTER)  # noqa: S311

    def run(self, attempt: Callable[[float], T], *, deadline: float | None = None) -> T:
        """What `attempt(timeout_s)` returns, once it raises no EndpointError.

        A wait that would pass the deadline is not begun. deadline: on the monotonic clock, where several requests share
        one. Raises the last EndpointError with `attempts` and `elapsed_s`.
        """
        started = time.monotonic()
        ends = started + self.deadline_s if deadline is None else deadline
        retries, max_retries = 0, 0 if _once.get() else self.max_retries
        while True:
            try:
                return attempt(min(self.timeout_s, max(ends - time.monotonic(), 1e-3)))
            except EndpointError as error:
                wait_s = self.wait_s(retries, error.retry_after_s)
                error.attempts, error.elapsed_s = retries + 1, time.monotonic() - started
                if not error.retryable or retries == max_retries or time.monotonic() + wait_s >= ends:
                    raise
            retries += 1
            time.sleep(wait_s)


class DeadlineStream(httpx2.SyncByteStream):
    """The body of an answer, which must end in time: the client's own timeout bounds each read, not their sum."""

    def __init__(self, inner: httpx2.SyncByteStream, ends: float) -> None:
        self._inner, self._ends = inner, ends

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            yield part
            if time.monotonic() > self._ends:
                raise httpx2.ReadTimeout("the answer did not end in time")

    def close(self) -> None:
        self._inner.close()


class DeadlineTransport(httpx2.HTTPTransport):
    """The read timeout of a request bounds its whole answer, and another thread may end it (`InterruptibleStream`)."""

    def __init__(self, limits: httpx2.Limits) -> None:
        super().__init__(limits=limits)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=InterruptibleBackend(),
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        limit_s = request.extensions.get("timeout", {}).get("read")
        ends = time.monotonic() + limit_s if limit_s else math.inf
        response = super().handle_request(request)
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = DeadlineStream(response.stream, ends)
        return response


def open_client(base_url: str, api_key: str | None, key_header: str = "") -> openai.OpenAI:
    """The client of this process for an endpoint, kept so that connections are. base_url "" is OpenAI's own.

    What stands after `?` in base_url is sent with each request. key_header: the header that carries the key; "" for
    `Authorization: Bearer`.
    """
    return _open_client(base_url or OPENAI_URL, api_key or NO_KEY, key_header, os.getpid())


@lru_cache(maxsize=32)
def _open_client(base_url: str, api_key: str, key_header: str, _pid: int) -> openai.OpenAI:
    """By process, since a lock of an inherited client could be held for ever in a forked child."""
    import openai

    address = urlsplit(base_url)
    http_client = httpx2.Client(transport=DeadlineTransport(limits=openai.DEFAULT_CONNECTION_LIMITS))
    if key_header:

        def move_key(request: httpx2.Request) -> None:
            del request.headers["Authorization"]
            request.headers[key_header] = api_key

        http_client.event_hooks = {"request": [move_key]}
    return openai.OpenAI(
        api_key=api_key,
        base_url=address._replace(query="").geturl(),
        default_query=dict(parse_qsl(address.query)),
        max_retries=0,
        http_client=http_client,
    )


def request_timeout(timeout_s: float) -> httpx2.Timeout:
    return httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))


@contextmanager
def endpoint_errors(timeout_s: float) -> Iterator[None]:
    """What the SDK raises in the block, as EndpointError."""
    import openai

    try:
        yield
    except (openai.APITimeoutError, httpx2.TimeoutException) as error:
        raise EndpointError("timeout", f"did not finish its answer within {timeout_s:.3g} s") from error
    except openai.APIStatusError as error:
        raise status_error(error) from None  # its own text would stand in a traceback, with the key
    except (openai.APIConnectionError, httpx2.TransportError) as error:
        reason = error.__cause__ or error
        if isinstance(reason, httpx2.LocalProtocolError):  # it quotes the header with the key
            message = "cannot be asked: the key or the address holds a character that no request may hold"
            raise EndpointError("malformed", message, retryable=False) from None
        message = f"cannot be reached ({type(reason).__name__}: {reason}); check its address and that it runs"
        raise EndpointError("connection", message) from error
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        if type(error) is openai.APIError:  # an event of a stream reports it
            message = shortened(without_key(error.message, error.request))
            raise EndpointError("server", f"reported an error: {message}") from None
        raise EndpointError("malformed", f"gave an answer that cannot be read ({error})") from error


def status_error(error: openai.APIStatusError) -> EndpointError:
    """Of an answer that is not 2xx. What a server says about a key is not repeated."""
    status, body = error.status_code, without_key(error.response.text, error.request)
    detail = error.body.get("message") if isinstance(error.body, Mapping) else None
    said = without_key(str(detail or body.strip() or "without a text"), error.request)
    message = f"answered {status} ({shortened(said)})"
    retry_after_s = read_retry_after(error.response.headers)
    if status in (401, 403):
        message = f"refused the key (HTTP {status}); check the API key"
        return EndpointError("auth", message, retryable=False, status=status)
    if status == 429 and error.code == "insufficient_quota":
        return EndpointError("quota", message, retryable=False, status=status)
    if status in RETRIED_STATUSES - ({429} if "too large" in said.lower() else set()) or status >= 500:
        kind = "rate_limited" if status == 429 else "server"
        return EndpointError(kind, message, retry_after_s=retry_after_s, status=status)
    return EndpointError("rejected", message, retryable=False, status=status, body=body)


def without_key(text: str, request: httpx2.Request) -> str:
    """What a server said to the request, the key masked where it repeats it."""
    for header in KEY_HEADERS:
        key = request.headers.get(header, "").removeprefix("Bearer ")
        if key not in ("", NO_KEY):
            text = text.replace(key, MASK)
    return text


def check_base_url(base_url: str) -> None:
    """Raises InvalidInput for anything but an http or https address with a host."""
    address = urlsplit(base_url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise InvalidInput(
            f"base_url must be an http or https address such as https://host/v1, not {base_url!r}", field="base_url"
        )


def public_address(url: str) -> str:
    """The address without credentials and query, for messages."""
    address = urlsplit(url)
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"


def shortened(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "..."


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


@dataclass(frozen=True, slots=True)
class EmbeddingForm:
    """How a provider wants an embeddings request, where it differs from OpenAI's.

    path: below base_url. texts, dimensions: the names of these fields. encoding: the fields that ask for a form of the
    numbers. query, passage: fields that say what the texts are. The answer is read in OpenAI's form
    (`data[].embedding`) and in Cohere's (`embeddings.float`), whatever the request was.
    """

    path: str = "/embeddings"
    texts: str = "input"
    dimensions: str = "dimensions"
    encoding: tuple[tuple[str, Any], ...] = (("encoding_format", "base64"),)
    query: tuple[tuple[str, str], ...] = ()
    passage: tuple[tuple[str, str], ...] = ()


OPENAI_FORM = EmbeddingForm()


@dataclass(frozen=True, slots=True)
class EmbeddingAnswer:
    """vectors: unit length, in the order of the texts. input_tokens, model, timings: as the endpoint reports them."""

    vectors: list[FloatArray]
    input_tokens: int | None
    model: str | None
    timings: Timings


class OpenAIEndpoint:
    """`request` sends texts and returns their vectors. Threads may share it; after a fork a new client is opened."""

    def __init__(
        self,
        model: str,
        dims: int,
        server: Server,
        policy: RetryPolicy,
        *,
        send_dimensions: bool,
        form: EmbeddingForm = OPENAI_FORM,
    ) -> None:
        check_base_url(server.base_url)
        self.model, self.dims, self.base_url, self._api_key = model, dims, server.base_url, server.api_key
        self.policy, self.form, self._key_header = policy, form, server.key_header
        self.requested_dims = dims if send_dimensions else None

    def request(self, texts: list[str], *, is_query: bool = False) -> EmbeddingAnswer:
        """Vectors for the texts: passages, or queries where the form tells them apart.

        Raises DimensionMismatch, or EmbedderError of one of the kinds of `EndpointError`, "count" and "invalid_vector".
        """
        try:
            return self.policy.run(lambda timeout_s: self._read(*self._send(texts, timeout_s, is_query), texts))
        except EndpointError as error:
            raise self._final(error) from error

    def ask_once(self, texts: list[str], timeout_s: float) -> EmbeddingAnswer:
        """One attempt with passages, whatever the length of their vectors. Raises EndpointError."""
        return self._read(*self._send(texts, timeout_s, False), texts, any_dims=True)

    def _send(self, texts: list[str], timeout_s: float, is_query: bool) -> tuple[bytes, Mapping[str, str]]:
        """The body and the headers of a 2xx answer."""
        form = self.form
        body: dict[str, Any] = {"model": self.model, form.texts: texts, **dict(form.encoding)}
        body |= {form.dimensions: self.requested_dims} if self.requested_dims else {}
        body |= dict(form.query if is_query else form.passage)
        with endpoint_errors(timeout_s):
            client = open_client(self.base_url, self._api_key, self._key_header)
            options: Any = {"timeout": request_timeout(timeout_s)}
            answer = client.post(form.path, cast_to=httpx2.Response, body=body, options=options)
        return answer.content, answer.headers

    def _read(
        self, body: bytes, headers: Mapping[str, str], texts: list[str], *, any_dims: bool = False
    ) -> EmbeddingAnswer:
        try:
            answer = json.loads(body)
            rows = _rows(answer)
            indexes = [row.get("index", position) for position, row in enumerate(rows)]
            vectors = [_decode(row["embedding"]) for row in rows]
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            beginning = body[:QUOTED_CHARS].decode(errors="replace")
            message = (
                f"gave an answer that is not the embeddings JSON of OpenAI's protocol; it begins with {beginning!r}"
            )
            raise EndpointError("malformed", message) from error
        if len(rows) != len(texts):
            raise EndpointError("count", f"gave {len(rows)} vectors for {len(texts)} texts", retryable=False)
        if sorted(indexes, key=str) != sorted(range(len(texts)), key=str):
            message = f"gave vectors with the indexes {shortened(str(indexes))}, expected 0 to {len(texts) - 1}"
            raise EndpointError("count", message, retryable=False)
        for vector in vectors:
            self._check_vector(vector, any_dims)
        ordered = [unit_vector(vectors[row]) for row in np.argsort(np.asarray(indexes), kind="stable")]
        reported = _usage(answer)
        return EmbeddingAnswer(
            vectors=ordered,
            input_tokens=_only(int, reported.get("prompt_tokens")),
            model=_only(str, answer.get("model")),
            timings=read_timings(headers, reported),
        )

    def _check_vector(self, vector: FloatArray, any_dims: bool) -> None:
        if not any_dims and len(vector) != self.dims:
            raise DimensionMismatch(
                f"the embedding model {self.model!r} was expected to give vectors of {self.dims} dimensions and gave "
                f"{len(vector)}; use a collection with embed_dims {len(vector)} or another model",
                field="embed_dims",
            )
        if not np.isfinite(vector).all() or not vector.any():
            raise EndpointError("invalid_vector", "gave a vector with NaN, infinity or only zeros", retryable=False)

    def _final(self, failure: EndpointError) -> EmbedderError:
        """The error with what was tried and, where waiting may help, for how long."""
        address, attempts = public_address(self.base_url), failure.attempts
        message = (
            f"the embedding endpoint {address} (model {self.model!r}) {failure.message}; gave up after {attempts} "
            f"attempt{'s' if attempts > 1 else ''} in {failure.elapsed_s:.1f} s"
        )
        if failure.retry_after_s is not None:
            message += f"; it asks to wait {failure.retry_after_s:.0f} s"
        kind, retryable = failure.kind, failure.retryable
        return EmbedderError(message, kind=kind, retryable=retryable, retry_after_s=failure.retry_after_s)


def _rows(answer: Any) -> list[Any]:
    """OpenAI's `data`; the vectors of Cohere's `embeddings.float` as such rows."""
    if "data" not in answer and isinstance(answer.get("embeddings"), dict):
        return [{"embedding": vector} for vector in answer["embeddings"]["float"]]
    return list(answer["data"])


def _usage(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the endpoint says of tokens, as OpenAI names them."""
    usage = answer.get("usage")
    if isinstance(usage, Mapping):
        return usage
    meta = answer.get("meta")
    billed = meta.get("billed_units") if isinstance(meta, Mapping) else None
    return {"prompt_tokens": billed.get("input_tokens")} if isinstance(billed, Mapping) else {}


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
