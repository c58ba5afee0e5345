"""Documents changed on pages: the table, its filters and bulk bar; the form of one; revisions and their differences.
Pages about single chunks: changed by hand, flagged, compared, and cut by another policy that is tried."""

from __future__ import annotations

import html as html_module
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client

from collections_app.documents.edits import edit_document
from collections_app.documents.services import get_document, ingest_text
from collections_app.models import Document, DocumentRevision
from tests.web.pages import attribute, has, text, texts, tones
from tests.web.test_documents import listed

pytestmark = pytest.mark.usefixtures("module_nature", "bound")

TABLE = "/collections/nature/"
CHANGE = "/collections/nature/?view=change"
WHALES = "whales.md"


def hidden(html: str) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', html):
        fields.setdefault(name, []).append(unescape(value))
    return fields


@pytest.fixture
def nature(fill: Callable[..., Any]) -> Any:
    return fill()


@pytest.fixture
def revised(nature: Any) -> Any:
    """whales.md at revision 3: another text, then other tags."""
    ingest_text(nature, WHALES, "# Whales\n\nThe blue whale is the largest animal. It eats fish.", title="Whales")
    edit_document(nature, WHALES, {"tags": ["sea", "<b>"]})
    return nature


def test_filters_have_counts_and_stand_in_the_address(visitor: Client, nature: Any) -> None:
    edit_document(nature, WHALES, {"tags": ["nature", "sea"]})
    html = text(visitor.get(f"{TABLE}?tag=nature&tag=sea&sort=-revision"))
    assert listed(html) == [WHALES]
    assert 'Active</span><span class="tally">1<' in html
    assert 'href="?sort=-revision&amp;tag=nature"' in html  # without the tag sea
    assert 'sea</span><span class="tally">1<' in text(visitor.get(TABLE))
    assert listed(text(visitor.get(f"{TABLE}?type=text/html"))) == []


def test_all_that_match_are_changed_after_a_page_that_counts_them(
    visitor: Client, nature: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collections_app.documents.views.DOCUMENTS.per_page", 2)
    html = text(visitor.get(TABLE))
    assert "Select all 3 matching" in html
    fields = {"all_matching": "on", "f_q": "", "f_state": "present", "f_type": "", "action": "disable"}
    asked = text(visitor.post(CHANGE, fields | {"doc_id": [WHALES]}))
    assert 'data-action="disable" data-documents="3"' in asked
    assert not Document.objects.filter(enabled=False).exists()
    answer = visitor.post(CHANGE, hidden(asked), follow=True)
    assert tones(answer) == ["good"]
    assert not Document.objects.filter(enabled=True).exists()
    ingest_text(nature, "new.md", "A new one.")
    assert tones(visitor.post(CHANGE, hidden(asked), follow=True)) == ["bad"]
    assert not Document.objects.get(doc_id="whales.md").enabled and Document.objects.get(doc_id="new.md").enabled


def test_documents_are_filtered_by_an_expression(visitor: Client, nature: Any) -> None:
    edit_document(nature, WHALES, {"metadata": {"year": 2024}})
    html = text(visitor.get(TABLE, {"filter": "metadata.year >= 2020 and title starts with Wh"}))
    assert listed(html) == [WHALES] and "metadata.year &gt;= 2020" in html
    for wrong in ("metadata.year >=", "page = 3"):
        answer = visitor.get(TABLE, {"filter": wrong})
        assert answer.status_code == 422 and listed(text(answer)) == []
        assert has(answer, "#filter-error") and attribute(answer, "#id_filter", "value") == wrong
    fields = {"all_matching": "on", "f_state": "present", "action": "disable", "f_filter": "metadata.year >= 2020"}
    asked = text(visitor.post(CHANGE, fields))
    assert 'data-documents="1"' in asked
    visitor.post(CHANGE, hidden(asked), follow=True)
    assert list(Document.objects.filter(enabled=False).values_list("doc_id", flat=True)) == [WHALES]
    for wrong in ("metadata.year >=", "page = 3"):
        fields = {"all_matching": "on", "action": "enable", "confirmed": "on", "f_filter": wrong}
        assert tones(visitor.post(CHANGE, fields, follow=True)) == ["bad"]
    assert Document.objects.filter(enabled=False).count() == 1


def test_a_filter_is_completed_from_its_own_collection(visitor: Client, fill: Callable[..., Any]) -> None:
    nature, attic = fill(), fill("attic")
    edit_document(nature, WHALES, {"metadata": {"year": 2024, "the <b>": True}, "tags": ["sea"]})
    edit_document(attic, WHALES, {"metadata": {"secret": 1}, "tags": ["season"]})

    def offered(filter: str, collection: str = "nature", **more: str) -> list[str]:
        asked = {"filter": filter, "collection": collection, **more}
        html = text(visitor.get("/filter-completions/", asked))
        return [unescape(value) for value in re.findall(r'<option value="([^"]*)">', html)]

    names = offered("")
    assert {"metadata.year", "metadata['the <b>']", "title", "section"} <= {*names}
    assert not {"metadata.secret", "slide"} & {*names}
    assert "section" not in offered("", of="documents")
    assert offered("tags = se") == ["tags = 'sea'"]
    assert offered("metadata.year = ") == ["metadata.year = 2024"]
    assert "block = 'text'" in offered("block = ")
    assert offered("metadata.year = ", "none") == []
    assert offered("page = = ") == [] == offered("x\x00")
    assert offered("", field="b-filter", **{"b-filter": "titl"}) == ["title"]


def test_tags_and_metadata_of_many(visitor: Client, nature: Any) -> None:
    edit_document(nature, "trees.md", {"state": "archived"})
    chosen = {"action": "label", "doc_id": [WHALES, "rivers.md", "trees.md"]}
    form = text(visitor.post(CHANGE, chosen))
    assert hidden(form)["doc_id"] == chosen["doc_id"]
    empty = visitor.post(CHANGE, hidden(form))
    assert (empty.status_code, has(empty, ".form-errors")) == (422, True)
    filled = hidden(form) | {"add_tags": "water, wet", "remove_tags": "nature", "metadata": '{"team": [1, 2]}'}
    said = text(visitor.post(CHANGE, filled, follow=True))
    assert "2 documents updated." in said
    assert "1 document not changed" in said
    whales = get_document(nature, WHALES)
    assert (whales.tags, whales.metadata) == (["water", "wet"], {"team": [1, 2]})
    rows = {"metadata-key": ["team", "none", ""], "metadata-kind": ["text", "number", "text"]}
    rows |= {"metadata-value": ["plain words", "3", ""], "scope": "existing", "remove_key": "none"}
    visitor.post(CHANGE, hidden(form) | rows)
    assert get_document(nature, WHALES).metadata == {"team": "plain words"}
    assert visitor.post(CHANGE, hidden(form) | {"add_tags": "new", "language": "x1"}).status_code == 422
    assert get_document(nature, WHALES).tags == ["water", "wet"]
    visitor.post(CHANGE, hidden(form) | {"language": "FR"})
    assert get_document(nature, WHALES).language_stated == "fr"
    visitor.post(CHANGE, hidden(form) | {"detect_language": "on"})
    assert (get_document(nature, WHALES).language_stated, get_document(nature, WHALES).language) == ("", "en")


def test_a_dialog_about_one_document_does_not_speak_of_several(visitor: Client, nature: Any) -> None:
    asked = visitor.post(CHANGE, {"action": "delete", "doc_id": WHALES})
    assert "1 document" in text(asked) and "Deleted documents go to the trash" in text(asked)
    assert "They " not in text(asked)


def test_one_document_is_edited_by_its_form(visitor: Client, nature: Any) -> None:
    address = f"{TABLE}documents/{WHALES}/?view=edit"
    html = text(visitor.get(address))
    assert 'value="Whales"' in html
    values = {"title": "Great whales", "tags": "sea", "metadata": '{"n": 1}', "expected_revision": "1"}
    answer = visitor.post(address, values, follow=True)
    assert tones(answer) == ["good"]
    whales = get_document(nature, WHALES)
    assert (whales.title, whales.tags, whales.metadata) == ("Great whales", ["sea"], {"n": 1})
    late = visitor.post(address, values | {"title": "Late"})
    assert (
        late.status_code,
        "Someone changed this document while you were editing. Reload it, then save again." in text(late),
    ) == (409, True)
    assert 'value="Late"' in text(late)
    wrong = visitor.post(address, values | {"metadata": "[1]", "expected_revision": "2"})
    assert (wrong.status_code, "this must be a JSON object" in text(wrong)) == (422, True)
    visitor.post(address, values | {"expected_revision": "2"}, follow=True)
    assert get_document(nature, WHALES).revision == 2
    chunking = f"{TABLE}documents/{WHALES}/?view=preview"
    assert attribute(visitor.get(address), "form a[href$='?view=preview']", "href") == chunking
    tried = {"kind": "structure", "target_tokens": "8", "overlap_tokens": "0", "max_chars": "900"}
    visitor.post(chunking, tried)
    assert "own chunking policy" in text(visitor.get(TABLE))
    visitor.post(chunking, tried | {"reset": "1"})
    assert get_document(nature, WHALES).chunk_policy_stated == {}
    visitor.post(CHANGE, {"action": "archive", "doc_id": [WHALES]})
    assert not has(visitor.get(address), "#id_title")


def test_a_revision_is_read_and_brought_back(visitor: Client, revised: Any) -> None:
    html = text(visitor.get(f"{TABLE}documents/{WHALES}/?view=revision&number=1&start=10&end=30"))
    assert 'data-cited-revision="1"' in html
    assert re.search(r'<mark class="piece" id="cited">', html)
    assert "krill" in html
    ask = text(visitor.get(f"{TABLE}documents/{WHALES}/?view=rollback&number=1"))
    assert "revision 4" in ask
    answer = visitor.post(f"{TABLE}documents/{WHALES}/?view=rollback&number=1", follow=True)
    assert tones(answer) == ["good"]
    brought_back = get_document(revised, WHALES)
    assert (brought_back.revision, "krill" in brought_back.text) == (4, True)
    assert visitor.get(f"{TABLE}documents/{WHALES}/?view=rollback&number=9").status_code == 404
    edit_document(revised, WHALES, {"state": "archived"})
    assert tones(visitor.post(f"{TABLE}documents/{WHALES}/?view=rollback&number=1", follow=True)) == ["bad"]
    assert get_document(revised, WHALES).revision == 4


def test_a_citation_opens_the_revision_it_was_cited_from(visitor: Client, nature: Any, ask: Callable[..., Any]) -> None:
    run = ask("What does the blue whale eat?")
    page = text(visitor.get(f"/runs/{run.pk}/?citation=1"))
    address = re.search(r'href="(/collections/nature/documents/whales.md/\?start=[^"#]+)', page)
    assert address
    cited = address[1].replace("&amp;", "&")
    assert visitor.get(cited).status_code == 200
    edit_document(nature, WHALES, {"tags": ["sea"]})  # a new revision of the same text: the place is where it was
    here = visitor.get(cited)
    assert here.status_code == 200
    assert not has(here, "[data-cited-revision]")
    ingest_text(nature, WHALES, "Nothing about that any more.", title="Whales")
    moved = visitor.get(cited)
    assert moved.status_code == 302
    html = text(visitor.get(moved["Location"]))
    assert 'data-cited-revision="1"' in html
    chunk = re.search(r'href="(/collections/nature/chunks/\d+/whales.md/\?start=[^"#]+)', page)
    assert chunk
    moved = visitor.get(chunk[1].replace("&amp;", "&"))
    assert moved["Location"].startswith(f"{TABLE}documents/{WHALES}/?view=revision&number=1&")
    marked = "".join(re.findall(r'<mark class="piece"[^>]*>([^<]*)</mark>', html))
    citation = run.citations[0]
    assert marked.strip() in re.sub(r"\s+", " ", citation["quote"]) or citation["quote"] in marked
    DocumentRevision.objects.all().delete()
    assert attribute(visitor.get(cited), ".banner", "data-cited-revision") == "1"


def test_odd_input_of_the_bulk_bar_is_no_error_of_the_server(visitor: Client, nature: Any) -> None:
    for back in ("x", "-1", "{}", "//elsewhere.example/", "https://elsewhere.example/"):
        response = visitor.post(CHANGE, {"action": "enable", "doc_id": WHALES, "next": back})
        assert (response.status_code, response.headers["Location"]) == (302, TABLE)
    assert visitor.get(f"{CHANGE}&doc_id=a%00").status_code == 404


DOC = "/collections/nature/documents/whales.md/"
CHANGE_CHUNKS = "/collections/nature/chunks/1/whales.md/?view=change"


def text_of_chunks(response: Any) -> str:
    assert response.status_code == 200, response.content.decode()
    return html_module.unescape(response.content.decode())


def test_a_chunk_is_edited_in_place_and_the_edit_taken_back(visitor: Client, nature: Any) -> None:
    response = visitor.post(CHANGE_CHUNKS, {"action": "edit", "content": "Whales sing all night.", "revision": "1"})
    assert response["Location"] == f"{DOC}?chunk=1#chunk-1"
    shown = visitor.get(DOC)
    assert tones(shown) == ["good"]
    page = text_of_chunks(shown)
    assert re.search(r'<article class="chunk" id="chunk-1".*?edited.*?Whales sing all night', page, re.DOTALL)
    assert "1 manual edit<" in page or "1 manual edit" in page
    assert "Humpback whales sing for hours." in page  # the document's own text stays
    chunk = text_of_chunks(visitor.get("/collections/nature/chunks/1/whales.md/"))
    assert "Humpback whales sing for hours." in chunk
    (overlay,) = re.findall(r'name="overlay_id" value="(\d+)"', chunk)
    visitor.post(CHANGE_CHUNKS, {"action": "undo", "overlay_id": overlay})
    assert "edited" not in text_of_chunks(visitor.get(DOC)).split("Edit reverted.")[0].split("article")[-1]
    assert nature.documents.get(doc_id="whales.md").revision == 3


def test_what_is_refused_is_kept_and_said(visitor: Client, nature: Any) -> None:
    stale = visitor.post(CHANGE_CHUNKS, {"action": "edit", "content": "Typed with care.", "revision": "7"})
    assert stale.status_code == 409
    assert has(stale, "[role=alert]")
    assert "Typed with care." in stale.content.decode()
    empty = visitor.post(CHANGE_CHUNKS, {"action": "add", "content": "  ", "revision": "1"})
    assert (empty.status_code, has(empty, "[role=alert]")) == (400, True)
    assert visitor.post(CHANGE_CHUNKS, {"action": "explode"}).status_code == 422
    assert visitor.get(CHANGE_CHUNKS).status_code == 405
    assert visitor.post("/collections/nature/chunks/1/none.md/?view=change", {"action": "disable"}).status_code == 404
    assert nature.documents.get(doc_id="whales.md").revision == 1


def test_an_undo_button_comes_with_what_was_done(visitor: Client, nature: Any) -> None:
    visitor.post(CHANGE_CHUNKS, {"action": "disable", "revision": "1"})
    shown = visitor.get(DOC)
    assert tones(shown) == ["good"]
    page = text_of_chunks(shown)
    (values,) = re.findall(r'hx-vals="(\{[^"]*"action".*?\})" hx-swap', page)
    overlay = re.findall(r'"overlay_id": (\d+)', values)[0]
    back = visitor.post(CHANGE_CHUNKS, {"action": "undo", "overlay_id": overlay}, headers={"HX-Request": "true"})
    assert back["HX-Redirect"] == DOC
    assert nature.chunks.filter(doc_id="whales.md", enabled=False).count() == 0


def test_a_change_that_waits_is_told_attached_or_removed(visitor: Client, nature: Any) -> None:
    from collections_app.documents.services import ingest_text

    visitor.post(CHANGE_CHUNKS, {"action": "edit", "content": "Whales sing all night.", "revision": "1"})
    ingest_text(nature, "whales.md", "# Whales\n\nA wholly different text about whales and their oceans.")
    assert texts(visitor.get(DOC), ".reading-tools .watch")[0].startswith("1 ")
    page = text_of_chunks(visitor.get("/collections/nature/documents/whales.md/?view=overlays"))
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
    page = text_of_chunks(visitor.get("/collections/nature/documents/numbers.md/?flagged=1"))
    shown = re.findall(r'<article class="chunk[^"]*" id="chunk-(\d+)"', page)
    every = re.findall(r'id="chunk-(\d+)"', text_of_chunks(visitor.get("/collections/nature/documents/numbers.md/")))
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
    page = text_of_chunks(visitor.get("/collections/nature/health/?flag=duplicate"))
    assert "near-duplicate" in page
    assert re.search(r"similar to <a[^>]*>again\.md#0</a>, 100 %", page)
    assert "near-duplicate" in text_of_chunks(visitor.get("/collections/nature/documents/rivers.md/"))
    assert visitor.get("/collections/nature/health/?flag=nonsense&page=x").status_code == 200


def test_a_policy_is_tried_and_then_applied(visitor: Client, nature: Any) -> None:
    address, view = "/collections/nature/documents/whales.md/?view=preview", {"view": "preview"}
    before = nature.documents.get(doc_id="whales.md")
    page = text_of_chunks(visitor.get(address))
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
    sample = text_of_chunks(visitor.get("/collections/nature/index-versions/", tried))
    assert "3 documents of 3" in sample
    assert "index-versions/?kind=structure&target_tokens=6&overlap_tokens=0&max_chars=1000#change" in sample
    filled = text_of_chunks(visitor.get("/collections/nature/index-versions/", tried))
    assert re.search(r'name="target_tokens" value="6"', filled)


def test_a_chunk_tells_its_neighbours_and_the_runs_that_retrieved_it(
    visitor: Client, nature: Any, ask: Callable[..., Any]
) -> None:
    run = ask("How long do humpback whales sing?")
    part = text_of_chunks(visitor.get("/collections/nature/retrieved/chunk/1/whales.md/"))
    assert f"/runs/{run.pk}/" in part
    assert "Cited" in part
    assert f"/runs/{run.pk}/" in text_of_chunks(visitor.get("/collections/nature/retrieved/document/whales.md/"))
    near = text_of_chunks(visitor.get("/collections/nature/chunks/1/whales.md/?view=neighbours"))
    assert "/collections/nature/chunks/0/whales.md/" in near
    others = text_of_chunks(visitor.get("/collections/nature/chunks/1/whales.md/?view=neighbours&others=1"))
    assert '/collections/nature/chunks/0/whales.md/" data-drawer' not in others
    assert visitor.get("/collections/nature/chunks/9/whales.md/?view=neighbours").status_code == 404
