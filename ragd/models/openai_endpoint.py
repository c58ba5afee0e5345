"""One embeddings request to an OpenAI-compatible endpoint, and its checked answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ragd.errors import DimensionMismatch, EmbedderError
from ragd.models.openai_client import (
    QUOTED_CHARS,
    EndpointError,
    RetryPolicy,
    check_base_url,
    endpoint_errors,
    open_client,
    public_address,
    request_timeout,
    shortened,
)
from ragd.telemetry.providers import Timings, read_timings
from ragd.text.windows import FloatArray, unit_vector

T = TypeVar("T")


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
        self, model: str, dims: int, base_url: str, api_key: str | None, policy: RetryPolicy, *, send_dimensions: bool
    ) -> None:
        check_base_url(base_url)
        self.model, self.dims, self.base_url, self._api_key = model, dims, base_url, api_key
        self.policy = policy
        self.requested_dims = dims if send_dimensions else None
        self._dimensions = {"dimensions": dims} if send_dimensions else {}

    def request(self, texts: list[str]) -> EmbeddingAnswer:
        """Vectors for the texts.

        Raises DimensionMismatch, or EmbedderError of one of the kinds of `EndpointError`, "count" and "invalid_vector".
        """
        try:
            return self.policy.run(lambda timeout_s: self._read(*self._send(texts, timeout_s), texts))
        except EndpointError as error:
            raise self._final(error) from error.__cause__

    def _send(self, texts: list[str], timeout_s: float) -> tuple[bytes, Mapping[str, str]]:
        """The body and the headers of a 200 answer."""
        with endpoint_errors(timeout_s):
            answer = open_client(self.base_url, self._api_key).embeddings.with_raw_response.create(
                input=texts,
                model=self.model,
                encoding_format="base64",
                timeout=request_timeout(timeout_s),
                extra_body=self._dimensions or None,
            )
        return answer.http_response.content, answer.headers

    def _read(self, body: bytes, headers: Mapping[str, str], texts: list[str]) -> EmbeddingAnswer:
        try:
            answer = json.loads(body)
            rows = answer["data"]
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
            self._check_vector(vector)
        ordered = [unit_vector(vectors[row]) for row in np.argsort(np.asarray(indexes), kind="stable")]
        usage = answer.get("usage")
        reported = usage if isinstance(usage, Mapping) else {}
        return EmbeddingAnswer(
            vectors=ordered,
            input_tokens=_only(int, reported.get("prompt_tokens")),
            model=_only(str, answer.get("model")),
            timings=read_timings(headers, reported),
        )

    def _check_vector(self, vector: FloatArray) -> None:
        if len(vector) != self.dims:
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
