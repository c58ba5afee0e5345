"""A server under a steady load for twenty minutes: what it uses after five, and at the end.

Run: python -m tests.benchmarks.bench_soak [--minutes 20] [--clients 8]

Memory, open files and database connections of all its processes are read every ten seconds. Compared are the medians of
the minute after the fifth and of the last minute (of a shorter run: of its second and its last sixth).
"""

from __future__ import annotations

import argparse
import statistics

from tests.benchmarks.load import Usage, loaded_server, press, print_tally

TARGET_SHARE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    seconds = options.minutes * 60
    with loaded_server() as server:
        tally, usages = press(server, options.clients, seconds, sample_s=10, told=_print)
    print_tally(tally, seconds)
    settled_s = min(300.0, seconds / 6)
    width_s = min(60.0, seconds / 6)
    early = [each for each in usages if settled_s <= each.at_s < settled_s + width_s]
    late = [each for each in usages if each.at_s >= seconds - width_s]
    for name in ("memory_mb", "handles", "connections"):
        before, after = (statistics.median(getattr(each, name) for each in part) for part in (early, late))
        change = after / before - 1
        print(f"{name:12} {before:8.0f} to {after:8.0f}: {change:+.1%}, target within {TARGET_SHARE:.0%}")


def _print(usage: Usage) -> None:
    if not int(usage.at_s / 10) % 6:
        print(
            f"{usage.at_s / 60:5.1f} min {usage.memory_mb:7.0f} MB {usage.handles:5} files"
            f" {usage.connections:4} connections",
            flush=True,
        )


if __name__ == "__main__":
    main()
