"""A folder of a WebDAV server, such as Nextcloud."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from django.utils.translation import gettext_lazy

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
from ragd.readers.fetching import Address, Answer, Deadline, Limits, read_address, request

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
            Limits(
                self.reach.guard,
                Deadline(self.reach.timeout_s),
                max_bytes,
                on_bytes=self.reach.advance,
            ),
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
