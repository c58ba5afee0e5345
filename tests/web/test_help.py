"""Help and settings: every file of the documentation is a page and its links lead to pages; snippets; time zone."""

from __future__ import annotations

import json
from pathlib import Path

from django.test import Client

from collections_app.http.page_requests import HELP
from collections_app.http.settings_views import AT_THE_TOP, REPOSITORY, render_document
from tests.addresses import all_addresses
from tests.web.pages import attribute, has, texts, tree

DOCS = {path.stem: path for path in (REPOSITORY / "docs").glob("*.md")} | {
    page: REPOSITORY / name for page, name in AT_THE_TOP.items()
}


def test_what_is_html_in_a_file_is_text(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("# A <b>title</b>\n\n## One & two\n\n<script>alert(1)</script> [y](javascript:alert(1))\n")
    title, headings, html = render_document(path, 0)
    assert (title, headings) == ("A <b>title</b>", (("one--two", "One & two"),))
    assert "<script" not in html and "href" not in html


def test_each_page_opens_its_help(visitor: Client) -> None:
    assert {name for name in HELP if ":" in name} <= {each.name for each in all_addresses()}
    for page, _, anchor in (each.partition("#") for each in HELP.values()):
        assert not anchor or f'id="{anchor}"' in render_document(DOCS[page], 0)[2], (page, anchor)
    assert attribute(visitor.get("/activity/spans/"), "a[href^='/help/']", "href") == "/help/traces/"
    assert attribute(visitor.get("/help/"), ".top .tools a[href^='/help/']", "href") == "/help/"
    page = visitor.get("/help/chunking/")
    assert texts(page, "h1") == ["Chunking"] and has(page, ".prose h2[id]")
    assert len(tree(page).css("aside li")) >= 3
    assert visitor.get("/help/none/").status_code == 404


def test_every_link_of_every_help_page_leads_somewhere(visitor: Client) -> None:
    wrong, pages = [], {page: tree(visitor.get(f"/help/{page}/")) for page in DOCS}
    for page, html in pages.items():
        for link in html.css(".prose a[href]"):
            path, _, anchor = (link.attributes["href"] or "").partition("#")
            target = pages.get(path.removeprefix("/help/").strip("/")) if path.startswith("/help/") else html
            is_there = (
                not path or path.startswith(("http:", "https:", "mailto:")) or visitor.get(path).status_code == 200
            )
            if not is_there or (anchor and target and target.css_first(f"[id='{anchor}']") is None):
                wrong.append(f"{page}: {link.attributes['href']}")
    assert wrong == []
    assert has(visitor.get("/help/architecture/"), ".prose span[title$='.py']")


def test_settings_of_the_reader(visitor: Client) -> None:
    zone = "Europe/Berlin"
    assert visitor.post("/settings/appearance/", {"zone": zone}).cookies["timezone"].value == zone
    assert texts(visitor.get("/settings/appearance/"), "#id_zone option[selected]") == [zone]
    assert visitor.post("/settings/appearance/", {"zone": "Nowhere/City"}).cookies["timezone"].value == ""
    visitor.cookies["theme"] = "dark"
    page = visitor.get("/settings/appearance/")
    assert texts(page, "main button[name=language]") == ["English", "Deutsch"]
    assert [each.attributes["value"] for each in tree(page).css("main button[aria-pressed=true]")] == ["dark", "en"]
    connections = visitor.get("/settings/appearance/?view=connections")
    (mcp,) = texts(connections, "#snippet-mcp")
    assert json.loads(mcp)["mcpServers"]["ragd"]["url"] == "http://testserver/mcp"
    assert texts(connections, "#snippet-openai") == ["http://testserver/v1"]
    assert tree(visitor.get("/v1/docs")).css_first("main").attributes["data-source"] == "/v1/openapi.json"
