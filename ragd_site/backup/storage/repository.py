"""A place with backups of one server, all under one key.

repository                    the salt of the key, and what tells the right key; the only file in plain
servers/ID/manifest           written last: without it there is no backup ID
servers/ID/base, files        PostgreSQL's data folder and the files of RAGD_VAR, as tar
servers/ID/wal/SEGMENT        the write-ahead log from the beginning of `base` to the moment of the backup
collections/ID/manifest, export
wal/ARCHIVE/SEGMENT           what follows, for point-in-time restores; `end` says how far it reaches
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg

from ragd_site.backup.storage.errors import BackupError, DamagedError
from ragd_site.backup.storage.sealing import SALT_BYTES, Key
from ragd_site.backup.storage.stores import MissingError, Store

FORMAT = 1
HEAD = "repository"
MANIFEST = "manifest"
SERVERS, COLLECTIONS = "servers/", "collections/"
BACKUP_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup. folder: its names begin so. moment: the time that it brings back."""

    folder: str
    id: str
    moment: datetime
    manifest: dict[str, Any] = field(repr=False)

    @property
    def stored_bytes(self) -> int:
        return sum(int(member["stored"]) for member in self.manifest["members"].values())


@dataclass(frozen=True, slots=True)
class Counted:
    """Bytes of a file: as they were given, and as they are stored."""

    content: int
    stored: int


class Repository:
    """Every method raises BackupError, and DamagedError for bytes that are not those that were written."""

    def __init__(self, store: Store, key: Key) -> None:
        self.store, self._key = store, key
        self.id = key.check_value()[:8]

    @classmethod
    def open(cls, store: Store, secret: str, *, create: bool = False) -> Repository:
        """Raises BackupError where there is none, unless `create`, and for another key than it was made with."""
        try:
            head = json.loads(b"".join(store.get(HEAD)))
            salt, known = bytes.fromhex(head["salt"]), str(head["check"])
            if head["format"] != FORMAT:
                raise BackupError(
                    f"{store.place} has backups of the format {head['format']}; this ragd reads {FORMAT}. Use a newer "
                    "ragd"
                )
        except MissingError:
            if not create:
                raise BackupError(
                    f"there are no backups in {store.place}; check the name, or make one with `manage.py ragd backup`",
                    type="backup_missing",
                    status=404,
                ) from None
            return cls._create(store, secret)
        except (ValueError, KeyError, TypeError):
            raise DamagedError(f"{HEAD} in {store.place} was altered: it must be the JSON that ragd wrote") from None
        key = Key.derive(secret, salt)
        if not secrets.compare_digest(key.check_value(), known):
            raise BackupError(
                f"the backup key is not the one that {store.place} was made with; give that key's file with --key-file "
                "or RAGD_BACKUP_KEY_FILE. Without it these backups cannot be read",
                type="wrong_backup_key",
                status=403,
            )
        return cls(store, key)

    @classmethod
    def _create(cls, store: Store, secret: str) -> Repository:
        salt = secrets.token_bytes(SALT_BYTES)
        key = Key.derive(secret, salt)
        head = {"format": FORMAT, "salt": salt.hex(), "check": key.check_value()}
        store.put(HEAD, [json.dumps(head).encode()])
        return cls(store, key)

    def put(self, name: str, content: Iterable[bytes]) -> Counted:
        """Store a file; it is there when all of it is."""
        given = 0

        def count() -> Iterator[bytes]:
            nonlocal given
            for piece in content:
                given += len(piece)
                yield piece

        stored = self.store.put(name, self._key.seal(name, count()))
        return Counted(given, stored)

    def get(self, name: str) -> Iterator[bytes]:
        """Its content, each part proven before it is given out."""
        return self._key.unseal(name, self.store.get(name))

    def put_json(self, name: str, values: dict[str, Any]) -> None:
        self.put(name, [json.dumps(values).encode()])

    def get_json(self, name: str) -> dict[str, Any]:
        return dict(json.loads(b"".join(self.get(name))))

    def names(self, prefix: str) -> dict[str, int]:
        """Name -> stored bytes, by name."""
        return self.store.list(prefix)

    def backups(self, kind: str = SERVERS, damaged: list[DamagedError] | None = None) -> list[Backup]:
        """The complete ones, the newest first. Reads their manifests.

        damaged: takes what is said of manifests that are not as they were written; without it they are raised.
        """
        result = []
        for name in self.names(kind):
            if name.endswith("/" + MANIFEST):
                try:
                    result.append(self._read(name.removesuffix(MANIFEST)))
                except DamagedError as error:
                    if damaged is None:
                        raise
                    damaged.append(error)
        return sorted(result, key=lambda backup: backup.moment, reverse=True)

    def find(self, backup_id: str, kind: str = SERVERS) -> Backup:
        """Raises BackupError, which names those that there are."""
        try:
            if BACKUP_ID.fullmatch(backup_id):
                return self._read(f"{kind}{backup_id}/")
        except MissingError:
            pass
        known = ", ".join(backup.id for backup in self.backups(kind, [])[:5]) or "none"
        raise BackupError(
            f"there is no complete backup {backup_id!r} in {self.store.place}; the newest are: {known}",
            type="backup_missing",
            status=404,
        )

    def remove(self, backup_folder: str) -> None:
        """Its manifest first: from then on it counts as incomplete."""
        names = sorted(self.names(backup_folder), key=lambda name: not name.endswith("/" + MANIFEST))
        for name in names:
            self.store.remove(name)

    def verify(self, backup: Backup) -> int:
        """Read every byte of a backup; how many these are. Raises DamagedError for the first file that is not whole."""
        total = 0
        for name, expected in backup.manifest["members"].items():
            try:
                size = sum(map(len, self.get(backup.folder + name)))
            except MissingError:
                raise DamagedError(
                    f"{backup.folder}{name} is missing in {self.store.place}; take another backup"
                ) from None
            if size != expected["bytes"]:
                raise DamagedError(
                    f"{backup.folder}{name} has {size:,} bytes of content, and its manifest says {expected['bytes']:,};"
                    " take another backup"
                )
            total += size
        return total

    def _read(self, folder: str) -> Backup:
        manifest = self.get_json(folder + MANIFEST)
        return Backup(folder, str(manifest["id"]), datetime.fromisoformat(manifest["moment"]), manifest)


class Draft:
    """A backup that is being written. It counts when `finish` wrote its manifest, and not before."""

    def __init__(self, repository: Repository, kind: str) -> None:
        self.repository = repository
        self.began = datetime.now(UTC)
        self.id = f"{self.began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        self.folder = f"{kind}{self.id}/"
        self.members: dict[str, dict[str, int]] = {}

    def put(self, name: str, content: Iterable[bytes]) -> None:
        counted = self.repository.put(self.folder + name, content)
        self.members[name] = {"bytes": counted.content, "stored": counted.stored}

    def finish(self, moment: datetime, values: dict[str, Any]) -> Backup:
        manifest = {
            "format": FORMAT,
            "id": self.id,
            "began": self.began.isoformat(),
            "moment": moment.isoformat(),
            "ended": datetime.now(UTC).isoformat(),
            **values,
            "members": self.members,
        }
        self.repository.put_json(self.folder + MANIFEST, manifest)
        return Backup(self.folder, self.id, moment, manifest)

    def discard(self) -> None:
        """What was written of it."""
        self.repository.remove(self.folder)


@contextmanager
def drafted(repository: Repository, kind: str) -> Iterator[Draft]:
    """A draft that goes when what writes it fails. Raises BackupError for what PostgreSQL refuses."""
    draft = Draft(repository, kind)
    try:
        yield draft
    except BaseException as error:
        with suppress(BackupError):  # what is left has no manifest, and goes with the retention
            draft.discard()
        if isinstance(error, psycopg.Error):
            raise BackupError(f"PostgreSQL refused a step of the backup: {str(error).strip()}") from error
        raise
