"""An ONNX graph with its tokenizer in a folder, opened on ONNX Runtime once per process, without torch.

What every model in a folder has: a name with the checksum of the files that decide its numbers.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ragd.errors import EmbedderError, RagdError
from ragd.text.windows import halve_text
from ragd.types import check_at_least

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


DIGITS = 12  # of the checksum in a model's name
IDENTITY = re.compile(rf"(?P<name>.+)@(?P<checksum>[0-9a-f]{{{DIGITS}}})", re.DOTALL)
LOCATION = re.compile(rb"location\x12([\x01-\x7f])")  # of external data: the key of a protocol buffer entry
refuse_folder = partial(EmbedderError, kind="damaged_model", retryable=False)

Stamp = tuple[str, int, int]
_digests: dict[Stamp, bytes] = {}
_digests_lock = Lock()


class FolderModel:
    """files: all that decide the numbers are `paths`. lower_case: texts are lowered before the tokenizer's own steps.

    model: the folder's name with the first digits of the checksum, a SHA-256. threads: windows computed side by side,
    each alone in a run on one thread; default: the cores that this process may use. Threads may share one.
    """

    def __init__(
        self,
        files: GraphFolder,
        paths: tuple[Path, ...],
        *,
        lower_case: bool,
        threads: int | None,
        root: Path | None = None,
    ) -> None:
        """root: the model's folder, where the graph lies in a folder of it."""
        if threads is not None:
            check_at_least("threads", threads, 1)
        self.threads = threads or available_cores()
        self.files, self.path, self.root = files, root or files.path, root or files.folder
        self._paths, self._lower_case = paths, lower_case
        self._stamps = stamp_files(paths)
        self.checksum = checksum_files(self.root, paths)
        self.model = f"{self.name}@{self.checksum[:DIGITS]}"
        self.size_bytes = sum(size for _, size, _ in self._stamps)
        self._lock = Lock()

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.root.name

    def open(self) -> tuple[Tokenizer, InferenceSession]:
        """The refusal of `check_unchanged`, or of files that cannot be opened."""
        self.check_unchanged()
        return self.files.open(self._prepare)

    def check_unchanged(self) -> None:
        """EmbedderError of kind "changed_model" when the folder's files are gone or others. Cheap while they stay."""
        try:
            stamps = stamp_files(self._paths)
            with self._lock:
                known: tuple[Stamp, ...] = self._stamps
            if stamps == known:
                return
            found = checksum_files(self.root, self._paths)
        except OSError as error:
            raise changed_folder(self.model, f"{error.filename} cannot be read ({error.strerror})") from error
        if found != self.checksum:
            raise changed_folder(self.model, f"the folder {str(self.path)!r} now has {found[:DIGITS]}")
        with self._lock:
            self._stamps = stamps

    def _prepare(self, tokenizer: Tokenizer) -> None:
        if self._lower_case:
            from tokenizers import normalizers

            before = [tokenizer.normalizer] if tokenizer.normalizer else []
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])


def changed_folder(model: str, found: str) -> EmbedderError:
    """What is said when the vectors of a model were made by files that are not there now."""
    name, _, checksum = model.rpartition("@")
    return EmbedderError(
        f"the model {name!r} was expected with the checksum {checksum}, and {found}; put the folder of that "
        "checksum back, or build a new index version with the model that is there",
        kind="changed_model",
        retryable=False,
    )


def external_data(graph: Path) -> Iterator[Path]:
    """The files beside a graph that its weights are in, as the graph names them."""
    if not graph.stat().st_size:
        return
    with graph.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        named = {content[found.end() : found.end() + found[1][0]] for found in LOCATION.finditer(content)}
    for name in sorted(named):
        path = Path(name.decode(errors="replace"))
        if (
            "\0" not in path.name
            and ".." not in path.parts
            and not path.is_absolute()
            and (graph.parent / path).is_file()
        ):
            yield graph.parent / path


def stamp_files(paths: tuple[Path, ...]) -> tuple[Stamp, ...]:
    """Path, size and time of change of each file. OSError when one is gone."""
    return tuple((str(path), (state := path.stat()).st_size, state.st_mtime_ns) for path in paths)


def checksum_files(folder: Path, paths: tuple[Path, ...]) -> str:
    """SHA-256 over the name inside the folder and the SHA-256 of each file, by name. OSError when one is gone.

    A file is read once per process, as long as its size and time of change stay.
    """
    digest = hashlib.sha256()
    for path, stamp in sorted(zip(paths, stamp_files(paths), strict=True)):
        with _digests_lock:
            known = _digests.get(stamp)
        if known is None:
            with path.open("rb") as file:
                known = hashlib.file_digest(file, "sha256").digest()
            with _digests_lock:
                _digests[stamp] = known
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + known)
    return digest.hexdigest()
