"""The caller's side of the parser process: start it, send it a document, make sense of how it ended.

One server per process that parses, started at the first document and again when it has died. It works in a Celery
prefork worker, whose children may start no `multiprocessing.Process`, and in gunicorn threads: a fork forgets its
parent's server, and the lock covers only the sending of one request.

A request is a JSON object with two sockets: the document goes and its result comes over one, as messages of
`multiprocessing.connection` that hold JSON or bytes, never pickles, since a hostile document may have taken the child
over. The other is the leash: closing it ends the work, and the server tells over it how a child ended that gave none.

Text recognition page by page, and pages drawn for a viewer, both in the parser's child process.

A copy of a document without its password, made in the parser's child process from the password that opens it.

The members of an archive, unpacked in the parser's child process and handed over one at a time.
"""

from __future__ import annotations

import atexit
import codecs
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from ragd.readers.assembly import READER_MODULES
from ragd.readers.layout import PACKED, PackedWords, pack_words
from ragd.readers.scans.words import unpack_page
from ragd.readers.signatures import IMAGES
from ragd.readers.sniffing import ARCHIVE_TYPES
from ragd.readers.types import (
    MEBIBYTE,
    Attachment,
    Member,
    PageLayout,
    ParsedDocument,
    ParseError,
    ParseLimits,
    RecognizedPage,
)

ROOT = Path(__file__).resolve().parents[3]
GRACE_S = 5
START_ATTEMPTS = 2
STOP_WAIT_S = 2.0
ENDED, OUT_OF_TIME, NOT_STARTED = 0, 1, 2
HEAD_LIMIT_BYTES = 1 << 30
PIECE_BYTES = 1 << 16  # small: one character of another plane makes all of a decoded piece four times as wide
NAME_CHARS = 1000
CHAR_BYTES = 4 + PACKED.size  # at most, of a text with a place for each character
FIELDS = ("title", "media_type", "page_map", "metadata", "warnings", "is_partial", "cell_map")  # that travel as JSON
# The parser needs no secrets: it gets these settings of the environment and no others.
ENVIRONMENT_KEPT = (
    "PATH", "HOME", "TMPDIR", "TEMP", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_START", "PYTHONPYCACHEPREFIX",
)  # fmt: skip


class DisconnectedError(Exception):
    """The server ended, or the child did in a way that is not the document's fault for certain."""


class _Server:
    """A running parser server and the control socket to it."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-s", "-m", "ragd.readers.process.child", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
                env=_environment(),
                start_new_session=True,
            )

    def stop(self) -> None:
        """Close the control socket, which ends the server and its children, and reap it."""
        self.control.close()
        try:
            self.process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_lock = threading.Lock()
_server: _Server | None = None


def parse(
    data: bytes | IO[bytes], name: str, *, limits: ParseLimits | None = None, recognized: bytes = b""
) -> ParsedDocument:
    """The text of a document, read in a child process under limits.

    data: its bytes, or a file of them that can be read from its beginning more than once, a piece at a time. name is a
    file name or path; it settles only what the content leaves open. Raises ParseError, and nothing else for any
    content. Blocks for at most limits.timeout_s and a few seconds. recognized: pages that were recognized
    (`scans.recognition.pack_recognized`).
    """
    limits = limits or ParseLimits()
    check_size(data, limits.max_input_mb)
    for attempt in range(START_ATTEMPTS):
        try:
            request = {"name": name.encode("utf-8", "replace").decode()[-NAME_CHARS:]}
            wall_s = limits.timeout_s
            with submit(data, request, limits, wall_s=wall_s, fresh=attempt > 0, recognized=recognized) as connection:
                return _receive_document(connection, limits)
        except DisconnectedError:
            continue
    raise ended_twice()


def check_size(data: bytes | IO[bytes], limit_mb: int) -> None:
    """ParseError "too_large" for more bytes than the limit lets in."""
    size = _size_of(data)
    if size > limit_mb * MEBIBYTE:
        raise ParseError(
            "too_large", f"The file has {size:,} bytes; at most {limit_mb} MB are read. Split it, or raise the limit."
        )


def ended_twice() -> ParseError:
    return ParseError(
        "crashed", "The parser process ended while it read this document, twice. The file is damaged or hostile."
    )


def stop_server() -> None:
    """End this process's parser server, if there is one. The next parse starts another."""
    global _server
    with _lock:
        if _server is not None:
            _server.stop()
            _server = None


def server_pid() -> int | None:
    """The process id of this process's parser server; None when there is none."""
    with _lock:
        return _server.process.pid if _server is not None and _server.process.poll() is None else None


@contextmanager
def submit(
    data: bytes | IO[bytes],
    request: dict[str, Any],
    limits: ParseLimits,
    *,
    wall_s: float,
    fresh: bool,
    wait_s: float | None = None,
    recognized: bytes = b"",
) -> Iterator[Connection]:
    """Hand a document to a child; the block receives what the child sends, and leaving it ends the work.

    wall_s: its time; wait_s: how long one message may take, None for all of it. fresh: in a child that has read no
    other. recognized: sent behind the document. A block that finds the connection ended, or bytes that
    make no sense, raises the ParseError of how the child ended; DisconnectedError where another attempt may help.
    """
    request |= {"wall_s": wall_s, "limits": limits.as_dict(), "fresh": fresh, "size": _size_of(data)}
    request["recognized_bytes"] = len(recognized)
    connection, leash = _connect(json.dumps(request).encode(), int((wait_s or wall_s) + GRACE_S))
    with connection, leash:
        try:
            for part in (data, recognized):
                for piece in _cut(part):
                    connection.send_bytes(piece)
        except (ConnectionError, BlockingIOError):
            pass  # the child has died, and the leash tells how
        try:
            yield connection
        except BlockingIOError:
            raise _timeout_error(limits) from None
        except (EOFError, OSError, ValueError) as error:
            raise _ending_error(leash, limits) from error


def _connect(request: bytes, wait_s: int) -> tuple[Connection, Connection]:
    """(the connection to a child, the leash), with a server that is started if need be."""
    global _server
    with _lock:
        for _ in range(START_ATTEMPTS):
            if _server is None or _server.process.poll() is not None:
                if _server is not None:
                    _server.stop()
                _server = _Server()
            pairs = [socket.socketpair(), socket.socketpair()]
            try:
                socket.send_fds(_server.control, [request], [theirs.fileno() for _, theirs in pairs])
            except OSError:
                _server.stop()
                _server = None
                continue
            finally:
                for _, theirs in pairs:
                    theirs.close()
            for mine, _ in pairs:
                for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                    mine.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", wait_s, 0))
            return Connection(pairs[0][0].detach()), Connection(pairs[1][0].detach())
    raise ParseError("crashed", "The parser process could not be started. See the server's log and try again.")


def _ending_error(leash: Connection, limits: ParseLimits) -> ParseError:
    try:
        ending, exit_code, peak_kib = json.loads(leash.recv_bytes(PIECE_BYTES))
    except (EOFError, OSError) as error:
        raise DisconnectedError from error
    if ending == OUT_OF_TIME or exit_code == -signal.SIGXCPU:
        return _timeout_error(limits)
    if ending == NOT_STARTED:
        return ParseError("crashed", "The machine could not start another process to read the document. Try again.")
    if exit_code == -signal.SIGKILL or peak_kib > limits.memory_mb * 1024 * 6 // 10:
        return ParseError(
            "memory",
            f"The reader was stopped at {peak_kib // 1024} MB; one document may take {limits.memory_mb} MB"
            " (RAGD_PARSE_MEMORY_MB). Split it, or raise the limit.",
        )
    how = f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit status {exit_code}"
    return ParseError(
        "crashed",
        f"The reader of this format crashed on the document ({how}). It is damaged or hostile: open it in its own"
        " program, save it again, and upload that.",
    )


def _timeout_error(limits: ParseLimits) -> ParseError:
    return ParseError(
        "timeout",
        f"Reading the document took longer than {limits.timeout_s:g} s (RAGD_PARSE_TIMEOUT_S) and was stopped."
        " Split it, or raise the limit.",
    )


def _size_of(data: bytes | IO[bytes]) -> int:
    return len(data) if isinstance(data, bytes) else data.seek(0, os.SEEK_END)


def _cut(data: bytes | IO[bytes]) -> Iterator[bytes | memoryview]:
    if isinstance(data, bytes):
        view = memoryview(data)
        yield from (view[index : index + PIECE_BYTES] for index in range(0, len(view), PIECE_BYTES))
        return
    data.seek(0)
    while piece := data.read(PIECE_BYTES):
        yield piece


def send(connection: Connection, head: dict[str, Any], *bodies: bytes) -> None:
    """A message of JSON, then the bodies in pieces. Lone surrogates do not occur: text is normalized before."""
    packed = json.dumps(head | {"sizes": [len(body) for body in bodies]}, ensure_ascii=False, separators=(",", ":"))
    connection.send_bytes(packed.encode("utf-8", "backslashreplace"))
    for body in bodies:
        for piece in _cut(body):
            connection.send_bytes(piece)


def receive(connection: Connection, limits: ParseLimits) -> dict[str, Any]:
    """The JSON of the child's next message; its bodies are then to be read. Raises the ParseError that it holds.

    ValueError where its bodies would be larger than a document's text, files and attachments may be.
    """
    head: dict[str, Any] = json.loads(connection.recv_bytes(HEAD_LIMIT_BYTES))
    if "error" in head:
        raise ParseError(head["error"], head["message"], media_type=head["media_type"], pages=head["pages"])
    files_mb = limits.max_attachments_mb + limits.max_input_mb
    if sum(head["sizes"]) > CHAR_BYTES * limits.max_chars + files_mb * MEBIBYTE:
        raise ValueError("the child announced more than a document may hold")
    return head


def receive_pieces(connection: Connection, size: int) -> Iterator[bytes]:
    """A body of so many bytes, as it comes."""
    while size > 0:
        piece = connection.recv_bytes(min(PIECE_BYTES, size))
        size -= len(piece)
        yield piece


def send_document(connection: Connection, document: ParsedDocument) -> None:
    head = {name: getattr(document, name) for name in FIELDS}
    head["attachments"] = [[item.name, item.media_type, item.size_bytes] for item in document.attachments]
    head["layout"] = [[page.page, page.width, page.height] for page in document.layout]
    pages = (pack_words(page.words, page.width, page.height).data for page in document.layout)
    send(connection, head, document.text.encode(), *(item.data for item in document.attachments), *pages)


def _receive_document(connection: Connection, limits: ParseLimits) -> ParsedDocument:
    head = receive(connection, limits)
    text_bytes, *sizes = head["sizes"]
    decoder = codecs.getincrementaldecoder("utf-8")()  # of a large text its bytes never stand beside its characters
    text = "".join([decoder.decode(piece) for piece in receive_pieces(connection, text_bytes)])
    attached, placed = sizes[: len(head["attachments"])], sizes[len(head["attachments"]) :]
    attachments = [
        Attachment(name, media_type, size_bytes, b"".join(receive_pieces(connection, held)))
        for (name, media_type, size_bytes), held in zip(head["attachments"], attached, strict=True)
    ]
    layout = [
        PageLayout(page, width, height, PackedWords(b"".join(receive_pieces(connection, held)), width, height))
        for (page, width, height), held in zip(head["layout"], placed, strict=True)
    ]
    values = {name: head[name] for name in FIELDS} | {
        "text": text + decoder.decode(b"", final=True),
        "page_map": tuple((start, end, label) for start, end, label in head["page_map"]),
        "cell_map": tuple((start, end, *names) for start, end, *names in head["cell_map"]),
        "warnings": tuple(head["warnings"]),
        "attachments": tuple(attachments),
        "layout": tuple(layout),
    }
    return ParsedDocument(**values)


def _after_fork() -> None:
    """In a fork of the owner: let go of what belongs to the owner."""
    global _server, _lock
    _lock = threading.Lock()
    if _server is not None:
        _server.control.close()
        _server.process.returncode = 0
        _server = None


def _environment() -> dict[str, str]:
    selected = {name: os.environ[name] for name in ENVIRONMENT_KEPT if name in os.environ}
    return selected | {
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TMPDIR": tempfile.gettempdir(),
    }


os.register_at_fork(after_in_child=_after_fork)
atexit.register(stop_server)


START_S = 30  # for loading the models
ENGINE_MB = 1536  # over what reading a document may take
DRAW_PIXELS_MAX = 3000


@dataclass(frozen=True, slots=True)
class FailedPage:
    """A page that could not be recognized, and why."""

    page: int
    reason: str


@dataclass(frozen=True, slots=True)
class DrawnPage:
    """A page as a picture. width, height: in points. count: pages of the document."""

    data: bytes
    media_type: str
    width: float
    height: float
    count: int


def recognize(
    data: IO[bytes], name: str, pages: Sequence[int], *, engine: str, page_timeout_s: float, limits: ParseLimits
) -> Generator[RecognizedPage | FailedPage, None, None]:
    """Each of the pages, by number from 1, as it is recognized. engine: of `engines.CHOICES`.

    A page on which the child ends, by its time or its memory or otherwise, is a FailedPage, and the rest goes on in
    another child. To leave the loop ends the child.
    """
    left = list(pages)
    while left:
        started = False
        wall_s = START_S + page_timeout_s * len(left)
        hard = replace(limits, timeout_s=4 * wall_s, memory_mb=limits.memory_mb + ENGINE_MB)
        request = {"name": name, "recognize": left, "engine": engine}
        try:
            wait_s = START_S + page_timeout_s
            with submit(data, request, hard, wall_s=wall_s, fresh=True, wait_s=wait_s) as connection:
                while left:
                    page = _receive_page(receive(connection, hard), connection)
                    started = True
                    left.remove(page.page)
                    yield page
        except (ParseError, DisconnectedError) as error:
            if not left:
                return
            reason = "the child process ended" if isinstance(error, DisconnectedError) else error.kind
            if isinstance(error, ParseError) and error.kind == "broken" and not started:
                raise
            yield FailedPage(left.pop(0), reason)


def draw_page(data: IO[bytes], name: str, page: int, *, long_side: int, limits: ParseLimits) -> DrawnPage:
    """A page as a picture whose longer side has at most so many pixels. Raises ParseError, "empty" for no such page."""
    request = {"name": name, "draw": page, "long_side": min(long_side, DRAW_PIXELS_MAX)}
    for attempt in range(START_ATTEMPTS):
        try:
            with submit(data, request, limits, wall_s=limits.timeout_s, fresh=attempt > 0) as connection:
                head = receive(connection, limits)
                picture = b"".join(receive_pieces(connection, head["sizes"][0]))
                return DrawnPage(picture, head["media_type"], head["width"], head["height"], head["count"])
        except DisconnectedError:
            continue
    raise ended_twice()


def _receive_page(head: dict[str, Any], connection: Connection) -> RecognizedPage | FailedPage:
    if "failed" in head:
        return FailedPage(head["page"], head["failed"])
    text, words = (b"".join(receive_pieces(connection, size)) for size in head["sizes"])
    return unpack_page(head, text, words)


def unlock(data: bytes | IO[bytes], name: str, password: str, *, limits: ParseLimits) -> bytes:
    """The same PDF, Word, Excel or PowerPoint document without protection.

    The password is sent to the child and kept nowhere. Raises ParseError: "encrypted" for a wrong password,
    "unsupported" for a format whose protection is not read, and what else a child may end with.
    """
    request = {"name": name[-NAME_CHARS:], "unlock": password}
    for _ in range(START_ATTEMPTS):
        try:
            with submit(data, request, limits, wall_s=limits.timeout_s, fresh=True) as connection:
                head = receive(connection, limits)
                return b"".join(receive_pieces(connection, head["sizes"][0]))
        except DisconnectedError:
            continue
    raise ended_twice()


def iter_members(data: bytes, *, limits: ParseLimits | None = None, keep_bytes: bool = True) -> Iterator[Member]:
    """The files of a ZIP or TAR, in the archive's order, those of archives inside it in their place.

    The child unpacks the next one when this one has been taken, so that the caller holds `data` and one member. Without
    keep_bytes the members come without data. A member that cannot be taken comes with its error; ParseError is raised
    for an archive that cannot be read on (broken, bomb, unsupported, timeout, memory, crashed), perhaps after members
    of it have come. To leave the loop early ends the child.
    """
    limits = limits or ParseLimits()
    check_size(data, limits.max_archive_mb)
    for attempt in range(START_ATTEMPTS):
        taken = 0
        try:
            for member in _members_once(data, limits, keep_bytes, fresh=attempt > 0):
                taken += 1
                yield member
            return
        except DisconnectedError:
            if taken:
                break
    raise ended_twice()


def list_members(data: bytes, *, limits: ParseLimits | None = None) -> list[Member]:
    """All members without their bytes, after the whole archive was unpacked once. Raises ParseError as iter_members."""
    return list(iter_members(data, limits=limits, keep_bytes=False))


def is_readable(media_type: str) -> bool:
    """Whether there is a reader for the media type, or it is an archive whose files can be read."""
    return media_type in READER_MODULES or media_type in ARCHIVE_TYPES


def is_image(media_type: str) -> bool:
    """Whether it is read by text recognition alone."""
    return media_type in IMAGES


def _members_once(data: bytes, limits: ParseLimits, keep_bytes: bool, *, fresh: bool) -> Iterator[Member]:
    wall_s, started = limits.archive_timeout_s, time.monotonic()
    try:
        with submit(data, {"members": keep_bytes}, limits, wall_s=wall_s, fresh=fresh) as connection:
            while "end" not in (head := receive(connection, limits)):
                yield _member(head, b"".join(receive_pieces(connection, head["sizes"][0])))
    except (ParseError, DisconnectedError) as error:
        if time.monotonic() - started >= wall_s:
            raise ParseError(
                "timeout",
                f"Unpacking the archive and taking in its files took longer than {limits.archive_timeout_s:g} s and was"
                " stopped. Split the archive.",
            ) from error
        raise


def _member(head: dict[str, Any], data: bytes) -> Member:
    return Member(
        name=head["name"].encode("utf-8", "replace").decode(),
        data=data,
        error=ParseError(*head["refused"]) if "refused" in head else None,
        size_bytes=head["size_bytes"],
        sha256=head["sha256"],
        media_type=head["media_type"],
    )
