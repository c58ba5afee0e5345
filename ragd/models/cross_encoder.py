"""A local cross-encoder from a folder: an ONNX graph and its tokenizer.json, on ONNX Runtime, without torch.

Such a folder is what `optimum-cli export onnx --task text-classification` writes, and what many published rerankers
carry. The graph reads one question with one text and gives one logit, or two: the second then stands for "relevant".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ragd.errors import RerankerError
from ragd.models.graph_folder import GraphFolder
from ragd.text.legibility import find_readable
from ragd.text.windows import LONE_SURROGATE
from ragd.types import check_at_least

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

WINDOW = 512


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
        self.files = GraphFolder(path, kind="cross-encoder", refusal=RerankerError)
        self.window, self.threads = window, threads

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.files.name

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        """One logit per text, in their order. [] for no texts.

        RerankerError when the files are missing, cannot be read, or are those of another kind of model.
        """
        if not texts:
            return []
        tokenizer, session = self.files.open(self._prepare)
        question = self._shortened(LONE_SURROGATE.sub("\ufffd", query), tokenizer)
        pairs = [list(self._windows(question, LONE_SURROGATE.sub("\ufffd", text), tokenizer)) for text in texts]
        if self.threads == 1:
            return [max(self._run(session, window) for window in windows) for windows in pairs]
        with ThreadPoolExecutor(self.threads, thread_name_prefix="ragd-rerank") as pool:
            return list(pool.map(lambda windows: max(self._run(session, window) for window in windows), pairs))

    def find_readable(self, query: str, texts: Sequence[str]) -> list[bool]:
        """For each text, whether the tokenizer knows its script (see `ragd.text.legibility`)."""
        tokenizer, _ = self.files.open(self._prepare)
        query, *texts = [LONE_SURROGATE.sub("\ufffd", text) for text in (query, *texts)]
        return find_readable(tokenizer, query, texts)

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
        logits = self.files.run(session, window).reshape(-1)
        if logits.size not in (1, 2):
            raise self.files.refuse(f"gives {logits.size} numbers per pair; expected one logit, or two classes")
        return float(logits[-1] - logits[0]) if logits.size == 2 else float(logits[0])

    def _prepare(self, tokenizer: Tokenizer) -> None:
        tokenizer.enable_truncation(self.window, strategy="only_second")
