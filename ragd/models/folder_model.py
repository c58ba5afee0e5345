"""What every model in a folder has: a name with the checksum of the files that decide its numbers."""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ragd.errors import EmbedderError
from ragd.models.graph_folder import GraphFolder, available_cores
from ragd.types import check_at_least

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

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
