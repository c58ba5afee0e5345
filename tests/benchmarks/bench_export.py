"""A collection to one file and back: time, throughput, peak memory of the process, equality of what comes back.

Run: python -m tests.benchmarks.bench_export [CHUNKS ...]      (10000 50000)

Documents of ten chunks of about 120 words each with vectors of 384 dimensions, a lexical index, and for every document
its uploaded file of about 8 KB, in a database of its own. Exported to a file on disk and imported under another name
by the services, each step in a process of its own; the vectors need no model. Memory is resident memory, sampled every
10 ms, over what that process held before the step began; PostgreSQL's own is not counted. Equal: every chunk with its
vector, its parsed words and its lexical weights, compared by a hash over all rows in the database.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DIMS = 384
PER_DOCUMENT = 10
WORDS = 120
BATCH = 2_000
SAMPLE_EVERY_S = 0.01
MEGABYTE = 1_000_000
MEMORY_TARGET_MB = 200

DIGEST = """
SELECT md5(string_agg(md5(row(doc_id, chunk_index, content, tags, metadata, enabled, embedding::text, fts::text,
                              lexical::text)::text), '' ORDER BY doc_id, chunk_index))
FROM {chunks}
"""


@dataclass
class Peak:
    """Megabytes over the beginning."""

    megabytes: float = 0.0


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


@contextmanager
def peak_memory() -> Iterator[Peak]:
    peak, before, ended = Peak(), resident_mb(), threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_EVERY_S):
            peak.megabytes = max(peak.megabytes, resident_mb() - before)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def main() -> None:
    if sys.argv[1:2] == ["--step"]:
        run_step(*sys.argv[2:])
        return
    sizes = [int(value) for value in sys.argv[1:]] or [10_000, 50_000]
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)):
        print(f"{'':28}{'seconds':>10}{'MB':>10}{'MB/s':>10}{'chunks/s':>10}{'peak MB':>10}")
        for size in sizes:
            measure(size, Path(folder))


@contextmanager
def service(folder: Path) -> Iterator[None]:
    """Django over a PostgreSQL of its own."""
    os.environ |= {"RAGD_VAR": str(folder / "var"), "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
    os.environ["RAGD_LOG_LEVEL"] = "WARNING"
    os.environ.pop("DATABASE_URL", None)
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connections

    from ragd_site import embedded

    try:
        call_command("migrate", verbosity=0)
        yield
    finally:
        connections.close_all()
        embedded.stop(folder / "var")


def measure(size: int, folder: Path) -> None:
    from collections_app.services.collections.collections import get_collection
    from collections_app.services.collections.deletion import delete_collection

    name, path = f"bench{size}", folder / f"{size}.ragd.zip"
    fill(name, size)
    for step in ("export", "import"):
        took, peak = in_process(step, name, path)
        megabytes = path.stat().st_size / MEGABYTE
        print(
            f"{f'{step} of {size:,} chunks':28}{took:10.1f}{megabytes:10.1f}{megabytes / took:10.1f}{size / took:10.0f}"
            f"{peak:10.0f}  (target: peak under {MEMORY_TARGET_MB} MB)"
        )
    same = digest(name) == digest(f"{name}-back")
    print(f"  every stored value of {size:,} chunks is equal: {'yes' if same else 'NO'} (target: yes)")
    for each in (name, f"{name}-back"):
        delete_collection(get_collection(each))
    path.unlink()


def in_process(step: str, name: str, path: Path) -> tuple[float, float]:
    """(seconds, peak MB) of one step."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_export", "--step", step, name, str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    took, peak = done.stdout.split()[-2:]
    return float(took), float(peak)


def run_step(step: str, name: str, path: str) -> None:
    """In the process of its own, over the database that runs."""
    import django

    django.setup()
    from collections_app.services.collections.collections import get_collection
    from collections_app.services.transfer.export import export_to_file
    from collections_app.services.transfer.import_stage import import_collection

    collection = get_collection(name)  # connected, and everything imported
    began = time.perf_counter()
    with peak_memory() as peak:
        if step == "export":
            export_to_file(collection, path)
        else:
            import_collection(path, name=f"{name}-back")
        took = time.perf_counter() - began
    print(took, peak.megabytes)


def fill(name: str, size: int) -> None:
    """Documents with their files, and chunks that carry their vectors."""
    from django.db import connection, transaction

    import ragd
    from collections_app.models import Document, Upload
    from collections_app.services.collections.collections import create_collection
    from collections_app.stores import open_store
    from ragd.types import Chunk

    collection = create_collection(name=name, language="simple")
    random = np.random.default_rng(7)
    vocabulary = [hashlib.md5(str(number).encode()).hexdigest()[:7] for number in range(20_000)]
    store = open_store(collection)
    for base in range(0, size // PER_DOCUMENT, BATCH // PER_DOCUMENT):
        chunks, documents, uploads = [], [], []
        for number in range(base, min(base + BATCH // PER_DOCUMENT, size // PER_DOCUMENT)):
            doc_id = f"document-{number:07}.txt"
            ranks = random.zipf(1.2, WORDS * PER_DOCUMENT) % len(vocabulary)
            pieces = [
                " ".join(vocabulary[rank] for rank in ranks[at : at + WORDS]) for at in range(0, len(ranks), WORDS)
            ]
            text, start = "\n".join(pieces), 0
            vectors = random.standard_normal((PER_DOCUMENT, DIMS), dtype=np.float32)
            for index, piece in enumerate(pieces):
                chunks.append(Chunk(doc_id, index, piece, start, start + len(piece), embedding=vectors[index]))
                start += len(piece) + 1
            content = text.encode()
            digested = hashlib.sha256(content).hexdigest()
            documents.append(
                Document(
                    collection=collection,
                    doc_id=doc_id,
                    text=text,
                    size_chars=len(text),
                    source_hash=digested,
                    token_count=len(ranks),
                    chunk_count=PER_DOCUMENT,
                )
            )
            uploads.append(
                Upload(
                    collection=collection,
                    doc_id=doc_id,
                    sha256=digested,
                    name=doc_id,
                    size_bytes=len(content),
                    content=content,
                )
            )
        with transaction.atomic():
            Document.objects.bulk_create(documents)
            Upload.objects.bulk_create(uploads)
            ragd.index(chunks, store)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {store.collection.partition}")


def digest(name: str) -> str:
    from django.db import connection

    from collections_app.stores import open_store
    from ragd.store.store import fetch_all

    ((found,),) = fetch_all(connection, DIGEST.format(chunks=open_store(_get(name)).collection.partition))
    return str(found)


def _get(name: str) -> Any:
    from collections_app.services.collections.collections import get_collection

    return get_collection(name)


if __name__ == "__main__":
    main()
