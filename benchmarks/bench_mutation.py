"""The mutation score of the pure core: how many small changes of the code make a test fail.

Run: python -m benchmarks.bench_mutation [--part fusion ...] [--processes 2] [--tenths 10]
(make bench BENCH=mutation)

mutmut, installed from requirements-mutation.txt into a virtual environment of its own, changes one expression of a
function at a time and runs the tests that come past the function. Everything happens in a temporary copy; no database
is asked. Decorated functions and constants of modules are not changed: mutmut cannot.

A mutant is killed when a test fails or does not end (mutation_profile.py). Those that no input can tell from the
original stand in mutation_equivalent.tsv with the reason: path, function, the changed lines before and after. The bench
fails when one of them is killed, or when it does not exist any more.
"""

from __future__ import annotations

import argparse
import ast
import csv
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import peer_python

HERE = Path(__file__).parent
ROOT = HERE.parent
REQUIREMENTS = HERE / "requirements-mutation.txt"
EQUIVALENT = HERE / "mutation_equivalent.tsv"
PLUGIN = "mutation_profile"
PACKAGES = ("ragd", "collections_app", "retrieval_app", "evaluation_app", "ragd_site")
SHARED_BY_TESTS = (
    "tests/__init__.py", "tests/builders.py", "tests/refusals.py", "tests/data/sentences.json",
    *(f"tests/evaluation/{name}.py" for name in ("__init__", "ragbench_rows", "made_runs", "judge_replies")),
)  # fmt: skip
TARGET = 0.9
# (seconds of all the tests + TIMEOUT_S) * TIMEOUT_FACTOR, by the clock; mutation_profile.py ends what loops before
TIMEOUT_S, TIMEOUT_FACTOR = 10.0, 20.0
SURVIVED, NO_TEST = 0, 33  # exit codes as mutmut keeps them
DEFINITION = re.compile(r"\s*def ")


@dataclass(frozen=True, slots=True)
class Part:
    """modules: path -> the functions that are changed, () for all. tests: the files that are run for them."""

    modules: Mapping[str, tuple[str, ...]]
    tests: tuple[str, ...]


def whole(*paths: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(paths, ())


KEYS = (
    "bearer_secret", "require_key", "_local_caller", "_bearer", "refuse_limited", "check_permission", "out_of_scope",
    "request_key", "check_collection_scope", "opens", "check_unlimited",
)  # fmt: skip


def tests(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


PARTS = {
    "chunking": Part(
        whole("ragd/text/blocks.py", "ragd/text/chunking.py", "ragd/text/splitter.py"), tests("library", "chunking")
    ),
    "sentences": Part(whole("ragd/text/sentences.py"), tests("library", "windows")),
    "windows": Part(whole("ragd/text/windows.py"), tests("library", "windows", "chunking")),
    "fusion": Part(whole("ragd/search/fusion.py"), tests("library", "fusion")),
    "compression": Part(whole("ragd/search/compression.py"), tests("library", "compression")),
    "bm25": Part(
        {
            "ragd/search/lexical_search.py": ("inverse_document_frequency", "_quoted"),
            "ragd/search/pruned_search.py": ("group_terms",),
            "ragd/store/chunk_writer.py": ("lexical_weights",),
        },
        tests("library", "lexical_weights"),
    ),
    "measures": Part(
        whole(*(f"evaluation_app/measures/{name}.py" for name in ("scores", "statistics"))),
        tests("evaluation", "measures", "verdicts", "comparing", "anchored", "annotation_json", "run_summaries"),
    ),
    "catalogue": Part(whole("evaluation_app/measures/catalogue.py"), tests("evaluation", "modes")),
    "citations": Part(
        whole("retrieval_app/answers/citations.py"),
        tests("retrieval", "citations", "live_citations", "support") + tests("library", "structure"),
    ),
    "live citations": Part(whole("retrieval_app/answers/live_citations.py"), tests("retrieval", "live_citations")),
    "key scopes": Part({"collections_app/access/auth.py": KEYS}, tests("collections", "scopes")),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A mutant without its line: function is its qualified name, before and after are the lines that differ."""

    path: str
    function: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """exit_code: of its tests, see SURVIVED and NO_TEST; None when it was not tried. line: of the first change."""

    change: Change
    line: int
    exit_code: int | None

    @property
    def lived(self) -> bool:
        return self.exit_code in (SURVIVED, NO_TEST)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given again")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tenths", type=int, default=10, help="of the mutants that are tried: by their last digit")
    options = parser.parse_args()
    parts = {name: PARTS[name] for name in options.part or PARTS}
    python = peer_python(REQUIREMENTS)
    equivalent = read_equivalent()
    results: dict[str, list[Mutant]] = {}
    titles = ("mutants", "killed", "equivalent", "survived", "killed %", "seconds")
    print(f"{'part':16}", *(f"{title:>11}" for title in titles), sep="")
    for name, part in parts.items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="ragd-mutation-") as folder:
            run_part(part, Path(folder), python, options.processes, options.tenths)
            results[name] = [mutant for mutant in read_mutants(part, Path(folder)) if mutant.exit_code is not None]
        print_row(name, results[name], equivalent, time.perf_counter() - began)
    return report([mutant for mutants in results.values() for mutant in mutants], parts, equivalent, options.tenths)


def print_row(name: str, mutants: Sequence[Mutant], equivalent: Mapping[Change, str], seconds: float) -> None:
    killed = sum(not mutant.lived for mutant in mutants)
    same = sum(mutant.lived and mutant.change in equivalent for mutant in mutants)
    share = f"{100 * killed / max(1, len(mutants) - same):.1f}"
    figures = (len(mutants), killed, same, len(mutants) - killed - same, share, round(seconds))
    print(f"{name:16}", *(f"{figure:>11}" for figure in figures), sep="", flush=True)


def report(mutants: Sequence[Mutant], parts: Mapping[str, Part], equivalent: Mapping[Change, str], tenths: int) -> int:
    """Names every survivor, then the score. 1 when the list of equivalent mutants is wrong."""
    lived = sorted((mutant for mutant in mutants if mutant.lived), key=lambda item: (item.change.path, item.line))
    same = [mutant for mutant in lived if mutant.change in equivalent]
    print(f"\nsurvived: {len(lived) - len(same)}")
    for mutant in lived:
        if mutant.change not in equivalent:
            print(describe(mutant), "(no test)" if mutant.exit_code == NO_TEST else "")
    print(f"\nequivalent, as {EQUIVALENT.name} says: {len(same)}")
    killed = len(mutants) - len(lived)
    drawn = "" if tenths == 10 else f" ({tenths} of 10 were tried)"
    score = killed / (len(mutants) - len(same))
    print(f"\nmutants {len(mutants)}{drawn}, killed {killed}: {score:.1%} of those not equivalent, target {TARGET:.0%}")
    wrong = [mutant.change for mutant in mutants if not mutant.lived and mutant.change in equivalent]
    if tenths == 10:
        paths = {path for part in parts.values() for path in part.modules}
        made = {mutant.change for mutant in mutants}
        wrong += [change for change in equivalent if change.path in paths and change not in made]
    for change in wrong:
        print(f"{EQUIVALENT.name} is wrong: killed or no mutant any more: {change}")
    return int(bool(wrong))


def describe(mutant: Mutant) -> str:
    change = mutant.change
    return f"{change.path}:{mutant.line} {change.function}: {change.before}  ->  {change.after or '(removed)'}"


def read_equivalent() -> dict[Change, str]:
    """Change -> why no input can tell it from the original."""
    with EQUIVALENT.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, csv.excel_tab, quoting=csv.QUOTE_NONE, quotechar=None)
        next(rows)
        return {Change(*row[:4]): row[4] for row in rows}


def run_part(part: Part, folder: Path, python: Path, processes: int, tenths: int) -> None:
    """Lets mutmut make and try the mutants in the folder. Ends the program when the tests fail without any."""
    copy_tree(part, folder)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder / "plugins"), sysconfig.get_paths()["purelib"]]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "RAGD_SECRET_KEY": "mutation",
        "RAGD_VAR": str(folder / "var"),
        "DJANGO_SETTINGS_MODULE": "ragd_site.settings",
    }
    command = [str(python), "-m", "mutmut", "run", "--max-children", str(processes), *patterns(part, tenths)]
    log = folder / "log"
    with log.open("wb") as file:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"mutmut ended with status {done.returncode}:\n{log.read_text('utf-8', 'replace')[-3000:]}")


def patterns(part: Part, tenths: int) -> list[str]:
    """What mutmut is told to try: names of mutants, numbered within each function; "*" stands for anything."""
    digits = "*" if tenths == 10 else f"*[{''.join(str(10 * place // tenths) for place in range(tenths))}]"
    modules = {path.removesuffix(".py").replace("/", "."): functions for path, functions in part.modules.items()}
    return [
        f"{module}.{f'x_{function}' if function else '*'}__mutmut_{digits}"
        for module, functions in modules.items()
        for function in functions or ("",)
    ]


def read_mutants(part: Part, folder: Path) -> Iterator[Mutant]:
    """Every mutant that mutmut made of the part, with its exit code."""
    for path in part.modules:
        made = folder / "mutants" / path
        lines = made.read_text("utf-8").splitlines()
        spans = json.loads(Path(f"{made}.spans").read_text("utf-8"))["spans"]
        exit_codes = json.loads(Path(f"{made}.meta").read_text("utf-8"))["exit_code_by_key"]
        bodies = {name: lines[first - 1 : last] for name, (first, last) in spans.items()}
        starts = dict(function_lines(ROOT / path))
        for key, exit_code in exit_codes.items():
            name = key.rpartition(".")[2]
            mangled = name.partition("__mutmut_")[0]
            function = mangled.removeprefix("xǁ").replace("ǁ", ".") if "ǁ" in mangled else mangled.removeprefix("x_")
            offset, before, after = first_difference(bodies[f"{mangled}__mutmut_orig"], bodies[name])
            yield Mutant(Change(path, function, before, after), starts[function] + offset, exit_code)


def first_difference(original: Sequence[str], changed: Sequence[str]) -> tuple[int, str, str]:
    """(lines from the `def` to the first that differs, the lines that differ before, and after), but for the name."""
    start = next(index for index, line in enumerate(original) if DEFINITION.match(line))
    blocks = difflib.SequenceMatcher(None, original[start + 1 :], changed[start + 1 :], autojunk=False).get_opcodes()
    parts = [block for block in blocks if block[0] != "equal"]
    if not parts:  # a default in the line of the `def`
        return 0, original[start].strip(), changed[start].strip()
    first, last = parts[0], parts[-1]
    before = original[start + 1 + first[1] : start + 1 + last[2]]
    after = changed[start + 1 + first[3] : start + 1 + last[4]]
    return first[1] + 1, " ".join(map(str.strip, before)), " ".join(map(str.strip, after))


def function_lines(path: Path) -> Iterator[tuple[str, int]]:
    """(qualified name, line of its `def`) of the functions and methods of a module."""
    for node in ast.parse(path.read_text("utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef):
                yield prefix + member.name, member.lineno


def copy_tree(part: Part, folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for path in (*SHARED_BY_TESTS, *part.tests):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    (folder / "plugins").mkdir()
    shutil.copy(HERE / f"{PLUGIN}.py", folder / "plugins")
    arguments = ["--import-mode=importlib", "-p", PLUGIN, "-p", "no:cacheprovider", "-m", "not django_db"]
    arguments += ["-k", "not time_is_linear"]  # each call of what is mutated takes a detour
    lines = [
        "[tool.mutmut]",
        f"source_paths = {json.dumps(PACKAGES)}",
        f"only_mutate = {json.dumps(list(part.modules))}",
        f"pytest_add_cli_args = {json.dumps(arguments)}",
        f"pytest_add_cli_args_test_selection = {json.dumps(part.tests)}",
        f"timeout_constant = {TIMEOUT_S}",
        f"timeout_multiplier = {TIMEOUT_FACTOR}",
        "use_git_change_detection = false",
        "track_dependencies = false",
        "[tool.pytest.ini_options]",
        'pythonpath = ["."]',
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
