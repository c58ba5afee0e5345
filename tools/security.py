"""What `make security` looks at: bandit's findings against those that are explained, and known holes of the packages.

`tools/bandit_explained.tsv` names each place that bandit finds and why it is none: test, file, how many, reason. A new
finding fails, and so does an explanation of what is not found any more.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter

from tools.structure import APPS, REPOSITORY

EXPLAINED = REPOSITORY / "tools" / "bandit_explained.tsv"
LOCKS = sorted(path for path in REPOSITORY.glob("requirements*.txt") if path.name != "requirements-uv.txt")
AUDIT_S = 300
Place = tuple[str, str]  # bandit's test, the file


def find_places() -> Counter[Place]:
    """What bandit finds, with the configuration of pyproject.toml."""
    command = [sys.executable, "-m", "bandit", "-q", "-r", *APPS, "-c", "pyproject.toml", "-f", "json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    if report["errors"]:
        sys.exit(f"bandit could not read {report['errors'][0]}")
    return Counter((found["test_id"], found["filename"]) for found in report["results"])


def read_explained() -> Counter[Place]:
    """Raises ValueError for a row without a reason."""
    places: Counter[Place] = Counter()
    with EXPLAINED.open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if len(row["reason"] or "") < 10:
                raise ValueError(f"{row['test']} in {row['file']} has no reason")
            places[row["test"], row["file"]] += int(row["count"])
    return places


def compare(found: Counter[Place], explained: Counter[Place]) -> list[str]:
    """A line for each place that is not explained, and for each explanation of nothing."""
    new = [f"not explained: {test} in {file}, {count} times" for (test, file), count in (found - explained).items()]
    gone = [f"no longer found: {test} in {file}, {count} times" for (test, file), count in (explained - found).items()]
    return sorted(new) + sorted(gone)


def read_audit(report: str) -> tuple[list[str], int, int]:
    """(a line for each known hole, packages that were looked up, packages in all) of pip-audit's JSON."""
    packages = json.loads(report)["dependencies"]
    looked_up = [package for package in packages if "skip_reason" not in package]
    holes = [
        f"{package['name']} {package['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'none'}"
        for package in looked_up
        for hole in package["vulns"]
    ]
    return holes, len(looked_up), len(packages)


def audit_packages() -> list[str]:
    """The known holes of what the lock files name; prints how much could be looked up."""
    files = [option for path in LOCKS for option in ("-r", path.name)]
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        *files,
        "--disable-pip",
        "--no-deps",
        "-f",
        "json",
        "--progress-spinner=off",
    ]
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=AUDIT_S)
        holes, looked_up, total = read_audit(done.stdout)
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        print("pip-audit: the list of known holes could not be had here, so no package was looked up.")
        return []
    print(f"pip-audit: {looked_up} of {total} packages could be looked up, {len(holes)} known holes.")
    return holes


def main() -> None:
    found = find_places()
    lines = compare(found, read_explained())
    print(f"bandit: {sum(found.values())} places, {len(lines)} to look at.")
    lines += audit_packages()
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
