"""The main ways through the product in Firefox: log-in, upload, answer, citation, run, theme, palette."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import Browser, expect

from tests.browser.conftest import Visit, expect_page, visiting

if TYPE_CHECKING:
    from collections_app.models import Collection


def test_the_main_ways_work_in_firefox(
    firefox: Browser, live_server: Any, nature: Collection, django_user_model: Any, tmp_path: Path
) -> None:
    django_user_model.objects.create_superuser("ada", password="lovelace")
    with visiting(firefox.new_context(), live_server.url) as visit:
        log_in_and_ask(visit, tmp_path)
        read_the_run_and_go_elsewhere(visit)


def log_in_and_ask(visit: Visit, folder: Path) -> None:
    page = visit.page
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill("lovelace")
    page.get_by_role("button", name="Log in", exact=True).click()
    expect_page(page, "Ask your documents, or drop files here")

    visit.go("/collections/nature/upload/")
    (folder / "bees.txt").write_text("A honey bee visits about five thousand flowers in one day.")
    page.locator("#id_uploads").set_input_files(folder / "bees.txt")
    page.get_by_role("button", name="Upload 1 file").click()
    expect(page.locator("#upload-results li")).to_contain_text("Succeeded")

    visit.go("/chat/")
    page.get_by_label("Question").fill("How many flowers does a honey bee visit in one day?")
    page.keyboard.press("Enter")
    expect(page.locator(".answer")).to_contain_text("five thousand flowers")
    expect(page).to_have_url(re.compile(r"/chat/[0-9a-f-]{36}/"))
    expect(page.locator("#chat[data-streaming]")).to_have_count(0)  # the answer is whole
    page.locator(".answer .cite").first.click()
    expect(page.locator("#cited")).to_be_in_viewport()
    expect(page.locator("#cited")).to_contain_text("five thousand flowers")
    page.evaluate("history.back()")  # within the page: there is no load to wait for
    expect(page.locator("#drawer")).to_be_hidden()
    expect_page(page, "How many flowers does a honey bee visit in one day?")


def read_the_run_and_go_elsewhere(visit: Visit) -> None:
    page = visit.go("/activity/")
    page.get_by_role("link", name="How many flowers").first.click()
    page.wait_for_url("**/runs/*/")
    for tab in ("ranking", "trace", "evaluation"):
        page.locator(f".tabs a[href$='?view={tab}']").click()
        page.wait_for_url(f"**/?view={tab}")
        assert visit.overflow_px() <= 0

    visit.darken()

    page.keyboard.press("Control+k")
    page.locator("#palette input[type=search]").fill("rivers")
    expect(page.locator("#palette-results")).to_contain_text("Rivers")
    for _ in ("ask", "search", "the document"):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/documents/rivers.md/")
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.wait_for_url("**/collections/")
