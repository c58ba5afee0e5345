"""Texts per second, memory and install size of the local embedder, beside plain sentence-transformers where it can run.

Run: python -m tests.benchmarks.bench_embedding
The peer is never installed by the project. Give the interpreter of an environment that has it:
    python -m venv /tmp/peer && /tmp/peer/bin/pip install torch==2.13.0 sentence-transformers==6.2.0
    BENCH_PEER_PYTHON=/tmp/peer/bin/python python -m tests.benchmarks.bench_embedding
Every contender runs in processes of its own, in turns; each figure is the best of the rounds. The texts are drawn with
a fixed seed from the project's documentation, by their number of word pieces. mixed: 32 like questions (6 to 16), 32
like sentences (17 to 45) and 32 like chunks of 160 words (180 to 250), in any order. even: 64 of 20 to 250. short: 96
of 6 to 45. 256: 16 of 254.
The processor time per text says more than the clock where other work shares the machine.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3
SEED = 7


def make_texts(folder: Path) -> dict[str, list[str]]:
    """Texts by name, cut from the documentation so that each has about the wanted number of word pieces."""
    import numpy as np
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    source = "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    offsets = tokenizer.encode(source, add_special_tokens=False).offsets
    rng = np.random.default_rng(SEED)

    def cut(pieces: int) -> str:
        first = int(rng.integers(0, len(offsets) - pieces))
        return source[offsets[first][0] : offsets[first + pieces - 1][1]]

    mixed = np.concatenate([rng.integers(low, high, 32) for low, high in ((6, 17), (17, 46), (180, 251))])
    lengths = {
        "mixed": rng.permutation(mixed),
        "even": rng.integers(20, 251, 64),
        "short": rng.integers(6, 46, 96),
        "256": np.full(16, 254),
    }
    return {name: [cut(int(pieces)) for pieces in of_set] for name, of_set in lengths.items()}


def open_local(folder: Path, threads: int, batch_size: int) -> Callable[[list[str]], Any]:
    from ragd.models.embedding import LocalEmbedder

    return LocalEmbedder(threads=threads, folder=folder).embed


def open_peer(folder: Path, threads: int, batch_size: int) -> Callable[[list[str]], Any]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(folder), device="cpu")
    return lambda texts: model.encode(texts, batch_size=batch_size, show_progress_bar=False, normalize_embeddings=True)


def contend(job: dict[str, Any]) -> dict[str, Any]:
    """What one process measures: seconds to the first vector, texts per second and query latency, peak memory."""
    import numpy as np

    began = time.perf_counter()
    embed = {"local": open_local, "peer": open_peer}[job["kind"]](
        Path(job["folder"]), job["threads"], job["batch_size"]
    )
    embed(["warm up"])
    figures: dict[str, Any] = {"first_s": time.perf_counter() - began}
    for name, texts in job["texts"].items():
        began, used = time.perf_counter(), time.process_time()
        vectors = np.asarray(embed(texts), dtype=np.float32)
        figures[f"{name}_per_s"] = len(texts) / (time.perf_counter() - began)
        if name == "mixed":
            figures["mixed_cpu_ms"] = (time.process_time() - used) / len(texts) * 1000
            np.save(job["vectors"], vectors)
    latencies = []
    for number in range(30):
        began = time.perf_counter()
        embed([f"which chunk is number {number}?"])
        latencies.append((time.perf_counter() - began) * 1000)
    return figures | {
        "query_ms": sorted(latencies)[len(latencies) // 2],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run_contender(python: str, job: dict[str, Any]) -> dict[str, Any] | None:
    """The figures of one child process, or None when that interpreter lacks the peer."""
    child = subprocess.run(
        [python, "-m", "tests.benchmarks.bench_embedding", "--contend"],
        input=json.dumps(job), capture_output=True, text=True, cwd=ROOT, timeout=600, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(job["threads"])},
    )  # fmt: skip
    if child.returncode:
        if job["kind"] == "peer" and "No module named" in child.stderr:
            return None
        sys.exit(f"{job['kind']} failed:\n{child.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return figures


def installed_mb(*names: str) -> float:
    """Megabytes of these distributions and of everything that they require, in this interpreter."""
    waiting, seen, size = list(names), set(), 0
    while waiting:
        name = re.split(r"[^\w.-]", waiting.pop())[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        size += sum(
            Path(str(file.locate())).stat().st_size
            for file in distribution.files or ()
            if Path(str(file.locate())).is_file()
        )
        waiting += [item for item in distribution.requires or () if "extra ==" not in item]
    return size / 1e6


def size_in(python: str, *names: str) -> float:
    call = f"from tests.benchmarks.bench_embedding import installed_mb; print(installed_mb(*{names!r}))"
    child = subprocess.run([python, "-c", call], capture_output=True, text=True, cwd=ROOT, check=True)
    return float(child.stdout)


def better(kept: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    if kept is None:
        return new
    return {name: (max if name.endswith("_per_s") else min)(kept[name], value) for name, value in new.items()}


def main() -> None:
    import numpy as np

    from ragd.models import minilm

    folder, cores = minilm.locate_model(), len(os.sched_getaffinity(0))
    peer = os.environ.get("BENCH_PEER_PYTHON", sys.executable)
    contenders = {
        "ragd, 1 thread": (sys.executable, "local", 1, 0),
        f"ragd, {cores} threads": (sys.executable, "local", cores, 0),
        f"sentence-transformers, batch 1, {cores} threads": (peer, "peer", cores, 1),
        f"sentence-transformers, batch 32, {cores} threads": (peer, "peer", cores, 32),
    }
    texts, best, vectors = make_texts(folder), dict[str, dict[str, Any]](), dict[str, Any]()
    with tempfile.TemporaryDirectory() as place:
        for _ in range(ROUNDS):
            for name, (python, kind, threads, batch_size) in contenders.items():
                target = f"{place}/{len(vectors)}.npy"
                job = {"kind": kind, "folder": str(folder), "threads": threads, "batch_size": batch_size}
                if figures := run_contender(python, job | {"texts": texts, "vectors": target}):
                    best[name] = better(best.get(name), figures)
                    vectors[name] = np.load(target)
    columns = [
        "mixed_per_s",
        "mixed_cpu_ms",
        "even_per_s",
        "short_per_s",
        "256_per_s",
        "query_ms",
        "first_s",
        "peak_mb",
    ]
    print(f"{'':46}" + "".join(f"{column:>13}" for column in columns))
    for name, figures in best.items():
        print(f"{name:46}" + "".join(f"{figures[column]:13.1f}" for column in columns))
    one, many, *peers = (vectors[name] for name in best)
    print(f"vectors with 1 and {cores} threads are {'identical' if one.tobytes() == many.tobytes() else 'DIFFERENT'}")
    if not peers:
        print("sentence-transformers is not installed here: set BENCH_PEER_PYTHON to compare")
        return
    ours, rival = (
        best[f"ragd, {cores} threads"],
        max((best[name] for name in list(best)[2:]), key=lambda row: row["mixed_per_s"]),
    )
    best_peer = dict[str, Any]()
    for row in list(best.values())[2:]:
        best_peer = better(best_peer or None, row)
    ours_mb, rival_mb = size_in(sys.executable, "onnxruntime", "tokenizers"), size_in(peer, "sentence-transformers")
    print(
        f"lowest cosine to sentence-transformers: {min(float((many * other).sum(axis=1).min()) for other in peers):.7f}"
    )
    for what, mine, other, unit in (
        ("throughput on mixed lengths", ours["mixed_per_s"], rival["mixed_per_s"], "texts/s"),
        ("throughput on even lengths", ours["even_per_s"], best_peer["even_per_s"], "texts/s"),
        ("throughput on short texts", ours["short_per_s"], best_peer["short_per_s"], "texts/s"),
        ("throughput on long texts", ours["256_per_s"], best_peer["256_per_s"], "texts/s"),
        ("processor time per text", ours["mixed_cpu_ms"], rival["mixed_cpu_ms"], "ms"),
        ("peak memory", ours["peak_mb"], rival["peak_mb"], "MB"),
        ("install without weights", ours_mb, rival_mb, "MB"),
    ):
        print(f"{what}: {mine / other:.2f} of sentence-transformers at its best ({mine:.0f} and {other:.0f} {unit})")


if __name__ == "__main__":
    if sys.argv[1:] == ["--contend"]:
        print(json.dumps(contend(json.load(sys.stdin))))
    else:
        main()
