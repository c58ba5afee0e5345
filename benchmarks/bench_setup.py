"""From a fresh clone to the first page: seconds, size of what was installed, seconds of a second start, and the memory
of the whole server at rest.

Run: python -m benchmarks.bench_setup
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from ragd_site import embedded
from tests.server import ROOT, descendants, free_port, wait_until_healthy

LIMIT_S = 900
REST_S = 30.0  # after a start, until the worker has its processes and has done what every start does
KINDS = {"gunicorn": "web", "celery": "worker", "postgres": "PostgreSQL"}


def start(clone: Path, port: int, **variables: str) -> tuple[subprocess.Popen[bytes], float]:
    """`make run` until GET /v1/health answers 200; returns the process and the seconds that took."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "RAGD_VAR")}
    began = time.monotonic()
    log = (clone / "run.log").open("ab")
    stated = kept | {"PORT": str(port)} | variables
    process = subprocess.Popen(["make", "run"], cwd=clone, env=stated, stdout=log, stderr=log, start_new_session=True)
    wait_until_healthy(process, f"http://127.0.0.1:{port}", clone / "run.log", LIMIT_S)
    return process, time.monotonic() - began


def stop(process: subprocess.Popen[bytes]) -> float:
    """Ctrl-C to the whole foreground group, as a terminal sends it; seconds until everything ended."""
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=120)
    return time.monotonic() - began


def megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()) / 1e6


def memory_mb(clone: Path, starter: int) -> dict[str, float]:
    """Proportional memory (PSS, shared pages shared out) of the server's processes by kind, MB."""
    cluster = embedded.read_cluster(clone / "var")
    database = embedded.postmaster_pid(cluster.data) if cluster else None
    result: Counter[str] = Counter()
    for pid, line in {**descendants(starter), **(descendants(database, itself=True) if database else {})}.items():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        kind = next((KINDS[word] for word in KINDS if word in line), "others")
        result[kind] += int(rollup.split("Pss:")[1].split()[0]) / 1000
    return dict(result)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ragd-setup-") as scratch:
        Path(scratch).chmod(0o755)
        clone = Path(scratch) / "ragd"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        port = free_port()
        process, first_s = start(clone, port)
        first_stop_s = stop(process)
        installed = megabytes(clone / ".venv")
        process, second_s = start(clone, port, RAGD_SAMPLE="off")  # which would not be at rest
        time.sleep(REST_S)
        memory = memory_mb(clone, process.pid)
        second_stop_s = stop(process)
    print(f"{'fresh clone to healthy':40} {first_s:8.1f} s")
    print(f"{'installed in .venv, weights included':40} {installed:8.0f} MB  (target: under 600)")
    print(f"{'second start':40} {second_s:8.1f} s   (target: at most 5)")
    kinds = ", ".join(f"{kind} {size:.0f}" for kind, size in sorted(memory.items()))
    print(f"{'memory at rest (PSS)':40} {sum(memory.values()):8.0f} MB  (target: at most 700)  {kinds}")
    print(f"{'clean stop (Ctrl-C)':40} {first_stop_s:8.1f} s, {second_stop_s:.1f} s")


if __name__ == "__main__":
    main()
