"""The table of threats in docs/security.md names tests that exist, and leaves out no chapter."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SECTION = (REPOSITORY / "docs" / "security.md").read_text().split("## Threats and defences\n", 1)[1].split("\n## ")[0]
NAMED = re.findall(r"`(tests/[^`]*)`", SECTION)
CHAPTERS = [*(f"V{number}" for number in range(1, 18)), *(f"LLM{number:02d}" for number in range(1, 11))]


def fault_of(named: str, root: Path = REPOSITORY) -> str:
    """What is wrong with `tests/folder`, `tests/file.py` or `tests/file.py::test`; "" when it is there."""
    path, _, test = named.partition("::")
    place = root / path
    if place.is_dir():
        files = sorted(place.rglob("test_*.py"))
        return "" if any(names_of(file) for file in files) else f"{path} holds no test"
    if not place.is_file():
        return f"{path} is not there"
    if not test:
        return "" if names_of(place) else f"{path} holds no test"
    return "" if test in names_of(place) else f"{path} has no {test}"


def names_of(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_chapter_has_a_row_with_a_test_or_says_that_there_is_none() -> None:
    rows = [line.split(" | ") for line in SECTION.splitlines() if re.match(r"\| (V|LLM)\d", line)]
    assert sorted({row[0].removeprefix("| ") for row in rows}) == sorted(CHAPTERS)
    for row in rows:
        assert "`tests/" in row[-1] or "*none*" in row[2], row


@pytest.mark.parametrize("named", sorted(set(NAMED)))
def test_what_is_named_exists(named: str) -> None:
    assert fault_of(named) == ""


@pytest.mark.parametrize(
    ("named", "is_there"),
    [
        ("tests/folder", True),
        ("tests/empty", False),
        ("tests/folder/test_one.py", True),
        ("tests/folder/test_one.py::test_a", True),
        ("tests/folder/test_one.py::test_b", False),
        ("tests/folder/test_two.py", False),
        ("tests/folder/test_none.py", False),
        ("tests/other", False),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, named: str, is_there: bool) -> None:
    folder = tmp_path / "tests" / "folder"
    folder.mkdir(parents=True)
    (tmp_path / "tests" / "empty").mkdir()
    (folder / "test_one.py").write_text("def test_a():\n    pass\n")
    (folder / "test_none.py").write_text("")
    assert (fault_of(named, tmp_path) == "") is is_there
