"""Vectors of model folders beside NumPy and beside sentence-transformers in an environment of its own.

    python -m tests.benchmarks.bench_folder_model
    BENCH_PEER_PYTHON=/tmp/peer/bin/python python -m tests.benchmarks.bench_folder_model

Without BENCH_PEER_PYTHON a virtual environment is made in a temporary folder (about 1 GB with a CPU build of torch,
several with the usual one; some minutes) and removed at the end. The peer reads the same folders with its ONNX backend;
it also exports the built-in model, all-MiniLM-L6-v2, to a folder, whose vectors are compared with those of the built-in
embedder.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ragd.models import minilm
from ragd.models.embedding import LocalEmbedder
from ragd.models.folder_embedder import FolderEmbedder
from ragd.models.sentence_modules import POOLINGS, read_tensors
from ragd.models.sparse_encoder import SparseEncoder
from tests.model_folders import WORDS, hidden, sparse_weights, token_ids, write_folder, write_sparse_folder

PACKAGES = ["torch==2.13.0", "sentence-transformers[onnx]==5.7.0"]
INSTALL_S = 900
TEXTS = ["the red sea", "oak", "a house of stone and iron", "storm light: the wave"]
LONG = [" ".join(["A sentence about rivers, stones and the sea."] * 8), "Where is the lamp?", *TEXTS]
PROMPTS = {"none": {}, "both": {"query": "query: ", "document": "passage: the "}}

PEER = """
import json, sys
from sentence_transformers import SentenceTransformer
job = json.load(open(sys.argv[1]))
if job["export"]:
    source, target = job["export"]
    SentenceTransformer(source, backend="onnx", local_files_only=True).save_pretrained(target)
made = {}
for path, asked in job["folders"].items():
    model = SentenceTransformer(path, backend="onnx", local_files_only=True)
    made[path] = [
        model.encode(texts, prompt=prompt, normalize_embeddings=True, batch_size=4).tolist() for prompt, texts in asked
    ]
json.dump(made, open(sys.argv[2], "w"))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        folders = [*build_folders(root)]
        widest = max(float(np.abs(ours - reference).max()) for _, _, ours, reference in folders)
        print(f"{len(folders)} folders beside NumPy: largest difference {widest:.1e}")
        widest = max(
            compare_sparse(root / f"sparse-{s}-{a}", s, a) for s in ("max", "sum") for a in ("relu", "log1p_relu")
        )
        print(f"4 sparse folders beside NumPy: largest difference {widest:.1e}")
        python = os.environ.get("BENCH_PEER_PYTHON") or install_peer(root / "peer")
        if python:
            compare_peer(python, root, folders)


def build_folders(root: Path) -> Iterator[tuple[Path, list[tuple[str, list[str]]], Any, Any]]:
    """Each folder with what it is asked, (prompt, texts); its vectors and NumPy's, of all texts by both prompts."""
    for mode, (name, prompts), has_dense, normalize in itertools.product(
        POOLINGS, PROMPTS.items(), (False, True), (False, True)
    ):
        dense = {"out": 5} if has_dense else None
        path = root / f"{mode}-{name}-{'dense' if dense else 'plain'}-{'unit' if normalize else 'raw'}"
        embedder = FolderEmbedder(
            write_folder(path, pooling=[mode], dense=dense, normalize=normalize, model={"prompts": prompts})
        )
        asked = [(prompts.get("query", ""), TEXTS), (prompts.get("document", ""), TEXTS)]
        ours = [*map(embedder.embed_query, TEXTS), *embedder.embed(TEXTS)]
        reference = [refer(path, mode, has_dense, prompt + text) for prompt, texts in asked for text in texts]
        yield path, asked, np.asarray(ours, dtype=np.float64), np.asarray(reference)


def refer(path: Path, mode: str, has_dense: bool, text: str) -> Any:
    tokens = hidden(token_ids(text))
    places = np.arange(1, len(tokens) + 1)[:, None]
    vector = {
        "cls": tokens[0], "max": tokens.max(axis=0), "mean": tokens.mean(axis=0), "lasttoken": tokens[-1],
        "mean_sqrt_len_tokens": tokens.sum(axis=0) / len(tokens) ** 0.5,
        "weightedmean": (tokens * places).sum(axis=0) / places.sum(),
    }[mode]  # fmt: skip
    if has_dense:
        tensors = read_tensors(path / "2_Dense" / "model.safetensors")
        vector = np.tanh(tensors["linear.weight"] @ vector + tensors["linear.bias"])
    return vector / np.linalg.norm(vector)


def compare_sparse(path: Path, strategy: str, activation: str) -> float:
    encoder = SparseEncoder(write_sparse_folder(path, strategy=strategy, activation=activation))
    special = 4
    return max(
        float(
            np.abs(
                [terms.get(word, 0.0) - weight for word, weight in zip(WORDS, expected, strict=True)][special:]
            ).max()
        )
        for terms, expected in zip(
            encoder.encode(TEXTS), (sparse_weights(text, strategy, activation) for text in TEXTS), strict=True
        )
    )


def install_peer(folder: Path) -> str:
    """The interpreter of a new environment with the peer; "" where it cannot be installed in time."""
    python = str(folder / "bin" / "python")
    began = time.perf_counter()
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for package in PACKAGES:
            subprocess.run([python, "-m", "pip", "install", "-q", package], check=True, timeout=INSTALL_S)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"sentence-transformers could not be installed here: {error}")
        return ""
    print(f"sentence-transformers installed in {time.perf_counter() - began:.0f} s")
    return python


def compare_peer(python: str, root: Path, folders: list[tuple[Path, list[tuple[str, list[str]]], Any, Any]]) -> None:
    source, target = minilm.find_model(), root / "all-MiniLM-L6-v2"
    job = {"export": [str(source), str(target)] if source else None}
    asked = {str(path): texts for path, texts, _, _ in folders} | ({str(target): [["", LONG]]} if source else {})
    (root / "job.json").write_text(json.dumps(job | {"folders": asked}))
    command = [python, "-W", "ignore", "-c", PEER, str(root / "job.json"), str(root / "made.json")]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"sentence-transformers failed:\n{ran.stderr[-2000:]}")
    made = json.loads((root / "made.json").read_text())
    widest = 0.0
    for path, _, ours, _ in folders:
        widest = max(widest, float(np.abs(ours - np.concatenate(made[str(path)])).max()))
    print(f"{len(folders)} folders beside sentence-transformers' ONNX backend: largest difference {widest:.1e}")
    if source is None:
        return
    if not (target / "tokenizer.json").is_file():
        shutil.copy(source / "tokenizer.json", target)
    embedder, local = FolderEmbedder(target, threads=1), LocalEmbedder(threads=1)
    vectors = np.asarray(embedder.embed(LONG), dtype=np.float64)
    beside_local = np.abs(vectors - np.asarray(local.embed(LONG))).max()
    beside_peer = np.abs(vectors - np.asarray(made[str(target)][0])).max()
    print(
        f"all-MiniLM-L6-v2 as a folder ({embedder.size_bytes / 1e6:.0f} MB): largest difference {beside_local:.1e} "
        f"beside the built-in embedder, {beside_peer:.1e} beside sentence-transformers"
    )
    for name, each in (("folder", embedder), ("built in", local)):
        began = time.process_time()
        each.embed(LONG)
        print(f"{name}: {(time.process_time() - began) / len(LONG) * 1e3:.1f} ms of processor time per text")


if __name__ == "__main__":
    main()
