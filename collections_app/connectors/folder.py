"""A folder of this machine, such as a mounted share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from django.utils.translation import gettext_lazy

from collections_app.connectors.protocol import INCLUDE, BaseConnector, Field, File, Item, Reach, SourceError, matches
from ragd.errors import InvalidInput


class FolderConnector(BaseConnector):
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
        for folder, names, files in os.walk(root, onerror=_refuse):
            names[:] = sorted(name for name in names if not name.startswith("."))
            self.reach.pulse()
            for name in sorted(files):
                path = Path(folder, name)
                if name.startswith(".") or not self._is_wanted(root, path):
                    continue
                try:
                    facts = path.stat()
                except OSError as error:
                    _refuse(error)
                yield Item(
                    id=path.relative_to(root).as_posix(),
                    version=f"{facts.st_mtime_ns}-{facts.st_size}",
                    url=f"folder://{root.name}/{path.relative_to(root).as_posix()}",
                    modified=datetime.fromtimestamp(facts.st_mtime, UTC),
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

    def _is_wanted(self, root: Path, path: Path) -> bool:
        if not matches(path.relative_to(root).as_posix(), self.settings["include"]):
            return False
        real = path.resolve()
        return real.is_file() and real.is_relative_to(root)


def _refuse(error: OSError) -> NoReturn:
    """A folder that cannot be listed whole deletes nothing."""
    raise SourceError(
        "unreachable",
        f"{error.filename} cannot be read: {error.strerror}; check the path and whether it is mounted",
        retryable=True,
    ) from None
