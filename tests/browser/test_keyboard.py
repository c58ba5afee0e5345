"""The first minutes of a newcomer without a mouse: the focus is seen at every stop, in order, and is never caught."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import Visit, visiting

MOST_STOPS = 120  # between two things that a person wants to reach on one page

# What has the focus: whether an outline shows it or what it stands for, or a line its form (the palette); whether it
# lies on the screen, once it has come to rest where it is not there at once; whether it follows the stop before it in
# the document.
STOP = """async () => {
  const element = document.activeElement, before = window.stopBefore;
  window.stopBefore = element;
  const outlined = (each) => {
    const style = each && getComputedStyle(each);
    return style && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  };
  const form = element.closest("form");
  const stands = [element, element.nextElementSibling, element.closest("label")];
  const place = () => element.getBoundingClientRect();
  const isInside = (box) => box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
  for (let last = null, moved = performance.now(); !isInside(place()) && performance.now() - moved < 3000;) {
    const {x, y} = place();
    if (!last || last.x !== x || last.y !== y) moved = performance.now();
    last = {x, y};
    await new Promise(requestAnimationFrame);
  }
  return {
    name: element.outerHTML.slice(0, 160),
    isPage: element === document.body || element === document.documentElement,
    isSeen: stands.some(outlined) || Boolean(form && getComputedStyle(form).boxShadow !== "none"),
    isOnScreen: isInside(place()) && element.checkVisibility({visibilityProperty: true}),
    tabIndex: element.tabIndex,
    later: before?.isConnected
      ? Boolean(before.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING) : null,
  };
}"""


class Hands:
    """Keys alone, on the page of a visit. faults: what was wrong at a stop, by page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []

    def stop(self, way: Literal["Tab", "Shift+Tab"] = "Tab") -> dict[str, Any]:
        self.page.keyboard.press(way)
        found: dict[str, Any] = self.page.evaluate(STOP)
        where = f"{self.page.url} {found['name']}"
        if not found["isPage"]:
            if not found["isSeen"]:
                self.faults.append(f"no outline: {where}")
            if not found["isOnScreen"]:
                self.faults.append(f"outside the screen: {where}")
            if found["tabIndex"] > 0:
                self.faults.append(f"an order of its own: {where}")
        return found

    def reach(self, target: Locator, way: Literal["Tab", "Shift+Tab"] = "Tab") -> None:
        """Press Tab until the element has the focus."""
        expect(target).to_be_attached()
        for _ in range(MOST_STOPS):
            self.stop(way)
            if target.evaluate("element => element === document.activeElement"):
                return
        raise AssertionError(f"{MOST_STOPS} stops and {target} was not reached")

    def press(self, target: Locator, key: str = "Enter", way: Literal["Tab", "Shift+Tab"] = "Tab") -> None:
        self.reach(target, way)
        self.page.keyboard.press(key)

    def type(self, target: Locator, text: str) -> None:
        self.reach(target)
        self.page.keyboard.type(text)

    def go_round(self) -> None:
        """From the top through the whole page, until the focus leaves it at the end: in order, and never caught."""
        self.page.wait_for_load_state()
        expect(self.page.locator("[hx-trigger=load]")).to_have_count(0)  # a late part moves what has the focus
        self.page.locator(".skip").focus()  # else Tab goes on from where the page was left
        self.page.evaluate("window.stopBefore = document.activeElement")
        names: list[str] = []
        for _ in range(300):
            found = self.stop()
            if found["isPage"] or found["later"] is False:
                break
            names.append(found["name"])
        else:
            self.faults.append(f"{self.page.url}: the focus never leaves the page")
        assert len(names) > 5, (names, found)

    def focused(self) -> str:
        return str(self.page.evaluate("document.activeElement.outerHTML"))


@pytest.mark.timeout(300)  # several hundred stops
def test_the_first_minutes_without_a_mouse(
    context: BrowserContext, live_server: Any, django_user_model: Any, transactional_db: None, tmp_path: Path
) -> None:
    from evaluation_app.models import GoldenSet

    django_user_model.objects.create_superuser("ada", password="lovelace")
    GoldenSet.objects.create(name="basics", collection_name="nature")
    (tmp_path / "bees.txt").write_text("A honey bee visits about five thousand flowers in one day.")
    with visiting(context, live_server.url) as visit:
        hands = Hands(visit.page)
        fill_a_collection(visit, hands, tmp_path / "bees.txt")
        ask_and_read(visit, hands)
        judge_and_evaluate(visit, hands)
        open_what_lies_over_the_page(visit, hands)
        assert hands.faults == []


def fill_a_collection(visit: Visit, hands: Hands, file: Path) -> None:
    page = visit.page
    expect(page.get_by_label("Username")).to_be_focused()
    page.keyboard.type("ada")
    hands.type(page.get_by_label("Password"), "lovelace")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Ask your documents, or drop files here")
    hands.go_round()
    visit.go("/collections/?view=new")
    hands.press(page.get_by_label("Name", exact=True))
    expect(page.locator("#id_name[aria-invalid=true]")).to_be_focused()  # refused: the name is missing
    assert [complaint for complaint in visit.complaints if "422" not in complaint] == []
    visit.complaints.clear()
    page.keyboard.type("nature")
    page.keyboard.press("Enter")
    page.wait_for_url("**/collections/nature/upload/")
    hands.reach(page.locator("#id_uploads"))
    page.locator("#id_uploads:focus").set_input_files(file)
    expect(page.get_by_role("button", name="Upload 1 file")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#upload-results li")).to_contain_text("Succeeded")
    hands.go_round()


def ask_and_read(visit: Visit, hands: Hands) -> None:
    page = visit.page
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/chat/")
    expect(page.get_by_label("Question")).to_be_focused()
    page.keyboard.type("How many flowers does a honey bee visit in one day?")
    page.keyboard.press("Enter")
    expect(page.locator(".answer")).to_contain_text("five thousand flowers")
    expect(page).to_have_url(re.compile(r"/chat/[0-9a-f-]{36}/"))
    expect(page.get_by_label("Question")).to_be_focused()
    hands.press(page.locator(".answer .cite").first, way="Shift+Tab")
    expect(page.locator("#cited")).to_be_in_viewport()
    hands.go_round()
    page.go_back()  # the browser's own key
    expect(page.locator(".answer")).to_have_count(1)  # the evidence, which shows the answer too, is closed
    expect(page.locator(".answer")).to_contain_text("five thousand flowers")
    hands.press(page.get_by_role("link", name="Open run"))
    page.wait_for_url("**/runs/*/")
    for tab in ("ranking", "trace", "evaluation"):
        hands.press(page.locator(f".tabs a[href*='view={tab}']"))
        page.wait_for_url(f"**/?view={tab}*")
        hands.go_round()


def judge_and_evaluate(visit: Visit, hands: Hands) -> None:
    page = visit.page
    hands.press(page.locator(".tabs a").first)
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/$"))
    hands.press(page.get_by_role("link", name="Add to test set"))
    page.wait_for_url("**/from-run/**")
    hands.go_round()
    hands.press(page.get_by_role("button", name="Add and accept"))
    expect(page.locator("#toasts .toast")).to_be_visible()
    visit.go("/evaluation/runs/?view=new")
    hands.press(page.get_by_role("button", name=re.compile("^Start, 1")))
    page.wait_for_url(re.compile("/evaluation/runs/[0-9a-f-]{36}/"))
    hands.go_round()


def open_what_lies_over_the_page(visit: Visit, hands: Hands) -> None:
    """The list of keys, the palette, a menu, a dialog and the drawer give the focus back to where it was."""
    page = visit.go("/collections/nature/documents/bees.txt/")
    hands.reach(page.get_by_role("link", name="Open chunk 0"))
    before = hands.focused()
    for key, dialog in (("?", "#keys-dialog"), ("Control+k", "#palette"), ("Enter", "#drawer")):
        page.keyboard.press(key)
        expect(page.locator(dialog)).to_be_visible()
        for _ in range(30):
            assert not hands.stop()["isPage"] or page.locator(f"{dialog}[open]").count()
        page.keyboard.press("Escape")
        expect(page.locator(dialog)).not_to_be_visible()
        assert hands.focused() == before, dialog
    hands.press(page.get_by_role("link", name="Delete", exact=True), way="Shift+Tab")
    expect(page.locator("#dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Delete", exact=True)).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.type("dark")
    page.keyboard.press("Enter")  # at once: the results are of what was typed before
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    hands.press(page.get_by_label("Account and theme of ada"), way="Shift+Tab")
    hands.press(page.get_by_role("button", name="Light theme"))
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
