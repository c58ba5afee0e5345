"""Through the rows of a list, from an object to the next one of the filtered list, and back to where it was left."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit

if TYPE_CHECKING:
    from collections_app.models import Collection


def test_from_document_to_document_over_the_pages_of_a_filtered_list(
    visit: Visit, nature: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections_app.documents.services import ingest_text

    for name in ("oaks", "elms"):
        ingest_text(nature, f"{name}.md", f"Many {name} grow here.", tags=["forest"])
    ingest_text(nature, "firs.md", "Many firs grow here.", tags=["forest"])
    monkeypatch.setattr("collections_app.documents.views.DOCUMENTS.per_page", 2)
    page = visit.go("/collections/nature/?tag=forest")
    names = page.locator("#documents [data-row-link]")
    expect(names).to_have_count(2)
    order = [str(each.get_attribute("href")) for each in names.all()]
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(names.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{order[1]}")
    before, after = page.locator(".top [rel=prev]"), page.locator(".top [rel=next]")
    expect(before).to_have_attribute("href", order[0])
    page.keyboard.press("j")  # to the next page of the list, which holds the last one
    page.wait_for_url(re.compile(r"/documents/(?!" + "|".join(each.split("/")[-2] for each in order) + r")\w+\.md/$"))
    expect(after).to_have_count(0)
    page.keyboard.press("k")
    page.wait_for_url(f"**{order[1]}")
    page.keyboard.press("k")
    page.wait_for_url(f"**{order[0]}")
    expect(before).to_have_count(0)
    page.locator(".crumbs a[href*='tag=forest']").click()
    page.wait_for_url(re.compile(r"/collections/nature/\?.*tag=forest"))
    expect(names.nth(0)).to_be_focused()


def test_jobs_are_walked_through_in_the_drawer(visit: Visit, nature: Collection, make_jobs: Callable[[], None]) -> None:
    from collections_app.models import IngestJob

    make_jobs()
    IngestJob.objects.exclude(state__in=("failed", "cancelled")).delete()
    page = visit.go("/collections/nature/uploads/?state=all")
    titles = page.locator("#jobs tbody th a").all_inner_texts()
    assert sorted(titles) == ["cancelled.pdf", "failed.pdf"]
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    drawer = page.locator("#drawer[open]")
    expect(drawer.locator("#detail")).to_contain_text(titles[0])
    expect(drawer.locator("[data-place]")).to_have_text("1 of 2")
    page.keyboard.press("j")
    expect(drawer.locator("#detail")).to_contain_text(titles[1])
    expect(drawer.locator("[rel=next]")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{visit.base}/collections/nature/uploads/?state=all")
