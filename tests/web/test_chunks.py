"""Pages about single chunks: changed by hand, flagged, compared, and cut by another policy that is tried."""

from __future__ import annotations

import html as html_module
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.web.pages import has, texts, tones

pytestmark = pytest.mark.usefixtures("module_nature", "bound")

DOC = "/collections/nature/documents/whales.md/"
CHANGE = "/collections/nature/chunks/1/whales.md/?view=change"


def text(response: Any) -> str:
    assert response.status_code == 200, response.content.decode()
    return html_module.unescape(response.content.decode())


@pytest.fixture
def nature(fill: Callable[..., Any]) -> Any:
    return fill()


def test_a_chunk_is_edited_in_place_and_the_edit_taken_back(visitor: Client, nature: Any) -> None:
    response = visitor.post(CHANGE, {"action": "edit", "content": "Whales sing all night.", "revision": "1"})
    assert response["Location"] == f"{DOC}?chunk=1#chunk-1"
    shown = visitor.get(DOC)
    assert tones(shown) == ["good"]
    page = text(shown)
    assert re.search(r'<article class="chunk" id="chunk-1".*?edited.*?Whales sing all night', page, re.DOTALL)
    assert "1 manual edit<" in page or "1 manual edit" in page
    assert "Humpback whales sing for hours." in page  # the document's own text stays
    chunk = text(visitor.get("/collections/nature/chunks/1/whales.md/"))
    assert "Humpback whales sing for hours." in chunk
    (overlay,) = re.findall(r'name="overlay_id" value="(\d+)"', chunk)
    visitor.post(CHANGE, {"action": "undo", "overlay_id": overlay})
    assert "edited" not in text(visitor.get(DOC)).split("Edit reverted.")[0].split("article")[-1]
    assert nature.documents.get(doc_id="whales.md").revision == 3


def test_what_is_refused_is_kept_and_said(visitor: Client, nature: Any) -> None:
    stale = visitor.post(CHANGE, {"action": "edit", "content": "Typed with care.", "revision": "7"})
    assert stale.status_code == 409
    assert has(stale, "[role=alert]")
    assert "Typed with care." in stale.content.decode()
    empty = visitor.post(CHANGE, {"action": "add", "content": "  ", "revision": "1"})
    assert (empty.status_code, has(empty, "[role=alert]")) == (400, True)
    assert visitor.post(CHANGE, {"action": "explode"}).status_code == 422
    assert visitor.get(CHANGE).status_code == 405
    assert visitor.post("/collections/nature/chunks/1/none.md/?view=change", {"action": "disable"}).status_code == 404
    assert nature.documents.get(doc_id="whales.md").revision == 1


def test_an_undo_button_comes_with_what_was_done(visitor: Client, nature: Any) -> None:
    visitor.post(CHANGE, {"action": "disable", "revision": "1"})
    shown = visitor.get(DOC)
    assert tones(shown) == ["good"]
    page = text(shown)
    (values,) = re.findall(r'hx-vals="(\{[^"]*"action".*?\})" hx-swap', page)
    overlay = re.findall(r'"overlay_id": (\d+)', values)[0]
    back = visitor.post(CHANGE, {"action": "undo", "overlay_id": overlay}, headers={"HX-Request": "true"})
    assert back["HX-Redirect"] == DOC
    assert nature.chunks.filter(doc_id="whales.md", enabled=False).count() == 0


def test_a_change_that_waits_is_told_attached_or_removed(visitor: Client, nature: Any) -> None:
    from collections_app.documents.services import ingest_text

    visitor.post(CHANGE, {"action": "edit", "content": "Whales sing all night.", "revision": "1"})
    ingest_text(nature, "whales.md", "# Whales\n\nA wholly different text about whales and their oceans.")
    assert texts(visitor.get(DOC), ".reading-tools .watch")[0].startswith("1 ")
    page = text(visitor.get("/collections/nature/documents/whales.md/?view=overlays"))
    assert 'data-tone="watch"' in page
    assert "Humpback whales sing for hours." in page
    (overlay,) = re.findall(r'name="overlay_id" value="(\d+)"', page)
    values = {"action": "attach", "overlay_id": overlay, "target": "0"}
    visitor.post("/collections/nature/chunks/0/whales.md/?view=change", values)
    assert has(visitor.get("/collections/nature/documents/whales.md/?view=overlays"), ".overlay .chip[data-tone=good]")
    assert nature.chunks.get(doc_id="whales.md", chunk_index=0).content == "Whales sing all night."


def test_only_flagged_chunks_with_the_text_around_them(visitor: Client, nature: Any) -> None:
    from collections_app.documents.services import ingest_text

    body = "\n\n".join(f"Paragraph {number} has a number of quite usual words in it." for number in range(40))
    ingest_text(nature, "numbers.md", f"{body}\n\n" + " ".join(str(number) for number in range(1000, 1030)))
    page = text(visitor.get("/collections/nature/documents/numbers.md/?flagged=1"))
    shown = re.findall(r'<article class="chunk[^"]*" id="chunk-(\d+)"', page)
    every = re.findall(r'id="chunk-(\d+)"', text(visitor.get("/collections/nature/documents/numbers.md/")))
    assert 0 < len(shown) < len(every)
    assert "no letters" in page
    assert "Paragraph 39" in page
    assert "Paragraph 3 has" not in page
    assert not has(visitor.get(f"{DOC}?flagged=1"), "article.chunk")


def test_near_duplicates_are_looked_for_and_listed(visitor: Client, nature: Any) -> None:
    from collections_app.documents.services import ingest_text

    ingest_text(nature, "again.md", nature.documents.get(doc_id="rivers.md").text)
    assert not has(visitor.get("/collections/nature/health/"), "tbody th")
    visitor.post("/collections/nature/health/")
    page = text(visitor.get("/collections/nature/health/?flag=duplicate"))
    assert "near-duplicate" in page
    assert re.search(r"similar to <a[^>]*>again\.md#0</a>, 100 %", page)
    assert "near-duplicate" in text(visitor.get("/collections/nature/documents/rivers.md/"))
    assert visitor.get("/collections/nature/health/?flag=nonsense&page=x").status_code == 200


def test_a_policy_is_tried_and_then_applied(visitor: Client, nature: Any) -> None:
    address, view = "/collections/nature/documents/whales.md/?view=preview", {"view": "preview"}
    before = nature.documents.get(doc_id="whales.md")
    page = text(visitor.get(address))
    assert "2 of 2 embeddings reused, 0 to embed. 2 of 2 boundaries" in page
    tried = {"kind": "structure", "target_tokens": "6", "overlap_tokens": "0", "max_chars": "1000"}
    part = visitor.get(address, tried | view, headers={"HX-Request": "true", "HX-Target": "preview"})
    assert part.content.decode().startswith('<div id="preview"')
    wrong = visitor.get(address, tried | view | {"overlap_tokens": "9"})
    assert wrong.status_code == 422
    assert "overlap_tokens must be smaller than target_tokens (6)" in wrong.content.decode()
    assert nature.documents.get(doc_id="whales.md").updated_at == before.updated_at
    assert visitor.post(address, tried)["Location"] == DOC
    after = nature.documents.get(doc_id="whales.md")
    assert (after.chunk_policy["target_tokens"], after.revision) == (6, 2)
    assert after.chunk_count > before.chunk_count
    sample = text(visitor.get("/collections/nature/index-versions/", tried))
    assert "3 documents of 3" in sample
    assert "index-versions/?kind=structure&target_tokens=6&overlap_tokens=0&max_chars=1000#change" in sample
    filled = text(visitor.get("/collections/nature/index-versions/", tried))
    assert re.search(r'name="target_tokens" value="6"', filled)


def test_a_chunk_tells_its_neighbours_and_the_runs_that_retrieved_it(
    visitor: Client, nature: Any, ask: Callable[..., Any]
) -> None:
    run = ask("How long do humpback whales sing?")
    part = text(visitor.get("/collections/nature/retrieved/chunk/1/whales.md/"))
    assert f"/runs/{run.pk}/" in part
    assert "Cited" in part
    assert f"/runs/{run.pk}/" in text(visitor.get("/collections/nature/retrieved/document/whales.md/"))
    near = text(visitor.get("/collections/nature/chunks/1/whales.md/?view=neighbours"))
    assert "/collections/nature/chunks/0/whales.md/" in near
    others = text(visitor.get("/collections/nature/chunks/1/whales.md/?view=neighbours&others=1"))
    assert '/collections/nature/chunks/0/whales.md/" data-drawer' not in others
    assert visitor.get("/collections/nature/chunks/9/whales.md/?view=neighbours").status_code == 404
