"""How long the pages about chunks take on one very large document, and what a change of one chunk costs there.

Run: python -m tests.benchmarks.bench_chunks [MB]      (100)

The document is the text of bench_large, indexed in a database of its own with vectors of 384 dimensions made from a
hash, so that no time goes into a model. Pages are asked for in this process through Django's test client, logged in,
and each is the median of five; memory is this process's peak over what it had before. The scan for near-duplicates and
the counting of outliers go over the same chunks.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.bench_large import make_text

MEGABYTE = 1_000_000
ROUNDS = 5
PAGE_TARGET_MS = 1000.0


class HashEmbedder:
    """The local model's name and sizes, with vectors that cost nothing."""

    model, system, dims, window = "all-MiniLM-L6-v2", "ragd.bench", 384, 256
    server_address = server_port = None

    def __init__(self) -> None:
        self.made = 0

    def embed(self, texts: Sequence[str]) -> list[Any]:
        random = np.random.default_rng(self.made)
        self.made += len(texts)
        return list(random.standard_normal((len(texts), self.dims)).astype(np.float32))

    def embed_query(self, text: str) -> Any:
        return self.embed([text])[0]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        os.environ |= {"RAGD_VAR": folder, "RAGD_MAX_DOCUMENT_MB": "400", "RAGD_LOG_LEVEL": "ERROR"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
        from ragd_site import embedded

        embedded.ensure_running(Path(folder))
        try:
            measure(size)
        finally:
            embedded.stop(Path(folder))


def measure(size: int) -> None:
    import django
    from django.conf import settings

    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    settings.ALLOWED_HOSTS = ["*"]
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", verbosity=0)
    from collections_app.services.chunks import chunk_edits, chunk_outliers
    from collections_app.services.collections.collections import create_collection
    from collections_app.services.documents.documents import ingest_text
    from collections_app.services.indexing import ingestion

    embedder = HashEmbedder()
    ingestion.ingest_embedder = lambda model, dims: embedder
    collection = create_collection(name="bench")
    _, took_ms = timed(lambda: ingest_text(collection, "large.md", make_text(size * MEGABYTE).decode(errors="replace")))
    document = collection.documents.defer("text").get()
    last = document.chunk_count - 1
    print(f"{size} MB, {document.chunk_count:,} chunks, indexed in {took_ms / 1000:.0f} s\n")
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("bench", password="bench"))
    before_mb = peak_mb()
    for name, path in {
        "document, first page": "documents/large.md/",
        "document, middle": f"documents/large.md/?chunk={last // 2}",
        "document, last page": f"documents/large.md/?chunk={last}",
        "document, only flagged": "documents/large.md/?flagged=1",
        "one chunk": f"chunks/{last // 2}/large.md/",
        "nearest chunks": f"neighbours/{last // 2}/large.md/",
        "preview of a policy": "preview/large.md/?target_tokens=80&overlap_tokens=10&max_chars=900&kind=structure",
        "outliers": "outliers/",
    }.items():
        show(name, lambda path=path: page(client, path), rounds=ROUNDS, target_ms=PAGE_TARGET_MS)
    print(f"{'memory of the process over before, pages':44} {peak_mb() - before_mb:9,.0f} MB")
    show("scan for near-duplicates", lambda: chunk_outliers.scan_duplicates(collection))
    scan = chunk_outliers.last_scan(collection)
    print(f"{'':44} {scan.found if scan else 0:9,} found, complete: {bool(scan and scan.complete)}")
    made = embedder.made
    show("edit of one chunk", lambda: chunk_edits.edit_chunk(collection, "large.md", last // 2, "It says this now."))
    print(f"{'':44} {embedder.made - made:9,} chunks embedded")
    print(f"{'memory of the process over before, edit':44} {peak_mb() - before_mb:9,.0f} MB")


def page(client: Any, path: str) -> None:
    response = client.get(f"/collections/bench/{path}")
    if response.status_code != 200:
        raise SystemExit(f"{path} answered {response.status_code}")


def show(name: str, act: Callable[[], Any], *, rounds: int = 1, target_ms: float | None = None) -> None:
    took = statistics.median(timed(act)[1] for _ in range(rounds))
    target = f"  (target: under {target_ms:,.0f} ms)" if target_ms else ""
    print(f"{name:44} {took:9,.0f} ms{target}", flush=True)


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    made = act()
    return made, (time.perf_counter() - began) * 1000


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


if __name__ == "__main__":
    main()
