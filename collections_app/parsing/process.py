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
from collections.abc import Callable
from pathlib import Path

from collections_app.parsing import protocol
from collections_app.parsing.types import MEBIBYTE, ParsedDocument, ParseError, ParseLimits

ROOT = Path(__file__).resolve().parent.parent.parent
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
                [sys.executable, "-s", "-m", "collections_app.parsing.child", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
                env=_environment(),
                start_new_session=True,
            )
        self.control = mine

    def submit(self, limits: ParseLimits, *, fresh: bool = False) -> socket.socket:
        """The caller's end of a new document socket. fresh: in a child of its own. OSError when the server is gone."""
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                request = {"wall_s": limits.timeout_s, "limits": limits.as_dict(), "fresh": fresh}
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


def parse(data: bytes, name: str, *, limits: ParseLimits | None = None) -> ParsedDocument:
    """The text of a document, read in a child process under limits.

    name is a file name or path; it settles only what the content leaves open. Raises ParseError, and nothing else for
    any content. Blocks for at most limits.timeout_s and a few seconds.
    """
    limits = limits or ParseLimits()
    if len(data) > limits.max_input_mb * MEBIBYTE:
        raise ParseError(
            "too_large",
            f"The file has {len(data):,} bytes; at most {limits.max_input_mb} MB are read."
            " Split it, or raise the limit.",
        )
    for attempt in range(START_ATTEMPTS):
        try:
            return _parse_once(data, name, limits, fresh=attempt > 0)
        except (protocol.DisconnectedError, ConnectionError):
            continue
    raise ParseError(
        "crashed", "The parser process ended while it read this document, twice. The file is damaged or hostile."
    )


def stop_server() -> None:
    """End this process's parser server, if there is one. The next parse starts another."""
    global _server
    with _lock:
        if _server is not None:
            _server.stop()
            _server = None


def _parse_once(data: bytes, name: str, limits: ParseLimits, *, fresh: bool) -> ParsedDocument:
    deadline = time.monotonic() + limits.timeout_s + GRACE_S
    with _submit(limits, fresh) as connection:

        def set_remaining() -> None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))

        try:
            set_remaining()
            clean_name = name.encode("utf-8", "replace").decode()
            request = protocol.pack_frame({"name": clean_name, "limits": limits.as_dict()}, [])
            request[0] = protocol.FRAME.pack(protocol.FRAME_MAGIC, len(request[1]), len(data))
            try:
                protocol.send_pieces(connection, request)
                view = memoryview(data)
                for place in range(0, len(view), protocol.PIECE_BYTES):
                    set_remaining()
                    connection.sendall(view[place : place + protocol.PIECE_BYTES])
            except BrokenPipeError:
                pass  # The child has died; the trailer says how.
            return _receive(connection, limits, set_remaining)
        except TimeoutError:
            raise timeout_error(limits) from None


def _receive(connection: socket.socket, limits: ParseLimits, set_remaining: Callable[[], None]) -> ParsedDocument:
    """The result, or the error that the trailer tells; a child that died while it answered left half a frame first."""
    body_limit = 4 * limits.max_chars + limits.max_attachments_mb * MEBIBYTE
    try:
        head, body = protocol.read_frame(connection, body_limit, set_remaining)
        if head is not None:
            return protocol.unpack_result(head, body)
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


def _submit(limits: ParseLimits, fresh: bool) -> socket.socket:
    global _server
    with _lock:
        for _ in range(START_ATTEMPTS):
            if _server is None or _server.process.poll() is not None:
                if _server is not None:
                    _server.stop()
                _server = _Server()
            try:
                return _server.submit(limits, fresh=fresh)
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
    kept = {name: os.environ[name] for name in ENVIRONMENT_KEPT if name in os.environ}
    return kept | {
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TMPDIR": tempfile.gettempdir(),
    }


os.register_at_fork(after_in_child=_after_fork)
atexit.register(stop_server)
