"""All benchmarks, or the named ones, each in a process of its own; then every figure that has a target, in a table.

Run: python -m benchmarks [setup search ...] [-- OPTIONS]
(make bench BENCH="setup search"; of one that takes options: make bench BENCH=faults ARGS="--only worker --times 1")

A figure with a target is a printed line that says "target". A benchmark that fails is named, and the rest still run;
the exit status is 1 then. Targets that are missed are no failure: machines differ.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FIGURE = re.compile(r"(?=.*\d)(?=.*\btarget\b)")


def names() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def run(name: str, options: list[str]) -> tuple[list[str], int]:
    """The lines with a target, and the exit status; everything that is printed passes through."""
    figures = []
    print(f"== {name}", flush=True)
    with subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.bench_{name}", *options], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if FIGURE.match(line):
                figures.append(" ".join(line.split()))
    return figures, process.returncode


def main() -> None:
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    chosen, options = sys.argv[1:end] or names(), sys.argv[end + 1 :]
    if unknown := sorted(set(chosen) - set(names())):
        sys.exit(f"there is no benchmark {unknown[0]!r}; there are {', '.join(names())}")
    found = {name: run(name, options) for name in chosen}
    width = max(map(len, chosen))
    print("\n== figures with a target")
    for name, (figures, status) in found.items():
        for figure in figures if not status else [*figures, f"ended with status {status}"]:
            print(f"{name:{width}}  {figure}")
    sys.exit(any(status for _, status in found.values()))


if __name__ == "__main__":
    main()
