"""Text, a part of it or a clear reason for every file of a folder of documents as people really have them.

`python -m benchmarks.bench_messy [--out FOLDER] [--only TEXT]` reads `$RAGD_DATA/messy` (default
`../shared/data/messy` from the repository's root), each file as a worker reads it: `parse` in the parser's process,
archives file by file.

It prints the outcome of each file: text, partial (text, with a warning of what the document holds and the text does
not) or refused with the reason; then totals by format, the share with text among the files that the committed list
does not leave out, crashes and hangs, and the memory of the worker's process and of the parser's server before and
after, each by itself.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragd.readers import ParseError, ParseLimits, archive_type, iter_members, parse
from ragd.readers.process import process
from ragd.readers.signatures import speak

ROOT = Path(__file__).resolve().parent.parent
EXCLUDED = Path(__file__).with_name("messy_excluded.tsv")
TIMEOUT_S = 30
CRASHES = ("crashed", "timeout", "memory")
MEMORY_TARGET_MB = 50
SHARE_TARGET = 90
REASON_CHARS = 110
# What makes a file count out by the manifest's own flags: the committed list has each of them, or it gives text.
FLAGS_OUT = ("ole-wrapped", "pdf-encrypted", "bad-zip", "empty")


@dataclass(frozen=True, slots=True)
class Outcome:
    """outcome: "text", "partial" or "refused"; kind: the kind of the ParseError of a refusal, else "".

    files counts the members of an archive that gave text. reason: why refused, or what is missing from a part.
    """

    path: str
    media_type: str
    outcome: str
    kind: str
    chars: int
    took_s: float
    reason: str = ""
    files: int = 0

    @property
    def has_text(self) -> bool:
        return self.outcome != "refused"


def main() -> int:
    options = _options()
    folder = Path(os.environ.get("RAGD_DATA", ROOT.parent / "shared" / "data")) / "messy"
    if not folder.is_dir():
        print(f"Skipped: {folder} is not there. Set RAGD_DATA to the folder that holds messy/.")
        return 0
    manifest = dict(_manifest(folder))
    chosen = [name for name in manifest if options.only in name]
    limits = ParseLimits(timeout_s=TIMEOUT_S)
    parse(b"The parser process is started before the clock is.", "start.txt")
    before = _resident_mb(os.getpid()), _resident_mb(process.server_pid())
    started = time.monotonic()
    outcomes = [_outcome(folder / name, name, limits, options.out) for name in chosen]
    took_s = time.monotonic() - started
    after = _resident_mb(os.getpid()), _resident_mb(process.server_pid())
    process.stop_server()
    _print_files(outcomes)
    _print_table(outcomes)
    _print_share(outcomes, manifest)
    slowest = max(outcomes, key=lambda outcome: outcome.took_s)
    print(f"{len(outcomes)} files in {took_s:.1f} s; the slowest took {slowest.took_s:.1f} s ({slowest.path}).")
    for name, mb, later_mb in zip(("worker's process", "parser's server"), before, after, strict=True):
        print(
            f"Resident memory of the {name}: {mb:.1f} MB before, {later_mb:.1f} MB after {len(outcomes)} files,"
            f" {later_mb - mb:+.1f} MB (target: within {MEMORY_TARGET_MB} MB)."
        )
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"Largest child process, which ends with its document: {peak_mb} MB.")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only files whose path holds this text")
    parser.add_argument("--out", type=Path, default=None, help="write each file's text below this folder")
    return parser.parse_args()


def _outcome(path: Path, name: str, limits: ParseLimits, out: Path | None) -> Outcome:
    data = path.read_bytes()
    started = time.monotonic()
    kind = archive_type(data)
    try:
        if kind:
            return _archive_outcome(data, name, kind, limits, started)
        document = parse(data, name, limits=limits)
    except ParseError as error:
        took_s = time.monotonic() - started
        return Outcome(name, error.media_type or kind, "refused", error.kind, 0, took_s, error.message)
    took_s = time.monotonic() - started
    for start, end, label in document.page_map:
        assert 0 <= start < end <= len(document.text) and label, (name, start, end, label)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        about = f"title: {document.title}\nwarnings: {document.warnings}\nmeta: {document.metadata}\n\n"
        (out / f"{name.replace('/', '__')}.txt").write_text(f"{about}{document.text}\n", encoding="utf-8")
    state = "partial" if document.is_partial else "text"
    reason = " ".join(document.warnings)
    return Outcome(name, document.media_type, state, "", len(document.text), took_s, reason)


def _archive_outcome(data: bytes, name: str, media_type: str, limits: ParseLimits, started: float) -> Outcome:
    """An archive has text when at least one of its files does, as an upload of it would; partial when not all do."""
    texts, reasons = [], []
    for member in iter_members(data, limits=limits):
        try:
            if member.error is not None:
                raise member.error
            texts.append(parse(member.data, member.name, limits=limits).text)
        except ParseError as error:
            reasons.append(f"{member.name}: {error.message}")
    took_s = time.monotonic() - started
    if not texts:
        reason = f"No file in the archive gave text. {' '.join(reasons[:3])}"
        return Outcome(name, media_type, "refused", "empty", 0, took_s, reason)
    state = "partial" if reasons else "text"
    chars = sum(map(len, texts))
    return Outcome(name, media_type, state, "", chars, took_s, " ".join(reasons), len(texts))


def _resident_mb(pid: int | None) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def _print_files(outcomes: list[Outcome]) -> None:
    width = max(len(outcome.path) for outcome in outcomes)
    print(f"{'file':{width}}  outcome        chars  reason")
    for outcome in outcomes:
        reason = f"{outcome.kind}: {outcome.reason}" if outcome.kind else outcome.reason
        shown = f"{reason[:REASON_CHARS]}…" if len(reason) > REASON_CHARS else reason
        print(f"{outcome.path:{width}}  {outcome.outcome:8} {outcome.chars:>11,}  {shown}".rstrip())
    print()


def _print_table(outcomes: list[Outcome]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        counts[speak(outcome.media_type)][_column(outcome)] += 1
    kinds = sorted({_column(outcome) for outcome in outcomes}, key=lambda kind: (kind not in ("text", "partial"), kind))
    width = max(map(len, counts))
    print(f"{'format':{width}}  {'files':>5}  " + "  ".join(f"{kind:>11}" for kind in kinds))
    for name, found in sorted(counts.items(), key=lambda item: (-item[1].total(), item[0])):
        print(f"{name:{width}}  {found.total():>5}  " + "  ".join(f"{found[kind] or '-':>11}" for kind in kinds))
    totals = Counter(map(_column, outcomes))
    print(f"{'all':{width}}  {totals.total():>5}  " + "  ".join(f"{totals[kind]:>11}" for kind in kinds))
    states = Counter(outcome.outcome for outcome in outcomes)
    print(f"\nOutcomes: {states['text']} text, {states['partial']} partial, {states['refused']} refused with a reason.")


def _column(outcome: Outcome) -> str:
    return outcome.kind or outcome.outcome


def _print_share(outcomes: list[Outcome], manifest: dict[str, str]) -> None:
    excluded = dict(_excluded())
    counted = [outcome for outcome in outcomes if outcome.path not in excluded]
    with_text = [outcome for outcome in counted if outcome.has_text]
    if counted:
        print(
            f"Text from {len(with_text)} of {len(counted)} files, {100 * len(with_text) / len(counted):.1f} %, of those"
            f" that are neither encrypted, broken, empty nor of a format that is not listed (target: {SHARE_TARGET} %)."
        )
        print(f"Left out: {len(outcomes) - len(counted)} files, named in {EXCLUDED.name} with the reason of each.")
    flagged = [outcome for outcome in counted if manifest[outcome.path].startswith(FLAGS_OUT)]
    unread = [outcome.path for outcome in flagged if not outcome.has_text]
    print(f"Flagged in the manifest as locked, broken or empty, and read nevertheless: {len(flagged) - len(unread)}.")
    if unread:
        print(f"Flagged, not read and not in the list: {', '.join(unread)}.")
    crashed = Counter(outcome.kind for outcome in outcomes)
    print(f"Crashes: {crashed['crashed'] + crashed['memory']} (target: 0).")
    print(f"Hangs, more than {TIMEOUT_S} s for a file: {crashed['timeout']} (target: 0).")


def _manifest(folder: Path) -> Iterator[tuple[str, str]]:
    """Path and flags of each file."""
    for line in (folder / "MANIFEST.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        fields = line.split("\t")
        yield fields[0], fields[3] if len(fields) > 3 else ""


def _excluded() -> Iterator[tuple[str, str]]:
    if EXCLUDED.is_file():
        for line in EXCLUDED.read_text(encoding="utf-8").splitlines()[1:]:
            path, _, reason = line.partition("\t")
            yield path, reason


if __name__ == "__main__":
    sys.exit(main())
