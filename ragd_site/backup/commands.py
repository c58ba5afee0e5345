"""`manage.py ragd backup` and `ragd restore`."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.collections.services import get_collection
from collections_app.commands.progress import Bar
from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError, show_plainly
from collections_app.domain.formats import MEGABYTE
from collections_app.jobs.operations import running
from collections_app.jobs.workers import forget_archive, record_archive
from collections_app.models import Operation
from ragd_site import embedded
from ragd_site.backup.operations import (
    back_up,
    current_person,
    describe,
    drill,
    is_embedded,
    keep_newest,
    open_repository,
    summarize,
    told_as_backup_error,
)
from ragd_site.backup.programs import BackupError, DamagedError
from ragd_site.backup.repository import COLLECTION, SERVER, Backup, Repository
from ragd_site.backup.server_restore import LATEST, back_up_collection, restore_file, restore_server
from ragd_site.backup.streams import Key
from ragd_site.backup.wal_archive import end_archive, find_reach, ship_wal
from ragd_site.runtime.programs import EmbeddedError

KEY = "key"
KEPT_BY_THE_OPERATOR = (
    "RAGD_SECRET_KEY comes from the environment and is not in the backup: keep it yourself, the stored keys of models "
    "cannot be read without it"
)


def add_place_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--at", default="", metavar="PLACE", help="a folder or s3://BUCKET/PREFIX, else RAGD_BACKUP_TO")
    parser.add_argument("--key-file", type=Path, default=None, help="the file with the key, else RAGD_BACKUP_KEY")


def add_backup_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default=SERVER, choices=sorted(ACTIONS))
    parser.add_argument("name", nargs="?", default=None, help="key: the file to make; verify: a backup")
    parser.add_argument("--keep", type=int, default=None, help="backups that stay, else RAGD_BACKUP_KEEP; 0: all")
    parser.add_argument(
        "--every", type=float, default=None, metavar="SECONDS", help="wal: go on, and again after so long"
    )
    parser.add_argument(
        "--end", action="store_true", help="wal: end the archive, so that the server keeps no log for it"
    )
    parser.add_argument("--collection", default=None, metavar="NAME", help="keep this collection instead, as an export")
    add_place_arguments(parser)


def run_backup(options: Options) -> Answer:
    action = options["action"]
    if options["collection"] and action != SERVER:
        raise UsageError(f"--collection makes a backup of one collection, and does not go with {action}")
    if (options["keep"] or 0) < 0:
        raise UsageError(f"--keep must be 0 or more, not {options['keep']}")
    if not options["collection"] and action != KEY:
        require(Permission.ADMINISTER)
    with told_as_backup_error():
        return {"action": action} | ACTIONS[action][0](options)


def show_backup(answer: Answer) -> str:
    return ACTIONS[answer["action"]][1](answer)


# The actions of `ragd backup`


def _back_up(options: Options) -> Answer:
    keep = settings.RAGD_BACKUP_KEEP if options["keep"] is None else options["keep"]
    collection = get_collection(options["collection"]) if options["collection"] else None
    repository = open_repository(options, create=True)
    if collection is None:
        with running(Operation.Kind.BACKUP, "", actor=current_person()) as progress:
            return back_up(progress, repository, keep)
    began = time.monotonic()
    with Bar(collection.name, "rows", quiet=options["as_json"]) as bar:
        backup = back_up_collection(
            repository, collection, on_progress=lambda stage, done, total: bar.show(done, total, stage)
        )
    return summarize(backup, repository, began, keep_newest(repository, keep, collection.name))


def _show_back_up(answer: Answer) -> str:
    if "collection" in answer:
        what = f" of {answer['collection']}: {answer['documents']:,} documents, {answer['chunks']:,} chunks"
    else:
        what = f": {answer['tables']} tables with {answer['rows']:,} rows as of {answer['moment']}"
    stored = f"{answer['bytes'] / MEGABYTE:,.1f} MB in {answer['address']}, {answer['seconds']:g} s"
    lines = [f"backup {answer['backup']}{what}, {stored}"]
    if answer["removed"]:
        lines.append(f"removed: {', '.join(answer['removed'])}")
    if not answer.get("keeps_secret_key", True):
        lines.append(KEPT_BY_THE_OPERATOR)
    return "\n".join(lines)


def _ship(options: Options) -> Answer:
    if not is_embedded():
        raise UsageError(
            "DATABASE_URL names a PostgreSQL of your own: its write-ahead log is archived with its own tools, and "
            "`manage.py ragd backup` keeps a dump of it"
        )
    repository = open_repository(options, create=True)
    if options["end"]:
        has_ended = end_archive(settings.RAGD_VAR, repository)
        forget_archive()
        return {"ended": has_ended, "until": None, "segments": 0, "has_begun": False}
    if options["every"] is None:
        return _ship_once(repository)
    tell = _teller(options)
    while True:
        try:
            tell(_show_ship(_ship_once(repository)))
        except (BackupError, EmbeddedError, DatabaseError) as error:  # the place or the server may be back next time
            connection.close()
            print(f"Not archived, tried again in {options['every']:g} s: {error}", file=sys.stderr, flush=True)
        time.sleep(options["every"])


def _ship_once(repository: Repository) -> Answer:
    shipped = ship_wal(settings.RAGD_VAR, repository)
    answer = asdict(shipped) | {"until": shipped.until.isoformat(), "ended": False}
    record_archive(answer)
    return answer


def _show_ship(answer: Answer) -> str:
    if answer["until"] is None:
        return "the archive is ended" if answer["ended"] else "there was no archive"
    line = f"write-ahead log until {answer['until']}, {answer['segments']} new complete files"
    if answer["has_begun"]:
        line += "\nA new archive has begun: take a backup now, restores to a moment begin at that"
    return line


def _list(options: Options) -> Answer:
    repository = open_repository(options)
    damaged: list[DamagedError] = []
    backups = repository.backups(damaged=damaged, every=True)
    servers = [backup for backup in backups if backup.kind != COLLECTION]
    return {
        "address": repository.store.address,
        "backups": [describe(backup) | {"until": _until(repository, backup)} for backup in servers],
        "collections": [describe(backup) for backup in backups if backup.kind == COLLECTION],
        "damaged": [str(error) for error in damaged],
        "passed": not damaged,
    }


def _until(repository: Repository, backup: Backup) -> str:
    """Up to when it restores; its own moment where the log after it has a gap."""
    try:
        reach = find_reach(repository, backup)
    except BackupError:
        reach = None
    return (reach.until if reach else backup.moment).isoformat()


def _verify(options: Options) -> Answer:
    repository = open_repository(options)
    backups = [repository.find(options["name"])] if options["name"] else repository.backups(every=True)
    rows = [{"backup": backup.id, "bytes": repository.verify(backup)} for backup in backups]
    return {"address": repository.store.address, "backups": rows}


def _drill(options: Options) -> Answer:
    repository = open_repository(options)
    with running(Operation.Kind.DRILL, "", actor=current_person()) as progress:
        return drill(progress, repository, options["name"], _teller(options))


def _show_drill(answer: Answer) -> str:
    return _show_restored(answer) + "\nThe restored server was removed again."


def _make_key(options: Options) -> Answer:
    if options["name"] is None:
        raise UsageError("backup key needs the file that it makes, such as backup.key")
    path = Path(options["name"]).absolute()
    if path.exists():
        raise UsageError(f"{path} is there already; a key is never written over")
    embedded.write_private(path, Key.generate(), keep=True)
    return {"file": str(path)}


def _show_key(answer: Answer) -> str:
    return (
        f"{answer['file']} holds a new key. Keep a copy apart from this machine and from the backups: without it they "
        "cannot be read"
    )


ACTIONS: dict[str, tuple[Callable[[Options], Answer], Callable[[Answer], str]]] = {
    SERVER: (_back_up, _show_back_up),
    "wal": (_ship, _show_ship),
    "list": (_list, show_plainly),
    "verify": (_verify, show_plainly),
    "drill": (_drill, _show_drill),
    KEY: (_make_key, _show_key),
}


# `ragd restore`


def add_restore_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="new or empty: the RAGD_VAR of the restored server; or a new file")
    parser.add_argument("--collection", default=None, metavar="NAME", help="write its export into the file instead")
    parser.add_argument("--dump", action="store_true", help="write the dump of a PostgreSQL of your own into the file")
    parser.add_argument("--backup", default=None, metavar="ID", help="instead of the newest")
    parser.add_argument("--to", default=None, metavar="TIME", help="a moment, or latest; else that of the backup")
    parser.add_argument("--no-check", action="store_true", help="compare and check nothing")
    add_place_arguments(parser)


def run_restore(options: Options) -> Answer:
    with told_as_backup_error():
        return _restore(options)


def _restore(options: Options) -> Answer:
    repository = open_repository(options)
    if options["collection"] or options["dump"]:
        return _restore_file(options, repository)
    until = parse_time(options["to"]) if options["to"] not in (None, LATEST) else options["to"]
    restored = restore_server(
        repository,
        options["folder"].expanduser().absolute(),
        backup_id=options["backup"],
        until=until,
        check=not options["no_check"],
        say=_teller(options),
    )
    return restored.as_dict()


def _restore_file(options: Options, repository: Repository) -> Answer:
    if options["to"] is not None or (options["collection"] and options["dump"]):
        raise UsageError("--collection, --dump and --to do not go together; --backup names one of the backups")
    file = options["folder"].expanduser().absolute()
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}; make it first")
    backup = restore_file(repository, file, collection=options["collection"], backup_id=options["backup"])
    return describe(backup) | {"file": str(file)}


def parse_time(text: str) -> datetime:
    """ISO 8601 with its offset from UTC. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            f"--to must be a time with its offset, such as 2026-11-26T14:30:00Z, or latest; it is {text!r}"
        )
    return moment


def show_restored(answer: Answer) -> str:
    if "file" in answer and "collection" not in answer:
        return (
            f"{answer['file']}: a dump as of {answer['moment']}, {answer['rows']:,} rows; "
            f"`pg_restore --no-owner --no-privileges --exit-on-error --dbname=URL {answer['file']}` loads it"
        )
    if "file" in answer:
        return (
            f"{answer['file']}: {answer['collection']} as of {answer['moment']}, {answer['documents']:,} documents. "
            f"`manage.py ragd import collection {answer['file']}` makes a collection of it"
        )
    lines = [_show_restored(answer)]
    if answer["passed"]:
        lines.append(
            f"Start it with RAGD_VAR={answer['folder']}; `ragd audit erase replay` erases again what was erased since."
        )
    else:
        lines.append(f"It does not start by itself. {answer['folder']} is kept for a look; --no-check restores anyway.")
    return "\n".join(lines)


def _show_restored(answer: Answer) -> str:
    seconds = sum(answer["took_s"].values())
    lines = [f"backup {answer['backup']} restored as of {answer['moment']} in {seconds:.1f} s"]
    if answer["compared"]:
        lines.append(f"{answer['tables']} tables with {answer['rows']:,} rows compared with the manifest")
    lines += [f"not equal: {each}" for each in answer["differences"]]
    lines += [f"ragd check {name}: {'passed' if passed else 'FAILED'}" for name, passed in answer["checks"].items()]
    return "\n".join(lines)


def _teller(options: Options) -> Callable[[str], None]:
    """What tells the steps on standard error; nothing with --json where there is no terminal."""
    if options["as_json"] and not sys.stderr.isatty():
        return lambda line: None
    return lambda line: print(line, file=sys.stderr, flush=True)


COMMANDS = {
    "backup": Subcommand(
        "back the server up, carry its write-ahead log away, list, verify and drill backups",
        add_backup_arguments,
        run_backup,
        show_backup,
        needs_server=lambda options: options["action"] != KEY,
    ),
    "restore": Subcommand(
        "make a new server of a backup, as of its moment or another; exit status 1 where it is not equal",
        add_restore_arguments,
        run_restore,
        show_restored,
        needs_server=lambda options: False,
    ),
}
