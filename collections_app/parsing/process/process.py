"""The caller's side of the parser process: start it, send it a document, make sense of how it ended.

One server per process that parses, started at the first document and again when it has died. It works in a Celery
prefork worker and in gunicorn threads: a fork forgets its parent's server, the lock covers only the sending of one
message, and closing a document's socket ends the work on it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from collections_app.parsing.process import protocol
from collections_app.parsing.types import MEBIBYTE, ParsedDocument, ParseError, ParseLimits

ROOT = Path(__file__).resolve().parents[3]
GRACE_S = 5.0
START_ATTEMPTS = 2
STOP_WAIT_S = 2.0
# The parser needs no secrets: it gets these settings of the environment and no others.
ENVIRONMENT_KEPT = ("PATH", "HOME", "TMPDIR", "TEMP", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_START")


class _Server:
    """A running parser server and the control socket to it."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-s", "-m", "collections_app.parsing.process.child", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
                env=_environment(),
                start_new_session=True,
            )
        self.control = mine

    def submit(self, limits: ParseLimits, *, fresh: bool = False, wall_s: float | None = None) -> socket.socket:
        """The caller's end of a new document socket. fresh: in a child of its own. OSError when the server is gone."""
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                request = {"wall_s": wall_s or limits.timeout_s, "limits": limits.as_dict(), "fresh": fresh}
                message = json.dumps(request).encode()
                socket.send_fds(self.control, [message], [theirs.fileno()])
        except OSError:
            mine.close()
            raise
        return mine

    def stop(self) -> None:
        """Close the control socket, which ends the server and its children, and reap it."""
        self.control.close()
        try:
            self.process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def forget(self) -> None:
        """In a fork of the owner: let go of what belongs to the owner."""
        self.control.close()
        self.process.returncode = 0


_lock = threading.Lock()
_server: _Server | None = None


def parse(data: bytes | IO[bytes], name: str, *, limits: ParseLimits | None = None) -> ParsedDocument:
    """The text of a document, read in a child process under limits.

    data: its bytes, or a file of them that can be read from its beginning more than once, a piece at a time. name is a
    file name or path; it settles only what the content leaves open. Raises ParseError, and nothing else for any
    content. Blocks for at most limits.timeout_s and a few seconds.
    """
    limits = limits or ParseLimits()
    check_size(data, limits.max_input_mb)
    for attempt in range(START_ATTEMPTS):
        try:
            return _parse_once(data, name, limits, fresh=attempt > 0)
        except (protocol.DisconnectedError, ConnectionError):
            continue
    raise ended_twice()


def size_of(data: bytes | IO[bytes]) -> int:
    return len(data) if isinstance(data, bytes) else data.seek(0, os.SEEK_END)


def check_size(data: bytes | IO[bytes], limit_mb: int) -> None:
    """ParseError "too_large" for more bytes than the limit lets in."""
    size = size_of(data)
    if size > limit_mb * MEBIBYTE:
        raise ParseError(
            "too_large",
            f"The file has {size:,} bytes; at most {limit_mb} MB are read. Split it, or raise the limit.",
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


def _parse_once(data: bytes | IO[bytes], name: str, limits: ParseLimits, *, fresh: bool) -> ParsedDocument:
    deadline = time.monotonic() + limits.timeout_s + GRACE_S
    with submit(limits, fresh=fresh) as connection:

        def set_remaining() -> None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))

        clean_name = name.encode("utf-8", "replace").decode()
        try:
            send_request(connection, {"name": clean_name, "limits": limits.as_dict()}, data, set_remaining)
            return protocol.unpack_result(*receive_frame(connection, limits, set_remaining))
        except TimeoutError:
            raise timeout_error(limits) from None


def send_request(
    connection: socket.socket, head: dict[str, Any], data: bytes | IO[bytes], set_remaining: Callable[[], None]
) -> None:
    """Send a document with what is asked of it. A child that has died is no error here: its trailer tells."""
    request = protocol.pack_frame(head, [])
    request[0] = protocol.FRAME.pack(protocol.FRAME_MAGIC, len(request[1]), size_of(data))
    try:
        set_remaining()
        protocol.send_pieces(connection, request)
        for piece in _pieces(data):
            set_remaining()
            connection.sendall(piece)
    except BrokenPipeError:
        pass


def _pieces(data: bytes | IO[bytes]) -> Iterator[bytes | memoryview]:
    if isinstance(data, bytes):
        view = memoryview(data)
        yield from (view[index : index + protocol.PIECE_BYTES] for index in range(0, len(view), protocol.PIECE_BYTES))
        return
    data.seek(0)
    while piece := data.read(protocol.PIECE_BYTES):
        yield piece


def receive_frame(
    connection: socket.socket, limits: ParseLimits, set_remaining: Callable[[], None]
) -> tuple[dict[str, Any], bytes]:
    """A frame of the child, or the error that the trailer tells; a child that died sending left half a frame first."""
    body_limit = 4 * limits.max_chars + (limits.max_attachments_mb + limits.max_input_mb) * MEBIBYTE
    try:
        head, body = protocol.read_frame(connection, body_limit, set_remaining)
        if head is not None:
            return head, body
        received = body + protocol.read_exactly(connection, protocol.TRAILER.size - len(body), set_remaining)
    except protocol.DisconnectedError as ended:
        received = ended.received
    trailer = received[-protocol.TRAILER.size :]
    if not trailer.startswith(protocol.TRAILER_MAGIC) or len(trailer) < protocol.TRAILER.size:
        raise protocol.DisconnectedError(received)
    _, ending, exit_code, peak_kib = protocol.TRAILER.unpack(trailer)
    raise _ending_error(ending, exit_code, peak_kib, limits)


def _ending_error(ending: int, exit_code: int, peak_kib: int, limits: ParseLimits) -> ParseError:
    if ending == protocol.OUT_OF_TIME or exit_code == -signal.SIGXCPU:
        return timeout_error(limits)
    if ending == protocol.NOT_STARTED:
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


def timeout_error(limits: ParseLimits) -> ParseError:
    return ParseError(
        "timeout",
        f"Reading the document took longer than {limits.timeout_s:g} s (RAGD_PARSE_TIMEOUT_S) and was stopped."
        " Split it, or raise the limit.",
    )


def submit(limits: ParseLimits, *, fresh: bool, wall_s: float | None = None) -> socket.socket:
    """The caller's end of a socket to a child, for one document. wall_s: its time, limits.timeout_s by default."""
    global _server
    with _lock:
        for _ in range(START_ATTEMPTS):
            if _server is None or _server.process.poll() is not None:
                if _server is not None:
                    _server.stop()
                _server = _Server()
            try:
                return _server.submit(limits, fresh=fresh, wall_s=wall_s)
            except OSError:
                _server.stop()
                _server = None
    raise ParseError("crashed", "The parser process could not be started. See the server's log and try again.")


def _after_fork() -> None:
    global _server, _lock
    _lock = threading.Lock()
    if _server is not None:
        _server.forget()
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
