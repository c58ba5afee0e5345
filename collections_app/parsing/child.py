"""The parser process: `python -m collections_app.parsing.child FD`, started by `process.py`.

It imports the readers once, then forks for every document that comes in on the control socket, so that a document pays
a fork and not an interpreter. The forked child limits itself, reads, answers and exits; the server reaps it, kills it
when its time is over or its caller has gone, and reports how it ended. The end of the control socket ends the server.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass

from collections_app.parsing import protocol, reading
from collections_app.parsing.types import MEBIBYTE, ParseError, ParseLimits, Source

PR_SET_PDEATHSIG = 1
CONTROL_BYTES = 4096
FILE_LIMIT_MB = 512
OPEN_FILES_LIMIT = 256
REAP_EVERY_S = 1.0
CPU_GRACE_S = 2


@dataclass(slots=True)
class Running:
    """A child at work. connection is the server's own copy of the document socket, for the trailer."""

    pid: int
    connection: socket.socket
    deadline: float
    out_of_time: bool = False


class Server:
    """Forks per document until the control socket ends. One thread; woken by messages, hang-ups and dying children."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.running: dict[int, Running] = {}
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)
        self.wake_read, self.wake_write = socket.socketpair()
        for end in (self.wake_read, self.wake_write):
            end.setblocking(False)
        self.poll.register(self.wake_read, select.POLLIN)
        signal.set_wakeup_fd(self.wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        while True:
            for descriptor, _ in self.poll.poll(self._wait_ms()):
                if descriptor == self.control.fileno():
                    if not self._accept():
                        self._kill_all()
                        return
                elif descriptor == self.wake_read.fileno():
                    self._drain()
                else:
                    self._hang_up(descriptor)
            self._enforce()
            self._reap()

    def _wait_ms(self) -> int | None:
        if not self.running:
            return None
        nearest = min(child.deadline for child in self.running.values()) - time.monotonic()
        return max(0, int(1000 * min(REAP_EVERY_S, nearest))) + 1

    def _drain(self) -> None:
        try:
            while self.wake_read.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _accept(self) -> bool:
        """Start one document. False at the end of the control socket."""
        descriptors = array.array("i")
        try:
            message, ancillary, _, _ = self.control.recvmsg(CONTROL_BYTES, socket.CMSG_LEN(descriptors.itemsize))
        except ConnectionError:
            return False
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        if not message:
            return False
        if descriptors:
            self._start(socket.socket(fileno=descriptors[0]), json.loads(message)["wall_s"])
        return True

    def _start(self, connection: socket.socket, wall_s: float) -> None:
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            _send_trailer(connection, protocol.NOT_STARTED, 0, 0)
            return
        if pid == 0:
            self._become_child(connection, server)
        self.running[connection.fileno()] = Running(pid, connection, time.monotonic() + wall_s)
        self.poll.register(connection, 0)

    def _become_child(self, connection: socket.socket, server: int) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for mine in (self.control, self.wake_read, self.wake_write):
                mine.close()
            for other in self.running.values():
                other.connection.close()
            work(connection, server)
            status = 0
        finally:
            os._exit(status)

    def _hang_up(self, descriptor: int) -> None:
        child = self.running.get(descriptor)
        if child is not None:
            _kill(child.pid)
            self.poll.unregister(child.connection)

    def _enforce(self) -> None:
        now = time.monotonic()
        for child in self.running.values():
            if now >= child.deadline and not child.out_of_time:
                child.out_of_time = True
                _kill(child.pid)

    def _reap(self) -> None:
        for descriptor, child in list(self.running.items()):
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid == 0:
                continue
            # What the child started, such as LibreOffice, ends with it.
            _kill_group(child.pid)
            del self.running[descriptor]
            try:
                self.poll.unregister(child.connection)
            except KeyError:
                pass
            ending = protocol.OUT_OF_TIME if child.out_of_time else protocol.ENDED
            _send_trailer(child.connection, ending, os.waitstatus_to_exitcode(status), usage.ru_maxrss)

    def _kill_all(self) -> None:
        for child in self.running.values():
            _kill(child.pid)
            _kill_group(child.pid)


def work(connection: socket.socket, server: int) -> None:
    """Read the request, parse under limits, send the result. Runs in the forked child of process `server`."""
    os.setsid()
    _die_with(server)
    head, data = protocol.read_frame(connection, sys.maxsize)
    if head is None:
        return
    limits = ParseLimits.from_dict(head["limits"])
    limit_process(limits)
    try:
        document = reading.read_document(Source(data, head["name"], "", limits))
        del data
        answer = protocol.pack_result(document)
    except ParseError as error:
        answer = protocol.pack_error(error)
    except MemoryError:
        answer = protocol.pack_error(memory_error(limits))
    protocol.send_pieces(connection, answer)
    connection.close()


def memory_error(limits: ParseLimits) -> ParseError:
    return ParseError(
        "memory",
        f"The document needs more than the {limits.memory_mb} MB of memory that one document may take"
        " (RAGD_PARSE_MEMORY_MB). Split it, or raise the limit.",
    )


def limit_process(limits: ParseLimits) -> None:
    """Lower this process's own limits. The hard limit on memory leaves room for LibreOffice, which sets its own."""
    cpu_s = int(limits.timeout_s) + CPU_GRACE_S
    soft_bytes = limits.memory_mb * MEBIBYTE
    hard_bytes = max(limits.memory_mb, limits.office_memory_mb) * MEBIBYTE
    file_bytes = FILE_LIMIT_MB * MEBIBYTE
    for name, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + CPU_GRACE_S),
        (resource.RLIMIT_FSIZE, file_bytes, file_bytes),
        (resource.RLIMIT_NOFILE, OPEN_FILES_LIMIT, OPEN_FILES_LIMIT),
        (resource.RLIMIT_AS, soft_bytes, hard_bytes),
    ):
        _, present = resource.getrlimit(name)
        ceiling = hard if present == resource.RLIM_INFINITY else min(hard, present)
        resource.setrlimit(name, (min(soft, ceiling), ceiling))


def _die_with(server: int) -> None:
    """Have the kernel kill this process when its parent, the server, ends; end now if that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:
            os._exit(1)


def _kill(pid: int) -> None:
    """Kill a child that has not been reaped, and its group (which exists once the child has called setsid)."""
    _kill_group(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _send_trailer(connection: socket.socket, ending: int, exit_code: int, peak_kib: int) -> None:
    try:
        connection.setblocking(False)
        connection.sendall(protocol.TRAILER.pack(protocol.TRAILER_MAGIC, ending, exit_code, peak_kib))
    except OSError:
        pass
    connection.close()


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    reading.import_readers()
    gc.collect()
    gc.freeze()
    Server(control).serve()


if __name__ == "__main__":
    main()
