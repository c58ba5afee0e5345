"""The answer grows on the page while the model writes it."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from playwright.sync_api import expect
from pytest_django import Settings

from tests.browser.conftest import Visit
from tests.fakes.faults import cut_short
from tests.fakes.openai_server import OpenAIServer, openai_server

if TYPE_CHECKING:
    from collections_app.models import Collection

__all__ = ["openai_server"]


def test_the_answer_grows_and_then_stands_at_an_address(
    visit: Visit, nature: Collection, openai_server: OpenAIServer, settings: Settings
) -> None:
    settings.RAGD_LLM_BASE_URL = openai_server.base_url
    settings.RAGD_LLM_API_KEY = openai_server.api_key
    written = threading.Event()
    pieces = ["The coast", " redwood [1]", " is the *tallest*", " <b>tree</b>."]
    openai_server.chat_reply = lambda messages: "".join(pieces)
    openai_server.pause = lambda sent: None if sent < 6 else written.wait(20)
    page = visit.go("/ask/")
    page.get_by_label("Question").fill("Which tree is the tallest?")
    page.keyboard.press("Control+Enter")

    growing = page.locator("[data-growing]")
    # the first request also loads the SDK, which takes seconds on a busy machine; the rest is held for 20
    expect(growing).to_contain_text("The coast redwood", timeout=15_000)
    expect(growing.locator(".cite")).to_have_text("1")
    expect(page.locator(".source").first).to_be_visible()
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_disabled()
    assert visit.violations() == []
    assert not re.search(r"\?run=", page.url)
    written.set()
    expect(page).to_have_url(re.compile(r"/ask/\?run=[0-9a-f-]{36}$"))
    expect(page.locator(".answer")).to_contain_text("tallest <b>tree</b>.")
    expect(page.locator(".answer em")).to_have_text("tallest")
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_enabled()

    openai_server.script(cut_short(4))
    page.get_by_label("Question").fill("And which is the oldest?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="broke off")).to_be_visible()
    expect(page.locator("[data-growing]")).to_contain_text("The coast")
    page.get_by_role("link", name="Open run").click()
    expect(page.locator("main")).to_contain_text("broke off in the middle of its answer")
