"""What every page has: the way to the log-in and back, keys, and the palette with what can be done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.sessions.models import Session
from django.test import Client
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit

if TYPE_CHECKING:
    from collections_app.models import Collection


def log_in(page: Page) -> None:
    page.wait_for_url("**/accounts/login/**")
    page.fill("[name=username]", "ada")
    page.fill("[name=password]", "lovelace")
    page.get_by_role("button", name="Log in", exact=True).click()


def test_a_session_that_ended_leads_to_the_log_in_and_back_with_what_was_typed(
    visit: Visit, nature: Collection
) -> None:
    page = visit.go("/chat/")
    page.fill("[name=query]", "Which tree is the tallest?")
    Session.objects.all().delete()
    page.locator("form[data-stream] button[type=submit]").first.click()
    log_in(page)
    expect(page).to_have_url(f"{visit.base}/chat/")
    expect(page.locator("[name=query]")).to_have_value("Which tree is the tallest?")
    page = visit.go("/collections/nature/settings/")
    page.fill("[name=description]", "Trees and whales")
    Session.objects.all().delete()
    page.get_by_role("button", name="Save settings").click()
    log_in(page)
    expect(page).to_have_url(f"{visit.base}/collections/nature/settings/")
    expect(page.locator("[name=description]")).to_have_value("Trees and whales")
    visit.go("/collections/nature/settings/")  # it comes back once
    expect(page.locator("[name=description]")).to_have_value("Animals, trees and rivers")
    assert all("401" in complaint for complaint in visit.complaints), visit.complaints
    visit.complaints.clear()


def test_keys_lead_to_places_press_buttons_and_walk_through_rows(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/traces/")
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.wait_for_url(f"{visit.base}/")
    page = visit.go("/collections/nature/")
    page.keyboard.press("?")
    keys = page.locator("#keys-dialog[open]")
    expect(keys.locator("dt", has_text="g").filter(has_text="l")).to_be_visible()
    page.keyboard.press("Escape")
    page.evaluate("""() => {
        const row = (at) => `<li data-row><a data-row-link href="#row-${at}">${at}</a></li>`;
        document.querySelector("main").insertAdjacentHTML("beforeend",
            `<ul>${[1, 2, 3].map(row).join("")}</ul><button data-key="e" aria-keyshortcuts="e">Edit</button>`);
        document.querySelector("[data-key=e]").addEventListener("click", () => { document.title = "pressed"; });
    }""")
    rows = page.locator("[data-row-link]")
    expected = rows.count()
    page.keyboard.press("k")
    expect(rows.nth(expected - 1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{visit.base}/collections/nature/#row-3")
    page.keyboard.press("e")
    expect(page).to_have_title("pressed")
    page.keyboard.press("?")
    expect(page.locator("[data-page-keys] kbd")).to_contain_text(["e"])
    page.keyboard.press("Escape")
    page.locator("[data-search]").first.focus()
    page.keyboard.type("eg")
    expect(page.locator("[data-search]").first).to_have_value("eg")


def test_the_palette_does_what_can_be_done(visit: Visit, nature: Collection) -> None:
    page = visit.go("/activity/")

    def choose(words: str) -> Any:
        page.keyboard.press("Control+k")
        page.locator("#palette input[type=search]").fill(words)
        return page.locator("#palette-results :is(a, button)").first

    expect(choose("dark")).to_have_text("Dark theme")
    page.keyboard.press("Enter")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    expect(page.locator("#palette")).to_be_hidden()
    expect(choose("upload nat")).to_have_text("Upload to nature")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/collections/nature/upload/")
    page = visit.go("/collections/nature/documents/rivers.md/")
    choose("delete")  # nothing else has that name: it is the button of this page
    expect(page.locator("#palette-actions button")).to_have_text("Delete")
    page.keyboard.press("Enter")
    expect(page.locator("#dialog[open]")).to_contain_text("rivers.md")
    page.keyboard.press("Escape")
    expect(choose("deutsch")).to_have_text("Deutsch")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page).to_have_url(f"{visit.base}/collections/nature/documents/rivers.md/")


def test_the_api_reference_draws_every_call_and_what_is_looked_for(visit: Visit, nature: Collection) -> None:
    described = Client().get("/v1/openapi.json").json()["paths"]  # made once per process, which takes seconds
    page = visit.go("/v1/docs#collections-search")
    expect(page.locator(".call")).to_have_count(sum(map(len, described.values())))
    search = page.locator("#collections-search")
    for text in ("curl -X POST", '{"query":"…"}', "SearchResponse", "400, 401"):
        expect(search).to_contain_text(text)
    search.locator("li", has_text="SearchResponse").locator("summary").first.click()
    expect(search).to_contain_text("run_id")
    assert visit.faults() == []
    page.fill("#find", "delete api-keys")
    expect(page.locator(".call:visible .method")).to_have_text(["DELETE"])
    expect(page.get_by_role("status")).to_have_text("1 calls")
    page.route("**/v1/openapi.json", lambda route: route.abort())
    visit.go("/v1/docs")
    expect(page.get_by_role("alert")).to_contain_text("could not be read")
    visit.complaints.clear()  # of the request that was cut off
