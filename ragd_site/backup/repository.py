"""Where backups lie: a folder, or a prefix of a bucket of an S3-compatible server. A file is there whole or not.

A place with backups of one server, all under one key; every file is an age file, whose name ends with `.age`.

repository.json               made first: the form of all this, and by what key it can be read
backups/ID.tar.gz             PostgreSQL's data folder, with the log from the beginning of the copy to the moment
backups/ID.dump, ID.zip       or the dump of a PostgreSQL of one's own, or the export of a collection
backups/ID.json               the manifest, written last: without it there is no backup ID
wal/ARCHIVE/SEGMENT.gz        what follows, for point-in-time restores; `end.json` says how far it reaches
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import psycopg

from ragd.errors import InvalidInput
from ragd.readers.fetching.addresses import FetchError
from ragd.readers.fetching.buckets import Bucket
from ragd.readers.fetching.client import PinnedPool
from ragd_site.backup.programs import BackupError, DamagedError, MissingError
from ragd_site.backup.streams import Key, WrongKeyError, as_file

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


FORMAT = 2
AGE = ".age"
HEAD = "repository.json"
BACKUPS = "backups/"
MANIFEST = ".json"
SERVER, DATABASE, COLLECTION = "server", "database", "collection"
SUFFIXES = {SERVER: ".tar.gz", DATABASE: ".dump", COLLECTION: ".zip"}
BACKUP_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup. moment: the time that it brings back."""

    id: str
    kind: str
    moment: datetime
    manifest: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> Backup:
        return cls(manifest["id"], manifest["kind"], datetime.fromisoformat(manifest["moment"]), manifest)

    @property
    def content(self) -> str:
        """The name of its file in the repository; that of its manifest is `manifest_name`."""
        return f"{BACKUPS}{self.id}{SUFFIXES[self.kind]}"

    @property
    def manifest_name(self) -> str:
        return f"{BACKUPS}{self.id}{MANIFEST}"


class Repository:
    """Every method raises BackupError, and DamagedError for bytes that are not those that were written."""

    def __init__(self, store: Store, key: Key, repository_id: str) -> None:
        self.store, self._key, self.id = store, key, repository_id
        self.listener: Callable[[int], object] = lambda count: None  # of bytes of a backup that is written

    @classmethod
    def open(cls, store: Store, key_text: str, *, create: bool = False) -> Repository:
        """Raises BackupError where there is none, unless `create`, and for another key than it was made with."""
        repository = cls(store, Key(key_text), secrets.token_hex(4))
        try:
            head = repository.get_json(HEAD)
        except MissingError:
            if not create:
                raise BackupError(
                    f"there are no backups in {store.address}; check the name or make one with `manage.py ragd backup`",
                    type="backup_missing",
                    status=404,
                ) from None
            repository.put_json(HEAD, {"format": FORMAT, "id": repository.id})
            return repository
        except WrongKeyError:
            raise BackupError(
                f"the backup key is not the one that {store.address} was made with; give its file with --key-file "
                "or RAGD_BACKUP_KEY_FILE. Without it these backups cannot be read",
                type="wrong_backup_key",
                status=403,
            ) from None
        if head["format"] != FORMAT:
            raise BackupError(
                f"{store.address} has backups of the format {head['format']}; this ragd reads {FORMAT}. Use a newer one"
            )
        repository.id = str(head["id"])
        return repository

    def put(self, name: str, content: Iterable[bytes]) -> int:
        """Store a file, which is there when all of it is; its encrypted bytes."""
        return self.store.put(name + AGE, self._key.encrypt(content))

    def get(self, name: str) -> Iterator[bytes]:
        """Its content, each part proven before it is given out."""
        return self._key.decrypt(name + AGE, self.store.get(name + AGE))

    def put_json(self, name: str, values: dict[str, Any]) -> None:
        self.put(name, [json.dumps(values).encode()])

    def get_json(self, name: str) -> dict[str, Any]:
        return dict(json.loads(b"".join(self.get(name))))

    def names(self, prefix: str) -> list[str]:
        """In order, without those of other files, such as what somebody decrypted beside."""
        return [name.removesuffix(AGE) for name in self.store.list(prefix) if name.endswith(AGE)]

    def remove(self, *names: str) -> None:
        """Files, in this order; nothing where there are none."""
        for name in names:
            self.store.remove(name + AGE)

    def backups(
        self, *, collection: str | None = None, damaged: list[DamagedError] | None = None, every: bool = False
    ) -> list[Backup]:
        """The complete ones of the server, or of a collection, or all; the newest first. Reads their manifests.

        damaged: takes what is said of manifests that are not as they were written; without it they are raised.
        """
        result = []
        for name in self.names(BACKUPS):
            if name.endswith(MANIFEST):
                try:
                    backup = self._read(name.removeprefix(BACKUPS).removesuffix(MANIFEST))
                except DamagedError as error:
                    if damaged is None:
                        raise
                    damaged.append(error)
                else:
                    if every or backup.manifest.get("collection") == collection:
                        result.append(backup)
        return sorted(result, key=lambda backup: backup.moment, reverse=True)

    def find(self, backup_id: str) -> Backup:
        """Raises BackupError, which names those that there are."""
        try:
            if BACKUP_ID.fullmatch(backup_id):
                return self._read(backup_id)
        except MissingError:
            pass
        known = ", ".join(backup.id for backup in self.backups(damaged=[], every=True)[:5]) or "none"
        raise BackupError(
            f"there is no complete backup {backup_id!r} in {self.store.address}; the newest are: {known}",
            type="backup_missing",
            status=404,
        )

    def write(self, kind: str, content: Iterable[bytes], values: dict[str, Any]) -> Backup:
        """Store a backup. It counts when its manifest is written; what fails before that leaves nothing.

        values: of the manifest, with "moment"; what is added while the content is read is in it too. Raises BackupError
        for what PostgreSQL refuses.
        """
        began = datetime.now(UTC)
        backup_id = f"{began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        name = f"{BACKUPS}{backup_id}{SUFFIXES[kind]}"
        measured = _Measured(self.listener)
        try:
            stored = self.put(name, measured.pass_on(content))
            times = {"began": began.isoformat(), "ended": datetime.now(UTC).isoformat()}
            head = {"format": FORMAT, "id": backup_id, "kind": kind, "stored": stored} | measured.facts() | times
            backup = Backup.of(head | values)
            self.put_json(backup.manifest_name, backup.manifest)
        except BaseException as error:
            with suppress(BackupError):  # what is left has no manifest, and goes with the retention
                self.remove(name)
            if isinstance(error, psycopg.Error):
                raise BackupError(f"PostgreSQL refused a step of the backup: {str(error).strip()}") from error
            raise
        return backup

    def read(self, backup: Backup) -> Iterator[bytes]:
        """Its content, compared with the manifest at the end. Raises DamagedError."""
        measured = _Measured()
        try:
            yield from measured.pass_on(self.get(backup.content))
        except MissingError:
            raise DamagedError(f"{backup.content} is missing in {self.store.address}; take another backup") from None
        if not measured.facts().items() <= backup.manifest.items():
            raise DamagedError(f"{backup.content} is not the file that its manifest tells of; take another backup")

    def verify(self, backup: Backup) -> int:
        """Read every byte of a backup; how many these are. Raises DamagedError where it is not whole."""
        return sum(map(len, self.read(backup)))

    def _read(self, backup_id: str) -> Backup:
        backup = Backup.of(self.get_json(f"{BACKUPS}{backup_id}{MANIFEST}"))
        if backup.id != backup_id:
            raise DamagedError(f"{BACKUPS}{backup_id}{MANIFEST} is the manifest of {backup.id}; take another backup")
        return backup


class _Measured:
    """The size and the hash of content that is passed on."""

    def __init__(self, listener: Callable[[int], object] = int) -> None:
        self._size, self._hash, self._listener = 0, hashlib.sha256(), listener

    def pass_on(self, content: Iterable[bytes]) -> Iterator[bytes]:
        for piece in content:
            self._size += len(piece)
            self._hash.update(piece)
            self._listener(self._size)
            yield piece

    def facts(self) -> dict[str, Any]:
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}
