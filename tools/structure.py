"""Measure the structure of the tree: `python -m tools.structure [-v] [--names]`. Migrations and tests are left out.

Prints lines of Python and functions per app, files per folder, import circles, imports of product code inside
functions, and the budgets with their goals. -v names each circle, import, folder and function over its budget. --names
prints how often each participle is the name of a variable or parameter.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
APPS = ("ragd", "collections_app", "retrieval_app", "evaluation_app", "ragd_site")
PARAMETERS_MAX = 8  # a function with as many wants a record
# names that say how a value came to be, not what it is; and every name in -ed
PARTICIPLES = frozenset((
    "begun", "brought", "built", "chosen", "done", "drawn", "found", "given", "gone", "held", "kept", "known", "left",
    "made", "meant", "read", "seen", "sent", "set", "shown", "stored", "taken", "told", "written",
))  # fmt: skip
# routes that answer with a part of a page, a file or another address
NO_PAGE = re.compile(
    r"switcher|palette|folders|transfers|impact|feedback|measured|original|receipt|page-image|last-evaluation"
    r"|(filter|jobs|golden-of|retrieved|anchored|export|playground)-.+"
    r"|.+-(completions|choice|validity|documents|waterfall|traces|download|export|log|jsonl|next|stream)"
)
NOUNS_IN_ED = frozenset(("embed", "exceed", "feed", "indeed", "need", "seed", "speed"))


@dataclass(frozen=True, slots=True)
class Edge:
    """One import of product code. target: a module, or the package whose `__init__` has the name."""

    source: str
    target: str
    line: int
    in_function: bool
    for_types: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """What is counted of a module. imports: (statement, whether it is inside a function, whether it is for the type
    checker alone), in the order of lines; functions: (name, its parameters but self and cls, its lines without
    decorators); bound: every name of a variable or a parameter, as often as one is bound to it; defined: the names of
    its functions, classes, imports and variables."""

    imports: tuple[tuple[ast.Import | ast.ImportFrom, bool, bool], ...]
    functions: tuple[tuple[str, int, int], ...]
    bound: Counter[str]
    defined: frozenset[str]


@cache
def read(path: Path) -> Reading:
    """In one walk, without the garbage collector, which would look at every node again and again."""
    imports: list[tuple[ast.Import | ast.ImportFrom, bool, bool]] = []
    functions: list[tuple[int, str, int, int]] = []
    bound: Counter[str] = Counter()
    defined: set[str] = set()
    collecting = gc.isenabled()
    gc.disable()
    try:
        waiting: list[tuple[ast.AST, bool, bool]] = [(ast.parse(path.read_text("utf-8")), False, False)]
        while waiting:
            node, in_function, for_types = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(each.arg not in ("self", "cls") for each in arguments)
                functions.append((node.lineno, node.name, count, (node.end_lineno or node.lineno) - node.lineno + 1))
                defined.add(node.name)
                in_function = True
            elif isinstance(node, ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                imports.append((node, in_function, for_types))
                defined.update(alias.asname or alias.name for alias in node.names)
            elif isinstance(node, ast.arg):
                bound[node.arg] += 1
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound[node.id] += 1
                defined.add(node.id)
            elif isinstance(node, ast.If):
                for_types |= isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            waiting += [(child, in_function, for_types) for child in ast.iter_child_nodes(node)]
    finally:
        if collecting:
            gc.enable()
    imports.sort(key=lambda each: each[0].lineno)
    return Reading(tuple(imports), tuple(each[1:] for each in sorted(functions)), bound, frozenset(defined))


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
        for node, in_function, for_types in read(path).imports:
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
        for bound, times in read(path).bound.items():
            name = bound.lstrip("_")
            if name in PARTICIPLES or (name.endswith("ed") and "_" not in name and name not in NOUNS_IN_ED):
                counts[name] += times
    return counts


def long_signatures(root: Path = REPOSITORY) -> list[str]:
    """`path:function` of every function with PARAMETERS_MAX or more parameters, in the order of the paths."""
    return [
        f"{path.relative_to(root)}:{name}"
        for path in product_files(root)
        for name, parameters, _lines in read(path).functions
        if parameters >= PARAMETERS_MAX
    ]


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
    from ragd_site.environment import list_variables

    def lines(pattern: str, root: str) -> tuple[int, int]:
        paths = [path for path in (REPOSITORY / root).rglob(pattern) if "__pycache__" not in path.parts]
        return sum(len(path.read_text("utf-8").splitlines()) for path in paths), len(paths)

    names = (*(f"{app}.urls" for app in APPS[1:4]), "ragd_site.operations.urls")
    routes = [each for name in names for each in get_resolver(name).url_patterns if isinstance(each, URLPattern)]

    def is_page(route: Any) -> bool:
        methods = inspect.getclosurevars(route.callback).nonlocals.get("request_method_list", ["GET"])
        return "GET" in methods and not NO_PAGE.fullmatch(route.name)

    def operations(routers: Any) -> set[str]:  # without the document, which takes seconds; a router may be listed twice
        own = [router for _, router, *_ in routers]
        views = [view for router in own for view in router.path_operations.values()]
        return {each.operation_id for view in views for each in view.operations}.union(
            *(operations(router._routers) for router in own)
        )

    own = [name for name in {*settings.MIDDLEWARE, *settings.API_MIDDLEWARE} if name.partition(".")[0] in APPS]
    docs = [path.read_text("utf-8") for path in (REPOSITORY / "docs").rglob("*.md")]
    product = product_files()
    return [
        ("product lines", sum(len(path.read_text("utf-8").splitlines()) for path in product), 124_000),
        ("product files", len(product), 750),
        ("models", sum(model.__module__.partition(".")[0] in APPS for model in apps.get_models()), 62),
        ("page routes", len(routes), 180),
        ("pages with an address of their own", len({each.callback for each in routes if is_page(each)}), 60),
        ("API operations", len(operations(api._routers)), 125),
        ("settings", len(list_variables()), 80),
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
        lengths = sorted(length for path in paths for _name, _count, length in read(path).functions)
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
