"""The chat in a browser: the answer grows as Markdown, can be stopped, edited, tried again; the thread stays."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from pytest_django import Settings

from tests.browser.conftest import Visit
from tests.fakes.faults import cut_short
from tests.fakes.openai_server import OpenAIServer, openai_server

if TYPE_CHECKING:
    from collections_app.models import Collection

__all__ = ["openai_server"]


def test_a_thread_of_questions(
    visit: Visit, nature: Collection, openai_server: OpenAIServer, settings: Settings
) -> None:
    settings.RAGD_LLM_BASE_URL = openai_server.base_url
    settings.RAGD_LLM_API_KEY = openai_server.api_key
    written = threading.Event()
    pieces = ["The coast", " redwood [1]", " is the **tallest", " <b>tree</b>**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"]
    openai_server.chat_reply = lambda messages: "".join(pieces)
    openai_server.pause = lambda sent: None if sent < 7 else written.wait(60)
    page = visit.go("/chat/?q=Which+tree+is+the+tallest%3F")
    page.get_by_label("Question").press("Enter")

    growing = page.locator("[data-growing]")
    # the first request also loads the SDK, which takes seconds on a busy machine; the rest waits for `written`
    expect(growing).to_contain_text("The coast redwood", timeout=15_000)
    expect(growing.locator(".cite")).to_have_text("1")
    expect(growing).not_to_contain_text("*")
    expect(page.locator(".source").first).to_be_visible()
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_disabled()
    assert visit.violations() == []
    written.set()
    expect(page).to_have_url(re.compile(r"/chat/[0-9a-f-]{36}/"))
    expect(page.locator(".answer strong")).to_have_text("tallest <b>tree</b>")
    expect(page.locator(".answer td")).to_have_text(["1", "2"])
    expect(page.locator("#threads li")).to_have_count(1)
    expect(page.locator("#thread-crumb")).to_have_text("Which tree is the tallest?")

    # stopped while the model is silent: what was written until then is the answer
    stopped, openai_server.chat_reply = threading.Event(), lambda messages: "Old trees [1]. " * 400
    openai_server.pause = lambda sent: None if sent < 6 else stopped.wait(60)
    page.get_by_label("Question").fill("And which is the oldest?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("[data-growing]")).to_contain_text("Old trees")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".message").nth(1)).to_contain_text("Stopped", timeout=30_000)
    assert len(page.locator(".message .answer").nth(1).inner_text()) < 5000
    stopped.set()

    # the model fails: quotations, and it can be tried again
    openai_server.pause = lambda sent: None
    openai_server.script(cut_short(4))
    page.get_by_text("Retrieval settings").click()
    page.locator("[name=as_typed]").check()  # else the model would be asked for the question first
    page.get_by_label("Question").fill("Which tree is the tallest?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="broke off")).to_be_visible()
    expect(page.locator(".message").nth(2).locator(".answer .cite").first).to_be_visible()
    openai_server.chat_reply = lambda messages: "It is the redwood [1]."
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".message").nth(2).locator(".answer")).to_contain_text("It is the redwood")
    expect(page.locator(".message")).to_have_count(3)

    # an edited question replaces what came after it
    page.locator(".message").first.get_by_label("Edit message").click()
    expect(page.get_by_label("Question")).to_have_value("Which tree is the tallest?")
    page.get_by_label("Question").fill("Which tree is tall?")
    page.get_by_label("Question").press("Enter")
    expect(page.locator(".message")).to_have_count(1)
    expect(page.locator(".question")).to_have_text("Which tree is tall?")


@pytest.mark.fault("UX-F2")
def test_what_is_typed_on_chat_is_the_question(visit: Visit, nature: Collection) -> None:
    from collections_app.collections.services import create_collection

    create_collection(name="first", title="A first one")  # by name before the one that is asked
    question = "number n j/k? Which tree is the tallest"
    page = visit.go("/collections/nature/")
    page.get_by_role("link", name="Ask", exact=True).first.click()
    field = page.get_by_label("Question")
    expect(field).to_be_focused()
    page.keyboard.type(question)
    expect(field).to_have_value(question)
    expect(page).to_have_url(re.compile(r"/chat/\?collection=nature$"))

    # without the focus, beside an open menu and after Back too; a word in another field stays there
    page.get_by_role("heading", level=1).click()
    expect(field).not_to_be_focused()
    page.keyboard.type("?g")
    expect(field).to_have_value(f"{question}?g")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    expect(page.locator(".answer")).to_contain_text("redwood")
    expect(page.locator("[data-chosen]")).to_have_text("nature")
    expect(field).to_be_focused()
    page.get_by_text("Thread", exact=True).click()
    page.get_by_label("Name of the thread").fill("")
    page.keyboard.type("trees")
    expect(page.get_by_label("Name of the thread")).to_have_value("trees")
    page.keyboard.press("Escape")
    page.locator(".answer").click()
    page.keyboard.type("n")
    expect(field).to_have_value("n")
    page.go_back()
    page.locator(".talk-messages").click()
    page.keyboard.type("jk")
    expect(field).to_have_value(re.compile("jk$"))
    expect(page.locator("[data-chosen]")).to_have_text("nature")

    # elsewhere letters are shortcuts as before
    page.get_by_role("link", name="Library").click()
    page.wait_for_url("**/collections/")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/chat/")


@pytest.mark.fault("UX-F5")
def test_an_answer_goes_on_while_its_page_is_reloaded(
    visit: Visit, nature: Collection, openai_server: OpenAIServer, settings: Settings
) -> None:
    settings.RAGD_LLM_BASE_URL = openai_server.base_url
    settings.RAGD_LLM_API_KEY = openai_server.api_key
    written = threading.Event()
    openai_server.chat_reply = lambda messages: "The coast redwood [1] is the tallest tree. " * 20
    openai_server.pause = lambda sent: None if sent < 7 else written.wait(60)
    page = visit.go("/chat/?collection=nature")
    page.get_by_label("Question").fill("Which tree is the tallest?")
    page.get_by_label("Question").press("Enter")
    expect(page.locator("[data-growing]")).to_contain_text("The coast redwood", timeout=15_000)
    expect(page).to_have_url(re.compile(r"/chat/[0-9a-f-]{36}/$"))
    expect(page.locator("#threads [aria-current=page]")).to_have_text("Which tree is the tallest?")

    page.reload()
    expect(page.locator(".message")).to_contain_text("The answer is being written.")
    page.get_by_label("Question").fill("typed meanwhile")
    written.set()
    expect(page.locator(".message .answer")).to_contain_text("redwood")
    expect(page.locator(".message")).not_to_contain_text("Stopped")
    assert page.locator(".message .answer").inner_text().count("tallest") == 20
    expect(page.get_by_label("Question")).to_have_value("typed meanwhile")
    page.go_back()
    expect(page).to_have_url(re.compile(r"/chat/\?collection=nature$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Ask your documents, or drop files here")
    page.go_forward()
    expect(page.locator(".message .answer")).to_contain_text("redwood")

    # stopped by its person after the reload, while the model is silent
    silent = threading.Event()
    openai_server.pause = lambda sent: None if sent < 7 else silent.wait(60)
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("[data-growing]")).to_contain_text("The coast redwood", timeout=15_000)
    page.reload()
    page.locator("[data-stop-written]").click()
    expect(page.locator(".message")).to_contain_text("Stopped", timeout=30_000)
    silent.set()


def test_two_answers_stand_side_by_side_and_citations_open_while_they_are_written(
    visit: Visit, nature: Collection, openai_server: OpenAIServer, settings: Settings
) -> None:
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    written = threading.Event()
    openai_server.chat_reply = lambda messages: "The coast redwood [1] is the tallest tree. It grows old."
    openai_server.pause = lambda sent: None if sent < 7 else written.wait(60)
    page = visit.go("/chat/?q=Which+tree+is+the+tallest%3F")
    page.get_by_title("Who answers").click()
    page.get_by_label("Second answer beside it").select_option("Quotes")
    expect(page.locator("[data-models]")).to_have_text("Default | Quotes")
    page.get_by_label("Question").press("Enter")
    growing = page.locator("[data-growing]")
    expect(growing.first).to_contain_text("The coast redwood", timeout=15_000)
    expect(growing.nth(1)).to_contain_text("tallest tree")
    boxes = [growing.nth(place).bounding_box() for place in (0, 1)]
    assert boxes[0] and boxes[1] and boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]

    growing.first.locator(".cite").click()
    panel = page.locator("#drawer")
    expect(panel.locator("mark")).to_contain_text("coast redwood")
    assert visit.violations() == []
    page.reload()  # the server writes on
    expect(panel.locator("mark")).to_contain_text("coast redwood")
    page.get_by_text("The answer is being written.").wait_for()
    expect(panel.get_by_role("link", name="Why")).to_have_count(0)
    written.set()
    columns = page.locator(".answer-column")
    expect(columns).to_have_count(2)
    panel.get_by_role("link", name="Why").click()  # the run is stored: the panel has its tabs
    expect(panel.get_by_role("link", name="Why")).to_have_attribute("aria-current", "page")
    page.keyboard.press("Escape")
    columns.nth(1).locator(".answer .cite").first.click()
    expect(panel.locator("mark")).to_contain_text("coast redwood")
    page.keyboard.press("Escape")
    visit.look("dark", 390)
    narrow = [columns.nth(place).bounding_box() for place in (0, 1)]
    assert narrow[0] and narrow[1] and narrow[0]["x"] == narrow[1]["x"] and narrow[0]["y"] < narrow[1]["y"]
    columns.nth(1).get_by_role("button", name="Keep this answer").click()
    expect(columns).to_have_count(0)
    expect(page.locator(".message .answer")).to_have_count(1)
    expect(page.locator(".message .support")).to_have_count(0)  # a model's sentences have marks
