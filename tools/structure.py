"""Measure the structure of the tree: `python -m tools.structure [-v] [--names]`. Migrations and tests are left out.

Prints lines of Python and functions per app, files per folder, import circles, imports of product code inside
functions, and the budgets with their goals. -v names each circle, import, folder and function over its budget. --names
prints how often each participle is the name of a variable or parameter.
"""

from __future__ import annotations

import ast
import os
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
APPS = ("ragd", "collections_app", "retrieval_app", "evaluation_app", "ragd_site")
PARAMETERS_MAX = 8  # a function with as many wants a record
# names that say how a value came to be, not what it is; and every name in -ed
PARTICIPLES = frozenset((
    "begun", "brought", "built", "chosen", "done", "drawn", "found", "given", "gone", "held", "kept", "known", "left",
    "made", "meant", "read", "seen", "sent", "set", "shown", "stored", "taken", "told", "written",
))  # fmt: skip
NOUNS_IN_ED = frozenset(("embed", "exceed", "feed", "indeed", "need", "seed", "speed"))


@dataclass(frozen=True, slots=True)
class Edge:
    """One import of product code. target: a module, or the package whose `__init__` has the name."""

    source: str
    target: str
    line: int
    in_function: bool
    for_types: bool


def product_files(root: Path = REPOSITORY) -> list[Path]:
    """Every module of the apps without migrations, by path."""
    return sorted(path for app in APPS for path in (root / app).rglob("*.py") if "migrations" not in path.parts)


def module_name(path: Path, root: Path = REPOSITORY) -> str:
    """Dotted; of a package's `__init__` the name of the package."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def read_edges(root: Path = REPOSITORY) -> list[Edge]:
    """Every import of product code by product code, in the order of files and lines."""
    files = {module_name(path, root): path for path in product_files(root)}
    edges = []
    for name, path in files.items():
        for node, in_function, for_types in _statements(parse(path)):
            edges.extend(
                Edge(name, target, node.lineno, in_function, for_types) for target in sorted(_targets(node, files))
            )
    return edges


def find_circles(edges: Sequence[Edge]) -> list[list[str]]:
    """Groups of modules that import each other, each sorted; the largest first (Tarjan's algorithm)."""
    following: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        following[edge.source].add(edge.target)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(following.get(name, ())):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                circles.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in sorted(following):
        if name not in index:
            visit(name)
    return sorted(circles, key=lambda group: (-len(group), group))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def function_lengths(path: Path) -> Iterator[int]:
    """Lines of each function from its `def` to its end; decorators are left out."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def modules_per_folder(root: Path = REPOSITORY) -> dict[str, int]:
    """Folder -> its modules without `__init__.py`."""
    counts: dict[str, int] = defaultdict(int)
    for path in product_files(root):
        counts[str(path.parent.relative_to(root))] += path.name != "__init__.py"
    return dict(counts)


def count_participles(root: Path = REPOSITORY) -> Counter[str]:
    """Name -> how often a variable or a parameter is bound to it; a leading underscore is left out."""
    counts: Counter[str] = Counter()
    for path in product_files(root):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.arg):
                name = node.arg.lstrip("_")
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id.lstrip("_")
            else:
                continue
            counts[name] += name in PARTICIPLES or (name.endswith("ed") and "_" not in name and name not in NOUNS_IN_ED)
    return +counts


def long_signatures(root: Path = REPOSITORY) -> list[str]:
    """`path:function` of every function with PARAMETERS_MAX or more parameters, in the order of the paths."""
    found = []
    for path in product_files(root):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if len([each for each in arguments if each.arg not in ("self", "cls")]) >= PARAMETERS_MAX:
                    found.append(f"{path.relative_to(root)}:{node.name}")
    return found


def count_budgets() -> list[tuple[str, int, int]]:
    """(what, how many there are, at most how many there should be). Sets Django up, without a database."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")
    os.environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    os.environ.setdefault("RAGD_SECRET_KEY", "structure")
    import django

    django.setup()
    from django.apps import apps
    from django.conf import settings
    from django.urls import URLPattern, get_resolver

    from ragd_site.api import api
    from ragd_site.environment import Environment

    def lines(pattern: str, root: str) -> tuple[int, int]:
        paths = [path for path in (REPOSITORY / root).rglob(pattern) if "__pycache__" not in path.parts]
        return sum(len(path.read_text("utf-8").splitlines()) for path in paths), len(paths)

    def routes(name: str) -> int:
        return sum(isinstance(each, URLPattern) for each in get_resolver(name).url_patterns)

    operations = sum(len(methods) for methods in api.get_openapi_schema()["paths"].values())
    own = [name for name in settings.MIDDLEWARE if name.partition(".")[0] in APPS]
    docs = [path.read_text("utf-8") for path in (REPOSITORY / "docs").rglob("*.md")]
    product = product_files()
    return [
        ("product lines", sum(len(path.read_text("utf-8").splitlines()) for path in product), 124_000),
        ("product files", len(product), 750),
        ("models", sum(model.__module__.partition(".")[0] in APPS for model in apps.get_models()), 62),
        ("page routes", sum(routes(f"{app}.urls") for app in APPS[1:4]), 180),
        ("API operations", operations, 125),
        ("settings", len(Environment.model_fields), 80),
        ("own middlewares", len(own), 8),
        ("functions with 8 or more parameters", len(long_signatures()), 10),
        ("migrations", sum(lines("0*.py", f"{app}/migrations")[1] for app in APPS[1:]), 9),
        ("lines of tests", lines("*.py", "tests")[0], 58_000),
        ("lines of benchmarks", lines("*.py", "benchmarks")[0], 6_000),
        ("pages of docs", len(docs), 45),
        ("words of docs", sum(len(text.split()) for text in docs), 60_000),
        ("participles as names", sum(count_participles().values()), 0),
    ]


def _targets(node: ast.AST, files: Mapping[str, Path]) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in files}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        return {name if name in files else node.module for name in names} & files.keys()
    return set()


def _statements(
    node: ast.AST, in_function: bool = False, for_types: bool = False
) -> Iterator[tuple[ast.stmt, bool, bool]]:
    """(statement, whether it is inside a function, whether it is for the type checker alone), in the order of lines.

    Expressions, most of a tree, hold no statements and are not walked.
    """
    in_function |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for_types |= _is_for_types(node)
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        inner = getattr(node, part, ())
        for child in inner if isinstance(inner, list) else ():  # a lambda's body is an expression
            if isinstance(child, ast.stmt):
                yield child, in_function, for_types
            yield from _statements(child, in_function, for_types)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def main() -> None:
    verbose = "-v" in sys.argv
    if "--names" in sys.argv:
        for name, count in sorted(count_participles().items(), key=lambda item: (-item[1], item[0])):
            print(f"{count:>5} {name}")
        return
    edges = read_edges()
    print(f"{'app':<18}{'files':>7}{'lines':>9}{'functions':>11}{'median':>8}{'p90':>6}{'folders':>9}{'largest':>9}")
    folders = modules_per_folder()
    total = 0
    for app in APPS:
        paths = [path for path in product_files() if path.relative_to(REPOSITORY).parts[0] == app]
        lines = sum(len(path.read_text("utf-8").splitlines()) for path in paths)
        lengths = sorted(length for path in paths for length in function_lengths(path))
        own = {name: count for name, count in folders.items() if name.split("/")[0] == app}
        p90 = statistics.quantiles(lengths, n=10)[-1] if len(lengths) > 1 else 0
        print(
            f"{app:<18}{len(paths):>7}{lines:>9}{len(lengths):>11}{statistics.median(lengths):>8.0f}{p90:>6.0f}"
            f"{len(own):>9}{max(own.values()):>9}"
        )
        total += lines
    print(f"{'all':<18}{len(product_files()):>7}{total:>9}")
    circles = find_circles(edges)
    inner = [edge for edge in edges if edge.in_function]
    print(f"import circles: {len(circles)} ({sum(map(len, circles))} modules)")
    print(f"imports of product code inside functions: {len(inner)}")
    print(f"\n{'budget':<38}{'now':>8}{'goal':>9}")
    for name, count, goal in count_budgets():
        print(f"{name:<38}{count:>8}{goal:>9}")
    if verbose:
        for signature in long_signatures():
            print("  parameters:", signature)
        for circle in circles:
            print("  circle:", " ".join(circle))
        for edge in inner:
            print(f"  inside: {edge.source}:{edge.line} -> {edge.target}")
        for folder, count in sorted(folders.items(), key=lambda item: (-item[1], item[0])):
            print(f"  {count:>3} {folder}")


if __name__ == "__main__":
    main()
