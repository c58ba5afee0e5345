"""An ONNX graph with its tokenizer in a folder, opened on ONNX Runtime once per process, without torch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ragd.errors import RagdError
from ragd.text.windows import halve_text

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

GRAPH_PLACES = ("model.onnx", "onnx/model.onnx")
TOKENIZER_FILE = "tokenizer.json"
READ_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
INPUT_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32, "tensor(bool)": bool}


class GraphFolder:
    """path: a folder with model.onnx (or onnx/model.onnx) and tokenizer.json, or the .onnx file itself.

    kind: what the model is, for messages. refusal: makes the error of a message. The graph runs on one thread. Threads
    may share it; a forked child opens its own.
    """

    def __init__(self, path: Path | str, *, kind: str, refusal: Callable[[str], RagdError]) -> None:
        self.path = Path(path)
        self._kind, self._refusal = kind, refusal
        self._lock = Lock()
        self._opened: tuple[int, Tokenizer, InferenceSession] | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name or self._kind

    @property
    def folder(self) -> Path:
        """Where the model's own files lie, whatever part of them `path` is."""
        folder = self.path.parent if self.path.suffix == ".onnx" else self.path
        return folder.parent if folder.name == "onnx" else folder

    def open(self, prepare: Callable[[Tokenizer], None] | None = None) -> tuple[Tokenizer, InferenceSession]:
        """This process's own: another thread of a forked parent may have held the session's locks.

        prepare: sets the tokenizer, which neither pads nor cuts, before anybody uses it. The refusal when the files are
        missing, cannot be read, or ask for other inputs than READ_INPUTS.
        """
        if self._opened is None or self._opened[0] != os.getpid():
            if self._opened is not None:
                self._lock = Lock()
            with self._lock:
                if self._opened is None or self._opened[0] != os.getpid():
                    tokenizer, session = self._load()
                    if prepare:
                        prepare(tokenizer)
                    self._opened = (os.getpid(), tokenizer, session)
        return self._opened[1], self._opened[2]

    def run(self, session: InferenceSession, encoding: Encoding, output_name: str = "") -> npt.NDArray[np.float64]:
        """One output of the graph for one encoding, in its shape; the first where none is named.

        The refusal when the graph fails or its numbers are not finite.
        """
        values = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
            "position_ids": range(len(encoding.ids)),
        }
        feed = {
            item.name: np.asarray([values[item.name]], dtype=INPUT_TYPES.get(item.type, np.int64))
            for item in session.get_inputs()
        }
        try:
            output = np.asarray(session.run([output_name] if output_name else None, feed)[0], dtype=np.float64)
        except Exception as error:  # ONNX Runtime raises kinds of its own
            raise self.refuse(f"cannot read {len(encoding)} tokens ({error}); export it again") from error
        if not np.isfinite(output).all():
            raise self.refuse("gives numbers that are not finite; export it again, with 32-bit numbers")
        return output

    def windows(self, tokenizer: Tokenizer, text: str, window: int, prompt: str = "") -> list[Encoding]:
        """The text as the model reads it: at once where it fits, else in consecutive windows with the prompt in each.

        Windows are as few and as even as they come and begin at a word where one does.
        """
        whole = tokenizer.encode(prompt + text)
        if len(whole) <= window:
            return [whole]
        room = window - len(tokenizer.encode(prompt))
        if room < 1:
            raise self.refuse(f"has a prompt that fills its window of {window} tokens; shorten the prompt")
        encoding = tokenizer.encode(text, add_special_tokens=False)
        starts, left = [0], len(encoding)
        while left > room:
            first = len(encoding) - left
            last = first + math.ceil(left / math.ceil(left / room))
            cut = _word_start(encoding, first, last)
            starts.append(encoding.offsets[cut][0])
            left = len(encoding) - cut
        pieces = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
        fitting = [
            part
            for piece in pieces  # a piece by itself may take a token more than it took in the text
            for part in halve_text(piece, lambda part: len(tokenizer.encode(prompt + part)) <= window)
        ]
        return [tokenizer.encode(prompt + part) for part in fitting]

    def find(self) -> tuple[Path, Path]:
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
            raise self.refuse(f"has no {lacking}; expected a folder with model.onnx and {TOKENIZER_FILE}")
        return graph, tokenizer

    def refuse(self, message: str) -> RagdError:
        return self._refusal(f"the {self._kind} {str(self.path)!r} {message}")

    def _load(self) -> tuple[Tokenizer, InferenceSession]:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise self.refuse(f"needs the package {error.name}; run `pip install ragd[models]`") from error
        graph, tokenizer_file = self.find()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            tokenizer = Tokenizer.from_file(str(tokenizer_file))
            session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # both libraries raise kinds of their own
            raise self.refuse(f"cannot be opened ({error}); export it again") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if unknown := [item.name for item in session.get_inputs() if item.name not in READ_INPUTS]:
            raise self.refuse(f"asks for the input {unknown[0]!r}; expected only {', '.join(READ_INPUTS)}")
        return tokenizer, session


def _word_start(encoding: Encoding, first: int, last: int) -> int:
    """The last place in first+1..last where a word begins, by the tokenizer's words; `last` when there is none."""
    words = encoding.word_ids
    return next((place for place in range(last, first, -1) if words[place] != words[place - 1]), last)


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
