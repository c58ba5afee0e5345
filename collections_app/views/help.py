"""The documentation of the product as pages of it, from docs/*.md and README.md."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET
from markdown_it import MarkdownIt
from markdown_it.token import Token

from collections_app.http.page_requests import PageRequest, render_page

REPOSITORY = Path(__file__).resolve().parents[2]
AT_THE_TOP = {"readme": "README.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
LOCAL = re.compile(r"^(?:\.\./|docs/)?([A-Za-z0-9-]+)\.md(#.*)?$")


@require_GET
def show_help(request: PageRequest, page: str = "index") -> HttpResponse:
    path = REPOSITORY / AT_THE_TOP.get(page, f"docs/{page}.md")
    if not path.is_file():
        raise Http404(f"there is no page {page!r} of the documentation")
    title, headings, html = render_document(path, path.stat().st_mtime_ns)
    return render_page(request, "shell/help.html", {"title": title, "headings": headings, "html": html, "page": page})


@lru_cache(maxsize=128)
def render_document(path: Path, changed_ns: int) -> tuple[str, tuple[tuple[str, str], ...], SafeString]:
    """(title, (anchor, text) of each heading of the second level, HTML behind the title) of a Markdown file.

    HTML in the file is shown as text. changed_ns: when it was written, for the cache alone.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(path.read_text(encoding="utf-8"))
    title, headings = path.stem, []
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            text = _text_of(tokens[at + 1])
            anchor = anchor_of(text)
            token.attrSet("id", anchor)
            if token.tag == "h2":
                headings.append((anchor, text))
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", _address(str(child.attrGet("href") or "")))
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        title, tokens = _text_of(tokens[1]), tokens[3:]
    # the files are the product's own, and what is HTML in them was escaped
    return title, tuple(headings), mark_safe(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S308


def _text_of(inline: Token) -> str:
    return "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))


def anchor_of(heading: str) -> str:
    """As GitHub makes it: lower case, hyphens for spaces, without other signs."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _address(href: str) -> str:
    """A link to another file of the documentation leads to its page here."""
    found = LOCAL.match(href)
    if not found:
        return href
    return reverse("collections:help-page", args=[found[1].lower()]) + (found[2] or "")
