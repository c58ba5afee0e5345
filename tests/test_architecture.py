"""The order of the apps and of the folders inside each, read from the imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import ragd
from tools.structure import Edge, count_budgets, find_circles, modules_per_folder, read, read_edges

REPOSITORY = Path(__file__).resolve().parent.parent
FLOORS = ["ragd", "collections_app", "retrieval_app", "evaluation_app", "ragd_site"]
FOREIGN_TO_LIBRARY = {"django", "celery", "kombu", "ninja", "pydantic_settings", "csp", "axes"}
# one hands PATH and the like on to a child process; prometheus-client takes its folder from the environment
PASSING_ON_THE_ENVIRONMENT = {"evaluation_app/telemetry/metrics/instruments.py", "ragd/readers/process/process.py"}
# The folders and modules of the library, low to high: what stands earlier never imports what stands later.
ORDER = (
    "version errors conditions normalization types identity conventions telemetry security text models store search"
    " insight readers conformance"
)
# What people and programs ask: a module of any other name, a service, imports none of these.
CHANNEL = re.compile(r"(^|_)(api|views?|pages?|urls|routes|admin|palette|presenters|mcp_tools)$")
CHANNEL_FOLDERS = {"admin", "commands", "mcp", "run_pages", "templatetags"}
ASKING_A_CHANNEL = {
    "ragd_site.access.middleware",  # the limits of the routes, read from the operations
    "ragd_site.backup.operations",  # options of the shell
    "collections_app.chunks.api",  # the shape of an operation
}
MODULES_MAX = 18  # in one folder
# What `python -m tools.structure` counts may fall and not rise: whoever lowers a figure lowers it here too.
CEILINGS = {
    "product lines": 142_658, "product files": 592, "models": 62, "page routes": 105,
    "pages with an address of their own": 55, "API operations": 124,
    "settings": 80, "own middlewares": 6, "functions with 8 or more parameters": 8, "migrations": 8,
    "lines of tests": 82_717, "lines of benchmarks": 5_996, "pages of docs": 45, "words of docs": 55_985,
    "participles as names": 3_758,
}  # fmt: skip
FORBIDDEN_NAMES = {"utils", "helpers", "common", "selectors", "signals", "repositories"}


def list_modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (REPOSITORY / package).rglob("*.py"))


def read_imports(path: Path) -> Iterator[str]:
    """Absolute names of what a module imports, wherever in the module it does so."""
    package = path.relative_to(REPOSITORY).with_suffix("").parts
    for node, *_ in read(path).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            base = list(package[: -node.level]) if node.level else []
            yield ".".join([*base, node.module] if node.module else base)


def show(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("floor", FLOORS)
def test_no_floor_imports_one_above_it(floor: str) -> None:
    above = set(FLOORS[FLOORS.index(floor) + 1 :])
    wrong = [
        (show(path), name) for path in list_modules(floor) for name in read_imports(path) if name.split(".")[0] in above
    ]
    assert wrong == []


def test_library_knows_no_framework() -> None:
    wrong = [
        (show(path), name)
        for path in list_modules("ragd")
        for name in read_imports(path)
        if name.split(".")[0] in FOREIGN_TO_LIBRARY
    ]
    assert wrong == []


def test_only_the_site_reads_the_environment() -> None:
    reading = re.compile(r"\bos\.(environ|getenv)\b")
    found = {show(path) for path in list_modules(*FLOORS[:-1]) if reading.search(path.read_text())}
    assert found - PASSING_ON_THE_ENVIRONMENT == set()


def test_advisory_locks_are_taken_in_one_module() -> None:
    """There the numbers stand side by side, unique by the enumeration: two modules once shared one."""
    calls = re.compile(r"\bpg_(try_)?advisory_\w+")
    assert {show(path) for path in list_modules(*FLOORS) if calls.search(path.read_text())} == {
        "collections_app/advisory_locks.py"
    }


def test_chunks_are_read_by_the_name_of_their_table() -> None:
    """On a cluster those on nodes are not among the partitions of `chunks`, which is empty there."""
    sql = re.compile(r"\b(FROM|JOIN|UPDATE|INTO|USING) chunks\b")
    rows = re.compile(r"\bChunk\.objects\.(?!of\b|of_document\b|light\(\)\.of)")
    texts = {show(path): path.read_text() for path in list_modules(*FLOORS) if "migrations" not in path.parts}
    assert [name for name, text in texts.items() if sql.search(text) or rows.search(text)] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [show(path) for path in list_modules(*FLOORS) if {path.stem, path.parent.name} & FORBIDDEN_NAMES] == []


def test_every_module_postpones_annotations() -> None:
    wrong = [
        show(path)
        for path in list_modules(*FLOORS, "tests")
        if "migrations" not in path.parts
        and path.name != "__init__.py"
        and "from __future__ import annotations" not in path.read_text()
    ]
    assert wrong == []


def test_what_a_benchmark_imports_is_there() -> None:
    """No type checker and no test reads benchmarks."""
    missing = []
    for path in list_modules("benchmarks"):
        for node, *_ in read(path).imports:
            if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] not in (*FLOORS, "tests"):
                continue
            module = REPOSITORY / str(node.module).replace(".", "/")
            source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            known = read(source).defined | {each.stem for each in module.glob("*")}
            missing += [f"{show(path)}: {alias.name}" for alias in node.names if alias.name not in known]
    assert missing == []


def test_nothing_is_left_to_do() -> None:
    # spelt apart, so that this file does not find itself
    marks = re.compile(r"\b(" + "TO" + "DO|FIX" + r"ME)\b")
    assert [show(path) for path in list_modules(*FLOORS, "tests") if marks.search(path.read_text())] == []


@pytest.fixture(scope="module")
def edges() -> list[Edge]:
    return read_edges()


def test_no_folder_of_the_library_imports_one_above_it(edges: list[Edge]) -> None:
    position = {f"ragd.{name}": number for number, name in enumerate(ORDER.split())}

    def entry(module: str) -> str:
        return ".".join(module.split(".")[:2])

    modules = {name for edge in edges for name in (edge.source, edge.target) if name.startswith("ragd.")}
    assert {entry(module) for module in modules} - position.keys() == set(), "a folder without a place in ORDER"
    wrong = [
        (edge.source, edge.target)
        for edge in edges
        if position.get(entry(edge.source), len(position)) < position.get(entry(edge.target), -1)
    ]
    assert wrong == []


def is_channel(module: str) -> bool:
    *folders, name = module.split(".")
    return bool(CHANNEL.search(name)) or name == "commands" or not CHANNEL_FOLDERS.isdisjoint(folders)


def test_no_service_imports_a_channel(edges: list[Edge]) -> None:
    wrong = {
        (edge.source, edge.target)
        for edge in edges
        if not is_channel(edge.source) and is_channel(edge.target) and edge.source not in ASKING_A_CHANNEL
    }
    assert wrong == set()


def test_no_modules_import_each_other(edges: list[Edge]) -> None:
    assert find_circles(edges) == []


def test_no_product_code_is_imported_inside_a_function(edges: list[Edge]) -> None:
    assert [(edge.source, edge.target) for edge in edges if edge.in_function] == []


def test_no_folder_holds_too_many_modules() -> None:
    assert {name: count for name, count in modules_per_folder().items() if count > MODULES_MAX} == {}


def test_the_budgets_of_the_tree_hold() -> None:
    counts = {name: count for name, count, _goal in count_budgets()}
    assert counts.keys() == CEILINGS.keys()
    assert {name: count for name, count in counts.items() if count > CEILINGS[name]} == {}


def test_every_schema_is_built_when_it_is_first_used() -> None:
    """`collections_app.http` switches it on for those that are defined after its import."""
    from ninja import Schema

    import ragd_site.urls  # noqa: F401

    def below(kind: type[Schema]) -> Iterator[type[Schema]]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    own = [each for each in below(Schema) if each.__module__.partition(".")[0] in FLOORS]
    assert len(own) > 200
    assert [each.__qualname__ for each in own if not each.model_config.get("defer_build")] == []


def test_every_name_of_the_library_comes_from_where_it_is_declared() -> None:
    block = next(node for node in ast.parse(Path(ragd.__file__).read_text()).body if isinstance(node, ast.If))
    declared = {
        name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert sorted(declared) == sorted(ragd.__all__)
    for name, module in declared.items():
        assert getattr(ragd, name) is getattr(import_module(str(module)), name)
