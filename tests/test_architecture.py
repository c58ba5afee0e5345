"""The order of the apps and of the folders inside each, read from the imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools.structure import Edge, count_budgets, find_circles, modules_per_folder, read_edges

REPOSITORY = Path(__file__).resolve().parent.parent
FLOORS = ["ragd", "collections_app", "retrieval_app", "evaluation_app", "ragd_site"]
FOREIGN_TO_LIBRARY = {"django", "celery", "kombu", "ninja", "pydantic_settings", "csp", "axes"}
# the first two hand PATH and the like on to a child process; prometheus-client takes its folder from the environment
PASSING_ON_THE_ENVIRONMENT = {
    "evaluation_app/metrics/instruments.py",
    "collections_app/parsing/process/process.py",
    "collections_app/parsing/office/office.py",
}
# Package -> its folders and modules, low to high: what stands earlier never imports what stands later.
ORDER: dict[str, str] = {
    "ragd": (
        "version errors conditions normalization types conventions telemetry security text models store search insight"
        " conformance"
    ),
    "collections_app": (
        "advisory_locks audit_origin domain access_context row_access fetching parsing connectors validation errors"
        " stages work models model_folders model_endpoints"
        " stores policies retention_periods replicas services http tasks templatetags api views admin urls"
        " commands management apps"
    ),
    "collections_app.services": (
        "governance cluster endpoints models jobs indexing documents chunks uploads sources connectors generations"
        " history collections transfer worker"
    ),
    "retrieval_app": (
        "citations confidence explanations llm models answerers counting corrective runs chats receipts transfer_parts"
        " api commands templatetags pages urls apps admin"
    ),
    "evaluation_app": (
        "measures models charts spans judges rubrics golden scoring model_trials runs metrics sample analysis"
        " experiments conformance pages alerts reviews gaps curation history leak_probe transfer_parts erasure commands"
        " templatetags tasks api mcp_tools admin urls apps"
    ),
    "evaluation_app.spans": "store search evidence exports",
    "evaluation_app.analysis": "figures fitted_bands comparison diagnosis",
    "evaluation_app.pages": "explorer traces dashboard live overview",
}
MODULES_MAX = 18  # in one folder
# What `python -m tools.structure` counts may fall and not rise: whoever lowers a figure lowers it here too.
CEILINGS = {
    "product lines": 142_460, "product files": 994, "models": 78, "page routes": 254, "API operations": 164,
    "settings": 124, "own middlewares": 14, "functions with 8 or more parameters": 37, "migrations": 12,
    "lines of tests": 82_900, "lines of benchmarks": 6_480, "pages of docs": 68, "words of docs": 102_450,
    "participles as names": 3_710,
}  # fmt: skip
FORBIDDEN_NAMES = {"utils", "helpers", "common", "selectors", "signals", "repositories"}


def list_modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (REPOSITORY / package).rglob("*.py"))


def read_imports(path: Path) -> Iterator[str]:
    """Absolute names of what a module imports, wherever in the module it does so."""
    package = path.relative_to(REPOSITORY).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: -node.level]) if node.level else []
            yield ".".join([*base, node.module] if node.module else base)


def show(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_reader_of_imports_sees_nested_and_relative_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "ragd" / "inner" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("import a.b\nfrom c import d\ndef f():\n    from ..types import T\n    from . import g\n")
    monkeypatch.setattr("tests.test_architecture.REPOSITORY", tmp_path)
    assert list(read_imports(module)) == ["a.b", "c", "ragd.types", "ragd.inner"]


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


@cache
def defined_names(path: Path) -> set[str]:
    """What a module defines or imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_what_a_benchmark_imports_is_there() -> None:
    """No type checker and no test reads benchmarks."""
    missing = []
    for path in list_modules("benchmarks"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] not in (*FLOORS, "tests"):
                continue
            module = REPOSITORY / str(node.module).replace(".", "/")
            source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            known = defined_names(source) | {each.stem for each in module.glob("*")}
            missing += [f"{show(path)}: {alias.name}" for alias in node.names if alias.name not in known]
    assert missing == []


def test_nothing_is_left_to_do() -> None:
    # spelt apart, so that this file does not find itself
    marks = re.compile(r"\b(" + "TO" + "DO|FIX" + r"ME)\b")
    assert [show(path) for path in list_modules(*FLOORS, "tests") if marks.search(path.read_text())] == []


@pytest.fixture(scope="module")
def edges() -> list[Edge]:
    return read_edges()


@pytest.mark.parametrize("package", ORDER)
def test_no_folder_imports_one_above_it(package: str, edges: list[Edge]) -> None:
    position = {f"{package}.{name}": number for number, name in enumerate(ORDER[package].split())}

    def entry(module: str) -> str:
        return ".".join(module.split(".")[: package.count(".") + 2])

    modules = {name for edge in edges for name in (edge.source, edge.target) if name.startswith(f"{package}.")}
    assert {entry(module) for module in modules} - position.keys() == set(), "a folder without a place in ORDER"
    wrong = [
        (edge.source, edge.target)
        for edge in edges
        if position.get(entry(edge.source), len(position)) < position.get(entry(edge.target), -1)
    ]
    assert wrong == []


def test_no_modules_import_each_other(edges: list[Edge]) -> None:
    assert find_circles(edges) == []


def test_no_product_code_is_imported_inside_a_function(edges: list[Edge]) -> None:
    assert [(edge.source, edge.target) for edge in edges if edge.in_function] == []


def test_no_folder_holds_too_many_modules() -> None:
    assert {name: count for name, count in modules_per_folder().items() if count > MODULES_MAX} == {}


def test_the_structure_of_a_tree_is_read(tmp_path: Path) -> None:
    modules = {
        "ragd/a.py": "from ragd import b\nfrom ragd.c import thing\n",
        "ragd/b.py": "def late():\n    from ragd.a import other\n",
        "ragd/c/__init__.py": "thing = 1\n",
        "ragd/migrations/one.py": "from ragd import a\n",
    }
    for name, text in modules.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = read_edges(tmp_path)
    assert [(edge.source, edge.target, edge.in_function) for edge in found] == [
        ("ragd.a", "ragd.b", False),
        ("ragd.a", "ragd.c", False),
        ("ragd.b", "ragd.a", True),
    ]
    assert find_circles(found) == [["ragd.a", "ragd.b"]]
    assert modules_per_folder(tmp_path) == {"ragd": 2, "ragd/c": 0}


def test_links_of_the_architecture_page_lead_to_files() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    links = re.findall(r"\]\(([^)#]+)", page)
    assert len(links) > 40
    assert [link for link in links if "://" not in link and not (REPOSITORY / "docs" / link).exists()] == []
    for way in ("file", "question", "evaluation item"):
        section = page.split(f"## The way of a{'n' if way[0] == 'e' else ''} {way}\n")[1].split("\n## ")[0]
        hops = re.findall(r"(?m)^\d+\. ", section)
        assert 8 <= len(hops) <= 20, way


def test_the_budgets_of_the_tree_hold() -> None:
    counts = {name: count for name, count, _goal in count_budgets()}
    assert counts.keys() == CEILINGS.keys()
    assert {name: count for name, count in counts.items() if count > CEILINGS[name]} == {}
