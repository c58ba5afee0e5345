"""`python -m tools.nearest_tests`: the test files that lie nearest to what changed against `main`, for `make check`.

Near is a test file that changed itself, then one that shares a word of its name with a changed module, then one that
imports it, over as few modules as possible. As many files are printed as their last durations let in.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DURATIONS = REPOSITORY / "var" / "test" / "durations.json"  # seconds per file, written by tests/conftest.py
BUDGET_S = 80.0  # of two processes together
UNKNOWN_S = 3.0
PACKAGES = ("ragd", "collections_app", "retrieval_app", "evaluation_app", "ragd_site", "tests", "tools")
IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w.]+))", re.M)
WAITING = ("tests/faults/", "tests/browser/", "tests/test_packaging.py")  # only when they changed themselves
WORD = re.compile(r"[a-z]{3,}")
COMMON = {"test", "tests", "services", "pages", "views", "forms", "schemas", "admin", "models", "init", "api", "app"}


def changed_files(base: str = "main") -> set[str]:
    """Paths that differ from where this branch left `base`, the untracked ones among them."""
    common = _git("merge-base", base, "HEAD")[0]
    return {*_git("diff", "--name-only", common), *_git("ls-files", "--others", "--exclude-standard")}


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def read_sources() -> dict[str, str]:
    """Path -> text of every Python file but the migrations."""
    paths = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    return {
        path.relative_to(REPOSITORY).as_posix(): path.read_text() for path in paths if "migrations" not in path.parts
    }


def imported(path: str, text: str, known: Mapping[str, str]) -> Iterator[str]:
    """The files that a file imports. known: dotted name -> path."""
    package = path.removesuffix(".py").split("/")[:-1]
    for base, names, plain in IMPORT.findall(text):
        dots = len(base) - len(base.lstrip("."))
        start = package[: len(package) - dots + 1] if dots else []
        module = ".".join([*start, *filter(None, [base.lstrip(".") or plain])])
        for name in ("", *re.findall(r"\w+", names)):
            if found := known.get(f"{module}.{name}".rstrip(".")):
                yield found


def distances(changed: set[str], sources: Mapping[str, str]) -> dict[str, int]:
    """Test file -> steps of import from what changed; 0: it changed itself; 1 also where the names are alike.

    A changed file that is no Python is imported by the modules that name it.
    """
    known = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in sources}
    importers: dict[str, set[str]] = defaultdict(set)
    for path, text in sources.items():
        for other in imported(path, text, known):
            importers[other].add(path)
    others = {path.removeprefix("templates/").removeprefix("static/") for path in changed if not path.endswith(".py")}
    for path, text in sources.items():
        for name in others:
            if name in text:
                importers[name].add(path)
    edge = changed & sources.keys() | others
    steps, depth = dict.fromkeys(edge, 0), 0
    while edge:
        depth += 1
        edge = {importer for path in edge for importer in importers[path]} - steps.keys()
        steps |= dict.fromkeys(edge, depth)
    words = {word for path in changed for word in _words(path)}
    tests = [path for path in sources if re.search(r"(^|/)test_\w+\.py$", path)]
    near = {path: 1 for path in tests if words & _words(path)}
    return {path: min(steps.get(path, 99), near.get(path, 99)) for path in tests if path in steps or path in near}


def _words(path: str) -> set[str]:
    """The words of a file's own name, in the singular."""
    return {word.removesuffix("s") for word in WORD.findall(Path(path).stem)} - COMMON - {"test"}


def choose(steps: Mapping[str, int], seconds: Mapping[str, float], budget_s: float = BUDGET_S) -> list[str]:
    """The nearest first, the shorter first among equals, until the budget is spent; what changed itself in any case.

    seconds: of the last run of each file; UNKNOWN_S for one that never ran.
    """
    chosen, spent = [], 0.0
    for path in sorted(steps, key=lambda path: (steps[path], seconds.get(path, UNKNOWN_S), path)):
        cost = seconds.get(path, UNKNOWN_S)
        if steps[path] and (spent + cost > budget_s or path.startswith(WAITING)):
            continue
        chosen.append(path)
        spent += cost
    return chosen


def main() -> None:
    steps = distances(changed_files(), read_sources())
    seconds = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    chosen = choose(steps, seconds)
    print(f"{len(chosen)} of {len(steps)} test files that what changed reaches; `make test` runs all", file=sys.stderr)
    print(*chosen)


if __name__ == "__main__":
    main()
