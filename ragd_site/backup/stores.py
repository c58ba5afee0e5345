"""Where backups lie: a folder, or a prefix of a bucket of an S3-compatible server. A file is there whole or not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from ragd.errors import InvalidInput
from ragd.readers.fetching.addresses import FetchError
from ragd.readers.fetching.buckets import Bucket
from ragd.readers.fetching.client import PinnedPool
from ragd_site.backup.programs import BackupError, MissingError
from ragd_site.backup.streams import as_file

READ_BYTES = 1 << 20
PART_BYTES = 32 << 20  # of an upload of unknown length, held in memory; S3 takes 10,000 parts
DRAFTS = ".drafts"


class Store(Protocol):
    """address: for messages. Names have slashes between their parts. Every method raises BackupError."""

    address: str

    def put(self, name: str, content: Iterable[bytes]) -> int:
        """Store a file in place of any of that name; its bytes. When `content` raises, nothing is stored."""
        ...

    def get(self, name: str) -> Iterator[bytes]:
        """Its content, piece by piece. Raises MissingError."""
        ...

    def list(self, prefix: str) -> list[str]:
        """The names that begin so, in order."""
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
        self.folder, self.address = folder, str(folder)

    def put(self, name: str, content: Iterable[bytes]) -> int:
        path, drafts = self.folder / name, self.folder / DRAFTS
        with self._told():
            for folder in (self.folder, drafts, path.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(dir=drafts)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for piece in content:
                    with self._told():
                        file.write(piece)
                with self._told():
                    file.flush()
                    os.fsync(descriptor)
            with self._told():
                os.replace(draft, path)
                sync_folder(path.parent)
                return path.stat().st_size
        except BaseException:
            with suppress(OSError):  # what went wrong first is told
                Path(draft).unlink()
            raise

    def get(self, name: str) -> Iterator[bytes]:
        with self._told():
            try:
                file = (self.folder / name).open("rb")
            except FileNotFoundError:
                raise MissingError(name, self.address) from None
            with file:
                while piece := file.read(READ_BYTES):
                    yield piece

    def list(self, prefix: str) -> list[str]:
        with self._told():
            paths = (self.folder / prefix.rpartition("/")[0]).rglob("*")
            names = (path.relative_to(self.folder).as_posix() for path in paths if path.is_file())
            return sorted(name for name in names if name.startswith(prefix) and not name.startswith(DRAFTS))

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


class BucketStore(Bucket):
    """Objects under a prefix of a bucket. An upload that stops leaves no object."""

    pool_class = PinnedPool  # of any size and in any time

    def __init__(self, endpoint: str, name: str, prefix: str, **values: Any) -> None:
        super().__init__(endpoint, name, guard=None, **values)
        self.prefix, self.address = prefix, f"s3://{name}/{prefix} at {endpoint}"

    def put(self, name: str, content: Iterable[bytes]) -> int:
        with self._refusals(name) as key:
            self._client.put_object(self.name, key, as_file(content), -1, part_size=PART_BYTES, num_parallel_uploads=1)
            return int(self._client.stat_object(self.name, key).size or 0)

    def get(self, name: str) -> Iterator[bytes]:
        with self._refusals(name) as key:
            response = self._client.get_object(self.name, key)
            try:
                yield from response.stream(READ_BYTES)
            finally:
                response.close()
                response.release_conn()

    def list(self, prefix: str) -> list[str]:
        with self._refusals(prefix) as key:
            rows = self._client.list_objects(self.name, prefix=key, recursive=True)
            return [str(row.object_name).removeprefix(self.prefix) for row in rows]

    def remove(self, name: str) -> None:
        with self._refusals(name) as key:
            self._client.remove_object(self.name, key)

    def tidy(self, before: datetime) -> None:
        """Unfinished uploads cannot be seen as objects; a lifecycle rule of the bucket removes them."""

    @contextmanager
    def _refusals(self, name: str) -> Iterator[str]:
        """The key of an object. Tells what the server or the bucket's name is refused for as BackupError."""
        try:
            with self._told(self.prefix + name):
                yield self.prefix + name
        except FetchError as error:
            if error.kind == "not_found" and name:
                raise MissingError(name, f"{self.address} ({error})") from None
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
