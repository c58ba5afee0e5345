"""A folder of this machine, such as a mounted share.

A prefix of a bucket of an S3-compatible server.

A folder of a WebDAV server, such as Nextcloud.

The files of a branch of a Git repository, over http or https.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from errno import ELOOP, ENOENT, ENOTDIR
from pathlib import Path
from stat import S_ISREG
from typing import Any, NoReturn
from urllib.parse import unquote
from xml.etree import ElementTree

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
    read_xml,
)
from ragd.errors import InvalidInput
from ragd.readers.fetching import Address, Answer, Deadline, FetchError, Limits, read_address, request
from ragd.readers.fetching.buckets import Bucket, BucketKeys
from ragd.readers.fetching.client import CONNECT_MAX_S, PinnedPool


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


FOLDERS_MAX = 10_000
LIST_MAX_BYTES = 50_000_000  # of the list of one folder
ASKED = (
    b'<?xml version="1.0" encoding="utf-8"?><propfind xmlns="DAV:"><prop><resourcetype/><getetag/><getlastmodified/>'
    b"<getcontentlength/></prop></propfind>"
)
DAV = "{DAV:}"


class WebDavSource(BaseSource):
    """Every file below a folder, but hidden ones. Redirects are not followed."""

    kind = "webdav"
    title = gettext_lazy("WebDAV")
    about = gettext_lazy("The files below a folder of a WebDAV server, such as Nextcloud.")
    fields = (
        Field("url", gettext_lazy("Folder URL"), required=True,
              help=gettext_lazy("https://cloud.example.org/remote.php/dav/files/ada/Team/")),
        Field("username", gettext_lazy("Username")),
        Field("password", gettext_lazy("Password"), "secret", help=gettext_lazy("Prefer an app password.")),
        INCLUDE,
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        url = check_url(settings, "url")
        return {**settings, "url": url if url.endswith("/") else f"{url}/"}

    def __init__(self, settings: Mapping[str, Any], secret: str, reach: Reach) -> None:
        super().__init__(settings, secret, reach)
        self.root = read_address(settings["url"])

    def list_items(self) -> Iterator[Item]:
        waiting = [self.root]
        for folder in waiting:  # it grows while it is read
            if len(waiting) > FOLDERS_MAX:
                raise SourceError("too_many_items", f"there are more than {FOLDERS_MAX:,} folders; take a part of them")
            self.reach.pulse()
            for at, facts in sorted(self._list(folder), key=lambda found: str(found[0])):
                name = unquote(at.target.removeprefix(self.root.target)).rstrip("/")
                if not name or any(part.startswith(".") for part in name.split("/")):
                    continue
                if facts.find(f"{DAV}resourcetype/{DAV}collection") is not None:
                    below = read_address(f"{str(at).rstrip('/')}/")
                    if below not in waiting:
                        waiting.append(below)
                elif matches(name, self.settings["include"]):
                    yield self._item(name, at, facts)

    def fetch(self, item: Item) -> File:
        self.reach.check_size(item.size or 0)
        answer = self._ask("GET", read_address(item.url), self.reach.max_bytes)
        return File(item.id.rpartition("/")[2], answer.body)

    def _item(self, name: str, at: Address, facts: ElementTree.Element) -> Item:
        etag = (facts.findtext(f"{DAV}getetag") or "").strip()
        modified = (facts.findtext(f"{DAV}getlastmodified") or "").strip()
        size = (facts.findtext(f"{DAV}getcontentlength") or "").strip()
        version = etag or (f"{modified} {size}" if modified else "")
        try:
            moment = parsedate_to_datetime(modified) if modified else None
        except (ValueError, TypeError):
            moment = None
        return Item(name, version[:500], url=str(at), modified=moment, size=int(size) if size.isdecimal() else None)

    def _list(self, folder: Address) -> Iterator[tuple[Address, ElementTree.Element]]:
        """(address, properties) of what lies in a folder, and of itself."""
        answer = self._ask("PROPFIND", folder, LIST_MAX_BYTES, ASKED)
        root = read_xml(answer.body, f"the list of {folder}")
        for response in root.iter(f"{DAV}response"):
            try:
                at = folder.join(response.findtext(f"{DAV}href") or "")
            except InvalidInput:
                continue
            if at.origin != self.root.origin or not at.target.startswith(folder.target):
                continue
            parts = {_status_of(each): each.find(f"{DAV}prop") for each in response.iter(f"{DAV}propstat")}
            facts, status = parts.get("200"), _status_of(response) or min(parts, default="")
            if facts is not None:
                yield at, facts
            elif status not in ("404", "410"):
                raise SourceError("unexpected_answer", f"{at.host} answered {status} for {at}; check its permissions")

    def _ask(self, method: str, at: Address, max_bytes: int, body: bytes | None = None) -> Answer:
        headers = {"User-Agent": "ragd", "Accept-Encoding": "gzip", "Connection": "close"}
        if self.settings["username"]:
            pair = f"{self.settings['username']}:{self.secret}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        if body is not None:
            headers |= {"Depth": "1", "Content-Type": "application/xml"}
        answer = request(
            at,
            Limits(self.reach.guard, Deadline(self.reach.timeout_s), max_bytes, on_bytes=self.reach.advance),
            headers=headers,
            method=method,
            body=body,
        )
        if answer.status in (200, 207):
            return answer
        message = f"{at.host} answered {answer.status} {answer.reason}".rstrip()
        if answer.status in (401, 403):
            raise SourceError("not_allowed", f"{message}: check the username and the password")
        if answer.status in (404, 410):
            raise SourceError("not_found", f"{message}: there is nothing at {at}; check the URL")
        if answer.location:
            raise SourceError("bad_redirect", f"{at} leads to another address; use that one")
        raise SourceError("unexpected_answer", f"{message}; check that the URL is of a WebDAV folder", retryable=True)


def _status_of(part: ElementTree.Element) -> str:
    """The number of its status line, "" without one."""
    return (part.findtext(f"{DAV}status") or "").partition(" ")[2][:3]


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
