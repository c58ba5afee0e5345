"""The table of threats in docs/security.md names tests that exist, and leaves out no chapter."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY

SECTION = (REPOSITORY / "docs" / "security.md").read_text().split("## Threats and defences\n", 1)[1].split("\n## ")[0]
CHAPTERS = [*(f"V{number}" for number in range(1, 18)), *(f"LLM{number:02d}" for number in range(1, 11))]


def test_every_chapter_has_a_row_with_a_test_or_says_that_there_is_none() -> None:
    rows = [line.split(" | ") for line in SECTION.splitlines() if re.match(r"\| (V|LLM)\d", line)]
    assert sorted({row[0].removeprefix("| ") for row in rows}) == sorted(CHAPTERS)
    assert [row for row in rows if "`tests/" not in row[-1] and "*none*" not in row[2]] == []


def test_what_is_named_exists() -> None:
    """A folder or a file with tests, or `file.py::test`."""
    missing = []
    for named in set(re.findall(r"`(tests/[^`]*)`", SECTION)):
        path, _, test = named.partition("::")
        place = REPOSITORY / path
        files = place.rglob("test_*.py") if place.is_dir() else [place] if place.is_file() else []
        if not any(f"def {test or 'test_'}" in file.read_text() for file in files):
            missing.append(named)
    assert missing == []
