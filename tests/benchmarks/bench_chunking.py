"""chunk(): megabytes per second beside other splitters, and peak memory. Run: python -m tests.benchmarks.bench_chunking

Reads cpp-docs-md.tar.gz under $RAGD_DATA (default ../shared/data from the repository's root); says so and stops when it
is not there. A megabyte is a million characters; one thread, CPU time. The table of peers is of one process, the Python
of their virtual environment: each contender reads all files one by one, in turns, and the medians of the passes are
compared. The others take the same size of a chunk in characters and a fifth of it as overlap. Some give bare texts,
some also where a text begins; only chunk() gives heading paths.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragd.normalization import normalize
from ragd.text.chunking import chunk
from ragd.types import ChunkPolicy
from tests.benchmarks.peers import peer_python

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = Path(os.environ.get("RAGD_DATA") or ROOT.parent / "shared" / "data") / "cpp-docs-md.tar.gz"
PASSES = 3
TURNS = 5
MEGA = 1_000_000
SERVICE = ChunkPolicy()
POLICIES = {
    "structure 600/120/4000": SERVICE,
    "structure, fitted to 256": SERVICE.fitted(256),
    "words 600/120/4000": ChunkPolicy(kind="words"),
    "words, fitted to 256": ChunkPolicy(kind="words").fitted(256),
}


def read_texts(archive: Path) -> list[str]:
    """By name. Read in the archive's order: going back in a compressed file means starting again."""
    texts = {}
    with tarfile.open(archive) as files:
        for member in files:
            if member.name.endswith(".md") and (content := files.extractfile(member)):
                texts[member.name] = content.read().decode()
    return [texts[name] for name in sorted(texts)]


def cpu_seconds(texts: list[str], policy: ChunkPolicy) -> tuple[float, int]:
    """(the least CPU time of one pass over all texts, their chunks)."""
    best, count = float("inf"), 0
    for _ in range(PASSES):
        began = time.process_time()
        count = sum(len(chunk(text, policy)) for text in texts)
        best = min(best, time.process_time() - began)
    return best, count


def contenders(policy: ChunkPolicy) -> dict[str, Callable[[str], Sequence[Any]]]:
    """By name; the peers are there in their own environment only."""
    from langchain_text_splitters import Language, RecursiveCharacterTextSplitter
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    size, overlap = policy.max_chars, policy.max_chars // 5
    plain = RecursiveCharacterTextSplitter(chunk_size=size, chunk_overlap=overlap)
    placed = RecursiveCharacterTextSplitter(chunk_size=size, chunk_overlap=overlap, add_start_index=True)
    markdown = RecursiveCharacterTextSplitter.from_language(
        Language.MARKDOWN, chunk_size=size, chunk_overlap=overlap, add_start_index=True
    )
    semantic, semantic_markdown = TextSplitter(size, overlap), MarkdownSplitter(size, overlap)
    words = replace(policy, kind="words")
    return {
        "LangChain recursive, texts": plain.split_text,
        "LangChain recursive, with starts": lambda text: placed.create_documents([text]),
        "LangChain Markdown, with starts": lambda text: markdown.create_documents([text]),
        "semantic-text-splitter, texts": semantic.chunks,
        "semantic-text-splitter, with starts": semantic.chunk_indices,
        "the same for Markdown, with starts": semantic_markdown.chunk_indices,
        "ragd words": lambda text: chunk(text, words),
        "ragd structure": lambda text: chunk(text, policy),
    }


def compare_with_peers() -> None:
    texts = read_texts(ARCHIVE)
    size = sum(map(len, texts))
    for policy in (SERVICE, SERVICE.fitted(256)):
        title = f"{policy.target_tokens}/{policy.overlap_tokens}/{policy.max_chars}, {TURNS} turns"
        print(f"{title:38}{'MB/s':>8}{'x the first':>12}{'chars each':>12}")
        seconds: dict[str, list[float]] = {}
        counts = {}
        for _ in range(TURNS):
            for name, split in contenders(policy).items():
                began = time.process_time()
                counts[name] = sum(len(split(text)) for text in texts)
                seconds.setdefault(name, []).append(time.process_time() - began)
        first = statistics.median(next(iter(seconds.values())))
        for name, of_turns in seconds.items():
            median = statistics.median(of_turns)
            print(f"{name:38}{size / median / MEGA:8.1f}{first / median:12.2f}{size / counts[name]:12.0f}")
        print(flush=True)


def run_peers() -> None:
    """In their environment, with this one's packages behind its own: the library needs some of them."""
    call = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); " + (
        "from tests.benchmarks.bench_chunking import compare_with_peers; compare_with_peers()"
    )
    subprocess.run([str(peer_python()), "-c", call], cwd=ROOT, check=True)


def hostile_texts() -> Iterator[tuple[str, str]]:
    yield "one paragraph, 36 MB", "A plain sentence of some words. " * (36 * MEGA // 32)
    yield "one million lines", "a line of a log without an end mark\n" * MEGA
    yield "CJK without spaces, 12 M characters", "汉字文本没有空格，" * (12 * MEGA // 9)
    yield "one word of 36 MB", "x" * (36 * MEGA)
    yield "300,000 headings", "# Heading\n" * 300_000
    yield "300,000 unclosed fences in a list", "- ```\n" * 300_000


def peak_extra_bytes(text: str, policy: ChunkPolicy) -> tuple[int, int]:
    """(peak of what chunk() allocates beyond the chunks it returns, what the returned chunks take)."""
    tracemalloc.start()
    chunks = chunk(text, policy)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del chunks
    return peak - kept, kept


def main() -> int:
    if not ARCHIVE.exists():
        print(f"skipped: {ARCHIVE} is not there; set RAGD_DATA to the folder that holds it")
        return 0
    run_peers()
    texts = read_texts(ARCHIVE)
    size = sum(map(len, texts))
    print(f"{len(texts):,} files, {size / MEGA:.1f} M characters\n")
    print(f"{'policy':38}{'MB/s':>8}{'chunks':>10}{'chars each':>12}")
    for name, policy in POLICIES.items():
        seconds, count = cpu_seconds(texts, policy)
        print(f"{name:38}{size / seconds / MEGA:8.1f}{count:10,}{size / count:12.0f}")

    print(f"\n{'normalize() alone':38}{size / _normalize_seconds(texts) / MEGA:8.1f}")

    print(f"\n{'structure 600/120/4000, one text':38}{'MB/s':>8}{'chunks':>10}")
    for name, text in hostile_texts():
        began = time.process_time()
        count = len(chunk(text, SERVICE))
        print(f"{name:38}{len(text) / (time.process_time() - began) / MEGA:8.1f}{count:10,}")

    whole = "\n\n".join(texts)
    print(f"\n{'memory, the files as one text':38}{'M chars':>8}{'chunks, MB':>12}{'peak beyond, MB':>17}")
    for part in (1, 2, 4):
        text = whole[: len(whole) * part // 4]
        extra, kept = peak_extra_bytes(text, SERVICE)
        print(f"{f'{part} x':38}{len(text) / MEGA:8.1f}{kept / MEGA:12.1f}{extra / MEGA:17.2f}")
    return 0


def _normalize_seconds(texts: list[str]) -> float:
    best = float("inf")
    for _ in range(PASSES):
        began = time.process_time()
        for text in texts:
            normalize(text)
        best = min(best, time.process_time() - began)
    return best


if __name__ == "__main__":
    sys.exit(main())
