"""The floors of the house, read from the imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
FLOORS = ["ragd", "collections_app", "retrieval_app", "evaluation_app", "ragd_site"]
FOREIGN_TO_LIBRARY = {"django", "celery", "kombu", "ninja", "pydantic_settings", "csp", "axes"}
# they hand PATH and the like on to a child process
PASSING_ON_THE_ENVIRONMENT = {"collections_app/parsing/process/process.py", "collections_app/parsing/office/office.py"}
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


def test_nothing_is_left_to_do() -> None:
    # spelt apart, so that this file does not find itself
    marks = re.compile(r"\b(" + "TO" + "DO|FIX" + r"ME)\b")
    assert [show(path) for path in list_modules(*FLOORS, "tests") if marks.search(path.read_text())] == []
