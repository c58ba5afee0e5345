"""An answer as HTML: its Markdown rendered, each citation a link to the cited place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from retrieval_app.answers.citations import PROTECTED

# In the source of the Markdown, private-use characters that are nowhere else in it stand for a citation. A character
# entity becomes one of them only after the inline rule has read the source, so no text can forge a citation.
OPEN, CLOSE = "\ue000", "\ue001"
PLACEHOLDER = re.compile(f"{OPEN}([0-9]+){CLOSE}")
PLACEHOLDER_CHARS = str.maketrans({OPEN: None, CLOSE: None})
HEADING = re.compile(r"^#{1,6}\s+[^\n]*\n+")
FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
LAST_BLOCK = re.compile(r"(?:\A|\n[ \t]*\n)(?!.*\n[ \t]*\n)", re.DOTALL)
ROW = re.compile(r"\s*\|")
OPEN_MARKS = re.compile(r"(?<!\S)(?:\*{1,3}|_{1,3}|`+|\[)\Z")
CODE_SPAN = re.compile(r"`[^`]*`")
LONE_STAR = re.compile(r"(?<!\*)\*\Z")
BULLET = re.compile(r"(?m)^\s*[*+-]\s")
MARKS = re.compile(r"\*\*|`|^#{1,6} |\[(?=[^\]\n]+\]\()|\]\([^()\s]*\)", re.MULTILINE)
EMPHASIS = re.compile(r"(?<![\w*])\*(\S(?:[^*\n]*\S)?)\*(?![\w*])")
BAR = re.compile(r"(?<!\\)\|")  # between the cells of a table's row
PLACES_TRIED = 20  # for a mark that does not fit where its sentence ends
ABSOLUTE = re.compile(r"https?:|mailto:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """Text without citation, or one citation record (see `retrieval_app.answers.citations.Citation`)."""

    text: str
    citation: Mapping[str, Any] | None = None


def cut_answer(answer: str, citations: Sequence[Mapping[str, Any]]) -> list[AnswerPiece]:
    """The answer in order; joined, the texts are the answer again. A citation outside the answer is left out."""
    pieces: list[AnswerPiece] = []
    position = 0
    for citation in sorted(citations, key=lambda item: item["answer_start"]):
        start, end = citation["answer_start"], citation["answer_end"]
        if not position <= start < end <= len(answer):
            continue
        if start > position:
            pieces.append(AnswerPiece(answer[position:start]))
        pieces.append(AnswerPiece(answer[start:end], citation))
        position = end
    if position < len(answer):
        pieces.append(AnswerPiece(answer[position:]))
    return pieces


def render_answer(
    answer: str,
    citations: Sequence[Mapping[str, Any]],
    draw: Callable[[Mapping[str, Any]], SafeString],
    marks: Sequence[tuple[int, SafeString]] = (),
) -> SafeString:
    """The answer's Markdown as HTML with `draw(citation)` at every citation. marks: (position, HTML to stand there), in
    order. A mark changes nothing else: where it would break Markdown, it stands at the nearest place where it does not,
    such as before a code block or in the last cell of a row, and is left out where there is none.

    Quoted rows of tables that follow each other under the same columns are one table, with the citation in the last
    cell. HTML in the answer is shown as text; headings and images stay text too. A link with a relative address is its
    text: it leads on from the document that the answer quotes, not from this page.
    """
    pieces = cut_answer(answer, citations)
    if not marks:  # their positions are those of the answer as it is
        pieces = _as_tables(pieces)
    drawn: list[str] = []
    spots: list[int] = []  # of the marks, in the source
    source, position, waiting = "", 0, [at for at, _ in marks]
    for piece in pieces:
        end, before = position + len(piece.text), len(source)
        if piece.citation is not None:
            source += _placeholder(len(drawn))
            drawn.append(draw(piece.citation))
        else:
            source += piece.text.translate(PLACEHOLDER_CHARS)
        while waiting and waiting[0] <= end:
            text = piece.text[: max(0, waiting.pop(0) - position)].translate(PLACEHOLDER_CHARS)
            spots.append(len(source) if piece.citation is not None else before + len(text))
        position = end
    html = _render_marked(source, drawn, list(zip(spots, (html for _, html in marks), strict=False)))
    return mark_safe(html)  # noqa: S308 (escaped by the renderer)


def _placeholder(number: int) -> str:
    return f"{OPEN}{number}{CLOSE}"


def _render(source: str, drawn: Sequence[str], in_code: Sequence[str] | None = None) -> str:
    """in_code: what stands for the placeholders in code; None: the same."""
    html: str = _markdown().render(source, {"citations": drawn, "in_code": drawn if in_code is None else in_code})
    return html


def _render_marked(source: str, drawn: list[str], marks: list[tuple[int, str]]) -> str:
    """marks: (place in the source, HTML). Where they all fit at once, that is one try."""
    html = _render(source, drawn)
    if not marks:
        return html
    placed = _place(source, marks, lambda _: True)
    if not _fits(source, drawn, [at for at, _ in placed], html):
        placed = _place(source, marks, lambda places: _fits(source, drawn, places, html))
    return _render(_insert(source, len(drawn), [at for at, _ in placed]), [*drawn, *(mark for _, mark in placed)])


def _place(source: str, marks: Sequence[tuple[int, str]], fits: Callable[[list[int]], bool]) -> list[tuple[int, str]]:
    """Each mark at the first of its places, behind the mark before it, that fits with those before it."""
    placed: list[tuple[int, str]] = []
    for spot, mark in marks:
        before = [at for at, _ in placed]
        places = islice(_mark_places(source, spot), PLACES_TRIED)
        found = next((at for at in places if at > max(before, default=0) and fits([*before, at])), None)
        placed += [] if found is None else [(found, mark)]
    return placed


def _mark_places(source: str, spot: int) -> Iterator[int]:
    """Where a mark of the sentence that ends there may stand, the nearest first: outside of code and links, within a
    row of a table, else at the ends of the lines before."""
    at = len(source[:spot].rstrip())
    for span in PROTECTED.finditer(source):
        if span.start() < at and (at < span.end() or (at == span.end() and span["fence"])):
            at = len(source[: span.start()].rstrip()) if span["fence"] else span.end()
    line = source[source.rfind("\n", 0, at) + 1 : at]
    if ROW.match(line) and line.endswith("|"):
        at = len(source[: at - 1].rstrip())
    yield at
    while (at := source.rfind("\n", 0, at)) > 0:
        yield len(source[:at].rstrip())


def _insert(source: str, first: int, places: Sequence[int]) -> str:
    """The source with placeholders at these places, ascending, numbered from `first`."""
    for number, at in reversed(list(enumerate(places, first))):
        source = source[:at] + _placeholder(number) + source[at:]
    return source


def _fits(source: str, drawn: list[str], places: Sequence[int], html: str) -> bool:
    """Whether the HTML stays the same but for the marks, and none stands in code."""
    blank, seen = [""] * len(places), ["\x00"] * len(places)
    return _render(_insert(source, len(drawn), places), [*drawn, *blank], [*drawn, *seen]) == html


def _as_tables(pieces: Sequence[AnswerPiece]) -> list[AnswerPiece]:
    """The pieces with each quoted row that stands before its citation written as one of a Markdown table."""
    laid: list[AnswerPiece] = []
    columns: Sequence[str] | None = None  # of the table that the last piece belongs to
    for piece in pieces:
        cited, text = piece.citation or {}, laid[-1].text if laid else ""
        names, quote = cited.get("column_names"), f"{cited.get('quote')} "
        if names and text.endswith(quote):
            before, cells = text.removesuffix(quote), [cell.strip() for cell in BAR.split(cited["quote"])]
            width = max(len(names), len(cells))
            lines = [_as_row(cells, width)]
            if before.strip() or names != columns:
                lines = [f"{before}\n", f"{_as_row(names, width)} |", "|---" * width + "|", *lines]
            laid[-1] = AnswerPiece("\n".join(lines))
            laid += [piece, AnswerPiece(" |")]  # the citation stands in the last cell
            columns = names
        elif columns and not piece.citation:
            laid[-1:] = [AnswerPiece(" |\n"), AnswerPiece("\n" + piece.text.lstrip())]
        else:
            laid.append(piece)
            columns = None
    return laid


def _as_row(cells: Sequence[str], width: int) -> str:
    """Without the bar at its end."""
    return "| " + " | ".join([*cells, *[""] * (width - len(cells))]) + " "


def close_marks(text: str) -> str:
    """The text of an answer that is still written, so that its Markdown can be rendered: marks that are open at its end
    are closed or left out, and the first line of a table waits until it is one. A longer text only adds to it."""
    if len(FENCE.findall(text)) % 2:
        return text  # in a code block
    start = max((match.end() for match in LAST_BLOCK.finditer(text)), default=0)
    head, block = text[:start], text[start:]
    lines = block.rstrip("\n").split("\n")
    if ROW.match(lines[-1]) and sum(bool(ROW.match(line)) for line in lines) < 3:
        lines = lines[: next(number for number, line in enumerate(lines) if ROW.match(line))]
    block = OPEN_MARKS.sub("", "\n".join(lines).rstrip())
    if block.count("`") % 2:
        return f"{head}{block}`"
    outside = BULLET.sub("", CODE_SPAN.sub("", block))
    if LONE_STAR.search(outside) and outside.count("**") % 2:  # the first half of the mark that closes it
        block, outside = block[:-1], outside[:-1]
    strong = outside.count("**") % 2
    return head + block + "*" * ((outside.count("*") - 2 * outside.count("**")) % 2) + "**" * strong


def render_sentence(text: str) -> SafeString:
    """A sentence of an answer, or another text in one line, as `render_answer` has it within a paragraph."""
    html: str = _markdown().renderInline(text.translate(PLACEHOLDER_CHARS), {"citations": [], "in_code": []})
    return mark_safe(html)  # noqa: S308 (escaped by the renderer)


def strip_marks(text: str) -> str:
    """The words of an answer without the marks of Markdown, where none can be rendered; lines and citations stay."""
    return EMPHASIS.sub(r"\1", MARKS.sub("", text))


class CitationRenderer(RendererHTML):
    """Markdown's HTML, with env["citations"], HTML by number, at the citation tokens, and env["in_code"] in code."""

    def citation(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return str(env["citations"][int(tokens[idx].content)])

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return super().text(tokens, idx, options, env).translate(PLACEHOLDER_CHARS)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return self._draw_in_code(super().code_inline(tokens, idx, options, env), env)

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return self._draw_in_code(super().code_block(tokens, idx, options, env), env)

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """As a code block: its language, in which entities are decoded, is left out."""
        return self.code_block(tokens, idx, options, env)

    def _draw_in_code(self, html: str, env: EnvType) -> str:
        """Code is never decoded: every placeholder in it is a citation's."""
        return PLACEHOLDER.sub(lambda match: str(env["in_code"][int(match[1])]), html)


def _read_citation(state: StateInline, silent: bool) -> bool:
    """The inline rule: a placeholder in the source becomes a token of type citation, its number the content."""
    match = PLACEHOLDER.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        state.push("citation", "", 0).content = match[1]
    state.pos = match.end()
    return True


def _drop_relative_links(state: StateCore) -> None:
    """The core rule: of a link whose address is relative only its text is kept. Links are never within links."""
    for block in state.tokens:
        kept, is_relative = [], False
        for token in block.children or ():
            if token.type == "link_open":
                is_relative = not ABSOLUTE.match(str(token.attrs["href"]))
            if not (is_relative and token.type in ("link_open", "link_close")):
                kept.append(token)
        block.children = kept


@cache
def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=CitationRenderer).enable("table")
    markdown.disable(["heading", "lheading", "image", "html_block", "hr"])
    markdown.inline.add_terminator_char(OPEN)
    markdown.inline.ruler.before("escape", "citation", _read_citation)
    markdown.core.ruler.push("relative links", _drop_relative_links)
    return markdown
