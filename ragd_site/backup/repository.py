"""A place with backups of one server, all under one key; every file is an age file, whose name ends with `.age`.

repository.json               made first: the form of all this, and by what key it can be read
backups/ID.tar.gz             PostgreSQL's data folder, with the log from the beginning of the copy to the moment
backups/ID.dump, ID.zip       or the dump of a PostgreSQL of one's own, or the export of a collection
backups/ID.json               the manifest, written last: without it there is no backup ID
wal/ARCHIVE/SEGMENT.gz        what follows, for point-in-time restores; `end.json` says how far it reaches
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg

from ragd_site.backup.encryption import Key, WrongKeyError
from ragd_site.backup.programs import BackupError, DamagedError, MissingError
from ragd_site.backup.stores import Store

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
