"""A folder of this machine, such as a mounted share.

A prefix of a bucket of an S3-compatible server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from errno import ELOOP, ENOENT, ENOTDIR
from pathlib import Path
from stat import S_ISREG
from typing import Any, NoReturn

from django.utils.translation import gettext_lazy

from collections_app.sources.kinds.protocol import (
    INCLUDE,
    BaseSource,
    Field,
    File,
    Item,
    Reach,
    SourceError,
    matches,
)
from ragd.errors import InvalidInput
from ragd.readers.fetching.buckets import Bucket, BucketKeys


class FolderSource(BaseSource):
    """Every file below a folder, but hidden ones. Symbolic links to folders are not followed, and those to files only
    within the folder."""

    kind = "folder"
    title = gettext_lazy("Folder")
    about = gettext_lazy("The files below a folder of the server, such as a mounted share.")
    fields = (
        Field("path", gettext_lazy("Folder"), required=True, help=gettext_lazy("Absolute path on the server.")),
        INCLUDE,
    )

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        path = Path(settings["path"])
        if not path.is_absolute() or "\x00" in settings["path"]:
            raise InvalidInput(f"the folder must be an absolute path, not {str(path)[:200]!r}", field="path")
        if not any(path.resolve().is_relative_to(root.resolve()) for root in reach.folders):
            raise InvalidInput(
                f"{path} is not in a folder that may be read here; an administrator adds it to RAGD_SOURCE_FOLDERS",
                field="path",
            )
        return {**settings, "path": str(path)}

    def list_items(self) -> Iterator[Item]:
        root = self._root()
        for path in walk_files(root, _refuse):
            self.reach.pulse()
            name = path.relative_to(root).as_posix()
            is_inside = Path(os.path.realpath(path)).is_relative_to(root)
            if not is_inside or not matches(name, self.settings["include"]):
                continue
            facts = stat_file(path, _refuse)
            if facts is None:
                continue
            yield Item(
                id=name,
                version=f"{facts.st_mtime_ns}-{facts.st_size}",
                url=f"folder://{root.name}/{name}",
                modified=datetime.fromtimestamp(facts.st_mtime, UTC),
                size=facts.st_size,
            )

    def fetch(self, item: Item) -> File:
        root = self._root()
        path = root / item.id
        try:
            with open(path, "rb") as file:
                real = path.resolve(strict=True)
                # what was opened is what lies there, and not what the path led to a moment ago
                if not real.is_relative_to(root) or not os.path.samestat(os.fstat(file.fileno()), real.stat()):
                    raise SourceError("not_allowed", f"{item.id} leads out of the folder")
                self.reach.check_size(os.fstat(file.fileno()).st_size)
                content = file.read(self.reach.max_bytes + 1)
        except OSError as error:
            raise SourceError("unreadable", f"{item.id} cannot be read: {error.strerror}", retryable=True) from None
        self.reach.check_size(len(content))
        return File(path.name, content)

    def _root(self) -> Path:
        """The folder as it is now: a link in it may have changed, and so may what is allowed."""
        try:
            self.check(self.settings, self.reach)
            root = Path(self.settings["path"]).resolve(strict=True)
        except InvalidInput as error:
            raise SourceError("not_allowed", error.message) from None
        except OSError as error:
            _refuse(error)
        if not root.is_dir():
            raise SourceError("unreachable", f"{root} is no folder; check the path and whether it is mounted")
        return root


def walk_files(root: Path, on_error: Callable[[OSError], NoReturn]) -> Iterator[Path]:
    """The files below a folder without hidden ones, folder by folder, by name; links to folders are not followed."""
    for folder, names, files in os.walk(root, onerror=on_error):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


def stat_file(path: Path, on_error: Callable[[OSError], NoReturn]) -> os.stat_result | None:
    """Return the facts of a regular file, None for anything else and for what is gone.

    An error that does not say that it is gone goes to on_error: `Path.is_file` may answer False to it, and a sync would
    delete the document.
    """
    try:
        facts = path.stat()
    except OSError as error:
        if error.errno not in (ENOENT, ENOTDIR, ELOOP):
            on_error(error)
        return None
    return facts if S_ISREG(facts.st_mode) else None


def _refuse(error: OSError) -> NoReturn:
    """A folder that cannot be listed whole deletes nothing."""
    raise SourceError(
        "unreachable",
        f"{error.filename} cannot be read: {error.strerror}; check its permissions and whether it is mounted",
        retryable=True,
    ) from None


class S3Source(BaseSource):
    """Every object under the prefix. Without an access key the server's own keys are used at its own endpoint, and
    none elsewhere."""

    kind = "s3"
    title = gettext_lazy("S3 bucket")
    about = gettext_lazy("The objects under a prefix of a bucket, at Amazon or an S3-compatible server.")
    fields = (
        Field("bucket", gettext_lazy("Bucket"), required=True),
        Field("prefix", gettext_lazy("Prefix"), help=gettext_lazy("Such as reports/2026/. Empty: the whole bucket.")),
        Field("endpoint", gettext_lazy("Endpoint"), help=gettext_lazy("Empty: the server's own, RAGD_S3_ENDPOINT.")),
        Field("access_key", gettext_lazy("Access key"), help=gettext_lazy("Empty: the server's own keys.")),
        Field("secret_key", gettext_lazy("Secret key"), "secret"),
        INCLUDE,
    )

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        endpoint = reach.open_bucket(settings["endpoint"], settings["bucket"], None).endpoint
        return {**settings, "endpoint": endpoint if settings["endpoint"] else ""}

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        at = f" {settings['endpoint']}" if settings["endpoint"] else ""
        return f"s3://{settings['bucket']}/{settings['prefix']}{at}"

    def list_items(self) -> Iterator[Item]:
        for row in self._open().list_objects(self.settings["prefix"]):
            if matches(row.key, self.settings["include"]):
                yield Item(
                    row.key,
                    f"{row.etag}-{row.size}" if row.etag else "",
                    url=f"s3://{self.settings['bucket']}/{row.key}",
                    modified=datetime.fromisoformat(row.last_modified) if row.last_modified else None,
                    size=row.size,
                )

    def fetch(self, item: Item) -> File:
        self.reach.check_size(item.size or 0)
        content, _ = self._open().read(item.id, self.reach.max_bytes, self.reach.advance)
        return File(item.id.rpartition("/")[2] or item.id, content)

    def _open(self) -> Bucket:
        keys = BucketKeys(self.settings["access_key"], self.secret) if self.settings["access_key"] else None
        return self.reach.open_bucket(self.settings["endpoint"], self.settings["bucket"], keys)
