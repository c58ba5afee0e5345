"""The parser process: limits, deaths, threads, forks; nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import pytest

from ragd.readers import ParseError, ParseLimits, parse, stop_server
from ragd.readers.process import process
from tests.parsing import builders
from tests.refusals import raises_with

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def slow_pdf() -> bytes:
    """A PDF whose one page draws ten million letters: it takes far longer to read than any test waits."""
    packer = zlib.compressobj(9)
    piece = b"(a) Tj T* " * 100_000
    packed = [packer.compress(b"BT /F 1 Tf 9 0 0 9 1 1 Tm "), *(packer.compress(piece) for _ in range(100))]
    return builders.make_pdf(["x"], content=zlib.compress(b"".join([*packed, packer.flush()]), 9))


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def server_pid() -> int:
    """The server of this process, warm and with no child at work."""
    parse(b"warm", "a.txt")
    assert process._server is not None
    pid = process._server.process.pid
    wait_until(lambda: not children_of(pid))
    return pid


def wait_until(condition, timeout_s: float = 10.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_document_that_takes_too_long_is_a_timeout(slow_pdf: bytes) -> None:
    started = time.monotonic()
    with raises_with(ParseError, kind="timeout") as caught:
        parse(slow_pdf, "a.pdf", limits=ParseLimits(timeout_s=0.5))
    assert "RAGD_PARSE_TIMEOUT_S" in caught.value.message
    assert time.monotonic() - started < 4
    wait_until(lambda: not children_of(server_pid()))


def test_a_document_that_takes_too_much_memory_is_named() -> None:
    with raises_with(ParseError, kind="memory") as caught:
        parse(b"x" * 150_000_000, "a.txt", limits=ParseLimits(memory_mb=300, max_chars=10**9))
    assert "RAGD_PARSE_MEMORY_MB" in caught.value.message


def test_a_killed_child_is_one_documents_error(slow_pdf: bytes) -> None:
    server = server_pid()
    errors: list[ParseError] = []

    def read() -> None:
        try:
            parse(slow_pdf, "a.pdf", limits=ParseLimits(timeout_s=30))
        except ParseError as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: children_of(server))
    os.kill(children_of(server)[0], signal.SIGSEGV)
    reader.join(10)
    assert [error.kind for error in errors] == ["crashed"]
    assert "SIGSEGV" in errors[0].message
    assert parse(b"next", "a.txt").text == "next"
    assert server_pid() == server


def test_a_killed_server_is_started_again() -> None:
    server = server_pid()
    os.kill(server, signal.SIGKILL)
    assert parse(b"again", "a.txt").text == "again"
    assert server_pid() != server
    assert not Path(f"/proc/{server}").exists()


def test_children_end_with_their_server(slow_pdf: bytes) -> None:
    server = server_pid()
    errors: list[str] = []

    def read() -> None:
        try:
            parse(slow_pdf, "a.pdf", limits=ParseLimits(timeout_s=1))
        except ParseError as error:
            errors.append(error.kind)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: children_of(server))
    [child] = children_of(server)
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: not is_running(child))
    reader.join(20)
    assert errors in (["timeout"], ["crashed"])


def test_a_caller_that_leaves_ends_the_work(slow_pdf: bytes) -> None:
    server = server_pid()
    limits = ParseLimits(timeout_s=30)
    with process.submit(slow_pdf, {"name": "a.pdf"}, limits, wall_s=limits.timeout_s, fresh=False):
        wait_until(lambda: children_of(server))
    wait_until(lambda: not children_of(server))


def test_no_descriptor_and_no_zombie_is_left() -> None:
    server = server_pid()

    def counts() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{server}/fd"))

    before = counts()
    for number in range(30):
        if number % 3:
            parse(b"text", "a.txt")
        else:
            with pytest.raises(ParseError):
                parse(b"%PDF-broken", "a.pdf")
    wait_until(lambda: not children_of(server))
    wait_until(lambda: all(now <= earlier for now, earlier in zip(counts(), before, strict=True)))


def test_threads_share_one_server() -> None:
    server = server_pid()
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(parse(f"text {n}".encode(), "a.txt").text))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(results) == sorted(f"text {number}" for number in range(16))
    assert server_pid() == server


def test_a_fork_starts_a_server_of_its_own() -> None:
    server = server_pid()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, f"{parse(b'in the fork', 'a.txt').text}|{server_pid()}".encode())
            stop_server()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    text, _, other = os.read(read_end, 1000).decode().partition("|")
    os.close(read_end)
    os.close(write_end)
    assert text == "in the fork"
    assert int(other) != server
    assert parse(b"still mine", "a.txt").text == "still mine"
    assert server_pid() == server


def test_the_server_ends_with_its_process() -> None:
    script = (
        "import os, signal; from ragd.readers import parse; "
        "from ragd.readers.process import process; parse(b'x', 'a.txt');"
        "print(process._server.process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30)
    wait_until(lambda: not is_running(int(ended.stdout)))


def test_the_server_gets_no_secrets_and_imports_no_django(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    stop_server()
    pid = server_pid()
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"secret" not in environment
    script = "import sys; from ragd.readers import assembly; assembly.import_readers();"
    script += "print('django' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.stdout.strip() == "False"


def test_an_input_over_the_limit_is_never_sent() -> None:
    with raises_with(ParseError, kind="too_large"):
        parse(b"x" * (2 * 1024 * 1024), "a.txt", limits=ParseLimits(max_input_mb=1))


def test_a_result_larger_than_a_document_may_be_is_refused() -> None:
    mine, theirs = Pipe()
    with mine, theirs:
        theirs.send_bytes(json.dumps({"sizes": [10**12]}).encode())
        with pytest.raises(ValueError, match="more than a document"):
            process.receive(mine, ParseLimits())
        theirs.send_bytes(b"x" * 10)
        with pytest.raises(OSError, match="bad message length"):
            list(process.receive_pieces(mine, 9))


@pytest.fixture(autouse=True, scope="module")
def stopped_afterwards() -> Iterator[None]:
    yield
    stop_server()


def test_light_documents_share_a_child_and_heavy_ones_get_their_own() -> None:
    server = server_pid()
    parse(b"# One", "a.md")
    [first] = children_of(server)
    assert parse(b"two", "b.txt").text == "two"
    assert children_of(server) == [first]
    parse(builders.make_pdf(["a page"]), "c.pdf")
    wait_until(lambda: not is_running(first))


def test_a_child_is_not_shared_under_other_limits() -> None:
    server = server_pid()
    parse(b"one", "a.txt")
    [first] = children_of(server)
    with raises_with(ParseError, kind="too_large"):
        parse(b"x" * 1000, "b.txt", limits=ParseLimits(max_chars=100))
    assert is_running(first)
    assert parse(b"three", "c.txt").text == "three"


def test_a_waiting_child_that_dies_costs_no_document() -> None:
    server = server_pid()
    for number in range(5):
        parse(b"text", "a.txt")
        for child in children_of(server):
            os.kill(child, signal.SIGKILL)
        assert parse(f"text {number}".encode(), "b.txt").text == f"text {number}"


def test_an_error_ends_the_child() -> None:
    server = server_pid()
    with pytest.raises(ParseError):
        parse(b"", "a.txt")
    wait_until(lambda: not children_of(server))


def test_a_file_is_read_like_its_bytes() -> None:
    text = "Wörter 中文 😀 and more words.\n" * 80_000  # more than one piece each way, cut inside of characters
    as_bytes = parse(text.encode(), "a.txt")
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        assert parse(file, "a.txt") == as_bytes
        assert parse(file, "a.txt").text == text.rstrip()
        with pytest.raises(ParseError, match="at most 1 MB"):
            parse(file, "a.txt", limits=ParseLimits(max_input_mb=1))
