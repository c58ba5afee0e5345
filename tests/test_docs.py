"""The pages of the documentation are short, all in the index, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LINES_MAX = 250
JOBS = ["Start", "Add files", "Ask", "Evaluate", "Administer", "Operate", "API", "Library and decisions"]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")


def test_pages_of_the_documentation_are_short_and_all_in_the_index() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", index, re.MULTILINE) == JOBS
    for path in sorted((REPOSITORY / "docs").glob("*.md")):
        assert len(path.read_text("utf-8").splitlines()) <= LINES_MAX, path.name
        assert path.name == "index.md" or f"]({path.name})" in index, f"{path.name} is not in docs/index.md"


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]:
        for file, anchor in LINK.findall(page.read_text("utf-8")):
            target = page.parent / file if file else page
            known = _anchors(target.read_text("utf-8")) if target.suffix == ".md" and target.exists() else set()
            assert target.exists() and (not anchor or anchor[1:] in known), f"{page.name}: {file}{anchor}"


def _anchors(markdown: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", markdown.lower(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads}
