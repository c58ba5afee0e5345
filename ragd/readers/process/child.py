"""The parser process: `python -m ragd.readers.process.child FD`, started by `process.py`.

It imports the readers once, then forks for every document that comes in on the control socket, so that a document pays
a fork and not an interpreter. The forked child confines and limits itself, reads, answers and exits; the server reaps
it, kills it when its time is over or its caller has gone, and tells how it ended. The end of the control socket ends
the server. A child that read a light document waits a moment for the next one under the same limits: a fork costs more
than reading a page of text.

Pages that the child process recognizes or draws when it is asked to.

Documents under a password that the child process opens with it.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import io
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers import assembly
from ragd.readers import signatures as types
from ragd.readers.archives import expand_archive
from ragd.readers.process import confinement, process
from ragd.readers.scans.engines import find_engine
from ragd.readers.scans.images import encode, open_pages
from ragd.readers.scans.words import compose_page, pack_page, unpack_recognized
from ragd.readers.sniffing import sniff
from ragd.readers.types import MEBIBYTE, ParseError, ParseLimits, Source


def send_pages(connection: Connection, data: bytes, request: Mapping[str, Any]) -> None:
    """A message for each page of the request."""
    engine = find_engine(request["engine"])
    if engine is None:
        raise ParseError("scanned", "Text recognition is not installed.", pages=request["recognize"])
    with open_pages(data, sniff(data, request["name"])) as pages:
        for number in request["recognize"]:
            try:
                pixels = pages.draw(number, engine.long_side)
                lines = engine.read(pixels)
                page = compose_page(number, pages.size(number), (pixels.shape[1], pixels.shape[0]), lines)
            except MemoryError:
                raise
            except Exception as error:  # of an engine, or of one damaged page among others
                process.send(connection, {"page": number, "failed": f"{type(error).__name__}: {error}"[:200]})
                continue
            process.send(connection, *pack_page(page))


def send_drawing(connection: Connection, data: bytes, request: Mapping[str, Any]) -> None:
    """The page of the request as a picture."""
    with open_pages(data, sniff(data, request["name"])) as pages:
        if not 1 <= request["draw"] <= pages.count:
            raise ParseError("empty", f"The document has {pages.count} pages, and no page {request['draw']}.")
        width, height = pages.size(request["draw"])
        media_type, picture = encode(pages.draw(request["draw"], request["long_side"]))
        head = {"media_type": media_type, "width": width, "height": height, "count": pages.count}
    process.send(connection, head, picture)


OFFICE = frozenset({types.OOXML_ENCRYPTED, types.DOC, types.XLS, types.PPT})


def send_unlocked(connection: Connection, data: bytes, request: Mapping[str, Any]) -> None:
    """The document of the request without its password."""
    media_type = sniff(data, request["name"])
    if media_type == types.PDF:
        content = _unlock_pdf(data, request["unlock"])
    elif media_type in OFFICE:
        content = _unlock_office(data, request["unlock"])
    else:
        raise ParseError(
            "unsupported",
            f"A PDF, Word, Excel or PowerPoint file was expected, but this is {types.speak(media_type)}. Save a copy"
            " without the password and upload that.",
            media_type=media_type,
        )
    process.send(connection, {}, content)


def _unlock_pdf(data: bytes, password: str) -> bytes:
    try:
        document = pdfium.PdfDocument(data, password=password)
    except pdfium.PdfiumError as error:
        raise _wrong_password(types.PDF) from error
    copy = io.BytesIO()
    try:
        document.save(copy, flags=raw.FPDF_REMOVE_SECURITY)
    finally:
        document.close()
    return copy.getvalue()


def _unlock_office(data: bytes, password: str) -> bytes:
    import msoffcrypto  # with a library of ciphers, which few documents need

    copy = io.BytesIO()
    try:
        document = msoffcrypto.OfficeFile(io.BytesIO(data))
        document.load_key(password=password)
        document.decrypt(copy)
    except Exception as error:  # of a dozen classes on damaged files and wrong passwords alike
        raise _wrong_password(types.OOXML_ENCRYPTED) from error
    return copy.getvalue()


def _wrong_password(media_type: str) -> ParseError:
    return ParseError(
        "encrypted", "The password does not open the file. Check it and enter it again.", media_type=media_type
    )


REQUEST_BYTES = 1 << 16
# read by Python code alone, in a few milliseconds: nothing that could spoil the process for the next document
LIGHT_TYPES = frozenset({"text/markdown", "text/plain", "text/csv", "text/tab-separated-values", "application/json"})
LIGHT_BYTES = 128 * 1024  # fits the socket's buffer, so that it is sent without waiting for the caller
LIGHT_CPU_S = 10  # after which a child reads no further document
WAITING_S = 1.0
READY = b"R"

PR_SET_PDEATHSIG = 1
FILE_LIMIT_MB = 512
OPEN_FILES_LIMIT = 256
CPU_GRACE_S = 2


@dataclass(slots=True, eq=False)
class Child:
    """A forked child. leash: to the caller of the document that it reads; None: it waits for another one.

    line: further documents go to the child there, and its word that it waits comes back; it ends with the child.
    limits: under which it runs; None: it is to read nothing more. deadline: the end of its document's time, or of its
    waiting (time.monotonic).
    """

    pid: int
    line: socket.socket
    limits: dict[str, Any] | None
    leash: Connection | None
    deadline: float
    out_of_time: bool = False
    is_used: bool = False  # it has read another document before

    def kill(self) -> None:
        """With what it started: its group, which exists once it has called setsid. Not after it was reaped."""
        self.limits = None
        for end in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)

    def let_go(self) -> None:
        """Its document is done."""
        if self.leash is not None:
            self.leash.close()
            self.leash = None


def serve(control: socket.socket, places: Sequence[confinement.Place]) -> None:
    """Fork children until the control socket ends. One thread. places: what stays open to them."""
    children: list[Child] = []
    while True:
        timeout_s = min((child.deadline for child in children), default=None)
        watched = [end for child in children for end in (child.line, child.leash) if end is not None]
        ready = wait([control, *watched], timeout_s and max(0.0, timeout_s - time.monotonic()))
        # a child says that it waits before its caller hangs up
        for child in [child for child in children if child.line in ready]:
            if _read_line(child) != READY:
                children.remove(child)
                _reap(child)
        for child in children:
            if child.leash in ready:
                child.kill()
                child.let_go()
            elif time.monotonic() >= child.deadline:
                child.out_of_time, child.deadline = True, child.deadline + WAITING_S
                child.kill()
        if control in ready and not _accept(control, children, places):
            for child in children:
                child.kill()
            return


def _read_line(child: Child) -> bytes:
    try:
        word = child.line.recv(len(READY))
    except OSError:
        return b""
    if word == READY:
        child.let_go()
        child.is_used, child.deadline = True, time.monotonic() + WAITING_S
    return word


def _accept(control: socket.socket, children: list[Child], places: Sequence[confinement.Place]) -> bool:
    """Start one document. False at the end of the control socket."""
    try:
        message, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, 2)
    except ConnectionError:
        return False
    if len(descriptors) < 2:
        return bool(message)
    request = json.loads(message)
    with Connection(descriptors[0]) as connection:
        leash = Connection(descriptors[1])
        child = None if request["fresh"] else _hand_on(message, connection, request["limits"], children)
        if child is None:
            try:
                child = _fork(control, request, connection, leash, children, places)
            except OSError:
                _tell(leash, process.NOT_STARTED, 0, 0)
                return True
            children.append(child)
    child.leash, child.deadline = leash, time.monotonic() + request["wall_s"]
    return True


def _hand_on(message: bytes, connection: Connection, limits: dict[str, Any], children: list[Child]) -> Child | None:
    """A child that waits under the same limits, with the document handed to it."""
    for child in children:
        if child.leash is None and child.limits == limits:
            with suppress(OSError):
                socket.send_fds(child.line, [message], [connection.fileno()])
                return child
    return None


def _fork(
    control: socket.socket,
    request: dict[str, Any],
    connection: Connection,
    leash: Connection,
    children: list[Child],
    places: Sequence[confinement.Place],
) -> Child:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.getpid()
    with theirs:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                inherited = [end for child in children for end in (child.line, child.leash) if end is not None]
                for end in (control, mine, leash, *inherited):
                    end.close()
                work(connection, theirs, request, server, places)
                status = 0
            finally:
                os._exit(status)
    return Child(pid, mine, request["limits"], None, 0.0)


def _reap(child: Child) -> None:
    """Its line has ended, so it is dying. What it started ends with it."""
    child.kill()
    _, status, usage = os.wait4(child.pid, 0)
    child.line.close()
    if child.leash is not None and (child.out_of_time or not child.is_used):  # else the document is read once more
        ending = process.OUT_OF_TIME if child.out_of_time else process.ENDED
        _tell(child.leash, ending, os.waitstatus_to_exitcode(status), usage.ru_maxrss)
    child.let_go()


def _tell(leash: Connection, *ending: int) -> None:
    with suppress(OSError), leash:
        leash.send_bytes(json.dumps(ending).encode())


def work(
    connection: Connection,
    line: socket.socket,
    request: dict[str, Any],
    server: int,
    places: Sequence[confinement.Place],
) -> None:
    """Read documents, confined and under limits, and send results. Runs in the forked child of process `server`."""
    os.setsid()
    die_with(server)
    confinement.confine(places)
    while answer(connection, line, request):
        message, descriptors, _, _ = socket.recv_fds(line, REQUEST_BYTES, 1)
        if not descriptors:
            return
        connection, request = Connection(descriptors[0]), json.loads(message)


def answer(connection: Connection, line: socket.socket, request: dict[str, Any]) -> bool:
    """One document; whether another may follow, which the server has been told then."""
    data = b"".join(process.receive_pieces(connection, request["size"]))
    recognized = b"".join(process.receive_pieces(connection, request["recognized_bytes"]))
    limits = ParseLimits.from_dict(request["limits"])
    limit_process(limits)
    is_light = False
    with connection:
        try:
            if "members" in request:
                send_members(connection, data, limits, with_data=request["members"])
                return False
            if "recognize" in request:
                send_pages(connection, data, request)
                return False
            if "draw" in request:
                send_drawing(connection, data, request)
                return False
            if "unlock" in request:
                send_unlocked(connection, data, request)
                return False
            pages = unpack_recognized(recognized) if recognized else {}
            document = assembly.read_document(Source(data, request["name"], "", limits, recognized=pages))
            is_light = (
                document.media_type in LIGHT_TYPES
                and max(len(data), len(document.text.encode())) <= LIGHT_BYTES
                and time.process_time() < LIGHT_CPU_S
            )
            del data
            if is_light:
                line.sendall(READY)
            process.send_document(connection, document)
        except (ParseError, MemoryError) as error:
            known = error if isinstance(error, ParseError) else memory_error(limits)
            head = {"error": known.kind, "message": known.message, "media_type": known.media_type}
            process.send(connection, head | {"pages": known.pages})
    return is_light


def send_members(connection: Connection, data: bytes, limits: ParseLimits, *, with_data: bool) -> None:
    """A message for each member of an archive. The next is unpacked when the caller has taken the one before."""
    for member in expand_archive(data, limits):
        head: dict[str, Any] = {"name": member.name, "size_bytes": member.size_bytes, "sha256": "", "media_type": ""}
        if member.error is not None:
            head["refused"] = [member.error.kind, member.error.message]
        else:
            head["sha256"] = hashlib.sha256(member.data).hexdigest()
            head["media_type"] = sniff(member.data, member.name)
        process.send(connection, head, member.data if with_data else b"")
    process.send(connection, {"end": True})


def memory_error(limits: ParseLimits) -> ParseError:
    return ParseError(
        "memory",
        f"The document needs more than the {limits.memory_mb} MB of memory that one document may take"
        " (RAGD_PARSE_MEMORY_MB). Split it, or raise the limit.",
    )


def limit_process(limits: ParseLimits) -> None:
    """Lower this process's own limits.

    Memory by RLIMIT_DATA, which counts what may be written to: Tika reserves address space that it never uses.
    """
    cpu_s = int(limits.timeout_s) + CPU_GRACE_S + int(time.process_time())
    memory_bytes = limits.memory_mb * MEBIBYTE
    file_bytes = FILE_LIMIT_MB * MEBIBYTE
    for name, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + CPU_GRACE_S + LIGHT_CPU_S),
        (resource.RLIMIT_FSIZE, file_bytes, file_bytes),
        (resource.RLIMIT_NOFILE, OPEN_FILES_LIMIT, OPEN_FILES_LIMIT),
        (resource.RLIMIT_DATA, memory_bytes, memory_bytes),
    ):
        _, present = resource.getrlimit(name)
        ceiling = hard if present == resource.RLIM_INFINITY else min(hard, present)
        resource.setrlimit(name, (min(soft, ceiling), ceiling))


def die_with(server: int) -> None:
    """Have the kernel kill this process when its parent, the server, ends; end now if that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:
            os._exit(1)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    assembly.import_readers()
    gc.collect()
    gc.freeze()
    serve(control, confinement.open_places())


if __name__ == "__main__":
    main()
