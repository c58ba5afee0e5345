"""Text of documents as it is read: Markdown with tables as HTML, the cited place marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from django import template
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from collections_app.chunks.preview import Piece

register = template.Library()

# Private-use characters that stand around the cited place in the source of the Markdown, and nowhere else in it.
OPEN, CLOSE = "\ue000", "\ue001"
MARKS = str.maketrans({OPEN: None, CLOSE: None})
MARK = re.compile(f"({OPEN}|{CLOSE})")
ROW = re.compile(r"\|.*\|\s*")
RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+\s*")
SYNTAX = " \t\n|#>*+-"  # where a mark would keep a line from being a row, a heading or an item
EMPTY_HEAD = re.compile(r"<thead>\s*<tr>\s*(?:<th[^>]*></th>\s*)+</tr>\s*</thead>")
ABSOLUTE = re.compile(r"https?:|mailto:", re.IGNORECASE)
LEVELS = {"h1": "h3", "h2": "h4", "h3": "h5"}  # under the headings of the page
CLIPPED_CHARS = 500


class TextRenderer(RendererHTML):
    """Markdown's HTML, with <mark> around every text between OPEN and CLOSE; env["in_mark"]: whether one is open."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _mark(super().text(tokens, idx, options, env), env)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _mark(super().code_inline(tokens, idx, options, env), env)

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<pre>{_mark(super().code_inline(tokens, idx, options, env), env)}</pre>\n"


def _mark(html: str, env: EnvType) -> str:
    written = ""
    for part in MARK.split(html):
        if part in (OPEN, CLOSE):
            env["in_mark"] = part == OPEN
        elif part:
            written += f"<mark>{part}</mark>" if env["in_mark"] else part
    return written


def _fit_into_page(state: StateCore) -> None:
    """The core rule: headings below those of the page, cells without styles, no link that leads on from elsewhere."""
    for block in state.tokens:
        block.tag = LEVELS.get(block.tag, block.tag) if block.type.startswith("heading") else block.tag
        if block.type in ("th_open", "td_open"):
            block.attrs = {"class": "num"} if "right" in str(block.attrs.get("style", "")) else {}
        kept, is_relative = [], False
        for token in block.children or ():
            if token.type == "link_open":
                is_relative = not ABSOLUTE.match(str(token.attrs["href"]))
                token.attrs |= {"rel": "noopener noreferrer nofollow"}
            if not (is_relative and token.type in ("link_open", "link_close")):
                kept.append(token)
        block.children = kept if block.children is not None else None


@cache
def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=TextRenderer)
    markdown.enable("table").disable(["image", "html_block", "lheading", "code"])
    markdown.core.ruler.push("fit into page", _fit_into_page)
    return markdown


def has_table(text: str) -> bool:
    """Whether a line of it is a row of a Markdown table."""
    return any(ROW.fullmatch(line) and line.count("|") > 2 for line in text.splitlines())


def _complete_tables(text: str) -> str:
    """The text, with an empty head before rows that begin within a table, as chunks of a long one do."""
    lines = text.split("\n")
    written: list[str] = []
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        after = lines[number + 1] if number + 1 < len(lines) else ""
        if ROW.fullmatch(line) and not ROW.fullmatch(before):
            if written and written[-1].strip():
                written.append("")
            if not RULE.fullmatch(after):
                cells = line.count("|") - 1
                written += ["|" + "  |" * cells, "|" + "---|" * cells]
                if RULE.fullmatch(line):
                    continue
        written.append(line)
    return "\n".join(written)


def render_text(text: str, cited: tuple[int, int] | None = None) -> SafeString:
    """Markdown as HTML. HTML in it is shown as text, pictures stay text. cited: the place in `text` that is marked."""
    source = text.translate(MARKS) if cited is None else _with_marks(text, *cited)
    html: str = _markdown().render(_complete_tables(source), {"in_mark": False})
    return mark_safe(EMPTY_HEAD.sub("", html))  # noqa: S308 (escaped by the renderer)


def _with_marks(text: str, start: int, end: int) -> str:
    start, end = max(start, 0), min(end, len(text))
    while start < end and text[start] in SYNTAX:
        start += 1
    while end > start and text[end - 1] in SYNTAX:
        end -= 1
    before, place, after = (part.translate(MARKS) for part in (text[:start], text[start:end], text[end:]))
    return f"{before}{OPEN}{place}{CLOSE}{after}" if place else before + after


@register.filter
def formatted(pieces: Sequence[Piece]) -> SafeString:
    """The text of pieces that follow each other, as `render_text` gives it."""
    cited = [piece for piece in pieces if piece.cited]
    first = pieces[0].start if pieces else 0
    place = (cited[0].start - first, cited[-1].start - first + len(cited[-1].text)) if cited else None
    return render_text("".join(piece.text for piece in pieces), place)


@register.filter
def as_table(content: str) -> SafeString | str:
    """The beginning of a text with a table in it, rendered; "" for a text without one."""
    if not has_table(content):
        return ""
    end = content.rfind("\n", 0, CLIPPED_CHARS) if len(content) > CLIPPED_CHARS else len(content)
    return render_text(content[: end if end > 0 else CLIPPED_CHARS])


@register.filter
def with_table(pieces: Sequence[Piece]) -> bool:
    """Whether the text of the pieces holds a table."""
    return has_table("".join(piece.text for piece in pieces))
