"""Rows of metadata, rows of a filter and the tree of folders, as a script makes them work."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import expect

from collections_app.documents.edits import edit_document
from collections_app.models import Document
from tests.browser.conftest import Visit

WHALES = "animals/whales.md"


def test_rows_and_json_say_the_same_and_are_saved(visit: Visit, nature: Any) -> None:
    edit_document(nature, WHALES, {"metadata": {"deep": {"a": [1]}, "long": 12345678901234567890123}})
    page = visit.go(f"/collections/nature/documents/{WHALES}?view=edit")
    rows, area = page.locator("[data-row-of-metadata]"), page.locator("#id_metadata")
    expect(rows).to_have_count(4)

    def fill(number: int, key: str, kind: str, value: str) -> None:
        rows.nth(number).get_by_label("Field").fill(key)
        rows.nth(number).get_by_label("Type").select_option(kind)
        rows.nth(number).get_by_label("Value").fill(value)

    fill(2, "year", "number", "2024")
    fill(3, "seen", "date", "2024-01-31")
    fill(4, "topics", "list", "sea, song")
    expect(rows).to_have_count(6)
    expect(rows.nth(3).get_by_label("Value")).to_have_attribute("type", "date")
    stated = {"deep": {"a": [1]}, "long": 12345678901234567890123, "year": 2024, "seen": "2024-01-31"}
    stated["topics"] = ["sea", "song"]
    assert json.loads(area.input_value()) == stated
    page.locator("summary", has_text="Edit as JSON").click()
    assert visit.faults() == []
    area.fill('{"year": 2025, "big": true}')
    area.blur()
    expect(rows.nth(0).get_by_label("Value")).to_have_value("2025")
    expect(rows.nth(1).get_by_label("Type")).to_have_value("truth")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts .toast")).to_be_visible()
    assert Document.objects.get(doc_id=WHALES).metadata == {"year": 2025, "big": True}


def test_rows_write_the_filter_that_the_list_has(visit: Visit, nature: Any) -> None:
    edit_document(nature, WHALES, {"metadata": {"year": 2024}})
    page = visit.go("/collections/nature/")
    page.locator("#filter-filter > details > summary").click()
    page.locator("#id_filter-build summary").click()
    page.locator("#id_filter-field-1").select_option("metadata.year")
    page.locator("#id_filter-field-2").wait_for()
    page.locator("#id_filter-op-1").select_option("gte")
    page.locator("#id_filter-value-1").fill("2020")
    page.locator("#id_filter-value-1").blur()
    expect(page.locator("#id_filter")).to_have_value("metadata.year >= 2020")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#documents tbody tr")).to_have_count(1)
    page.locator("#filter-filter > details > summary").click()  # the rows outlast the new list
    assert "row-field" not in page.url and "filter=metadata.year" in page.url
    assert visit.faults() == []
    page.locator("#id_filter-rows").get_by_role("button", name="Remove metadata.year").click()
    expect(page.locator("#id_filter")).to_have_value("")


def test_folders_open_and_close_and_narrow_the_list(visit: Visit, nature: Any) -> None:
    Document.objects.bulk_create([Document(collection=nature, doc_id=f"animals/birds/{n}.md") for n in range(3)])
    page = visit.go("/collections/nature/")
    tree = page.locator("nav.folders")
    page.locator("#filter-folder > details > summary").click()
    tree.locator("summary").click()
    expect(tree.get_by_role("link", name="birds 3")).to_be_visible()
    assert visit.faults() == []
    tree.get_by_role("link", name="birds 3").click()
    expect(page.locator("#documents tbody tr")).to_have_count(3)
    page.get_by_label("Remove the filter Folder").click()
    expect(page.locator("#documents tbody tr")).to_have_count(6)
    expect(page.locator("#filter-folder > details > summary")).to_be_focused()
