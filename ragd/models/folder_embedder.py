"""An embedder from a folder of the sentence-transformers form: an ONNX graph, its tokenizer and its configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from ragd import telemetry
from ragd.errors import DimensionMismatch
from ragd.models.folder_model import FolderModel, refuse_folder
from ragd.models.graph_folder import GraphFolder
from ragd.models.prompts import Prompts
from ragd.models.sentence_folder import FolderReader, Numbers, pool
from ragd.text.windows import FloatArray, accept_texts, average_windows
from ragd.types import Vector

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
TEXT_OUTPUT = "sentence_embedding"


class FolderEmbedder(FolderModel):
    """path: a folder with modules.json, onnx/model.onnx (or model.onnx) and tokenizer.json.

    dims: entries per vector, None for what the folder states; fewer than the model gives only where the folder names
    that Matryoshka size. threads: windows computed side by side, each alone in a run on one thread, so a vector depends
    on its text alone; default: the cores that this process may use. Vectors are float32 of unit length. The graph is
    opened at the first call, once per process. Threads may share one.

    EmbedderError of kind "damaged_model" for a folder that lacks something, "changed_model" for one whose files are no
    longer those that it was made of; DimensionMismatch for other dims than the folder allows.
    """

    system = "ragd.local"
    server_address: str | None = None
    server_port: int | None = None

    def __init__(self, path: Path | str, *, dims: int | None = None, threads: int | None = None) -> None:
        files = GraphFolder(os.path.abspath(path), kind="embedding model", refusal=refuse_folder)
        self.spec = FolderReader(files).read()
        super().__init__(files, self.spec.files, lower_case=self.spec.lower_case, threads=threads)
        self.window: int | None = self.spec.window
        self.native_dims, self.matryoshka_dims = self.spec.native_dims, self.spec.matryoshka_dims
        self.prompts: Prompts = self.spec.prompts
        self.pooling = self.spec.pooling
        self.dims = self._check_dims(self.spec.default_dims if dims is None else dims)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self._embed(texts, self.prompts.passage)

    def embed_query(self, text: str) -> Vector:
        return self._embed([text], self.prompts.query)[0]

    def count_tokens(self, text: str) -> int:
        """Tokens of the whole text with the prompt of passages and the special tokens of one window."""
        tokenizer, _ = self.open()
        return len(tokenizer.encode(self.prompts.passage + accept_texts([text])[0])) if text.strip() else 0

    def _embed(self, texts: Sequence[str], prompt: str) -> list[Vector]:
        accepted = accept_texts(texts)
        if not accepted:
            return []
        tokenizer, session = self.open()
        compute = self._computation(tokenizer, session, prompt)
        with telemetry.EmbeddingsCall(
            system=self.system, model=self.model, dims=self.dims, texts=accepted, encoding_format="float"
        ) as call:
            windows = {
                text: self.files.windows(tokenizer, text, self.spec.window, prompt) for text in dict.fromkeys(accepted)
            }
            flat = [window for of_text in windows.values() for window in of_text]
            call.input_tokens = sum(len(window) for window in flat)
            if self.threads == 1 or len(flat) == 1:
                means = iter([compute(window) for window in flat])
            else:
                with ThreadPoolExecutor(min(self.threads, len(flat)), thread_name_prefix="ragd-embed") as workers:
                    means = iter(list(workers.map(compute, flat)))
            special = len(tokenizer.encode(prompt))
            vectors = {
                text: self._shortened(
                    [next(means) for _ in of_text], [max(1, len(window) - special) for window in of_text]
                )
                for text, of_text in windows.items()
            }
            call.record_vectors([vectors[text] for text in accepted])
        return [cast(Vector, vectors[text]) for text in accepted]

    def _shortened(self, vectors: list[Numbers], weights: list[int]) -> FloatArray:
        """The unit vector of a text's windows, each cut to `dims` and brought to unit length before."""
        cut = [vector[: self.dims] for vector in vectors]
        vector = average_windows([part / (np.linalg.norm(part) or 1.0) for part in cut], weights)
        if not vector.any():
            raise self.files.refuse("gives a vector of zeros only; export it again")
        return vector

    def _computation(
        self, tokenizer: Tokenizer, session: InferenceSession, prompt: str
    ) -> Callable[[Encoding], Numbers]:
        """From a window to the vector that the folder's modules make of it, not truncated."""
        names = [item.name for item in session.get_outputs()]
        output = next((name for name in (*TOKEN_OUTPUTS, TEXT_OUTPUT) if name in names), "")
        skipped = self._prompt_tokens(tokenizer, prompt) if self.spec.skips_prompt else 0
        if not output or (output == TEXT_OUTPUT and skipped):
            raise self.files.refuse(
                f"gives {', '.join(names)}; expected {' or '.join(TOKEN_OUTPUTS)}, or {TEXT_OUTPUT} where the prompt "
                "is part of the pooling: export it again"
            )

        def compute(window: Encoding) -> Numbers:
            values = self.files.run(session, window, output)
            if output == TEXT_OUTPUT:
                vector = values.reshape(-1)
            else:
                tokens = values.reshape(-1, values.shape[-1])
                if len(tokens) != len(window):
                    raise self.files.refuse(f"gives {len(tokens)} vectors for {len(window)} tokens; export it again")
                self._check_width(tokens.shape[-1] * len(self.pooling), self._pooled_dims)
                vector = pool(tokens, self.pooling, skipped)
                for step in self.spec.steps:
                    vector = step.apply(vector)
            self._check_width(len(vector), self.native_dims)
            return vector

        return compute

    @property
    def _pooled_dims(self) -> int:
        dense = [step for step in self.spec.steps if hasattr(step, "weight")]
        return dense[0].weight.shape[1] if dense else self.native_dims

    def _check_width(self, given: int, expected: int) -> None:
        if given != expected:
            raise self.files.refuse(
                f"gives {given} dimensions where its configuration says {expected}; correct word_embedding_dimension, "
                "or export it again"
            )

    def _prompt_tokens(self, tokenizer: Tokenizer, prompt: str) -> int:
        """How many tokens the prompt takes at the beginning: with the special ones before it, without those behind."""
        if not prompt:
            return 0
        encoding = tokenizer.encode(prompt)
        return len(encoding) - (1 if encoding.special_tokens_mask[-1] else 0)

    def _check_dims(self, dims: int) -> int:
        if dims not in (self.native_dims, self.spec.default_dims, *self.matryoshka_dims):
            sizes = ", ".join(str(size) for size in (*self.matryoshka_dims, self.native_dims))
            raise DimensionMismatch(
                f"the model {self.files.name!r} makes {sizes} dimensions, not {dims}; state one of these, or name the "
                "size in matryoshka_dims of its config_sentence_transformers.json if it was trained for it",
                field="embed_dims",
            )
        return dims
