"""The one bridge from a Collection to the library's Store; the embedders and rerankers of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import connections

import ragd
from collections_app.models import Collection
from ragd.errors import EmbedderError
from ragd.models.cross_encoder import CrossEncoder
from ragd.models.embedding import OPENAI_WINDOW, Embedder, LocalEmbedder, OpenAIEmbedder, available_cores
from ragd.models.late_interaction import LateInteraction
from ragd.models.multilingual_e5 import MultilingualE5Embedder
from ragd.models.rerank_endpoint import EndpointReranker
from ragd.models.reranking import AnyReranker
from ragd.types import Vector

LOCAL_MODEL = "all-MiniLM-L6-v2"
LOCAL_DIMS = 384
LOCAL_MODELS = {LOCAL_MODEL: LOCAL_DIMS, MultilingualE5Embedder.model: MultilingualE5Embedder.dims}  # in this process
WORKER_RETRIES = 1


def open_store(collection: Collection, *, using: str = "default") -> ragd.Store:
    """The store of the generation that serves a collection now, over Django's connection, with that one's embedder.

    `collection` may have been read before a swap: only its id counts. Raises UnknownCollection when it is deleted.
    """
    store = ragd.Store(
        connections[using],
        collection.pk,
        exact_threshold=settings.RAGD_EXACT_THRESHOLD,
        rerankers=open_rerankers(),
    )
    store.use_embedder(embedder_for(store.collection.embed_model, store.collection.embed_dims))
    return store


@lru_cache(maxsize=16)
def embedder_for(model: str, dims: int) -> Embedder:
    """The embedder of that name: a model of this process by its own, any other at the OpenAI-compatible endpoint.

    Without an address and a key it is an AbsentEmbedder: no text leaves a machine unasked.
    """
    if model == LOCAL_MODEL:
        return LocalEmbedder(threads=_local_threads())
    if model == MultilingualE5Embedder.model:
        return MultilingualE5Embedder(threads=_local_threads())
    if not (settings.RAGD_EMBED_BASE_URL or settings.RAGD_EMBED_API_KEY):
        return AbsentEmbedder(model, dims)
    return OpenAIEmbedder(
        model=model,
        dims=dims,
        base_url=settings.RAGD_EMBED_BASE_URL or None,
        api_key=settings.RAGD_EMBED_API_KEY or None,
        batch_size=settings.RAGD_EMBED_BATCH_SIZE,
        timeout_s=settings.RAGD_EMBED_TIMEOUT_S,
        **_patience(),
    )


def _patience() -> dict[str, Any]:
    """How long one batch is tried. A worker soon lets its job wait instead, so that other work is not held up."""
    if settings.PROCESS != "worker":
        return {}
    return {"max_retries": WORKER_RETRIES, "deadline_s": settings.RAGD_EMBED_TIMEOUT_S * (WORKER_RETRIES + 1)}


@dataclass(frozen=True, slots=True)
class AbsentEmbedder:
    """Stands in for a model at an endpoint that is not set up. Asked for a vector it raises EmbedderError."""

    model: str
    dims: int
    window: int | None = OPENAI_WINDOW
    system: str = "openai"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        if not texts:
            return []
        raise EmbedderError(
            f"the model {self.model!r} needs an embedding endpoint, and none is set up: set EMBED_BASE_URL or"
            f" EMBED_API_KEY and start again, or build a new generation with {LOCAL_MODEL}, which runs here",
            kind="not_configured",
            retryable=False,
        )

    def embed_query(self, text: str) -> Vector:
        return self.embed([text])[0]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


@lru_cache(maxsize=1)
def open_rerankers() -> Mapping[str, AnyReranker]:
    """What a plan may name: "builtin" always, "endpoint" and "cross-encoder" where the settings name one."""
    threads = _local_threads()
    rerankers: dict[str, AnyReranker] = {"builtin": LateInteraction(threads=threads)}
    if settings.RAGD_RERANK_BASE_URL:
        rerankers["endpoint"] = EndpointReranker(
            settings.RAGD_RERANK_BASE_URL,
            settings.RAGD_RERANK_MODEL,
            settings.RAGD_RERANK_API_KEY or None,
            timeout_s=settings.RAGD_RERANK_TIMEOUT_S,
            deadline_s=settings.RAGD_RERANK_TIMEOUT_S,
        )
    if settings.RAGD_CROSS_ENCODER_PATH:
        path = settings.RAGD_CROSS_ENCODER_PATH
        rerankers["cross-encoder"] = CrossEncoder(path, threads=threads or available_cores())
    return rerankers


def _local_threads() -> int | None:
    """The worker's processes share the cores; anything else computes one query at a time and takes them all."""
    if settings.PROCESS != "worker":
        return None
    return max(1, available_cores() // settings.RAGD_WORKER_PROCESSES)
