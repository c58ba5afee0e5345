"""Text to vectors: the local model and OpenAI-compatible endpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from ragd import telemetry
from ragd.errors import DimensionMismatch, EmbedderError, InvalidInput
from ragd.models import minilm
from ragd.models.graph_folder import available_cores
from ragd.models.openai_client import OPENAI_URL, RetryPolicy, asked_once
from ragd.models.openai_endpoint import OPENAI_FORM, EmbeddingForm, OpenAIEndpoint
from ragd.telemetry.providers import provider_of
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
        with telemetry.EmbeddingsCall(
            system=self.system, model=self.model, dims=self.dims, texts=accepted, encoding_format="float"
        ) as call:
            windows = self._windows(accepted)
            call.input_tokens = sum(
                len(window) + minilm.SPECIAL_TOKENS for of_text in windows.values() for window in of_text
            )
            vectors = self._embed(windows)
            call.record_vectors([vectors[text] for text in accepted])
        return [cast(Vector, vectors[text]) for text in accepted]

    def embed_query(self, text: str) -> Vector:
        return self.embed([text])[0]

    def count_tokens(self, text: str) -> int:
        """Word pieces of the whole text and the two special tokens of one window."""
        model = minilm.open_model(self.folder)
        return len(model.tokenize(accept_texts([text])[0])) + minilm.SPECIAL_TOKENS if text.strip() else 0

    def _windows(self, texts: list[str]) -> dict[str, list[minilm.TokenIds]]:
        """What the model will read, by text; an equal text once."""
        model = minilm.open_model(self.folder)
        return {text: model.split_windows(model.tokenize(text)) for text in dict.fromkeys(texts)}

    def _embed(self, windows: dict[str, list[minilm.TokenIds]]) -> dict[str, FloatArray]:
        flat = [window for of_text in windows.values() for window in of_text]
        means = iter(minilm.open_model(self.folder).mean_vectors(flat, self.threads))
        return {
            text: average_windows([next(means) for _ in of_text], [len(window) for window in of_text])
            for text, of_text in windows.items()
        }


class OpenAIEmbedder:
    """Any endpoint that speaks OpenAI's `POST /embeddings`.

    Texts travel in batches of at most `batch_size` texts and about `batch_tokens` tokens; an equal text travels once.
    `timeout_s` bounds one attempt, `deadline_s` one batch with all its retries and waits. `dimensions` is sent when
    `send_dimensions` is true, or when it is None and `dims` differs from what a model that can shorten gives by itself.
    Tokens are estimated by the local model's tokenizer where that is installed, else from the bytes. system None: by
    the address (`telemetry.provider_of`). form: how this provider's request differs from OpenAI's; key_header: the
    header of its key (`open_client`).
    """

    def __init__(
        self,
        model: str,
        dims: int,
        base_url: str | None = None,
        api_key: str | None = None,
        batch_size: int = 128,
        timeout_s: float = 30.0,
        max_retries: int = 4,
        *,
        batch_tokens: int = 100_000,
        deadline_s: float = 120.0,
        backoff_s: float = 0.5,
        window: int | None = OPENAI_WINDOW,
        send_dimensions: bool | None = None,
        system: str | None = None,
        form: EmbeddingForm = OPENAI_FORM,
        key_header: str = "",
    ) -> None:
        check_at_least("dims", dims, 1)
        check_at_least("batch_size", batch_size, 1)
        check_at_least("batch_tokens", batch_tokens, 1)
        if window is not None:
            check_at_least("window", window, 1)
        self.model, self.dims, self.window = model, dims, window
        self.batch_size, self.batch_tokens = batch_size, batch_tokens
        if send_dimensions is None:
            send_dimensions = NATIVE_DIMS.get(model, dims) != dims
        policy = RetryPolicy(max_retries, backoff_s, timeout_s, deadline_s)
        self._endpoint = OpenAIEndpoint(
            model,
            dims,
            base_url or OPENAI_URL,
            api_key,
            policy,
            send_dimensions=send_dimensions,
            form=form,
            key_header=key_header,
        )
        address = urlsplit(self._endpoint.base_url)
        self.system = system or provider_of(address.hostname)
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
