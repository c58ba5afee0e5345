"""The texts that people read, taken out of templates, Python and Markdown; and the terms of docs/glossary.md.

`python -m tests.vocabulary` lists where terms stand that the glossary does not use;
`python -m tests.vocabulary --write` writes tests/data/sentences.txt anew from the templates.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
GLOSSARY = REPOSITORY / "docs" / "glossary.md"
SNAPSHOT = REPOSITORY / "tests" / "data" / "sentences.txt"
APPS = ("collections_app", "retrieval_app", "evaluation_app", "ragd_site")
READ_ATTRIBUTES = {"title", "aria-label", "placeholder", "alt", "data-confirm", "data-confirm-do", "value"}

_TAG = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')
_SEPARATOR = "\x1f"
_SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|JOIN|WHERE|FROM|ORDER BY)\b")
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE)


class Unused(NamedTuple):
    """A term that the glossary does not use; a label is wrong only as a text by itself."""

    term: str
    label: bool

    def stands_in(self, text: str) -> bool:
        if self.label:
            return text.strip(" *:…").lower() == self.term.lower()
        return bool(re.search(rf"(?<![\w-]){re.escape(self.term)}(?![\w-])", text, re.IGNORECASE))


class Place(NamedTuple):
    file: str
    text: str


def read_unused(page: str) -> list[Unused]:
    """The checked entries of the last column of the glossary's tables: `term` anywhere, Term (label) by itself."""
    cells = [line.split("|")[3] for line in page.splitlines() if line.startswith("| ") and line.count("|") == 4]
    anywhere = [Unused(term, False) for cell in cells for term in re.findall(r"`([^`]+)`", cell)]
    labels = [Unused(term.strip(), True) for cell in cells for term in re.findall(r"([^,|]+)\(label\)", cell)]
    return anywhere + labels


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in ("script", "style")
        readable = [value for name, value in attrs if name in READ_ATTRIBUTES and value]
        self.texts += [part for value in readable for part in value.split(_SEPARATOR)]

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.texts += data.split(_SEPARATOR)


def template_texts(source: str) -> list[str]:
    """What a template shows, in order: its text between tags, its readable attributes, what its tags quote."""
    quoted = [text for tag in _TAG.findall(source) if tag.startswith("{%") for text in _QUOTED.findall(tag)]
    parser = _Texts()
    parser.feed(_TAG.sub(_SEPARATOR, source))
    texts = [" ".join(text.split()).strip(" ·,.:;()–") for text in parser.texts]
    return [text for text in texts if re.search(r"[A-Za-z]{2}", text)] + [text for text in quoted if _reads(text)]


def python_texts(source: str) -> list[str]:
    """The strings of a module that read like a text: not its docstrings, not SQL, not identifiers."""
    tree = ast.parse(source)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Expr | ast.Assign)]
    exported = [node for node in statements if isinstance(node, ast.Assign) and _is_export_list(node)]
    silent = {id(node.value) for node in statements if isinstance(node, ast.Expr)}
    silent |= {id(item) for node in exported for item in ast.walk(node)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in silent)
    return [node.value for node in constants if isinstance(node.value, str) and _reads(node.value)]


def _is_export_list(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def markdown_texts(source: str) -> list[str]:
    """The lines of a page, and by themselves the labels that it names in emphasis, without code and addresses."""
    lines = _CODE.sub(" ", source).splitlines()
    return lines + [word for line in lines for word in re.findall(r"\*([^*]+)\*", line)]


def _reads(text: str) -> bool:
    prose = " " in text.strip() or bool(re.match(r"[A-Z][a-z]", text))
    return prose and not _SQL.search(text) and bool(re.search(r"[A-Za-z]{2}", text))


def read_templates() -> Iterator[Place]:
    for path in sorted((REPOSITORY / "templates").rglob("*.html")):
        yield from (Place(_name(path), text) for text in template_texts(path.read_text("utf-8")))


def read_modules() -> Iterator[Place]:
    for path in sorted(path for app in APPS for path in (REPOSITORY / app).rglob("*.py")):
        if "migrations" not in path.parts:
            yield from (Place(_name(path), text) for text in python_texts(path.read_text("utf-8")))


def read_pages() -> Iterator[Place]:
    for path in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]:
        if path != GLOSSARY:
            yield from (Place(_name(path), text) for text in markdown_texts(path.read_text("utf-8")))


def find_unused(places: Iterator[Place]) -> list[tuple[str, str, str]]:
    """(file, term, text) wherever a term stands that is not used. Labels are not looked for in all of Python: there
    "Found" is also the name of a status."""
    terms = read_unused(GLOSSARY.read_text("utf-8"))
    return [
        (place.file, term.term, place.text)
        for place in places
        for term in terms
        if term.stands_in(place.text) and not (term.label and place.file.endswith(".py") and "forms" not in place.file)
    ]


def snapshot() -> str:
    """Every text of the templates of three words or more, once per file, as tests/data/sentences.txt holds them."""
    lines = (f"{file}: {text}" for file, text in read_templates() if len(text.split()) > 2)
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def main() -> None:
    if "--write" in sys.argv:
        SNAPSHOT.write_text(snapshot(), encoding="utf-8")
        return
    for file, term, text in [*find_unused(read_templates()), *find_unused(read_modules()), *find_unused(read_pages())]:
        print(f"{file}: {term!r} in {text[:160]!r}")


if __name__ == "__main__":
    main()
