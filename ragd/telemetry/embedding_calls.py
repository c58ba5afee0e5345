"""The spans of embeddings calls, in three vocabularies. What is Required is written when the span closes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from opentelemetry.trace import Span, SpanKind

from ragd.telemetry import names
from ragd.telemetry.call_attributes import add_up, parameters, since_ms, write_cost
from ragd.telemetry.content import Value, keeps_vectors
from ragd.telemetry.pricing import Cost, count_cost, count_tokens, price_call
from ragd.telemetry.spans import open_span, record_error, set_attributes

EMBEDDED_TEXTS_MAX = 8  # a call with more texts counts them and does not copy them onto its span

_waited_ms: ContextVar[list[float] | None] = ContextVar("ragd_waited_ms", default=None)


@contextmanager
def waited(milliseconds: float) -> Iterator[None]:
    """The first embeddings call inside waited so long on this side, as for a limit per minute. 0 says nothing."""
    token = _waited_ms.set([milliseconds] if milliseconds > 0 else None)
    try:
        yield
    finally:
        _waited_ms.reset(token)


def _take_wait() -> float | None:
    """The wait that no call has taken yet."""
    waits = _waited_ms.get()
    return waits.pop() if waits else None


@dataclass(slots=True)
class EmbeddingsCall:
    """An embeddings call that is running. Set `input_tokens` to what the provider reported, `cost` if it said one."""

    span: Span
    started: float
    system: str
    model: str
    estimated_tokens: int = 0
    input_tokens: int | None = None
    response_model: str | None = None
    queue_ms: float | None = None
    inference_ms: float | None = None
    cost: Cost | None = None
    has_failed: bool = False
    texts_kept: int = 0
    waited_ms: float | None = None

    def record_vectors(self, vectors: Sequence[Iterable[float]]) -> None:
        """The vectors of the texts that the span shows, in order, where this process keeps vectors."""
        if keeps_vectors() and self.span.is_recording():
            listed = vectors[: self.texts_kept]
            set_attributes(
                self.span,
                {
                    f"{names.OI_EMBEDDINGS}.{number}.embedding.vector": [float(value) for value in vector]
                    for number, vector in enumerate(listed)
                },
            )

    def fail(self, error: BaseException) -> None:
        """Mark ERROR although the block goes on."""
        self.has_failed = True
        record_error(self.span, error)

    def close(self) -> None:
        estimated = self.input_tokens is None
        tokens = self.estimated_tokens if self.input_tokens is None else self.input_tokens
        set_attributes(
            self.span,
            {
                names.USAGE_INPUT_TOKENS: tokens, names.OI_TOKENS_PROMPT: tokens, names.OI_TOKENS_TOTAL: tokens,
                names.USAGE_ESTIMATED: estimated, names.RESPONSE_MODEL: self.response_model,
                names.LATENCY_QUEUE_MS: add_up(self.waited_ms, self.queue_ms),
                names.LATENCY_INFERENCE_MS: self.inference_ms, names.LATENCY_TOTAL_MS: since_ms(self.started),
            },
        )  # fmt: skip
        count_tokens(tokens)
        if self.cost is not None:
            count_cost(self.cost)
        else:
            self.cost = price_call(
                self.system,
                (self.model, self.response_model),
                input_tokens=tokens,
                is_billed=not (self.has_failed and estimated),
            )
        write_cost(self.span, self.cost)


@contextmanager
def embeddings_span(
    *,
    system: str,
    model: str,
    dims: int | None = None,
    requested_dims: int | None = None,
    texts_count: int | None = None,
    texts: Sequence[str] | None = None,
    estimated_tokens: int = 0,
    encoding_format: str | None = None,
    server_address: str | None = None,
    server_port: int | None = None,
) -> Iterator[EmbeddingsCall]:
    """One embeddings request: `embeddings {model}`. dims: of the vectors; requested_dims: what the request asks for,
    None where it leaves that to the model. estimated_tokens stands until `input_tokens` is set."""
    attributes: dict[str, Value | None] = {
        names.GEN_AI_SYSTEM: system, names.PROVIDER_NAME: system, names.OPERATION_NAME: names.EMBEDDINGS,
        names.REQUEST_MODEL: model, names.REQUEST_DIMENSIONS: requested_dims, names.DIMENSION_COUNT: dims,
        names.REQUEST_ENCODING_FORMAT: encoding_format,
        names.ENCODING_FORMATS: [encoding_format] if encoding_format else None,
        names.SERVER_ADDRESS: server_address, names.SERVER_PORT: server_port,
        names.TEXTS_COUNT: len(texts) if texts is not None else texts_count,
        names.OI_KIND: "EMBEDDING", names.OI_EMBEDDING_MODEL: model,
        names.OI_EMBEDDING_PARAMETERS: parameters(
            {"model": model, "dimensions": requested_dims, "encoding_format": encoding_format}
        ),
    }  # fmt: skip
    listed = texts if texts is not None and len(texts) <= EMBEDDED_TEXTS_MAX else ()
    if listed:
        attributes |= {f"{names.OI_EMBEDDINGS}.{number}.embedding.text": text for number, text in enumerate(listed)}
    with open_span(f"{names.EMBEDDINGS} {model}", SpanKind.CLIENT, attributes) as span:
        call = EmbeddingsCall(span, time.perf_counter(), system, model, estimated_tokens, texts_kept=len(listed))
        call.waited_ms = _take_wait()
        try:
            yield call
        except BaseException:
            call.has_failed = True
            raise
        finally:
            call.close()
