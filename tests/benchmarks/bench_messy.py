"""Text or a clear reason for every file of a folder of documents as people really have them.

`python -m tests.benchmarks.bench_messy [--out FOLDER] [--only TEXT] [--json]` reads `$RAGD_DATA/messy` (default
`../shared/data/messy` from the repository's root) and prints outcomes by format, the time and the memory it took.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from collections_app.parsing import ParseError, ParseLimits, iter_members, parse, sniff, stop_server
from collections_app.parsing.archives import ARCHIVE_TYPES
from collections_app.parsing.signatures import speak

ROOT = Path(__file__).resolve().parent.parent.parent
EXCLUDED = Path(__file__).with_name("messy_excluded.tsv")
LIMITS = ParseLimits(timeout_s=30)
CRASHES = ("crashed", "timeout", "memory")


@dataclass(frozen=True, slots=True)
class Outcome:
    """kind is "text", or the kind of the ParseError. files counts the members of an archive that gave text."""

    path: str
    media_type: str
    kind: str
    chars: int
    took_s: float
    reason: str = ""
    warnings: tuple[str, ...] = ()
    files: int = 0


def main() -> int:
    options = _options()
    folder = Path(os.environ.get("RAGD_DATA", ROOT.parent / "shared" / "data")) / "messy"
    if not folder.is_dir():
        print(f"Skipped: {folder} is not there. Set RAGD_DATA to the folder that holds messy/.")
        return 0
    names = [line.split("\t")[0] for line in (folder / "MANIFEST.tsv").read_text().splitlines()[1:]]
    chosen = [name for name in names if options.only in name]
    parse(b"The parser process is started before the clock is.", "start.txt")
    before_kib = _resident_kib()
    started = time.monotonic()
    outcomes = [_outcome(folder / name, name, options.out) for name in chosen]
    took_s = time.monotonic() - started
    after_kib = _resident_kib()
    stop_server()
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], ensure_ascii=False, indent=1))
        return 0
    _print_reasons(outcomes)
    _print_table(outcomes)
    _print_share(outcomes)
    slowest = max(outcomes, key=lambda outcome: outcome.took_s)
    print(f"{len(outcomes)} files in {took_s:.1f} s; the slowest took {slowest.took_s:.1f} s ({slowest.path}).")
    print(f"Resident memory of this process: {before_kib // 1024} MB before, {after_kib // 1024} MB after.")
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"Largest child process: {peak_mb} MB.")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only files whose path holds this text")
    parser.add_argument("--out", type=Path, default=None, help="write each file's text below this folder")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    return parser.parse_args()


def _outcome(path: Path, name: str, out: Path | None) -> Outcome:
    data = path.read_bytes()
    media_type = sniff(data, name)
    started = time.monotonic()
    try:
        if media_type in ARCHIVE_TYPES:
            return _archive_outcome(data, name, media_type, started)
        document = parse(data, name, limits=LIMITS)
    except ParseError as error:
        return Outcome(name, error.media_type or media_type, error.kind, 0, time.monotonic() - started, error.message)
    took_s = time.monotonic() - started
    for start, end, label in document.page_map:
        assert 0 <= start < end <= len(document.text) and label, (name, start, end, label)
    if out is not None:
        _write_text(
            out,
            name,
            f"title: {document.title}\nwarnings: {document.warnings}\nmeta: {document.metadata}\n\n{document.text}\n",
        )
    return Outcome(name, document.media_type, "text", len(document.text), took_s, warnings=document.warnings)


def _archive_outcome(data: bytes, name: str, media_type: str, started: float) -> Outcome:
    """An archive counts as text when at least one of its files gives text, as an upload of it would."""
    chars, files, reasons = 0, 0, []
    for member in iter_members(data, limits=LIMITS):
        try:
            if member.error is not None:
                raise member.error
            chars += len(parse(member.data, member.name, limits=LIMITS).text)
            files += 1
        except ParseError as error:
            reasons.append(f"{member.name}: {error.message}")
    took_s = time.monotonic() - started
    if not files:
        return Outcome(
            name, media_type, "unsupported", 0, took_s, f"No file in the archive gave text. {' '.join(reasons[:3])}"
        )
    return Outcome(name, media_type, "text", chars, took_s, warnings=tuple(reasons), files=files)


def _write_text(out: Path, name: str, text: str) -> None:
    target = out / f"{name.replace('/', '__')}.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _resident_kib() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def _print_reasons(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.kind != "text":
            print(f"{outcome.kind:12} {outcome.path}: {outcome.reason}")
    print()


def _print_table(outcomes: list[Outcome]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        counts[speak(outcome.media_type)][outcome.kind] += 1
    kinds = sorted({outcome.kind for outcome in outcomes}, key=lambda kind: (kind != "text", kind))
    width = max(map(len, counts))
    print(f"{'format':{width}}  {'files':>5}  " + "  ".join(f"{kind:>11}" for kind in kinds))
    for name, found in sorted(counts.items(), key=lambda item: (-item[1].total(), item[0])):
        print(f"{name:{width}}  {found.total():>5}  " + "  ".join(f"{found[kind] or '-':>11}" for kind in kinds))
    totals = Counter(outcome.kind for outcome in outcomes)
    print(f"{'all':{width}}  {totals.total():>5}  " + "  ".join(f"{totals[kind]:>11}" for kind in kinds))
    print()


def _print_share(outcomes: list[Outcome]) -> None:
    excluded = dict(_excluded())
    counted = [outcome for outcome in outcomes if outcome.path not in excluded]
    with_text = [outcome for outcome in counted if outcome.kind == "text"]
    crashed = [outcome for outcome in outcomes if outcome.kind in CRASHES]
    if counted:
        print(
            f"Text from {len(with_text)} of {len(counted)} files ({100 * len(with_text) / len(counted):.1f} %) that are"
            f" neither encrypted, broken, empty nor of a format that is not listed ({EXCLUDED.name} names the other"
            f" {len(outcomes) - len(counted)} with the reason)."
        )
    print(f"Crashes, timeouts and memory deaths: {len(crashed)}.")


def _excluded() -> Iterator[tuple[str, str]]:
    if EXCLUDED.is_file():
        for line in EXCLUDED.read_text(encoding="utf-8").splitlines()[1:]:
            path, _, reason = line.partition("\t")
            yield path, reason


if __name__ == "__main__":
    sys.exit(main())
