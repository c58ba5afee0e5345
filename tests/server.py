"""A whole ragd of its own for a benchmark: embedded PostgreSQL, web server and worker under a temporary RAGD_VAR."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragd_site import embedded

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("RAGD_DATA", ROOT.parent / "shared" / "data"))
START_S = 180


def need_data(*parts: str) -> Path:
    """A file or folder of the benchmark data; ends the program with a sentence when it is not there."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        sys.exit(f"{path} is not there. Set RAGD_DATA to the folder that holds {parts[0]}.")
    return path


def wait_for(
    is_done: Callable[[], bool], what: str, patience_s: float = 150.0, details: Callable[[], str] = str
) -> None:
    deadline = time.monotonic() + patience_s
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} in {patience_s:.0f} s\n{details()}")
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Server:
    url: str
    key: str
    var: Path
    pid: int

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, kind: str = "") -> Any:
        """One request; the decoded JSON of the answer. Raises with the server's own words on an error."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": kind or "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from None
        return json.loads(text) if text else None

    def upload(self, collection: str, files: Iterable[tuple[str, bytes]]) -> list[dict[str, Any]]:
        """Send files in one multipart request; one result per file."""
        boundary = uuid.uuid4().hex
        parts = []
        for name, data in files:
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n'
            parts.append(head.encode() + b"Content-Type: application/octet-stream\r\n\r\n" + data + b"\r\n")
        raw = b"".join(parts) + f"--{boundary}--\r\n".encode()
        kind = f"multipart/form-data; boundary={boundary}"
        results: list[dict[str, Any]] = self.call(
            "POST", f"/v1/collections/{collection}/documents", raw=raw, kind=kind
        )["results"]
        return results

    @property
    def database_url(self) -> str:
        """Of its embedded database, as its owner."""
        cluster = embedded.read_cluster(self.var)
        assert cluster is not None
        return cluster.url

    def processes(self) -> dict[int, str]:
        """pid -> command line of the supervisor's descendants."""
        return descendants(self.pid)


def descendants(ancestor: int, *, itself: bool = False) -> dict[int, str]:
    """pid -> command line of what a process started, and what that started."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {}
    for pid in sorted(parents):
        above = pid
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor and (itself or pid != ancestor):
            found[pid] = lines[pid]
    return found


def peak_memory_mb(pids: Iterable[int]) -> float:
    """The largest VmHWM among these processes."""
    peaks = [0.0]
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        peaks += [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")]
    return max(peaks)


@contextmanager
def running_server(var: Path | None = None, **variables: str) -> Iterator[Server]:
    """Started by the same supervisor as `make run`, without the sample; stopped, and its data removed, at the end.
    var: where data is or begins, and stays."""
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as scratch:
        Path(scratch).chmod(0o755)
        port, var = free_port(), var or Path(scratch) / "var"
        inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        defaults = {"RAGD_LOG_LEVEL": "WARNING", "RAGD_SAMPLE": "off"}
        environment = inherited | {"PORT": str(port), "RAGD_VAR": str(var)} | defaults | variables
        with (Path(scratch) / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ragd_site.run"], cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(process, url, Path(scratch) / "log")
            first = Server(url, "", var, process.pid)
            if not (kept := var / "benchmark_key").exists():
                kept.write_text(first.call("POST", "/v1/api-keys", {"label": "benchmark"})["secret_once"])
            yield replace(first, key=kept.read_text())
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path, seconds: float = START_S) -> None:
    """Until the server of the process is healthy. Ends the program when it ended, or is not within so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{url}/v1/health", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"the server was not healthy within {seconds:g} s:\n{log.read_text()[-3000:]}")
