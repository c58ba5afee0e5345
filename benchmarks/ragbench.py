"""The rows of RAGBench (`$RAGD_DATA/ragbench`), read once for the benchmarks of evaluation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet

ROOT = Path(__file__).resolve().parent.parent
SETS = ("covidqa", "delucionqa", "emanual", "expertqa", "hagrid", "hotpotqa", "msmarco")


def data_folder() -> Path:
    return Path(os.environ.get("RAGD_DATA", ROOT.parent / "shared" / "data")) / "ragbench"


def read_rows(name: str, split: str = "validation") -> Iterator[dict[str, Any]]:
    """The rows of one set in the file's order. Raises FileNotFoundError that says where they are expected."""
    path = data_folder() / name / f"{split}.parquet"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; set RAGD_DATA to the folder that holds ragbench/")
    yield from pyarrow.parquet.read_table(path).to_pylist()
