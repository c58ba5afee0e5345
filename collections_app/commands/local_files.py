"""Files and folders of this machine: which of them are taken, their hashes, and sending them in small groups."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from collections_app.commands.progress import Bar
from collections_app.commands.subcommand import UsageError
from collections_app.errors import ServiceError
from collections_app.models import Collection, IngestBatch
from collections_app.sources.kinds.files import stat_file, walk_files
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.plan import Entry
from collections_app.uploads.services import LocalFile, UploadOutcome, submit_uploads

GROUP_FILES = 100
GROUP_BYTES = 50_000_000
READ_AT_ONCE = 1_000_000


def find_files(paths: Sequence[str]) -> list[LocalFile]:
    """The files that are meant: a file under its name, those of a folder under their paths in it, by path.

    Hidden ones, beginning with a dot, and folders of such a name are passed over unless they are named themselves.
    Raises UsageError for a path that is not there or cannot be read.
    """
    local_files: list[LocalFile] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            plain = (each for each in walk_files(path, _refuse) if stat_file(each, _refuse))
            below = [LocalFile(each, each.relative_to(path).as_posix()) for each in plain]
            local_files += sorted(below, key=lambda file: file.name)
        elif path.is_file():
            local_files.append(LocalFile(path, path.name))
        else:
            raise UsageError(f"there is no file or folder {text}; check the path")
        if not os.access(path, os.R_OK):
            raise UsageError(f"{text} may not be read by this user; change its permissions")
    return local_files


def _refuse(error: OSError) -> NoReturn:
    """What cannot be listed would look as if it were gone, and a sync would delete it."""
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}; change its permissions") from error


def hash_files(files: Sequence[LocalFile], *, quiet: bool) -> list[Entry]:
    """What a plan needs of each: path, hash and size. Raises UsageError for one that cannot be read."""
    entries, done = [], 0
    try:
        with Bar("hashing", "B", sum(file.size for file in files), bytes_=True, quiet=quiet) as bar:
            for file in files:
                digest = hashlib.sha256()
                with file.path.open("rb") as stream:
                    while part := stream.read(READ_AT_ONCE):
                        digest.update(part)
                        done += len(part)
                        bar.show(done)
                entries.append(Entry(file.name, digest.hexdigest(), file.size, file.name))
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None
    return entries


def send_files(
    collection: Collection,
    files: Sequence[LocalFile],
    batch: IngestBatch,
    *,
    quiet: bool,
    doc_ids: Sequence[str],
    options: IngestOptions,
) -> Iterator[UploadOutcome]:
    """Send the files in small groups, each committed by itself; one outcome per file, in order.

    While the queue is full it waits as long as it is told to. Stopping early keeps what was sent.
    """
    done = 0
    with Bar("sending", "files", len(files), quiet=quiet) as bar:
        for group, names in _groups(files, doc_ids):
            yield from _send_group(bar, collection, group, options, doc_ids=names, batch=batch)
            done += len(group)
            bar.show(done)


def _send_group(
    bar: Bar, collection: Collection, group: list[LocalFile], options: IngestOptions, **values: Any
) -> list[UploadOutcome]:
    while True:
        try:
            return submit_uploads(collection, group, options, **values)
        except ServiceError as error:
            wait_s = getattr(error, "retry_after_s", None)
            if error.status != 429 or wait_s is None:
                raise
            bar.say(f"{error.message}. Waiting {wait_s:.0f} s.")
            time.sleep(wait_s)
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _groups(files: Sequence[LocalFile], doc_ids: Sequence[str]) -> Iterator[tuple[list[LocalFile], list[str]]]:
    group: list[LocalFile] = []
    names: list[str] = []
    size = 0
    for file, doc_id in zip(files, doc_ids, strict=True):
        if group and (len(group) >= GROUP_FILES or size + file.size > GROUP_BYTES):
            yield group, names
            group, names, size = [], [], 0
        group.append(file)
        names.append(doc_id)
        size += file.size
    if group:
        yield group, names
