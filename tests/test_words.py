"""The interface and the documentation speak in the terms of docs/glossary.md."""

from __future__ import annotations

import re

import pytest

from tests.vocabulary import (
    GLOSSARY,
    REPOSITORY,
    SNAPSHOT,
    Place,
    find_unused,
    markdown_texts,
    python_texts,
    read_modules,
    read_pages,
    read_templates,
    read_unused,
    snapshot,
    template_texts,
)

LINES_MAX = 250
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")


@pytest.mark.parametrize("read", [read_templates, read_modules, read_pages])
def test_no_text_uses_a_term_that_the_glossary_does_not_use(read: object) -> None:
    assert callable(read)
    assert find_unused(read()) == []


def test_the_terms_that_are_not_used_are_found_where_they_stand() -> None:
    page = "| term | meaning | not used |\n|---|---|---|\n| metric | a number | `held against`, Took (label) |\n"
    terms = read_unused(page)
    assert [(term.term, term.label) for term in terms] == [("held against", False), ("Took", True)]
    texts = template_texts('<th title="Took">A took B</th>{% icon "x" %}{% if a %}Took{% endif %} {{ b }} held against')
    assert [term.term for text in texts for term in terms if term.stands_in(text)] == ["Took", "Took", "held against"]
    assert python_texts('"""Took."""\n__all__ = ["Took"]\nlabel = f"Took {1} s"\nsql = "SELECT Took FROM x"') == [
        "Took "
    ]
    assert "held against" not in " ".join(markdown_texts("`held against` and [x](held-against.md) *Took*"))
    assert markdown_texts("see *Took*")[-1] == "Took"


def test_the_glossary_names_terms_that_are_looked_for() -> None:
    terms = read_unused(GLOSSARY.read_text("utf-8"))
    assert len([term for term in terms if not term.label]) > 50
    assert len([term for term in terms if term.label]) > 10
    assert find_unused(iter([Place("templates/x.html", "Runs are held against it.")])) != []


def test_the_sentences_of_the_templates_stand_in_one_file() -> None:
    """A new wording is seen in the difference of one file: python -m tests.vocabulary --write."""
    assert SNAPSHOT.read_text("utf-8").splitlines() == snapshot().splitlines()


def test_pages_of_the_documentation_are_short_and_all_in_the_index() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", index, re.MULTILINE) == ["Tutorial", "How-to guides", "Reference", "Explanation"]
    for path in sorted((REPOSITORY / "docs").glob("*.md")):
        assert len(path.read_text("utf-8").splitlines()) <= LINES_MAX, path.name
        assert path.name == "index.md" or f"]({path.name})" in index, f"{path.name} is not in docs/index.md"


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]:
        for file, anchor in LINK.findall(page.read_text("utf-8")):
            if file.startswith(("http://", "https://", "mailto:")):
                continue
            target = (page.parent / file).resolve() if file else page
            assert target.exists(), f"{page.name}: {file}"
            assert not anchor or target.suffix != ".md" or anchor[1:] in _anchors(target.read_text("utf-8")), (
                f"{page.name}: {file}{anchor}"
            )


def _anchors(markdown: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower().replace("`", "")).replace(" ", "-") for head in heads}
