"""A local cross-encoder from a folder: an ONNX graph and its tokenizer.json, on ONNX Runtime, without torch.

Such a folder is what `optimum-cli export onnx --task text-classification` writes, and what many published rerankers
carry. The graph reads one question with one text and gives one logit, or two: the second then stands for "relevant".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from ragd.errors import RerankerError
from ragd.text.windows import LONE_SURROGATE
from ragd.types import check_at_least

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

WINDOW = 512
GRAPH_PLACES = ("model.onnx", "onnx/model.onnx")
TOKENIZER_FILE = "tokenizer.json"
READ_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class CrossEncoder:
    """path: a folder with model.onnx (or onnx/model.onnx) and tokenizer.json, or the .onnx file itself.

    window: tokens that the model reads at once, question and special tokens included. A longer text is read in windows
    and scores as its best one, so nothing is cut; of a question at most half a window is read. A score depends on
    question and text alone: one pair per run on one thread, `threads` of them side by side. Files are opened at the
    first call, once per process. Threads may share it.
    """

    def __init__(self, path: Path | str, *, window: int = WINDOW, threads: int = 1) -> None:
        check_at_least("window", window, 16)
        check_at_least("threads", threads, 1)
        self.path = Path(path)
        self.window, self.threads = window, threads
        self._lock = Lock()
        self._opened: tuple[int, Tokenizer, InferenceSession] | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        folder = self.path.parent if self.path.suffix == ".onnx" else self.path
        return (folder.parent if folder.name == "onnx" else folder).name or "cross-encoder"

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        """One logit per text, in their order. [] for no texts.

        RerankerError when the files are missing, cannot be read, or are those of another kind of model.
        """
        if not texts:
            return []
        tokenizer, session = self._open()
        question = self._shortened(LONE_SURROGATE.sub("\ufffd", query), tokenizer)
        pairs = [list(self._windows(question, LONE_SURROGATE.sub("\ufffd", text), tokenizer)) for text in texts]
        if self.threads == 1:
            return [max(self._run(session, window) for window in windows) for windows in pairs]
        with ThreadPoolExecutor(self.threads, thread_name_prefix="ragd-rerank") as pool:
            return list(pool.map(lambda windows: max(self._run(session, window) for window in windows), pairs))

    def _shortened(self, query: str, tokenizer: Tokenizer) -> str:
        """The question's first tokens, at most half a window."""
        most = self.window // 2
        offsets = [
            position for position in tokenizer.encode("", query, add_special_tokens=False).offsets if position[1]
        ]
        return query if len(offsets) <= most else query[: offsets[most - 1][1]]

    def _windows(self, query: str, text: str, tokenizer: Tokenizer) -> Iterator[Encoding]:
        encoding = tokenizer.encode(query, text)
        yield encoding
        yield from encoding.overflowing

    def _run(self, session: InferenceSession, window: Encoding) -> float:
        values = {"input_ids": window.ids, "attention_mask": window.attention_mask, "token_type_ids": window.type_ids}
        feed = {item.name: np.asarray([values[item.name]], dtype=np.int64) for item in session.get_inputs()}
        logits = np.asarray(session.run(None, feed)[0], dtype=np.float64).reshape(-1)
        if logits.size not in (1, 2):
            raise self._refusal(f"gives {logits.size} numbers per pair; expected one logit, or two classes")
        return float(logits[-1] - logits[0]) if logits.size == 2 else float(logits[0])

    def _open(self) -> tuple[Tokenizer, InferenceSession]:
        """This process's own: another thread of a forked parent may have held the session's locks."""
        if self._opened is None or self._opened[0] != os.getpid():
            if self._opened is not None:
                self._lock = Lock()
            with self._lock:
                if self._opened is None or self._opened[0] != os.getpid():
                    self._opened = (os.getpid(), *self._load())
        return self._opened[1], self._opened[2]

    def _load(self) -> tuple[Tokenizer, InferenceSession]:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise self._refusal(f"needs the package {error.name}; run `pip install ragd[cross-encoder]`") from error
        graph, tokenizer_file = self._find()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            tokenizer = Tokenizer.from_file(str(tokenizer_file))
            session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # both libraries raise kinds of their own
            raise self._refusal(f"cannot be opened ({error}); export it again") from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.window, strategy="only_second")
        if unknown := [item.name for item in session.get_inputs() if item.name not in READ_INPUTS]:
            raise self._refusal(f"asks for the input {unknown[0]!r}; expected only {', '.join(READ_INPUTS)}")
        return tokenizer, session

    def _find(self) -> tuple[Path, Path]:
        """The graph, and the tokenizer beside it or one folder above."""
        if self.path.suffix == ".onnx":
            graphs, folders = [self.path], [self.path.parent, self.path.parent.parent]
        else:
            graphs, folders = [self.path / position for position in GRAPH_PLACES], [self.path]
        graph = next((position for position in graphs if position.is_file()), None)
        tokenizer = next(
            (position / TOKENIZER_FILE for position in folders if (position / TOKENIZER_FILE).is_file()), None
        )
        if graph is None or tokenizer is None:
            lacking = TOKENIZER_FILE if graph else " or ".join(position.name for position in graphs[:1])
            raise self._refusal(f"has no {lacking}; expected a folder with model.onnx and {TOKENIZER_FILE}")
        return graph, tokenizer

    def _refusal(self, message: str) -> RerankerError:
        return RerankerError(f"the cross-encoder {str(self.path)!r} {message}")
