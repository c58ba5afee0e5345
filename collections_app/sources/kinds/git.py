"""The files of a branch of a Git repository, over http or https."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from stat import S_ISREG
from typing import Any

import urllib3
from django.utils.translation import gettext_lazy
from dulwich.client import HttpGitClient
from dulwich.errors import GitProtocolError, HangupException, NotGitRepository
from dulwich.object_store import iter_tree_contents
from dulwich.objects import Blob, Commit, ObjectID
from dulwich.refs import Ref
from dulwich.repo import Repo

from collections_app.domain.formats import MEGABYTE
from collections_app.sources.kinds.protocol import (
    INCLUDE,
    BaseSource,
    Field,
    File,
    Item,
    Reach,
    SourceError,
    check_url,
    matches,
)
from ragd.readers.fetching import FetchError
from ragd.readers.fetching.client import CONNECT_MAX_S, PinnedPool

PACK_MAX_BYTES = 2000 * MEGABYTE
PULSE_EVERY_BYTES = MEGABYTE


class GitSource(BaseSource):
    """Every regular file of the newest commit, fetched without its history. A file's version is its blob."""

    kind = "git"
    title = gettext_lazy("Git repository")
    about = gettext_lazy("The files of a branch, over http or https, without links and submodules.")
    fields = (
        Field("url", gettext_lazy("Repository URL"), required=True,
              help=gettext_lazy("https://example.org/team/handbook.git")),
        Field("branch", gettext_lazy("Branch"), help=gettext_lazy("Empty: the default branch.")),
        Field("folder", gettext_lazy("Folder in the repository"), help=gettext_lazy("Empty: all of it.")),
        INCLUDE,
        Field("username", gettext_lazy("Username")),
        Field("token", gettext_lazy("Password or token"), "secret"),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        folder = str(settings["folder"]).strip("/")
        return {**settings, "url": check_url(settings, "url"), "folder": folder}

    def __init__(self, settings: Mapping[str, Any], secret: str, reach: Reach) -> None:
        super().__init__(settings, secret, reach)
        self._room = tempfile.TemporaryDirectory(prefix="ragd-git-")
        self._repo: Repo | None = None
        self._blobs: dict[str, ObjectID] = {}

    def list_items(self) -> Iterator[Item]:
        self._repo = Repo.init_bare(self._room.name)
        commit = self._repo[self._fetch(self._repo)]
        if not isinstance(commit, Commit):
            raise SourceError("unexpected_answer", "the branch leads to no commit; check its name")
        folder = f"{self.settings['folder']}/" if self.settings["folder"] else ""
        for entry in iter_tree_contents(self._repo.object_store, commit.tree):
            path = entry.path.decode("utf-8", "replace")
            if not S_ISREG(entry.mode) or not path.startswith(folder) or not matches(path, self.settings["include"]):
                continue
            self._blobs[path] = entry.sha
            yield Item(path, entry.sha.decode(), url=f"{self.settings['url'].removesuffix('.git')}#{path}")

    def fetch(self, item: Item) -> File:
        assert self._repo is not None
        blob = self._repo[self._blobs[item.id]]
        if not isinstance(blob, Blob):
            raise SourceError("unreadable", f"{item.id} is no file")
        self.reach.check_size(blob.raw_length())
        return File(item.id.rpartition("/")[2], blob.data)

    def close(self) -> None:
        if self._repo is not None:
            self._repo.close()
        self._room.cleanup()

    def _fetch(self, repo: Repo) -> ObjectID:
        """The newest commit of the branch, with its files in the repository."""
        url, branch = self.settings["url"], self.settings["branch"]
        found: list[ObjectID] = []

        def choose(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
            name = Ref(f"refs/heads/{branch}".encode() if branch else b"HEAD")
            if name not in refs:
                raise SourceError("not_found", f"{url} has no branch {branch or 'HEAD'!r}; check its name")
            found.append(refs[name])
            return [refs[name]]

        came = pulsed = 0

        def write(data: bytes) -> int:
            nonlocal came, pulsed
            came += len(data)
            if came > PACK_MAX_BYTES:
                raise SourceError("too_large", f"the repository has more than {PACK_MAX_BYTES / MEGABYTE:g} MB")
            if came - pulsed > PULSE_EVERY_BYTES:
                pulsed = came
                self.reach.pulse()
            return file.write(data)

        user = self.settings["username"] or ("git" if self.secret else None)
        client = HttpGitClient(url, pool_manager=_pool(self.reach), username=user, password=self.secret or None)
        with tempfile.TemporaryFile(dir=self._room.name) as file:
            try:
                client.fetch_pack(b"", choose, repo.get_graph_walker(), write, depth=1)
                file.seek(0)
                repo.object_store.add_thin_pack(file.read, None)
            except Exception as error:
                raise _told(error, url) from None
        return found[0]


def _pool(reach: Reach) -> Any:
    timeout = urllib3.Timeout(connect=CONNECT_MAX_S, read=reach.timeout_s)
    return PinnedPool(reach.guard, timeout=timeout, retries=urllib3.Retry(total=2, redirect=5))


def _told(error: Exception, url: str) -> BaseException:
    """What dulwich raises, as a SourceError that says what to do."""
    if isinstance(error, FetchError):
        return error
    if isinstance(error.__cause__, FetchError):
        return error.__cause__
    if isinstance(error, NotGitRepository):
        return SourceError("not_found", f"{url} is no Git repository, or it needs a username and a token")
    if isinstance(error, GitProtocolError | HangupException | urllib3.exceptions.HTTPError | OSError):
        return SourceError("unreachable", f"{url} could not be fetched: {error}"[:500], retryable=True)
    return error
