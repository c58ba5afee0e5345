"""The pages in a real browser: a live server, tasks run where they are sent, every console message kept."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

pytest.importorskip("playwright")

from axe_core_python.sync_playwright import Axe
from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from tests.web.pages import client_of

if TYPE_CHECKING:  # this file is read before Django is set up
    from collections_app.models import Collection

# the browser's driver runs an event loop in this thread, in which Django would refuse to touch the database
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"

CHROMIUM = os.environ.get("RAGD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
FIREFOX = os.environ.get("RAGD_FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox") or ""
SCREENS = os.environ.get("RAGD_SCREENS", "")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="package")  # its event loop must not outlive these tests: others run one of their own
def driver() -> Iterator[Playwright]:
    expect.set_options(timeout=20_000)  # how long a page may take while three other workers have the processors
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NODE_OPTIONS", f"--require {Path(__file__).with_name('media_features.cjs')}")
        with sync_playwright() as playwright:
            yield playwright


@pytest.fixture(scope="package")
def chromium(driver: Playwright) -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("no Chromium on this machine; install one or name it in RAGD_CHROMIUM")
    browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def context(chromium: Browser) -> BrowserContext:
    """One for all visits, each in a tab of its own: it keeps the scripts and style sheets."""
    return chromium.new_context(locale=os.environ.get("RAGD_SCREENS_LOCALE", "en-US"))


@pytest.fixture(scope="module")
def firefox(driver: Playwright) -> Iterator[Browser]:
    """An installed Firefox, not one of Playwright's own: it is spoken to over WebDriver BiDi."""
    if not FIREFOX:
        pytest.skip("no Firefox on this machine; install one or name it in RAGD_FIREFOX")
    browser = driver.firefox.launch(channel="moz-firefox", executable_path=FIREFOX)
    yield browser
    browser.close()


@pytest.fixture(scope="package", autouse=True)
def remembered_files() -> Iterator[None]:
    """The browser keeps scripts and style sheets, as those of the real server."""
    serve = StaticFilesHandler.serve

    def serve_for_an_hour(self: StaticFilesHandler, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = serve(self, request)
        response["Cache-Control"] = "max-age=3600"
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StaticFilesHandler, "serve", serve_for_an_hour)
        yield


@dataclass
class Visit:
    """A browser page on the live server, with everything that it complained about."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)
    pictures: int = 0

    def go(self, path: str) -> Page:
        """Open a page and wait for the parts that it includes."""
        self.page.goto(self.base + path, timeout=30_000)
        expect(self.page.locator("[hx-trigger=load]")).to_have_count(0, timeout=30_000)
        return self.page

    def darken(self) -> str:
        """Choose the dark theme in the menu; the ground that the page has then, and after a reload."""
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        light = self.page.evaluate(ground)
        self.page.get_by_label("Account and theme of ada").click()
        self.page.get_by_role("button", name="Dark theme").click()
        dark = str(self.page.evaluate(ground))
        assert dark != light
        self.page.reload()
        assert self.page.evaluate(ground) == dark
        return dark

    def look(self, theme: Literal["light", "dark"], width: int) -> None:
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        self.page.set_viewport_size({"width": width, "height": 800})

    def violations(self, only: str = "") -> list[str]:
        """What axe-core finds wrong on the page as it is now: rule, and the first elements. only: a single rule.

        Contrast, the dearest rule, is computed for texts that look unlike those checked before in this visit.
        """
        if not self.page.evaluate("typeof axe !== 'undefined'"):
            self.page.evaluate(AXE_SCRIPT)
        found, self.looks = self.page.evaluate(AXE_RUN, [only, self.looks])
        return [f"{item['id']}: {[node['target'] for node in item['nodes'][:3]]}" for item in found]

    def overflow_px(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def faults(self) -> list[str]:
        """What is wrong with the page as it is: axe-core in light, contrast in dark, the width on a phone. Where
        RAGD_SCREENS names a folder, pictures are taken instead: wide in light and dark, narrow in light."""
        if SCREENS:
            self.take_pictures()
            return []
        self.look("light", 1280)
        found = self.violations()
        self.look("dark", 1280)
        found += [f"in dark: {problem}" for problem in self.violations(only="color-contrast")]
        self.look("dark", 375)
        if overflow_px := self.overflow_px():
            found.append(f"scrolls sideways by {overflow_px} px")
        self.look("light", 1280)
        return [f"{self.page.url.removeprefix(self.base)}: {problem}" for problem in found]

    def take_pictures(self) -> None:
        """Into a folder of the test, numbered in its order."""
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0]
        folder = Path(SCREENS) / re.sub(r"\W+", "-", test.removeprefix("test_")).strip("-")
        name = re.sub(r"[^\w?=-]+", "-", self.page.url.removeprefix(self.base)).strip("-")[:90]
        self.pictures += 1
        for theme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
            self.look(theme, width)
            path = folder / f"{self.pictures:03}-{name}.{theme}.{width}.png"
            self.page.screenshot(path=path, full_page=True, animations="disabled")
        self.look("light", 1280)

    def long_lines(self) -> list[str]:
        """The beginnings of texts whose lines are longer than a reader's eye follows, in the widest window."""
        found: list[str] = self.page.evaluate(LONG_LINES)
        return found


# in widths of a zero, of which about 1.2 letters are as wide; room beside a short text does not count
LONG_LINES = """() => {
  const texts = document.querySelectorAll("main :is(p, dd, blockquote, .passage-text, .text, .excerpt, .answer)");
  return [...texts].filter((text) => {
    if (text.textContent.trim().length < 120 || !text.checkVisibility()) return false;
    const zero = document.createElement("span");
    zero.style.cssText = "position: absolute; width: 100ch";
    text.append(zero);
    const most = zero.getBoundingClientRect().width;
    zero.remove();
    const range = document.createRange();
    range.selectNodeContents(text);
    return [...range.getClientRects()].some((box) => box.width > most);
  }).map((text) => text.textContent.trim().slice(0, 60));
}"""
AXE_SCRIPT = Axe().axe_script
# preload serves a rule that is off by default and one on audio, of which there is none. The look of a text: its colour,
# font and backgrounds up to the root. One that is positioned may lie over anything: its look counts for its page alone.
AXE_RUN = """async ([only, looks]) => {
  const whole = {exclude: [["#toasts"]]}, options = {resultTypes: ["violations"], preload: false}, found = [];
  if (only !== "color-contrast") {
    const choice = only ? {runOnly: [only]} : {rules: {"color-contrast": {enabled: false}}};
    found.push(...(await axe.run(whole, {...options, ...choice})).violations);
  }
  if (only && only !== "color-contrast") return [found, looks];
  const seen = new Set(looks), texts = new Set(), backgrounds = new Map();
  const background = (element) => {
    if (!element) return "";
    if (!backgrounds.has(element)) {
      const style = getComputedStyle(element), above = background(element.parentElement);
      const lifted = ["absolute", "fixed"].includes(style.position) || style.float !== "none" ? " lifted" : "";
      const own = [style.backgroundColor, style.backgroundImage, style.opacity, style.textShadow + lifted].join();
      backgrounds.set(element, own === "rgba(0, 0, 0, 0),none,1,none" ? above : `${own};${above}`);
    }
    return backgrounds.get(element);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("#toasts")) continue;
    const style = getComputedStyle(element);
    const look = [style.color, style.fontSize, style.fontWeight, background(element)].join();
    if (!seen.has(look)) texts.add(element);
    seen.add(look);
  }
  if (texts.size)
    found.push(...(await axe.run({include: [...texts]}, {...options, runOnly: ["color-contrast"]})).violations);
  return [found, [...seen].filter((look) => !look.includes("lifted"))];
}"""


def expect_page(page: Page, heading: str) -> None:
    """The whole page: its heading, its navigation, its style sheets at work."""
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    page.wait_for_function("document.styleSheets.length >= 10")
    page.wait_for_function("getComputedStyle(document.body).fontFamily.startsWith('system-ui')")


@contextmanager
def visiting(context: BrowserContext, base: str, session: str = "") -> Iterator[Visit]:
    """A visit by whom the session knows, at 1280 by 800 pixels, in the light theme. Complaints fail the test."""
    context.clear_cookies()
    context.clear_permissions()
    if session:
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": base}])
    page = context.new_page()
    page.set_default_timeout(15_000)
    found = Visit(page, base)
    found.look("light", 1280)
    page.on(
        "console",
        lambda message: found.complaints.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith((base, "data:")) else found.complaints.append(request.url),
    )
    found.go("/")
    page.evaluate("localStorage.clear()")
    try:
        yield found
    finally:
        page.close()
    assert found.complaints == []


@pytest.fixture
def visit(context: BrowserContext, live_server: Any, django_user_model: Any) -> Iterator[Visit]:
    """Somebody who is logged in, in the light theme."""
    client = client_of(django_user_model.objects.create_superuser("ada", password="lovelace"))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    with visiting(context, live_server.url, session) as found:
        yield found


@pytest.fixture
def nature(transactional_db: None) -> Collection:
    """A collection of three short documents, one of them long enough to be read in parts."""
    from collections_app.collections.services import create_collection
    from collections_app.documents.services import ingest_text

    collection = create_collection(name="nature", description="Animals, trees and rivers")
    whales = "# Whales\n\n" + "\n\n".join(
        f"## Species {n}\n\nThe whale of species number {n} lives in ocean number {n % 5}. It sings song number {n}."
        for n in range(60)
    )
    policy = {"target_tokens": 24, "overlap_tokens": 6}
    ingest_text(collection, "animals/whales.md", whales, title="Whales", tags=["animal"], policy=policy)
    ingest_text(
        collection,
        "trees.md",
        "# Trees\n\nThe coast redwood is the tallest tree. It grows in California.",
        title="Trees",
    )
    ingest_text(collection, "rivers.md", "# Rivers\n\nThe Nile flows north into the Mediterranean Sea.", title="Rivers")
    return collection


@pytest.fixture
def make_jobs(nature: Collection) -> Callable[[], None]:
    """A job in every state."""
    from collections_app.models import IngestJob, Status

    def make() -> None:
        for state, values in {
            "running": {"stage": "embed", "chunks_total": 40, "chunks_done": 10},
            "queued": {},
            "failed": {"error": "The PDF is locked.", "error_type": "encrypted"},
            "succeeded": {
                "stage": "done",
                "warnings": ["One page had no text."],
                "timings_ms": {"parse": 12.5, "total": 80},
            },
            "cancelled": {},
        }.items():
            IngestJob.objects.create(collection=nature, doc_id=f"{state}.pdf", state=state, **values)
        Status.objects.create(kind="worker", name="worker-1", values={"host": "box", "jobs_done": 3, "memory_mb": 400})

    return make
