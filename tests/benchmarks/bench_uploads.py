"""1,000 documents uploaded in one go: by a real browser on the page, and by one request to the API.

Says when the browser may leave (all files are stored with their jobs), when everything is ingested with the local
embedder, how much memory web server and worker took, and how long a single file takes that is sent behind the thousand.

Run: python -m tests.benchmarks.bench_uploads [page|api] [files]     (default: both, 1000 of cpp-docs-md.tar.gz)
Needs Chromium for the page: RAGD_CHROMIUM, or one on the PATH.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_ingest import read_files
from tests.benchmarks.server import Server, peak_memory_mb, running_server

FILES = 1000
CHROMIUM = os.environ.get("RAGD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
PATIENCE_S = 1800
Documents = Sequence[tuple[str, bytes]]


def pids(server: Server, word: str) -> list[int]:
    return [pid for pid, line in server.processes().items() if word in line]


def upload_by_api(server: Server, collection: str, documents: Documents) -> None:
    flat = [(name.replace("/", "__"), data) for name, data in documents]  # a file's name in a request has no folder
    refused = [result for result in server.upload(collection, flat) if result["status"] != "queued"]
    assert not refused, refused[:3]


def upload_by_page(server: Server, collection: str, documents: Documents) -> float:
    """Seconds from choosing the files until the page says that one may leave."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        paths = []
        for number, (_, data) in enumerate(documents):
            path = Path(folder) / f"{number:04}.md"
            path.write_bytes(data)
            paths.append(path)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.goto(f"{server.url}/accounts/login/")
        page.fill("#id_username", "admin")
        page.fill("#id_password", (server.var / "admin_password").read_text().strip())
        page.click("main [type=submit]")
        page.goto(f"{server.url}/collections/{collection}/upload/")
        began = time.monotonic()
        page.locator("#id_uploads").set_input_files(paths)
        page.locator("[data-upload] [type=submit]").click()
        page.locator("[data-clear]").wait_for(state="hidden")  # all are sent
        took_s = time.monotonic() - began
        browser.close()
    return took_s


def batches(server: Server, collection: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.call("GET", f"/v1/batches?collection={collection}&limit=100")["items"]
    return items


def wait_for(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_done():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.5)


def measure(server: Server, way: str, documents: Documents) -> None:
    """Print each figure as soon as it is known. Memory is the peak of one process."""
    idle = peak_memory_mb(pids(server, "gunicorn")), peak_memory_mb(pids(server, "celery"))
    server.call("POST", "/v1/collections", {"name": way, "hybrid_enabled": True})
    server.call("POST", "/v1/collections", {"name": f"single-{way}", "hybrid_enabled": True})
    began = time.monotonic()
    if way == "page":
        left_s = upload_by_page(server, way, documents)
        began = time.monotonic() - left_s
    else:
        upload_by_api(server, way, documents)
        left_s = time.monotonic() - began
    tell(way, "the browser may leave after", f"{left_s:9.1f} s")
    single = time.monotonic()
    (job,) = server.upload(f"single-{way}", [("single.md", b"# One\n\nA single short text.")])
    wait_for(lambda: server.call("GET", f"/v1/jobs/{job['job_id']}")["state"] == "succeeded")
    tell(way, "a single file sent behind them is done after", f"{time.monotonic() - single:9.1f} s")
    tell(way, "peak of a web process (idle)", f"{peak_memory_mb(pids(server, 'gunicorn')):9.0f} MB ({idle[0]:.0f})")
    wait_for(lambda: all(batch["status"].startswith("completed") for batch in batches(server, way)))
    took_s = time.monotonic() - began
    found = batches(server, way)
    done, errors = sum(batch["succeeded"] for batch in found), sum(batch["errors"] for batch in found)
    tell(way, "all ingested after", f"{took_s:9.1f} s")
    tell(way, "documents per second", f"{done / took_s:9.1f}")
    tell(way, "peak of a worker process (idle)", f"{peak_memory_mb(pids(server, 'celery')):9.0f} MB ({idle[1]:.0f})")
    tell(way, "ingested", f"{done} of {len(documents)}, {errors} errors   (target: all, no error)")


def tell(way: str, what: str, figure: str) -> None:
    print(f"{way + ': ' + what:52} {figure}", flush=True)


def main() -> None:
    ways = [sys.argv[1]] if len(sys.argv) > 1 else ["page", "api"]
    documents = read_files(int(sys.argv[2]) if len(sys.argv) > 2 else FILES)
    print(f"{len(documents)} files, {sum(len(data) for _, data in documents) / 1e6:.1f} MB", flush=True)
    for way in ways:
        with running_server() as server:
            measure(server, way, documents)


if __name__ == "__main__":
    main()
