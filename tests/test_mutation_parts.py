"""What the mutation bench names is there: modules, functions, test files, and the lines of equivalent changes."""

from __future__ import annotations

import pytest

from benchmarks.bench_mutation import PARTS, ROOT, first_difference, function_lines, patterns, read_equivalent


@pytest.mark.parametrize("name", PARTS)
def test_a_part_names_modules_functions_and_test_files_that_are_there(name: str) -> None:
    for path, functions in PARTS[name].modules.items():
        assert set(functions) <= {function for function, _ in function_lines(ROOT / path)}, path
    for path in PARTS[name].tests:
        assert (ROOT / path).is_file(), path


def test_equivalent_changes_are_of_lines_that_are_there() -> None:
    modules = {path for part in PARTS.values() for path in part.modules}
    for change, reason in read_equivalent().items():
        assert change.path in modules and reason
        assert change.function in dict(function_lines(ROOT / change.path)), change
        code = " ".join(line.strip() for line in (ROOT / change.path).read_text("utf-8").splitlines())
        assert change.before in code, change


def test_a_change_is_named_by_its_lines() -> None:
    before = ["@classmethod", "def f_orig(a):", "    b = (", "        a + 1", "    )", "    return b"]
    after = ["@classmethod", "def f_1(a):", "    b = (", "        a - 1", "    )", "    return b"]
    assert first_difference(before, after) == (2, "a + 1", "a - 1")
    assert first_difference(before, [*after[:2], "    b = None", after[5]]) == (1, "b = ( a + 1 )", "b = None")


def test_tenths_are_drawn_by_the_last_digit() -> None:
    part = PARTS["bm25"]
    assert patterns(part, 10)[0] == "ragd.search.lexical_search.x_inverse_document_frequency__mutmut_*"
    assert patterns(part, 3)[0].endswith("__mutmut_*[036]")
    assert patterns(PARTS["fusion"], 1) == ["ragd.search.fusion.*__mutmut_*[0]"]
