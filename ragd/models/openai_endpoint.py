"""One embeddings request to an OpenAI-compatible endpoint, or one in a form near to it, and its checked answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
import numpy as np

from ragd.errors import DimensionMismatch, EmbedderError
from ragd.models.openai_client import (
    QUOTED_CHARS,
    EndpointError,
    RetryPolicy,
    Server,
    check_base_url,
    endpoint_errors,
    open_client,
    public_address,
    request_timeout,
    shortened,
)
from ragd.telemetry.model_calls import Timings, read_timings
from ragd.text.windows import FloatArray, unit_vector

T = TypeVar("T")


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
