"""ragd's readers beside markitdown: seconds and the share of files with text, the same files, one process each.

Run: python -m tests.benchmarks.bench_markitdown [--files 402]        (make bench BENCH=markitdown)

The files are those of `$RAGD_DATA/messy` (default `../shared/data/messy`). markitdown is installed from
requirements-markitdown.txt into a virtual environment of its own. Each reader goes through the files in one process
(markitdown_round.py), in turns of a quarter of them so that a busy machine is busy for both; all files are in the disk
cache before. A third line is ragd as a worker uses it: a child process with limits for each document. Text is
anything but blanks, so that the name of an empty sheet counts too; a file over 30 s has none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from collections_app.parsing import ParseError, ParseLimits, archive_type, iter_members, parse, stop_server
from tests.benchmarks.bench_messy import EXCLUDED, ROOT
from tests.benchmarks.peers import peer_python

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements-markitdown.txt"
ROUND = HERE / "markitdown_round.py"
LIMIT_S = 30
BLOCKS = 4
SHIPPED = "ragd, a child process each"


@dataclass(slots=True)
class Result:
    """Seconds and characters by path. peak_mb: of the reader's process, the largest of its blocks."""

    seconds: dict[str, float] = field(default_factory=dict)
    chars: dict[str, int] = field(default_factory=dict)
    peak_mb: int = 0
    timeouts: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=None, help="only the first N files")
    options = parser.parse_args()
    folder = Path(os.environ.get("RAGD_DATA", ROOT.parent / "shared" / "data")) / "messy"
    if not folder.is_dir():
        print(f"skipped: {folder} is not there; set RAGD_DATA to the folder that holds messy/")
        return 0
    paths = [line.split("\t")[0] for line in (folder / "MANIFEST.tsv").read_text("utf-8").splitlines()[1:]]
    paths = paths[: options.files]
    for path in paths:
        (folder / path).read_bytes()
    pythons = {"markitdown": peer_python(REQUIREMENTS), "ragd": Path(sys.executable)}
    results = {name: Result() for name in (*pythons, SHIPPED)}
    for block in range(BLOCKS):
        for name, python in pythons.items():
            run_block(name, python, folder, paths[block::BLOCKS], results[name])
        run_shipped(folder, paths[block::BLOCKS], results[SHIPPED])
    stop_server()
    report(paths, results)
    return 0


def run_block(name: str, python: Path, folder: Path, paths: list[str], result: Result) -> None:
    started = subprocess.run(
        [str(python), "-W", "ignore", str(ROUND), name, str(folder), str(LIMIT_S)],
        input="\n".join(paths),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    for line in started.stdout.splitlines():
        row = json.loads(line)
        if "peak_mb" in row:
            result.peak_mb = max(result.peak_mb, row["peak_mb"])
            continue
        result.seconds[row["path"]], result.chars[row["path"]] = row["seconds"], row["chars"]
        result.timeouts += row["error"] == "timeout"


def run_shipped(folder: Path, paths: list[str], result: Result) -> None:
    limits = ParseLimits(timeout_s=LIMIT_S)
    for path in paths:
        data = (folder / path).read_bytes()
        began = time.perf_counter()
        try:
            if archive_type(data):
                chars = sum(
                    read_or_nothing(member.data, member.name, limits) for member in iter_members(data, limits=limits)
                )
            else:
                chars = read_or_nothing(data, path, limits)
        except ParseError:
            chars = 0
        result.seconds[path], result.chars[path] = time.perf_counter() - began, chars


def read_or_nothing(data: bytes, name: str, limits: ParseLimits) -> int:
    try:
        return len(parse(data, name, limits=limits).text.strip())
    except ParseError:
        return 0


def report(paths: list[str], results: dict[str, Result]) -> None:
    excluded = {line.partition("\t")[0] for line in EXCLUDED.read_text("utf-8").splitlines()[1:]}
    listed = [path for path in paths if path not in excluded]
    print(f"{'reader':28}{'seconds':>9}{'files with text':>17}{'of those listed':>17}{'peak MB':>9}{'over 30 s':>11}")
    for name, result in results.items():
        texts = sum(result.chars[path] > 0 for path in paths)
        texts_listed = sum(result.chars[path] > 0 for path in listed)
        print(
            f"{name:28}{sum(result.seconds.values()):9.2f}{f'{texts} of {len(paths)}':>17}"
            f"{f'{100 * texts_listed / len(listed):.1f} %':>17}{result.peak_mb or '-':>9}{result.timeouts:>11}"
        )
    both = [path for path in paths if results["ragd"].chars[path] and results["markitdown"].chars[path]]
    for name in ("ragd", SHIPPED):
        all_files = ratio(results, name, paths)
        print(
            f"markitdown takes {all_files:.1f} times the seconds of {name}; {ratio(results, name, both):.1f} times"
            f" on the {len(both)} files of which both give text."
        )
    print_only("markitdown", "ragd", paths, results)
    print_only("ragd", "markitdown", paths, results)


def ratio(results: dict[str, Result], name: str, paths: list[str]) -> float:
    ours = sum(results[name].seconds[path] for path in paths)
    return sum(results["markitdown"].seconds[path] for path in paths) / ours


def print_only(first: str, second: str, paths: list[str], results: dict[str, Result]) -> None:
    only = [path for path in paths if results[first].chars[path] and not results[second].chars[path]]
    print(f"Text from {first} alone: {len(only)} files. {' '.join(only[:40])}")


if __name__ == "__main__":
    sys.exit(main())
