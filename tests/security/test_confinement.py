"""What a reader that a hostile document has taken over can still do: nothing beyond its own document."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragd.readers import parse
from ragd.readers.process import child, confinement, process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are Linux's")


def in_child(act: Callable[[], object], *, confined: bool = True) -> str:
    """ "done", or the name of the error that `act` ends with in a forked child."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if confined:
                confinement.confine(confinement.open_places())
            act()
            os.write(write_end, b"done")
        except BaseException as error:
            os.write(write_end, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        word = answer.read().decode()
    os.waitpid(pid, 0)
    return word


@pytest.fixture
def listener() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


@pytest.fixture
def secret_key() -> Iterator[Path]:
    """In a folder like RAGD_VAR, and not below the folder of temporary files."""
    parent = confinement.ROOT / "var"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        path = Path(folder) / "secret_key"
        path.write_text("marked")
        yield path


def test_no_connection_leaves_it(listener: tuple[str, int]) -> None:
    assert in_child(lambda: socket.create_connection(listener, timeout=5), confined=False) == "done"
    assert in_child(lambda: socket.create_connection(listener, timeout=5)) == "PermissionError"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK])
def test_it_makes_no_socket_of_any_kind(family: socket.AddressFamily) -> None:
    assert in_child(lambda: socket.socket(family, socket.SOCK_DGRAM), confined=False) == "done"
    assert in_child(lambda: socket.socket(family, socket.SOCK_DGRAM)) == "PermissionError"


def test_landlock_alone_lets_no_connection_out(listener: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    if confinement.landlock_version() < confinement.TCP_SINCE:
        pytest.skip("this kernel's Landlock knows no network")
    monkeypatch.setattr(confinement, "REFUSED_CALLS", {})
    assert in_child(lambda: socket.create_connection(listener, timeout=5)) == "PermissionError"


needs_landlock = pytest.mark.skipif(not confinement.landlock_version(), reason="this kernel has no Landlock")
outside_temporary_files = pytest.mark.skipif(
    any(confinement.ROOT.is_relative_to(folder) for folder in (confinement.TEMPORARY_FOLDER, tempfile.gettempdir())),
    reason="the repository lies below the folder of temporary files, which a reader may open",
)


@needs_landlock
@outside_temporary_files
def test_it_reads_no_secret_and_writes_nowhere(secret_key: Path) -> None:
    assert in_child(secret_key.read_text, confined=False) == "done"
    assert in_child(secret_key.read_text) == "PermissionError"
    assert in_child(lambda: secret_key.write_text("other")) == "PermissionError"
    assert in_child(lambda: secret_key.with_name("new").write_text("x")) == "PermissionError"
    assert in_child(secret_key.unlink) == "PermissionError"
    assert in_child(lambda: os.listdir(secret_key.parent)) == "PermissionError"
    assert in_child(lambda: os.listdir(tempfile.gettempdir())) == "PermissionError"
    assert secret_key.read_text() == "marked"


@needs_landlock
def test_it_looks_into_no_other_process_and_sends_it_no_signal() -> None:
    parent = os.getpid()
    assert in_child(Path(f"/proc/{parent}/environ").read_bytes, confined=False) == "done"
    assert in_child(Path(f"/proc/{parent}/environ").read_bytes) == "PermissionError"
    assert in_child(lambda: os.open(f"/proc/{parent}/mem", os.O_RDONLY)) == "PermissionError"
    if confinement.landlock_version() >= confinement.SCOPES_SINCE:
        assert in_child(lambda: os.kill(parent, 0), confined=False) == "done"
        assert in_child(lambda: os.kill(parent, 0)) == "PermissionError"


@needs_landlock
@outside_temporary_files
def test_the_repository_is_closed_but_for_the_product() -> None:
    assert in_child((confinement.ROOT / "collections_app" / "errors.py").read_text) == "done"
    assert in_child((confinement.ROOT / "README.md").read_text) == "PermissionError"
    assert in_child(lambda: os.listdir(confinement.ROOT)) == "PermissionError"


def test_every_child_that_reads_a_document_is_confined() -> None:
    """Of the real server: the child that waits for the next light document."""
    parse(b"text", "a.txt")
    assert process._server is not None
    server = process._server.process.pid
    [reader] = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{reader}/status").read_text().splitlines())
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")  # 2: a filter
    os.kill(int(reader), signal.SIGKILL)
    process.stop_server()


def test_a_kernel_that_refuses_ends_the_child_before_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("refused")

    monkeypatch.setattr(confinement, "_control", refuse)
    monkeypatch.setattr(child, "answer", lambda *_: pytest.fail("a document was read"))
    work: Any = child.work
    assert in_child(lambda: work(None, None, {}, os.getppid(), []), confined=False) == "OSError"


def test_what_the_kernel_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if confinement.landlock_version():
        assert confinement.missing() == []
    monkeypatch.setattr(confinement, "landlock_version", lambda: 0)
    monkeypatch.setattr(confinement, "REFUSED_CALLS", {})
    assert len(confinement.missing()) == 2
    assert confinement.open_places() == []
