"""`make pictures`: take the pictures of the README from the server that `make run` started, with its sample.

PORT and RAGD_VAR are those of `make run`. The pictures are written into docs/pictures/.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

REPOSITORY = Path(__file__).resolve().parent.parent
PICTURES = REPOSITORY / "docs" / "pictures"
SERVER = f"http://127.0.0.1:{os.environ.get('PORT', '8000')}"
QUESTION = "How is an API key revoked?"
SIZE: ViewportSize = {"width": 1280, "height": 720}


def log_in(page: Page) -> None:
    var = Path(os.environ.get("RAGD_VAR", REPOSITORY / "var"))
    page.goto(f"{SERVER}/accounts/login/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill((var / "admin_password").read_text().strip())
    page.get_by_role("button", name="Log in", exact=True).click()


def take_answer(page: Page) -> None:
    """A cited answer with the evidence of its first citation beside it."""
    page.goto(f"{SERVER}/chat/?collection=ragd-docs")
    page.get_by_label("Question").fill(QUESTION)
    page.keyboard.press("Enter")
    page.locator(".answer .cite[data-evidence]").first.click()
    expect(page.locator("#cited")).to_be_in_viewport()
    page.screenshot(path=PICTURES / "answer.png", animations="disabled")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    chromium = os.environ.get("RAGD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        log_in(page)
        take_answer(page)
        browser.close()


if __name__ == "__main__":
    main()
