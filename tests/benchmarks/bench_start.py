"""From `make run` with an empty folder to the log-in page, and to the whole sample collection; packages are installed.

Run: python -m tests.benchmarks.bench_start
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from subprocess import Popen

from tests.benchmarks.bench_setup import LIMIT_S, ROOT, free_port, stop

SAMPLE_LINE = re.compile(r"Sample collection: (\d+) of \1 documents")


def is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def main() -> None:
    var, port = Path(tempfile.mkdtemp(prefix="ragd-start-")), free_port()
    var.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "RAGD_SAMPLE")}
    settings = kept | {"PORT": str(port), "RAGD_VAR": str(var)}
    began, page_s, sample_s = time.monotonic(), 0.0, 0.0
    with (var / "run.log").open("wb") as log:
        process = Popen(["make", "run"], cwd=ROOT, env=settings, stdout=log, stderr=log, start_new_session=True)
        while not sample_s and process.poll() is None and time.monotonic() - began < LIMIT_S:
            if not page_s and is_up(f"http://127.0.0.1:{port}/accounts/login/"):
                page_s = time.monotonic() - began
            if SAMPLE_LINE.search((var / "run.log").read_text()):
                sample_s = time.monotonic() - began
            time.sleep(0.1)
        stop(process)
    print((var / "run.log").read_text().split("celery")[0])
    print(f"{'log-in page':40} {page_s:8.1f} s   (target: under 30)")
    print(f"{'sample collection searchable, whole':40} {sample_s:8.1f} s   (target: under 60)")
    print(f"{'load of the machine':40} {os.getloadavg()[0]:8.1f}     ({os.cpu_count()} cores)")
    shutil.rmtree(var)


if __name__ == "__main__":
    main()
