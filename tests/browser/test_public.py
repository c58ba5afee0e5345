"""The public page of an assistant as a visitor without an account meets it, alone and as a widget on another site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, FrameLocator, Page, expect

from collections_app.models import Collection
from retrieval_app.models import ChatAssistant, QueryRun
from tests.browser.conftest import Visit, visiting
from tests.builders import hold_minute
from tests.fakes import faults
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.web_server import Page as SitePage
from tests.fakes.web_server import WebServer, web_server  # noqa: F401  (a fixture)

QUESTION = "Which tree is the tallest?"


@pytest.fixture
def guide(nature: Collection) -> ChatAssistant:
    return ChatAssistant.objects.create(
        name="Guide", slug="guide", greeting="Welcome.", starters=[QUESTION], is_public=True,
        collection_ids=[nature.pk], per_minute=100, per_day=100,
    )  # fmt: skip


@pytest.fixture
def visitor(context: BrowserContext, live_server: Any, guide: ChatAssistant) -> Iterator[Visit]:
    with visiting(context, live_server.url) as found:
        yield found


def ask(page: Page | FrameLocator, question: str) -> None:
    page.get_by_label("Question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()  # before the script is there, the form itself is sent


def test_a_visitor_asks_goes_on_and_retries(visitor: Visit) -> None:
    page = visitor.go("/a/guide/")
    page.get_by_role("button", name=QUESTION).click()
    messages = page.locator(".message")
    expect(messages.locator(".sources")).to_have_count(1)
    expect(messages.first).to_contain_text("coast redwood")
    expect(page.locator(".starters, [data-greeting]")).to_have_count(0)
    assert visitor.faults() == []
    ask(page, "And where does it grow?")
    expect(messages.nth(1).locator(".sources")).to_have_count(1)
    first, second = QueryRun.objects.order_by("created_at")
    assert first.conversation_id == second.conversation_id and "tree" in second.query
    messages.nth(1).get_by_role("button", name="Retry").click()
    expect(page.get_by_role("button", name="Ask")).to_be_enabled()
    expect(messages).to_have_count(2)
    expect(messages.nth(1).locator(".sources")).to_have_count(1)
    assert QueryRun.objects.filter(conversation_id=first.conversation_id, query=second.query).count() == 2
    expect(messages.nth(1).get_by_role("button", name="Copy answer")).to_be_visible()


def test_an_answer_is_stopped_and_what_failed_is_tried_again(
    visitor: Visit, openai_server: OpenAIServer, settings: Any
) -> None:
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    openai_server.chat_reply = lambda messages: "A long answer about trees [1]. " * 60
    openai_server.script(faults.dripping(0.05))
    page = visitor.go("/a/guide/")
    ask(page, QUESTION)
    expect(page.locator("[data-growing]")).to_contain_text("long answer")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".message")).to_contain_text("Stopped")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    ChatAssistant.objects.update(per_minute=1)
    hold_minute()
    ask(page, "Is it kept?")
    expect(page.get_by_role("alert")).to_contain_text("Too many questions")
    expect(page.get_by_label("Question")).to_have_value("Is it kept?")
    expect(page.locator(".message")).to_have_count(1)
    ChatAssistant.objects.update(per_minute=100)
    page.get_by_label("Question").press("Enter")
    expect(page.locator(".message")).to_have_count(2)
    expect(page.get_by_role("alert")).to_be_hidden()
    visitor.complaints[:] = [each for each in visitor.complaints if "429" not in each]  # the browser notes the status


def test_the_widget_works_on_the_sites_that_are_named_alone(
    chromium: Browser,
    live_server: Any,
    guide: ChatAssistant,
    web_server: WebServer,  # noqa: F811
) -> None:
    script = f'<script src="{live_server.url}/widget.js" data-assistant="guide" data-label="Ask us"></script>'
    web_server.pages["/"] = SitePage(
        f"<!doctype html><title>Shop</title><p>Trees</p>{script}".encode(), headers={"Content-Type": "text/html"}
    )
    site = web_server.url("")
    context = chromium.new_context(viewport={"width": 360, "height": 700})
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
    page.goto(web_server.url("/"))
    page.get_by_role("button", name="Ask us").click()
    page.wait_for_timeout(300)
    expect(page.frame_locator("iframe").get_by_label("Question")).to_have_count(0)
    assert any("frame-ancestors" in text for text in refused), refused
    ChatAssistant.objects.update(origins=[site])
    page.reload()
    page.get_by_role("button", name="Ask us").click()
    frame = page.frame_locator("iframe")
    ask(frame, QUESTION)
    expect(frame.locator(".message")).to_contain_text(re.compile("coast redwood"))
    ask(frame, "And where does it grow?")
    expect(frame.locator(".message")).to_have_count(2)
    assert frame.locator("html").evaluate("html => html.scrollWidth - innerWidth") <= 0
    assert context.cookies() == []
    page.get_by_role("button", name="Ask us").press("Enter")
    expect(page.locator("iframe")).to_be_hidden()
    context.close()
