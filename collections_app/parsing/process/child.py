"""The parser process: `python -m collections_app.parsing.process.child FD`, started by `process.py`.

It imports the readers once, then forks for every document that comes in on the control socket, so that a document pays
a fork and not an interpreter. The forked child limits itself, reads, answers and exits; the server reaps it, kills it
when its time is over or its caller has gone, and reports how it ended. The end of the control socket ends the server.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from collections_app.parsing import reading
from collections_app.parsing.archives import expand_archive
from collections_app.parsing.process import protocol
from collections_app.parsing.process.childlimits import LIGHT_CPU_S, die_with, limit_process, memory_error
from collections_app.parsing.sniffing import sniff
from collections_app.parsing.types import ParseError, ParseLimits, Source

CONTROL_BYTES = 4096
REAP_EVERY_S = 1.0
# read by Python code alone, in a few milliseconds: nothing that could spoil the process for the next document
LIGHT_TYPES = frozenset({"text/markdown", "text/plain", "text/csv", "text/tab-separated-values", "application/json"})
LIGHT_BYTES = 128 * 1024
WAITING_S = 1.0
READY = b"R"
NEXT = b"N"


@dataclass(slots=True)
class Child:
    """A forked child. connection is the server's own copy of the document socket, for the trailer; None: it waits.

    line: further documents go to the child there, and its word that it waits comes back. deadline: the end of its
    document's time, or of its waiting (time.monotonic).
    """

    pid: int
    line: socket.socket
    limits: dict[str, Any]
    connection: socket.socket | None
    deadline: float
    out_of_time: bool = False
    is_used: bool = False  # it has read another document before


class Server:
    """Forks children until the control socket ends. One thread; woken by messages, hang-ups and dying children.

    A child that read a light document waits a moment for the next one under the same limits: a fork costs more than
    reading a page of text.
    """

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: dict[int, Child] = {}
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
            ready = {descriptor for descriptor, _ in self.poll.poll(self._wait_ms())}
            # a child says that it waits before its caller hangs up; a new document may get a number that is free again
            for child in [child for child in self.children.values() if child.line.fileno() in ready]:
                self._listen(child)
            for child in [child for child in self.children.values() if child.connection is not None]:
                if child.connection is not None and child.connection.fileno() in ready:
                    self._hang_up(child, child.connection)
            if self.wake_read.fileno() in ready:
                self._drain()
            self._enforce()
            self._reap()
            if self.control.fileno() in ready and not self._accept():
                self._kill_all()
                return

    def _wait_ms(self) -> int | None:
        if not self.children:
            return None
        nearest = min(child.deadline for child in self.children.values()) - time.monotonic()
        return max(0, int(1000 * min(REAP_EVERY_S, nearest))) + 1

    def _drain(self) -> None:
        try:
            while self.wake_read.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _accept(self) -> bool:
        """Start one document. False at the end of the control socket."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self.control, CONTROL_BYTES, 1)
        except ConnectionError:
            return False
        if not message:
            return False
        if descriptors:
            request = json.loads(message)
            connection = socket.socket(fileno=descriptors[0])
            self._start(connection, request["wall_s"], request["limits"], fresh=request["fresh"])
        return True

    def _start(self, connection: socket.socket, wall_s: float, limits: dict[str, Any], *, fresh: bool) -> None:
        waiting = None if fresh else self._find_waiting(connection, limits)
        child = waiting or self._fork(connection, limits)
        if child is None:
            _send_trailer(connection, protocol.NOT_STARTED, 0, 0)
            return
        child.connection, child.deadline = connection, time.monotonic() + wall_s
        self.poll.register(connection, 0)

    def _find_waiting(self, connection: socket.socket, limits: dict[str, Any]) -> Child | None:
        """A child that waits under the same limits, with the document handed to it."""
        for child in self.children.values():
            if child.connection is None and child.limits == limits and not child.out_of_time:
                try:
                    socket.send_fds(child.line, [NEXT], [connection.fileno()])
                except OSError:
                    continue
                return child
        return None

    def _fork(self, connection: socket.socket, limits: dict[str, Any]) -> Child | None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            mine.close()
            theirs.close()
            return None
        if pid == 0:
            mine.close()
            self._become_child(connection, theirs, server)
        theirs.close()
        child = self.children[pid] = Child(pid, mine, limits, None, 0.0)
        self.poll.register(mine, select.POLLIN)
        return child

    def _become_child(self, connection: socket.socket, line: socket.socket, server: int) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for mine in (self.control, self.wake_read, self.wake_write):
                mine.close()
            for other in self.children.values():
                other.line.close()
                if other.connection is not None:
                    other.connection.close()
            work(connection, line, server)
            status = 0
        finally:
            os._exit(status)

    def _listen(self, child: Child) -> None:
        """The child waits for another document, or its line has ended because it is dying."""
        try:
            word = child.line.recv(len(READY))
        except OSError:
            word = b""
        if word == READY and (connection := self._let_go(child)) is not None:
            connection.close()
            child.is_used = True
            child.deadline = time.monotonic() + WAITING_S
        elif not word:
            self.poll.modify(child.line, 0)

    def _let_go(self, child: Child) -> socket.socket | None:
        """The child's document socket, no longer watched and no longer the child's."""
        connection, child.connection = child.connection, None
        if connection is not None:
            with suppress(KeyError):  # its caller has hung up before
                self.poll.unregister(connection)
        return connection

    def _hang_up(self, child: Child, connection: socket.socket) -> None:
        _kill(child.pid)
        self.poll.unregister(connection)

    def _enforce(self) -> None:
        now = time.monotonic()
        for child in self.children.values():
            if now >= child.deadline and not child.out_of_time:
                child.out_of_time = True
                _kill(child.pid)

    def _reap(self) -> None:
        for child in list(self.children.values()):
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid == 0:
                continue
            # what the child started ends with it
            _kill_group(child.pid)
            del self.children[child.pid]
            self.poll.unregister(child.line)
            child.line.close()
            if (connection := self._let_go(child)) is not None:
                if child.is_used and not child.out_of_time:  # not the document's fault for certain: it is read anew
                    connection.close()
                    continue
                ending = protocol.OUT_OF_TIME if child.out_of_time else protocol.ENDED
                _send_trailer(connection, ending, os.waitstatus_to_exitcode(status), usage.ru_maxrss)

    def _kill_all(self) -> None:
        for child in self.children.values():
            _kill(child.pid)
            _kill_group(child.pid)


def work(connection: socket.socket, line: socket.socket, server: int) -> None:
    """Read requests, parse under limits, send results. Runs in the forked child of process `server`."""
    os.setsid()
    die_with(server)
    while answer(connection, line):
        _, descriptors, _, _ = socket.recv_fds(line, len(NEXT), 1)
        if not descriptors:
            return
        connection = socket.socket(fileno=descriptors[0])


def answer(connection: socket.socket, line: socket.socket) -> bool:
    """One document; whether another may follow, which the server has been told then."""
    head, data = protocol.read_frame(connection, sys.maxsize)
    if head is None:
        return False
    limits = ParseLimits.from_dict(head["limits"])
    limit_process(limits)
    if "members" in head:
        send_members(connection, data, limits, with_data=head["members"])
        return False
    is_light = False
    try:
        document = reading.read_document(Source(data, head["name"], "", limits))
        is_light = document.media_type in LIGHT_TYPES and len(data) <= LIGHT_BYTES
        del data
        pieces = protocol.pack_result(document)
    except ParseError as error:
        pieces = protocol.pack_error(error)
    except MemoryError:
        pieces = protocol.pack_error(memory_error(limits))
    # what fits the socket's buffer is sent without waiting for the caller: the time of the document is over then
    is_light = is_light and sum(map(len, pieces)) <= LIGHT_BYTES and time.process_time() < LIGHT_CPU_S
    if is_light:
        line.sendall(READY)
    protocol.send_pieces(connection, pieces)
    connection.close()
    return is_light


def send_members(connection: socket.socket, data: bytes, limits: ParseLimits, *, with_data: bool) -> None:
    """A frame for each member of an archive. The next is unpacked when the caller has taken the one before."""
    try:
        for member in expand_archive(data, limits):
            if member.error is None:
                digest = hashlib.sha256(member.data).hexdigest()
                member = replace(member, sha256=digest, media_type=sniff(member.data, member.name))
            protocol.send_pieces(connection, protocol.pack_member(member, with_data=with_data))
        pieces = protocol.pack_end()
    except ParseError as error:
        pieces = protocol.pack_error(error)
    except MemoryError:
        pieces = protocol.pack_error(memory_error(limits))
    protocol.send_pieces(connection, pieces)


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
