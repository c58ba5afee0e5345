"""Backups and restore drills of the server as operations: made by a command, or by a worker for a page or the schedule.

The key that a page makes, and a backup as one file to keep elsewhere.

The place and the key of backups, as the command line or the settings name them.

How many backups stay.
"""

from __future__ import annotations

import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from collections_app.access.context import current_access, elevated
from collections_app.access.permissions import Permission
from collections_app.audit.services import Actor, Subject, record_event
from collections_app.commands.subcommand import UsageError
from collections_app.domain.formats import counted
from collections_app.endpoints.server_settings import change_settings
from collections_app.jobs.operations import OperationProgress, handles, last_operation, request_operation
from collections_app.jobs.workers import record_backup
from collections_app.models import Operation
from collections_app.sources.source_jobs import AMAZON
from ragd.readers.fetching.buckets import BucketKeys
from ragd_site import embedded
from ragd_site.backup.programs import BackupError
from ragd_site.backup.repository import (
    AGE,
    BACKUPS,
    COLLECTION,
    HEAD,
    MANIFEST,
    Backup,
    BucketStore,
    FolderStore,
    Repository,
    Store,
)
from ragd_site.backup.server_restore import back_up_database, run_drill
from ragd_site.backup.streams import TAR_END, Key, tar_member
from ragd_site.backup.wal_archive import back_up_server, remove_before
from ragd_site.runtime.programs import EmbeddedError

S3 = "s3://"


def open_repository(options: Mapping[str, Any], *, create: bool = False) -> Repository:
    """Of --at and --key-file, else of RAGD_BACKUP_TO and RAGD_BACKUP_KEY. Raises UsageError and BackupError."""
    place = options.get("at") or settings.RAGD_BACKUP_TO
    if not place:
        raise UsageError(
            "nothing says where backups lie: give --at FOLDER or --at s3://BUCKET/PREFIX, or set RAGD_BACKUP_TO"
        )
    return Repository.open(open_store(place), read_key(options.get("key_file")), create=create)


def open_store(place: str) -> Store:
    """A folder, or s3://BUCKET/PREFIX at RAGD_S3_ENDPOINT with the server's keys. Raises UsageError."""
    if place.startswith(S3):
        name, _, prefix = place.removeprefix(S3).partition("/")
        keys = BucketKeys(settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY, settings.AWS_SESSION_TOKEN)
        return BucketStore(
            (settings.RAGD_S3_ENDPOINT or AMAZON).rstrip("/"),
            name,
            prefix.rstrip("/") + "/" if prefix.strip("/") else "",
            keys=keys,
            region=settings.AWS_REGION,
            timeout_s=settings.RAGD_FETCH_TIMEOUT_S,
        )
    folder = Path(place).expanduser().absolute()
    if folder.resolve().is_relative_to(Path(settings.RAGD_VAR).resolve()):
        raise UsageError(f"backups must lie outside of RAGD_VAR, with which they would be lost, and {folder} is in it")
    return FolderStore(folder)


def read_key(file: Path | None) -> str:
    """The text of the key file. Raises UsageError."""
    if file is None:
        if not settings.RAGD_BACKUP_KEY:
            raise UsageError(
                "backups are encrypted, and nothing gives the key: `manage.py ragd backup key FILE` makes one; then "
                "give --key-file FILE, or set RAGD_BACKUP_KEY_FILE"
            )
        return str(settings.RAGD_BACKUP_KEY)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the key file {file} cannot be read: {error}") from None


ABANDONED_AFTER = timedelta(days=2)  # longer than any backup takes to be written


def keep_newest(repository: Repository, keep: int, collection: str | None = None) -> list[Backup]:
    """Remove all but the newest complete backups, of the server or of a collection; what was removed.

    keep: 0 for all. The log that no backup of the server needs goes too, and after two days what a backup left that was
    killed. Raises BackupError for a negative number.
    """
    if keep < 0:
        raise BackupError(f"the number of backups that stay must be 0 or more, not {keep}", type="usage", status=422)
    backups = repository.backups(
        collection=collection, damaged=[]
    )  # a damaged one stays for a look, and does not count
    old = backups[keep:] if keep else []
    for backup in reversed(old):
        repository.remove(backup.manifest_name, backup.content)  # without a manifest it counts as incomplete
    repository.remove(*_abandoned(repository.names(BACKUPS)))
    repository.store.tidy(datetime.now(UTC) - ABANDONED_AFTER)
    kept = backups[: len(backups) - len(old)]
    if kept and collection is None:
        remove_before(repository, kept)
    return old


def _abandoned(names: list[str]) -> list[str]:
    """Content without a manifest that was begun long ago."""
    complete = {name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST)}
    before = f"{BACKUPS}{datetime.now(UTC) - ABANDONED_AFTER:%Y%m%dT%H%M%SZ}"
    return [name for name in names if name < before and name.partition(".")[0] not in complete]


KINDS = (Operation.Kind.BACKUP, Operation.Kind.DRILL)
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
Answer = dict[str, Any]


@contextmanager
def told_as_backup_error() -> Iterator[None]:
    """What PostgreSQL's programs and the disk say, as errors that a command shows."""
    try:
        yield
    except EmbeddedError as error:
        raise BackupError(str(error)) from error
    except OSError as error:
        raise BackupError(f"{error.filename or 'a file'} cannot be used: {error.strerror}") from error


def back_up(progress: OperationProgress, repository: Repository, keep: int) -> Answer:
    """Back the server up, then remove all but the newest `keep` (0: none); the report of the operation."""
    began, last = time.monotonic(), last_backup()
    repository.listener = lambda count: progress.tell("backup", count, last.report["bytes"] if last else 0)
    keeps = settings.RAGD_KEEPS_SECRET_KEY
    if is_embedded():
        backup = back_up_server(settings.RAGD_VAR, repository, keeps_secret_key=keeps)
    else:
        backup = back_up_database(settings.DATABASE_URL, settings.RAGD_VAR, repository, keeps_secret_key=keeps)
    answer = summarize(backup, repository, began, keep_newest(repository, keep))
    record_backup(answer)
    _note("backup.create", f"backed up {counted(answer['rows'], 'row')}", answer)
    progress.succeed(answer)
    return answer


def summarize(backup: Backup, repository: Repository, began: float, old: list[Backup]) -> Answer:
    """A backup that was begun then (`time.monotonic()`), and those that went for it."""
    seconds = round(time.monotonic() - began, 1)
    return describe(backup) | {
        "seconds": seconds,
        "address": repository.store.address,
        "removed": [each.id for each in old],
    }


def drill(progress: OperationProgress, repository: Repository, backup_id: str | None, say: Any) -> Answer:
    """Restore the newest backup, or that one, and compare it; the report, with the steps as "log"."""
    steps: list[str] = []

    def tell(step: str) -> None:
        progress.tell("drill", len(steps), 0)
        steps.append(step)
        say(step)

    answer = run_drill(repository, settings.RAGD_VAR, backup_id, tell)
    _note("backup.drill", "restored a backup for a drill", answer)
    wrong = len(answer["differences"]) + [*answer["checks"].values()].count(False)
    progress.succeed(answer | {"log": steps}, findings=wrong)
    return answer


def _note(action: str, message: str, answer: Answer) -> None:
    """An event of the audit log: the content of the whole server was read."""
    kept = {name: answer[name] for name in ("address", "moment", "rows", "passed") if name in answer}
    record_event(current_person(), action, message, subject=Subject("backup", answer["backup"]), after=kept)


def current_person() -> User | None:
    """Whose access this is; None for the server itself."""
    return User.objects.filter(pk=current_access().user_id or 0).first()


def describe(backup: Backup) -> dict[str, Any]:
    """A backup in plain data."""
    manifest = backup.manifest
    values = {"backup": backup.id, "moment": backup.moment.isoformat(), "bytes": manifest["stored"]}
    if backup.kind == COLLECTION:
        counts = {name: manifest["counts"][name] for name in ("documents", "chunks")}
        return values | {"collection": manifest["collection"]} | counts
    return values | {
        "tables": len(manifest["tables"]),
        "rows": sum(table["rows"] for table in manifest["tables"].values()),
        "ragd": manifest["ragd"],
        "kind": backup.kind,
        "server_version": manifest["server_version"],
        "keeps_secret_key": manifest["keeps_secret_key"],
        "files": [*manifest["files"]],
    }


def is_embedded() -> bool:
    """Whether the database is the embedded PostgreSQL, which is started then."""
    cluster = embedded.read_cluster(settings.RAGD_VAR)
    if cluster is None or cluster.url != settings.DATABASE_URL:
        return False
    connection.ensure_connection()  # which starts it
    return True


# asked for on a page, or by the schedule


def last_backup() -> Operation | None:
    """The newest that succeeded."""
    return Operation.objects.filter(kind=Operation.Kind.BACKUP, state=Operation.State.SUCCEEDED).first()


def request_backup(kind: str, *, actor: Actor) -> Operation:
    """A backup or a drill that a worker makes; the one under way where there is one. For administrators of all
    collections. Raises Forbidden; BackupError where place or key are not set."""
    if not (settings.RAGD_BACKUP_TO and settings.RAGD_BACKUP_KEY):
        missing = "RAGD_BACKUP_KEY" if settings.RAGD_BACKUP_TO else "RAGD_BACKUP_TO"
        raise BackupError(f"a backup needs a place and a key, and {missing} is not set; enter it in this form first")
    with elevated(Permission.ADMINISTER):
        newest = last_operation(kind)
        if newest is not None and newest.is_running:
            return newest
        operation = request_operation(kind, "", {}, actor=actor)
        record_event(actor, "backup.request", f"asked for a {kind}", subject=Subject("backup", str(operation.pk)))
        return operation


@handles(Operation.Kind.BACKUP)
def back_up_as_requested(progress: OperationProgress) -> None:
    with told_as_backup_error():
        _refuse_repetition(progress)
        back_up(progress, open_repository({}, create=True), settings.RAGD_BACKUP_KEEP)


@handles(Operation.Kind.DRILL)
def drill_as_requested(progress: OperationProgress) -> None:
    with told_as_backup_error():
        _refuse_repetition(progress)
        drill(progress, open_repository({}), None, lambda step: None)


def _refuse_repetition(progress: OperationProgress) -> None:
    """A restored server has the operation that made its backup, still running: it must not write into that place."""
    if progress.operation.attempts > 1:
        raise BackupError("the worker ended before this was done, or this server was restored from it; start it again")


def last_slot(now: datetime) -> datetime | None:
    """When the schedule wanted the last backup, UTC; None without one."""
    every = settings.RAGD_BACKUP_EVERY
    if every == "off":
        return None
    slot = now.replace(hour=settings.RAGD_BACKUP_HOUR, minute=0, second=0, microsecond=0)
    if every in DAYS:
        slot -= timedelta(days=(slot.weekday() - DAYS.index(every)) % 7)
    return slot if slot <= now else slot - _period()


def next_slot() -> datetime | None:
    """When the schedule wants the next backup, UTC; None without one."""
    slot = last_slot(timezone.now())
    return slot and slot + _period()


def _period() -> timedelta:
    return timedelta(days=7 if settings.RAGD_BACKUP_EVERY in DAYS else 1)


def back_up_on_schedule(now: datetime | None = None) -> Operation | None:
    """Have a worker make the backup that is due; None where none is, or place or key are missing. One that failed is
    tried again at the next time."""
    slot = last_slot(now or timezone.now())
    newest = last_operation(Operation.Kind.BACKUP)
    if slot is None or not (settings.RAGD_BACKUP_TO and settings.RAGD_BACKUP_KEY):
        return None
    if newest is not None and (newest.created_at >= slot or newest.is_running):
        return None
    return request_backup(Operation.Kind.BACKUP, actor=None)


def make_key(*, actor: Actor) -> str:
    """A new key that is set from now on, which is not shown again. Raises BackupError where one is set."""
    if settings.RAGD_BACKUP_KEY:
        raise BackupError("there is a key already, and its backups cannot be read with another; delete it first")
    key = Key.generate().split()[-1]
    change_settings({}, {"RAGD_BACKUP_KEY": key}, actor=actor)
    return key


def pack(operation_id: str, *, actor: Actor) -> tuple[str, Iterator[bytes]]:
    """(name of the file, its content): a tar that is a place with the backup which the operation made, encrypted as it
    lies there. Raises BackupError (404) where there is none, or it is not there any more."""
    made = Operation.objects.filter(kind=Operation.Kind.BACKUP, state=Operation.State.SUCCEEDED)
    found = next((each for each in made if str(each.pk) == operation_id), None)
    if found is None:
        raise BackupError(f"no backup was made by an operation {operation_id!r}", status=404)
    repository = open_repository({})
    backup = repository.find(found.report["backup"])
    record_event(actor, "backup.download", "downloaded a backup", subject=Subject("backup", backup.id))
    return f"ragd-{backup.id}.tar", _read_tar(repository, backup)


def _read_tar(repository: Repository, backup: Backup) -> Iterator[bytes]:
    for name in (HEAD, backup.manifest_name):
        yield from tar_member(name + AGE, b"".join(repository.store.get(name + AGE)))
    header = tarfile.TarInfo(backup.content + AGE)
    header.size, header.mode = int(backup.manifest["stored"]), 0o600
    yield header.tobuf()
    yield from repository.store.get(backup.content + AGE)
    yield bytes(-header.size % tarfile.BLOCKSIZE) + TAR_END
