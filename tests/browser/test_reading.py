"""A document beside its chunks in a real browser: linked both ways, by mouse and by keys; edited; cut otherwise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit

if TYPE_CHECKING:
    from collections_app.models import Collection

WHALES = "/collections/nature/documents/animals/whales.md/"


def test_text_and_chunks_are_linked_both_ways(visit: Visit, nature: Collection) -> None:
    page = visit.go(WHALES)
    text, chunks = page.locator(".reader .pane").all()
    page.locator("#chunk-5").hover()
    expect(page.locator("#text-5")).to_have_class(re.compile("active"))
    page.locator("#chunk-12 p").click()
    expect(page.locator("#chunk-12")).to_have_attribute("aria-current", "true")
    expect(page.locator("#text-12")).to_be_in_viewport()
    expect(page.locator("#text-12")).to_have_class(re.compile("chosen"))

    piece = text.locator('.piece[data-chunks~="25"]').first
    piece.click()
    expect(page.locator("#chunk-25")).to_be_in_viewport()
    expect(page.locator("#chunk-25")).to_have_attribute("aria-current", "true")
    expect(page.locator("#chunk-12")).not_to_have_attribute("aria-current", "true")

    page.locator("#text-25").press("Enter")
    expect(page.locator("#chunk-25")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#chunk-26")).to_be_focused()
    expect(page.locator("#text-26")).to_be_in_viewport()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(chunks.locator("[aria-current=true]")).to_have_id("chunk-24")


def test_another_policy_moves_the_edges_as_it_is_typed(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/nature/documents/animals/whales.md/?view=preview")
    expect(page.locator(".preview-text .edge:not(.same)")).to_have_count(0)
    page.get_by_label("Chunk size (words)").fill("60")
    expect(page).to_have_url(re.compile("target_tokens=60"))
    expect(page.locator("#preview")).to_contain_text("to embed")
    expect(page.locator(".preview-text .edge-gone").first).to_be_attached()
    page.get_by_label("Overlap (words)").fill("60")
    expect(page.locator("#preview")).to_contain_text("overlap_tokens must be smaller than target_tokens (60)")
    page.get_by_label("Overlap (words)").fill("5")
    page.get_by_role("button", name="Apply to this document").click()
    expect(page.locator("#toasts")).to_contain_text("now has its own chunking policy")


@pytest.mark.fault("UX-F9")
def test_the_citation_of_an_edited_chunk_opens_the_edited_passage(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/nature/documents/trees.md/")
    page.locator("#chunk-0 summary").first.click()
    edited = "# Trees\n\nThe coast redwood is the tallest tree of all. It grows in Oregon and California."
    page.get_by_label("Content of chunk 0").fill(edited)
    page.get_by_label("Content of chunk 0").press("Control+Enter")
    expect(page.locator("#chunk-0")).to_contain_text("edited")

    visit.go("/chat/?collection=nature")
    page.keyboard.type("Where does the coast redwood grow, in Oregon?")
    page.keyboard.press("Enter")
    expect(page.locator(".answer")).to_contain_text("Oregon")
    page.locator(".answer .cite[data-evidence]").last.click()  # of the answer as it is stored
    note = page.locator("[data-edited]")
    expect(note.locator("#cited")).to_contain_text("Oregon")
    expect(note.locator("#cited")).to_be_in_viewport()
    expect(note.locator("#cited")).not_to_contain_text("tallest")
    expect(note.locator("ins").filter(has_text="Oregon")).to_be_visible()
    assert visit.faults() == []
    cited, panel = page.url, page.locator("#drawer")
    page.go_back()
    expect(panel).to_be_hidden()
    page.go_forward()
    page.reload()
    panel.get_by_role("link", name="Why", exact=True).click()
    expect(panel.locator("#ranking")).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page).to_have_url(cited.partition("#")[0])
    visit.go("/collections/nature/chunks/0/trees.md/")
    page.get_by_role("button", name="Revert edit").click()
    page.goto(cited)
    expect(note).to_contain_text("reverted")
