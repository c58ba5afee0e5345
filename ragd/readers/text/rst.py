"""reStructuredText by docutils, as Markdown. Sphinx's directives and roles, which it does not know, by their words.

Comments, targets, pictures and lists of contents, which no reader sees as text, are left out. No file is included and
no raw output is passed on. References stay unresolved: their words are what a reader sees.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from docutils import frontend, nodes, utils
from docutils.parsers.rst import Directive, Parser, directives, roles
from docutils.parsers.rst.states import Inliner
from docutils.statemachine import StringList

from ragd.readers.assembly import TITLE_CHARS, Assembly
from ragd.readers.text.markup import LEVEL, LOWER, RAISE, cell, heading, join_blocks, squeeze, words, write_scripts
from ragd.readers.text.plain import decode_into
from ragd.readers.text.spans import SpanningCell, TableRow, spanned_blocks
from ragd.readers.types import Source

DIRECTIVE_NAME = re.compile(r"^[ \t]*\.\.[ \t]+(?:\|[^|\n]+\|[ \t]+)?([A-Za-z][\w.+:-]*?)[ \t]?::", re.MULTILINE)
ROLE_NAME = re.compile(r":([A-Za-z][\w.+:-]*):`|`:([A-Za-z][\w.+:-]*):")
NAMES_LIMIT = 2000
WITH_TARGET = re.compile(r"\s*<(?P<target>[^<>]*)>$", re.DOTALL)
FENCE = "```"
REPORT_NOTHING = 5
SKIPPED_LEVEL = re.compile(r"skip from level \d+ to (\d+)")
HAS_WORD = re.compile(r"\w")
# docutils takes some 10 seconds for a million characters, and the square of it for open marks in one paragraph.
LONGEST_CHARS = 1_000_000
PARAGRAPH_MARKS = 2000
MARKS = re.compile(r"[`*|_]")
PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
# Shown as code, with the language where the argument names one.
LANGUAGE_NAMED = words("code code-block sourcecode")
CODE = LANGUAGE_NAMED | words("parsed-literal prompt ipython doctest testcode")
SUPER_ROLES, SUB_ROLES = ("sup", "superscript"), ("sub", "subscript")
# Nothing of these is text: pictures, settings, tables of contents, other files and other output formats.
DROPPED = words(
    "contents toctree sectnum include literalinclude raw meta default-role highlight highlightlang index title"
    " currentmodule module role tabularcolumns default-domain automodule autoclass autofunction autosummary"
    " testsetup testcleanup header footer rst-class image graphviz digraph plot target-notes"
    " sectionauthor codeauthor"
)
# Only a frame around their body.
FRAMES = words("container only compound hlist centered class cssclass tab-set tab-item grid grid-item epigraph")
SENTENCES = {"seealso": "See also", "versionadded": "New in version", "versionchanged": "Changed in version"}
SENTENCES |= {"versionremoved": "Removed in version", "deprecated": "Deprecated since version"}
VERSIONS = words("versionadded versionchanged versionremoved deprecated")
ADMONITIONS = words("note warning tip important caution danger attention hint error seealso todo")
TITLED = words("admonition topic sidebar rubric dropdown tab")
# docutils does these as they are meant here.
OF_DOCUTILS = words("table list-table csv-table replace unicode date line-block")
# Roles whose text is code; of "~package.module.name" only the last part is shown.
CODE_ROLES = words(
    "attr class code command const data envvar exc file func guilabel kbd keyword literal macro makevar member"
    " meth mod mimetype obj option program regexp samp struct term_code token type var"
)
DROPPED_NODES = (nodes.comment, nodes.target, nodes.substitution_definition, nodes.transition, nodes.pending)


def read(source: Source, assembly: Assembly) -> None:
    """Add the document; its first heading is the title. Never fails for text: what is no markup stays as written."""
    text = decode_into(source.data, assembly)
    rendering = None if is_too_large(text) else render(text)
    if rendering is None:
        assembly.warn("The document is too large or nested too deeply to be parsed; it was kept as written.")
        assembly.add(text)
        return
    assembly.add(join_blocks(rendering.blocks))
    assembly.entitle(rendering.title[:TITLE_CHARS])


def render(text: str) -> Rendering | None:
    """The document's blocks and title; None when it is nested more deeply than the interpreter's stack."""
    try:
        return Rendering(parse_document(text))
    except RecursionError:
        return None


def is_too_large(text: str) -> bool:
    """Whether docutils would take minutes, by the length of the text and the marks of its busiest paragraph."""
    return len(text) > LONGEST_CHARS or any(
        len(MARKS.findall(paragraph)) > PARAGRAPH_MARKS for paragraph in PARAGRAPH_END.split(text)
    )


def parse_document(text: str) -> nodes.document:
    """docutils' tree without its transforms. Names of directives and roles in the text are made known to it."""
    for name in _names(DIRECTIVE_NAME, text) - OF_DOCUTILS:
        directives.register_directive(name, WordsDirective)
    for name in _names(ROLE_NAME, text):
        roles.register_local_role(name, words_role)  # type: ignore[arg-type]
    settings = frontend.get_default_settings(Parser)
    settings.report_level = settings.halt_level = REPORT_NOTHING
    settings.warning_stream = False
    settings.file_insertion_enabled = settings.raw_enabled = False
    settings.line_length_limit = len(text) + 1
    document = utils.new_document("document", settings)
    Parser().parse(text.lstrip("\ufeff"), document)
    return document


def _names(pattern: re.Pattern[str], text: str) -> frozenset[str]:
    result: set[str] = set()
    for match in pattern.finditer(text):
        result.add(next(filter(None, match.groups())).lower())
        if len(result) >= NAMES_LIMIT:
            break
    return frozenset(result)


class AnyOptions(dict[str, Callable[[str], str]]):
    """An option_spec that lets every option in."""

    def __missing__(self, name: str) -> Callable[[str], str]:
        return lambda value: value or ""


class WordsDirective(Directive):
    """Any directive by its words: a line for its kind, title or signature, then its body."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[Any] = AnyOptions(alt=str)

    def run(self) -> list[nodes.Node]:
        name, argument = self.name.lower(), self.arguments[0] if self.arguments else ""
        if name in DROPPED:
            return _paragraphs(self.options.get("alt", ""))
        if name in CODE:
            return self._code(name, argument)
        if name == "math":
            return _paragraphs("\n".join(part for part in (argument, *self.content) if part))
        if name == "figure":
            return [*_paragraphs(self.options.get("alt", "")), *self._body()]
        first, _, rest = argument.partition("\n")
        lead = [] if name in FRAMES and name != "centered" else self._lead(name, first if rest else argument)
        return [*lead, *self._parsed(rest.split("\n") if rest else []), *self._body()]

    def _code(self, name: str, argument: str) -> list[nodes.Node]:
        lines = list(self.content)
        if name not in LANGUAGE_NAMED or (argument and not lines):
            lines, argument = [*argument.split("\n"), *lines] if argument else lines, ""
        text = "\n".join(lines)
        return [nodes.literal_block(text, text, language=argument)] if text.strip() else []

    def _lead(self, name: str, text: str) -> list[nodes.Node]:
        if name in ADMONITIONS or name in VERSIONS:
            kind = SENTENCES.get(name, name.capitalize())
            return [nodes.paragraph("", f"{kind} " if name in VERSIONS else f"{kind}: ", *self._inline(text))]
        if not text:
            return []
        if name in TITLED:
            return [nodes.paragraph("", "", nodes.strong("", "", *self._inline(text)))]
        if ":" in name or "(" in text:
            return [nodes.paragraph("", "", nodes.literal("", line)) for line in text.split("\n")]
        return [nodes.paragraph("", "", *self._inline(text))]

    def _inline(self, text: str) -> list[nodes.Node]:
        inline, _ = self.state.inline_text(text, self.lineno)
        return list(inline)

    def _body(self) -> list[nodes.Node]:
        return self._parsed(self.content)

    def _parsed(self, lines: Any) -> list[nodes.Node]:
        holder = nodes.container()
        if lines:
            content = lines if not isinstance(lines, list) else StringList(lines, source="")
            self.state.nested_parse(content, self.content_offset, holder, match_titles=True)
        return list(holder.children)


def _paragraphs(text: str) -> list[nodes.Node]:
    return [nodes.paragraph("", text)] if text.strip() else []


def words_role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Inliner, *_: object, **__: object
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """The words of any role: the title of a reference, code for what is code, text for everything else."""
    role, plain = name.lower().rpartition(":")[2], utils.unescape(text)
    match = WITH_TARGET.search(plain)
    title = plain if match is None else plain[: match.start()].strip() or match.group("target")
    if role in CODE_ROLES:
        words = title.lstrip("!")
        return [nodes.literal("", words.rpartition(".")[2] if words.startswith("~") else words)], []
    kind = nodes.superscript if role in SUPER_ROLES else nodes.subscript if role in SUB_ROLES else nodes.inline
    return [kind("", title if role == "math" else title.lstrip("~!"))], []


class Rendering:
    """A document's tree as Markdown: its blocks, and its first heading as title."""

    def __init__(self, document: nodes.document) -> None:
        self.title = ""
        self._document = document
        self.blocks = list(self._blocks(document, 1))

    def _blocks(self, parent: nodes.Node, level: int) -> Iterator[str]:
        for node in parent.children:
            yield from self._block(node, level)

    def _block(self, node: nodes.Node, level: int) -> Iterable[str]:
        if isinstance(node, DROPPED_NODES):
            return ()
        if isinstance(node, nodes.section):
            return self._blocks(node, level + 1)
        if isinstance(node, nodes.title):
            return (self._heading(self._inline(node), level - 1),)
        if isinstance(node, nodes.bullet_list | nodes.enumerated_list):
            return (self._item(item, mark, level) for item, mark in zip(node.children, _marks(node), strict=True))
        if isinstance(node, nodes.literal_block | nodes.doctest_block):
            language = "pycon" if isinstance(node, nodes.doctest_block) else node.get("language", "")
            return (fenced(node.astext(), language),)
        if isinstance(node, nodes.table):
            return self._table(node)
        if isinstance(node, nodes.field_list):
            return ("\n".join(self._field(field, level) for field in node.children),)
        if isinstance(node, nodes.line_block):
            return ("\n".join(self._inline(line) for line in node.findall(nodes.line)),)
        if isinstance(node, nodes.footnote | nodes.citation):
            return (self._note(node, level),)
        if isinstance(node, nodes.system_message):
            return self._unread(node, level)
        if isinstance(node, nodes.image):
            return (node.get("alt", ""),)
        if isinstance(node, nodes.TextElement):
            return (self._inline(node),)
        return self._blocks(node, level)

    def _heading(self, text: str, level: int) -> str:
        line = squeeze(text)
        self.title = self.title or line.replace("`", "")
        return heading(line, level)

    def _item(self, item: nodes.Node, mark: str, level: int) -> str:
        indent = " " * (len(mark) + 1)
        inner = join_blocks(self._blocks(item, level))
        return f"{mark} " + re.sub(r"\n(?=[^\n])", f"\n{indent}", inner) if inner else ""

    def _field(self, field: nodes.Node, level: int) -> str:
        name, body = field.children[0], field.children[1]
        return f"{name.astext()}: {squeeze(' '.join(self._blocks(body, level)))}".rstrip()

    def _note(self, node: nodes.Element, level: int) -> str:
        label = next((child.astext() for child in node.children if isinstance(child, nodes.label)), "")
        label = label or next(iter(node.get("names", ())), "")
        body = (
            block
            for child in node.children
            if not isinstance(child, nodes.label)
            for block in self._block(child, level)
        )
        return f"[{label or '#'}] {squeeze(' '.join(body))}"

    def _table(self, node: nodes.table) -> Iterator[str]:
        for title in node.findall(nodes.title):
            yield self._inline(title)
        rows = []
        for row in node.findall(nodes.row):
            rows.append(TableRow(is_header=isinstance(row.parent, nodes.thead)))
            for entry in row.children:
                if isinstance(entry, nodes.entry):
                    text = cell(" ".join(self._blocks(entry, 0)))
                    spans = entry.get("morecols", 0) + 1, entry.get("morerows", 0) + 1
                    rows[-1].cells.append(SpanningCell(text, *spans))
        yield from spanned_blocks(rows)

    def _unread(self, message: nodes.system_message, level: int) -> Iterator[str]:
        """What docutils could not read stays as written; a heading that skips a level is a heading of that level."""
        skip = SKIPPED_LEVEL.search(message.astext())
        for node in message.findall(nodes.literal_block):
            if skip:
                title = next(filter(HAS_WORD.search, node.astext().split("\n")), "")
                yield self._heading(title.replace("``", "`"), int(skip.group(1)))
            else:
                yield fenced(node.astext(), "")

    def _inline(self, parent: nodes.Node) -> str:
        return write_scripts("".join(self._piece(node) for node in parent.children))

    def _piece(self, node: nodes.Node) -> str:
        if isinstance(node, nodes.Text):
            return str(node.astext())
        if isinstance(node, nodes.literal):
            return f"`{node.astext()}`"
        if isinstance(node, nodes.emphasis):
            return f"*{self._inline(node)}*"
        if isinstance(node, nodes.superscript | nodes.subscript):
            return f"{RAISE if isinstance(node, nodes.superscript) else LOWER}{self._inline(node)}{LEVEL}"
        if isinstance(node, nodes.strong):
            return f"**{self._inline(node)}**"
        if isinstance(node, nodes.footnote_reference | nodes.citation_reference):
            return f"[{node.astext() or node.get('refname', '') or '#'}]"
        if isinstance(node, nodes.substitution_reference):
            definition = self._document.substitution_defs.get(
                self._document.substitution_names.get(node["refname"].lower(), "")
            )
            return self._inline(definition) if definition is not None else f"|{node.astext()}|"
        if isinstance(node, nodes.image):
            return str(node.get("alt", ""))
        return self._inline(node)


def _marks(items: nodes.Element) -> Iterator[str]:
    """The marks of a list's items; numbers in Roman are shown in Arabic."""
    for number, _ in enumerate(items.children, items.get("start", 1)):
        if isinstance(items, nodes.bullet_list):
            yield "-"
            continue
        kind = items.get("enumtype", "arabic")
        first = {"loweralpha": "a", "upperalpha": "A"}.get(kind)
        mark = chr(ord(first) + number - 1) if first else str(number)
        yield f"{items.get('prefix', '')}{mark}{items.get('suffix', '.')}"


def fenced(text: str, language: str) -> str:
    """Text as a block of code; the fence is longer than any inside."""
    body = text.strip("\n").rstrip()
    if not body:
        return ""
    fence = FENCE
    while fence in body:
        fence += "`"
    return f"{fence}{squeeze(language)}\n{body}\n{fence}"
