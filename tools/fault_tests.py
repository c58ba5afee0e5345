"""Print which test holds which fault: the ids of `@pytest.mark.fault(...)`, in order, each with its tests.

`python -m tools.fault_tests F1 N-02` prints those alone, and exits with 1 where one of them has no test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"


def read_marks(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (fault id, node id of the test) for every mark in a module, whether on a test, a class or the module."""
    tree = ast.parse(path.read_text("utf-8"))
    where = path.relative_to(TESTS.parent).as_posix()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            marks: list[ast.AST] = list(node.decorator_list)
            name = f"{where}::{node.name}"
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets
        ):
            marks, name = [node.value], where
        else:
            continue
        for call in (part for mark in marks for part in ast.walk(mark)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "fault":
                yield from ((arg.value, name) for arg in call.args if isinstance(arg, ast.Constant))


def sort_key(fault: str) -> tuple[str, int]:
    letters, digits = re.fullmatch(r"(.*?)(\d*)", fault).groups()  # type: ignore[union-attr]  # matches every text
    return letters, int(digits or 0)


def main(ids: list[str]) -> int:
    """Print the table; return 1 where an id that was asked for has no test."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        if ".fault(" in path.read_text("utf-8"):
            for fault, name in read_marks(path):
                tests[fault].append(name)
    for fault in ids or sorted(tests, key=sort_key):
        print(f"{fault:<8} {', '.join(tests[fault]) or 'no test'}")
    return int(any(not tests[fault] for fault in ids))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
