"""A folder of an IMAP mailbox: each message is a document, its attachments come with it."""

from __future__ import annotations

import base64
import hashlib
import imaplib
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email import message_from_bytes, policy
from email.utils import parsedate_to_datetime
from typing import Any

import certifi
from django.utils.translation import gettext_lazy

from collections_app.sources.kinds.protocol import BaseSource, Field, File, Item, Reach, SourceError
from ragd.errors import InvalidInput
from ragd.readers.fetching import Guard

HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:-]*[A-Za-z0-9_])?")
SIZE = re.compile(rb"RFC822\.SIZE (\d+)")
UID = re.compile(rb"UID (\d+)")
HEADERS_AT_ONCE = 200
HEADERS = "(UID RFC822.SIZE BODY.PEEK[HEADER.FIELDS (MESSAGE-ID SUBJECT DATE)])"
MESSAGES_MAX = 20_000
SUBJECT_CHARS = 80
DIGEST_CHARS = 10
CONNECT_MAX_S = 15.0


class ImapSource(BaseSource):
    """The newest messages of one folder, which is opened for reading alone. A message never changes."""

    kind = "imap"
    title = gettext_lazy("Mailbox (IMAP)")
    about = gettext_lazy("The messages of one folder of a mailbox, with their attachments. Nothing is marked as read.")
    fields = (
        Field("host", gettext_lazy("Server"), required=True, help="imap.example.org"),
        Field("port", gettext_lazy("Port"), "number", default=993, minimum=1, maximum=65_535),
        Field("security", gettext_lazy("Encryption"), "choice", default="tls",
              choices=(("tls", "TLS"), ("starttls", "STARTTLS"), ("none", gettext_lazy("None")))),
        Field("username", gettext_lazy("Username"), required=True),
        Field("password", gettext_lazy("Password"), "secret", required=True,
              help=gettext_lazy("Prefer an app password.")),
        Field("folder", gettext_lazy("Folder"), default="INBOX"),
        Field("newest", gettext_lazy("Newest messages"), "number", default=1000, minimum=1, maximum=MESSAGES_MAX,
              help=gettext_lazy("Older ones are not read. Documents of them stay.")),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        if not HOST.fullmatch(settings["host"]):
            raise InvalidInput(f"expected a server such as imap.example.org, not {settings['host'][:100]!r}",
                               field="host")  # fmt: skip
        return dict(settings)

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        return f"{settings['host']}:{settings['port']} {settings['username']}"

    def __init__(self, settings: Mapping[str, Any], secret: str, reach: Reach) -> None:
        super().__init__(settings, secret, reach)
        self._server: imaplib.IMAP4 | None = None
        self._at: tuple[bytes, int] = (b"", 0)  # UID and size of the message that was listed last

    def list_items(self) -> Iterator[Item]:
        server = self._open()
        uids = _told(lambda: server.uid("SEARCH", "ALL"))[0].split()
        if len(uids) > self.settings["newest"]:
            self.is_complete = False
            uids = uids[-self.settings["newest"] :]
        for begin in range(0, len(uids), HEADERS_AT_ONCE):
            self.reach.pulse()
            wanted = b",".join(uids[begin : begin + HEADERS_AT_ONCE]).decode()
            for row in _told(lambda numbers=wanted: server.uid("FETCH", numbers, HEADERS)):  # type: ignore[misc]
                if isinstance(row, tuple) and (uid := UID.search(row[0])):
                    size = SIZE.search(row[0])
                    self._at = (uid[1], int(size[1]) if size else 0)
                    yield self._item(row[1], self._at[1])

    def fetch(self, item: Item) -> File:
        assert self._server is not None
        server, (uid, size) = self._server, self._at
        self.reach.check_size(size)
        for row in _told(lambda: server.uid("FETCH", uid.decode(), "(BODY.PEEK[])")):
            if isinstance(row, tuple):
                return File("message.eml", row[1])
        raise SourceError("not_found", f"the message {item.id} went while it was read")

    def close(self) -> None:
        if self._server is not None:
            with suppress(OSError, imaplib.IMAP4.error):
                self._server.logout()

    def _item(self, headers: bytes, size: int) -> Item:
        message = message_from_bytes(headers, policy=policy.default)
        subject = " ".join(str(message.get("Subject") or "").split())
        try:
            moment = parsedate_to_datetime(str(message["Date"]))
        except (ValueError, TypeError):
            moment = None
        named = str(message.get("Message-ID") or "").strip() or headers.decode("latin-1")
        digest = hashlib.sha256(named.encode()).hexdigest()[:DIGEST_CHARS]
        shown = re.sub(r"[^\w .,+-]", "", subject)[:SUBJECT_CHARS].strip(" .") or "message"
        day = f"{moment:%Y-%m-%d} " if moment else ""
        return Item(f"{day}{shown} {digest}.eml", f"{digest}-{size}", title=subject, modified=moment)

    def _open(self) -> imaplib.IMAP4:
        settings, host = self.settings, self.settings["host"]
        try:
            server = _connect(self.reach, host, settings["port"], settings["security"])
            self._server = server
            server.login(settings["username"], self.secret)
            status, _ = server.select(_quote(settings["folder"]), readonly=True)
        except imaplib.IMAP4.abort as error:
            raise SourceError("unreachable", f"{host} broke the connection off: {error}", retryable=True) from None
        except imaplib.IMAP4.error as error:
            raise SourceError("not_allowed", f"{host} refused: {error}; check username, password and folder") from None
        except ssl.SSLCertVerificationError as error:
            raise SourceError("bad_certificate", f"the certificate of {host} is not valid ({error.verify_message})"
                              ) from None  # fmt: skip
        except OSError as error:
            raise SourceError("unreachable", f"{host} does not answer: {error}; check the server and the port",
                              retryable=True) from None  # fmt: skip
        if status != "OK":
            raise SourceError("not_found", f"{host} has no folder {settings['folder']!r}; check its name")
        return server


def _connect(reach: Reach, host: str, port: int, security: str) -> imaplib.IMAP4:
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if security == "tls":
        return _PinnedTls(host, port, guard=reach.guard, timeout=reach.timeout_s, ssl_context=context)
    server = _Pinned(host, port, guard=reach.guard, timeout=reach.timeout_s)
    if security == "starttls":
        server.starttls(ssl_context=context)
    return server


class _Pinned(imaplib.IMAP4):
    """A connection to an address that was checked."""

    def __init__(self, host: str, port: int, *, guard: Guard, **values: Any) -> None:
        self.guard = guard
        super().__init__(host, port, **values)

    def _create_socket(self, timeout: float | None) -> socket.socket:
        return _dial(self.guard, self.host, self.port, timeout)


class _PinnedTls(imaplib.IMAP4_SSL):
    def __init__(self, host: str, port: int, *, guard: Guard, **values: Any) -> None:
        self.guard = guard
        super().__init__(host, port, **values)

    def _create_socket(self, timeout: float | None) -> socket.socket:
        made = _dial(self.guard, self.host, self.port, timeout)
        wrapped: socket.socket = self.ssl_context.wrap_socket(made, server_hostname=self.host)
        return wrapped


def _dial(guard: Guard, host: str, port: int, timeout: float | None) -> socket.socket:
    problem = OSError("it has no address")
    for machine in guard.resolve(host, port):
        try:
            made = socket.create_connection((machine, port), timeout=CONNECT_MAX_S)
        except OSError as error:
            problem = error
            continue
        made.settimeout(timeout)
        return made
    raise problem


def _told(ask: Callable[[], tuple[str, list[Any]]]) -> list[Any]:
    """The rows of an answer. Raises SourceError."""
    try:
        status, rows = ask()
    except (imaplib.IMAP4.error, OSError) as error:
        raise SourceError("unreachable", f"the mail server broke off: {error}", retryable=True) from None
    if status != "OK":
        raise SourceError("unexpected_answer", f"the mail server answered {status} {rows!r}"[:300], retryable=True)
    return [row for row in rows if row is not None]


def _quote(folder: str) -> str:
    """A folder's name as IMAP writes it: quoted, in modified UTF-7 (RFC 3501, 5.1.3)."""

    def encode(part: re.Match[str]) -> str:
        return "&" + base64.b64encode(part[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",") + "-"

    text = re.sub(r"[^\x20-\x7e]+", encode, folder.replace("&", "&-"))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
