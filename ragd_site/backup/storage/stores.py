"""Where backups lie: a folder, or a prefix of a bucket of an S3-compatible server. A file is there whole or not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from collections_app.fetching.buckets import StorageBucket
from collections_app.fetching.errors import FetchError
from ragd.errors import InvalidInput
from ragd_site.backup.storage.errors import BackupError
from ragd_site.backup.storage.streams import as_file

READ_BYTES = 1 << 20
DRAFTS = ".drafts"


class MissingError(BackupError):
    """There is no file of that name."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(f"{name} is not in {place}", type="backup_missing", status=404)


class Store(Protocol):
    """place: its address, for messages. Names have slashes between their parts. Every method raises BackupError."""

    place: str

    def put(self, name: str, content: Iterable[bytes]) -> int:
        """Store a file in place of any of that name; its bytes. When `content` raises, nothing is stored."""
        ...

    def get(self, name: str) -> Iterator[bytes]:
        """Its content, piece by piece. Raises MissingError."""
        ...

    def list(self, prefix: str) -> dict[str, int]:
        """Name -> bytes of every file whose name begins so, by name."""
        ...

    def remove(self, name: str) -> None:
        """Nothing where there is none."""
        ...

    def tidy(self, before: datetime) -> None:
        """Remove what was begun before that time and never became a file."""
        ...


class FolderStore:
    """Files that only their owner reads, in a folder that is made when it is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, str(folder)

    def put(self, name: str, content: Iterable[bytes]) -> int:
        with self._told():
            path, drafts = self.folder / name, self.folder / DRAFTS
            for folder in (self.folder, drafts, path.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(dir=drafts)
        try:
            size = 0
            with os.fdopen(descriptor, "wb") as file:
                for piece in content:
                    with self._told():
                        size += file.write(piece)
                with self._told():
                    file.flush()
                    os.fsync(file.fileno())
            with self._told():
                os.replace(draft, path)
                sync_folder(path.parent)
            return size
        except BaseException:
            with suppress(OSError):  # what went wrong first is told
                Path(draft).unlink()
            raise

    def get(self, name: str) -> Iterator[bytes]:
        with self._told():
            try:
                file = (self.folder / name).open("rb")
            except FileNotFoundError:
                raise MissingError(name, self.place) from None
        with file:
            while True:
                with self._told():
                    piece = file.read(READ_BYTES)
                if not piece:
                    return
                yield piece

    def list(self, prefix: str) -> dict[str, int]:
        with self._told():
            top, found = self.folder / prefix.rpartition("/")[0], {}
            for path in top.rglob("*"):
                name = path.relative_to(self.folder).as_posix()
                with suppress(FileNotFoundError):  # removed meanwhile
                    if name.startswith(prefix) and not name.startswith(DRAFTS) and path.is_file():
                        found[name] = path.stat().st_size
            return dict(sorted(found.items()))

    def remove(self, name: str) -> None:
        with self._told():
            path = self.folder / name
            path.unlink(missing_ok=True)
            while (path := path.parent) != self.folder and path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def tidy(self, before: datetime) -> None:
        with self._told():
            for draft in (self.folder / DRAFTS).glob("*"):
                with suppress(FileNotFoundError):
                    if draft.stat().st_mtime < before.timestamp():
                        draft.unlink()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BackupError(
                f"the backup folder {self.folder} cannot be used: {error.strerror} ({error.filename or 'a file'}). "
                "Make room or rights there, or name another folder"
            ) from None


class BucketStore:
    """Objects under a prefix of a bucket. An upload that stops leaves no object."""

    def __init__(self, bucket: StorageBucket, prefix: str) -> None:
        self.bucket, self.prefix = bucket, prefix
        self.place = f"s3://{bucket.name}/{prefix} at {bucket.endpoint}"

    def put(self, name: str, content: Iterable[bytes]) -> int:
        with self._told(name):
            return self.bucket.write(self.prefix + name, as_file(content))

    def get(self, name: str) -> Iterator[bytes]:
        with self._told(name):
            yield from self.bucket.stream(self.prefix + name)

    def list(self, prefix: str) -> dict[str, int]:
        with self._told(prefix):
            return {name.removeprefix(self.prefix): size for name, size in self.bucket.names(self.prefix + prefix)}

    def remove(self, name: str) -> None:
        with self._told(name):
            self.bucket.remove(self.prefix + name)

    def tidy(self, before: datetime) -> None:
        """Unfinished uploads cannot be seen as objects; a lifecycle rule of the bucket removes them."""

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        try:
            yield
        except FetchError as error:
            if error.kind == "not_found" and name:
                raise MissingError(name, f"{self.place} ({error})") from None
            raise BackupError(str(error), type=error.kind) from None
        except InvalidInput as error:
            raise BackupError(error.message) from None


def sync_folder(folder: Path) -> None:
    """Make the names in it outlast a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
