"""Text to vectors: the local model and OpenAI-compatible endpoints.

An embedder that keeps the vectors of the texts that it embedded last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

from ragd import telemetry
from ragd.errors import DimensionMismatch, EmbedderError, InvalidInput
from ragd.models import minilm
from ragd.models.graph_folder import available_cores
from ragd.models.late_interaction import encode_windows, split_texts
from ragd.models.openai_client import OPENAI_FORM, EmbeddingForm, OpenAIEndpoint, RetryPolicy, Server, asked_once
from ragd.telemetry.model_calls import provider_of
from ragd.text.windows import FloatArray, accept_texts, average_windows, halve_text
from ragd.types import Embedder, Vector, check_at_least

OPENAI_WINDOW = 8191
PROBE_TEXT = "a text"  # that every model embeds
NATIVE_DIMS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072}


class LocalEmbedder:
    """all-MiniLM-L6-v2 in this process, float32: 384 dimensions, windows of 256 word pieces.

    A vector depends on its text alone: not on the other texts of the call, nor on `threads` (default: the cores that
    this process may use). Vectors are numpy float32 arrays. The model is opened at the first call, once per process;
    `folder` names another place of the same files.
    """

    model = minilm.MODEL
    dims = minilm.DIMS
    window: int | None = minilm.WINDOW
    system = "ragd.local"
    server_address: str | None = None
    server_port: int | None = None

    def __init__(self, *, threads: int | None = None, folder: Path | None = None) -> None:
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise InvalidInput(
                f"threads must be a whole number of at least 1, or None, not {threads!r}", field="threads"
            )
        self.threads = threads or available_cores()
        self.folder = folder

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        accepted = accept_texts(texts)
        if not accepted:
            return []
        with self._call(accepted) as (call, windows):
            vectors = self._embed(windows)
            call.record_vectors([vectors[text] for text in accepted])
        return [cast(Vector, vectors[text]) for text in accepted]

    def embed_query(self, text: str) -> Vector:
        return self.embed([text])[0]

    def count_tokens(self, text: str) -> int:
        """Word pieces of the whole text and the two special tokens of one window."""
        model = minilm.open_model(self.folder)
        return len(model.tokenize(accept_texts([text])[0])) + minilm.SPECIAL_TOKENS if text.strip() else 0

    @contextmanager
    def _call(self, texts: list[str]) -> Iterator[tuple[telemetry.EmbeddingsCall, dict[str, list[minilm.TokenIds]]]]:
        """One call for telemetry, and what the model will read, by text."""
        with telemetry.EmbeddingsCall(
            system=self.system, model=self.model, dims=self.dims, texts=texts, encoding_format="float"
        ) as call:
            windows = split_texts(texts, self.folder)
            call.input_tokens = sum(
                len(window) + minilm.SPECIAL_TOKENS for of_text in windows.values() for window in of_text
            )
            yield call, windows

    def _embed(self, windows: dict[str, list[minilm.TokenIds]]) -> dict[str, FloatArray]:
        flat = [window for of_text in windows.values() for window in of_text]
        means = iter(minilm.open_model(self.folder).mean_vectors(flat, self.threads))
        return {
            text: average_windows([next(means) for _ in of_text], [len(window) for window in of_text])
            for text, of_text in windows.items()
        }


class LocalTokenEmbedder(LocalEmbedder):
    """The same, for texts that the built-in reranker is to read by their stored token vectors."""

    def embed_with_tokens(self, texts: Sequence[str]) -> list[tuple[Vector, bytes]]:
        """The vector of each text and its packed token vectors (`ragd.models.late_interaction`), in order."""
        accepted = accept_texts(texts)
        if not accepted:
            return []
        with self._call(accepted) as (call, windows):
            encoded = encode_windows(windows, self.threads, self.folder)
            call.record_vectors([encoded[text][0] for text in accepted])
        return [cast(tuple[Vector, bytes], encoded[text]) for text in accepted]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Texts travel in batches of at most `batch_size` texts and about `batch_tokens` tokens. window: the tokens that
    the model reads of one text, None for any number."""

    batch_size: int = 128
    batch_tokens: int = 100_000
    window: int | None = OPENAI_WINDOW

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size, 1)
        check_at_least("batch_tokens", self.batch_tokens, 1)
        if self.window is not None:
            check_at_least("window", self.window, 1)


OPENAI, POLICY, SIZES = Server(), RetryPolicy(), Sizes()


class OpenAIEmbedder:
    """Any endpoint that speaks OpenAI's `POST /embeddings`.

    An equal text travels once. The deadline of the policy is that of one batch. `dimensions` is sent when
    `send_dimensions` is true, or when it is None and `dims` differs from what a model that can shorten gives by itself.
    Tokens are estimated by the local model's tokenizer where that is installed, else from the bytes. form: how this
    provider's request differs from OpenAI's.
    """

    def __init__(
        self,
        model: str,
        dims: int,
        server: Server = OPENAI,
        *,
        policy: RetryPolicy = POLICY,
        sizes: Sizes = SIZES,
        send_dimensions: bool | None = None,
        form: EmbeddingForm = OPENAI_FORM,
    ) -> None:
        check_at_least("dims", dims, 1)
        self.model, self.dims, self.window = model, dims, sizes.window
        self.batch_size, self.batch_tokens = sizes.batch_size, sizes.batch_tokens
        if send_dimensions is None:
            send_dimensions = NATIVE_DIMS.get(model, dims) != dims
        self._endpoint = OpenAIEndpoint(model, dims, server, policy, send_dimensions=send_dimensions, form=form)
        address = urlsplit(self._endpoint.base_url)
        self.system = provider_of(address.hostname)
        self.server_address: str | None = address.hostname
        self.server_port: int | None = address.port or (443 if address.scheme == "https" else 80)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self._embed(texts, is_query=False)

    def embed_query(self, text: str) -> Vector:
        return self._embed([text], is_query=True)[0]

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> list[Vector]:
        accepted = accept_texts(texts)
        windows = {text: self._split(text) for text in dict.fromkeys(accepted)}
        pieces = list(dict.fromkeys(piece for of_text in windows.values() for piece in of_text))
        tokens = {piece: self.count_tokens(piece) for piece in pieces}
        vectors: dict[str, FloatArray] = {}
        for batch in self._batches(pieces, tokens):
            estimated = sum(tokens[piece] for piece in batch)
            vectors |= zip(batch, self._request(batch, estimated, is_query=is_query), strict=True)
        merged = {
            text: average_windows([vectors[piece] for piece in of_text], [tokens[piece] for piece in of_text])
            for text, of_text in windows.items()
        }
        return [cast(Vector, merged[text]) for text in accepted]

    def count_tokens(self, text: str) -> int:
        """An estimate, at least 1 for a text that is not empty."""
        if not text:
            return 0
        if minilm.find_model() is None:
            return -(-len(text.encode(errors="replace")) // 3)
        [accepted] = accept_texts([text])
        beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))  # the local tokenizer does not know every script
        return max(1, len(minilm.open_model().tokenize(accepted)), beyond_ascii)

    def _split(self, text: str) -> list[str]:
        window = self.window
        if window is None:
            return [text]
        # A byte-level tokenizer never makes more tokens than there are bytes.
        return halve_text(text, lambda piece: len(piece.encode()) <= window or self.count_tokens(piece) <= window)

    def _batches(self, pieces: list[str], tokens: dict[str, int]) -> Iterator[list[str]]:
        batch: list[str] = []
        size = 0
        for piece in pieces:
            if batch and (len(batch) == self.batch_size or size + tokens[piece] > self.batch_tokens):
                yield batch
                batch, size = [], 0
            batch.append(piece)
            size += tokens[piece]
        if batch:
            yield batch

    def _request(self, batch: list[str], estimated_tokens: int, *, is_query: bool) -> list[FloatArray]:
        with telemetry.EmbeddingsCall(
            system=self.system, model=self.model, dims=self.dims, texts=batch, estimated_tokens=estimated_tokens,
            requested_dims=self._endpoint.requested_dims, encoding_format="base64",
            server_address=self.server_address, server_port=self.server_port,
        ) as call:  # fmt: skip
            answer = self._endpoint.request(batch, is_query=is_query)
            call.input_tokens, call.response_model = answer.input_tokens, answer.model
            call.queue_ms, call.inference_ms = answer.timings.queue_ms, answer.timings.inference_ms
            call.record_vectors(answer.vectors)
        return answer.vectors


def answers(embedder: Embedder) -> bool:
    """Return True if the embedder gives a vector for a harmless text; an endpoint is asked once."""
    try:
        with asked_once():
            embedder.embed([PROBE_TEXT])
    except (EmbedderError, DimensionMismatch):
        return False
    return True


PASSAGES_MAX = 50_000  # some 90 MB with their texts
QUERIES_MAX = 100


class CachingEmbedder:
    """The embedder it is made of, asked once for each of the texts in the cache. Threads may share one.

    Queries are kept apart from passages: a model may read a question in another way than a passage.
    """

    def __init__(self, embedder: Embedder, *, passages: int = PASSAGES_MAX, queries: int = QUERIES_MAX) -> None:
        self.embedder, self.passages_max, self.queries_max = embedder, passages, queries
        self.model, self.dims = embedder.model, embedder.dims
        self.window, self.system = embedder.window, embedder.system
        self._passages: OrderedDict[str, Vector] = OrderedDict()
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._lock = Lock()

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order. Raises what the embedder raises, and keeps nothing then."""
        with self._lock:
            vectors: dict[str, Any] = {text: self._passages[text] for text in texts if text in self._passages}
        missing = list(dict.fromkeys(text for text in texts if text not in vectors))
        fresh = self.embedder.embed(missing) if missing else []
        vectors |= {text: np.asarray(vector, dtype=np.float32) for text, vector in zip(missing, fresh, strict=True)}
        self._put(self._passages, vectors, self.passages_max)
        return [vectors[text] for text in texts]

    def embed_query(self, text: str) -> Vector:
        """Raises what the embedder raises."""
        with self._lock:
            known = self._queries.get(text)
        vector = self.embedder.embed_query(text) if known is None else known
        self._put(self._queries, {text: vector}, self.queries_max)
        return vector

    def count_tokens(self, text: str) -> int:
        return self.embedder.count_tokens(text)

    def _put(self, cache: OrderedDict[str, Vector], vectors: Mapping[str, Vector], most: int) -> None:
        with self._lock:
            for text, vector in vectors.items():
                cache[text] = vector
                cache.move_to_end(text)
            while len(cache) > most:
                cache.popitem(last=False)
