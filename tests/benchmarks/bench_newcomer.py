"""A newcomer's first tasks on a fresh `make run`, by a real browser: seconds, clicks and fields that are filled in.

From the start to a cited answer, own files to an answer, connect a model, make a key, give a colleague access, find why
an answer is bad and fix it. Nobody reads or thinks: the seconds are those of ragd and of the machine. Places and
buttons are found by role and name, as a person finds them.

Run: python -m tests.benchmarks.bench_newcomer [--pictures FOLDER]
Needs Chromium: RAGD_CHROMIUM, or one on the PATH.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.benchmarks.server import ROOT, free_port
from tests.fakes.openai_server import OpenAIServer

CHROMIUM = os.environ.get("RAGD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
PATIENCE_S = 300
PASSWORD = "a long enough passphrase"
FILES = {
    "owls.md": "# Owls\n\nThe barn owl hunts at night. It hears a mouse under thirty centimetres of snow.\n",
    "bees.txt": "A honey bee visits about five thousand flowers in one day.\n",
}
BEES = "How many flowers does a honey bee visit in one day?"
WORDS = re.compile("five thousand")
PASSWORD_LABEL = re.compile("password", re.IGNORECASE)
USER_NAME = re.compile("^user ?name", re.IGNORECASE)


@dataclass
class Task:
    name: str
    seconds: float = 0.0
    clicks: int = 0
    fields: int = 0
    note: str = ""


@dataclass
class Newcomer:
    """Somebody at the browser: what they do is counted for the task that they are at."""

    page: Page
    url: str
    var: Path
    pictures: Path | None
    tasks: list[Task] = field(default_factory=list)

    @contextmanager
    def at(self, name: str, since: float | None = None) -> Iterator[Task]:
        began = since or time.monotonic()
        self.tasks.append(task := Task(name))
        try:
            yield task
        except Exception as error:  # the other tasks are tried all the same
            task.note = f"not done: {str(error).splitlines()[0][:120]} ({self.page.url.removeprefix(self.url)})"
        task.seconds = time.monotonic() - began
        if self.pictures:
            self.page.screenshot(path=self.pictures / f"newcomer-{len(self.tasks)}.png", full_page=True)

    def click(self, role: str, name: str | re.Pattern[str], *, within: Locator | None = None) -> None:
        found = (within or self.page).get_by_role(role, name=name)  # type: ignore[arg-type]
        found.locator("visible=true").first.click()
        self.tasks[-1].clicks += 1

    def place(self, name: str | re.Pattern[str]) -> None:
        self.click("link", name, within=self.page.get_by_role("navigation", name="Main"))

    def fill(self, label: str | re.Pattern[str], text: str) -> None:
        self.page.get_by_label(label).locator("visible=true").first.fill(text)
        self.tasks[-1].fields += 1

    def choose(self, label: str | re.Pattern[str], option: str) -> None:
        field = self.page.get_by_label(label).and_(self.page.locator("select"))
        field.locator("visible=true").first.select_option(label=option)
        self.tasks[-1].fields += 1

    def ask(self, collection: str, question: str) -> None:
        """On the page where questions are asked, from the collection's own link or the main menu."""
        link = self.page.get_by_role("link", name="Ask this collection").locator("visible=true")
        if link.count():
            link.first.click()
            self.tasks[-1].clicks += 1
        else:
            self.place(re.compile("^(Chat|Ask)$"))
        field = self.page.get_by_label(re.compile("Question|Message"))
        expect(field.first).to_be_visible(timeout=PATIENCE_S * 1000)  # the sample may still be on its way
        chosen = self.page.locator("[data-chosen]")
        if chosen.inner_text() != collection:
            chosen.click()
            self.page.locator(".collections-menu label").get_by_text(collection, exact=True).click()
            self.tasks[-1].clicks += 2
        self.fill(re.compile("Question|Message"), question)
        self.click("button", re.compile("^(Ask|Send)$"))

    def expect_answer(self, text: re.Pattern[str] | None = None) -> None:
        answer = self.page.locator(".answer").last
        if text:
            expect(answer).to_contain_text(text)
        expect(answer.locator(".cite").first).to_be_visible()


@contextmanager
def made_and_run(var: Path) -> Iterator[str]:
    """`make run` in an empty RAGD_VAR, as a person starts it, sample and all; the address."""
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "RAGD_SAMPLE")}
    environment = kept | {"RAGD_VAR": str(var), "PORT": str(port)}
    with (var.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            ["make", "run"], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(120)


def wait_for_page(url: str, log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/accounts/login/", timeout=2).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"no page within {PATIENCE_S} s:\n{log.read_text()[-3000:]}")


def see_a_cited_answer(person: Newcomer, began: float) -> None:
    with person.at("start to the page of the log-in", began):
        wait_for_page(person.url, person.var.parent / "log")
        person.page.goto(person.url)
    with person.at("start to the first cited answer", began):
        person.fill(USER_NAME, "admin")
        person.fill(PASSWORD_LABEL, (person.var / "admin_password").read_text().strip())
        person.click("button", "Log in")
        person.ask("ragd-docs", "What is a collection?")
        person.expect_answer()


def ask_own_files(person: Newcomer) -> None:
    with person.at("own files to the first answer"), tempfile.TemporaryDirectory() as folder:
        person.place(re.compile("Knowledge|Collections"))
        person.click("link", "New collection")
        person.fill("Name", "Field notes")
        person.click("button", "Create collection")
        paths = [Path(folder) / name for name in FILES]
        for path in paths:
            path.write_text(FILES[path.name])
        person.page.locator("input[type=file]").first.set_input_files(paths)
        person.tasks[-1].fields += 1
        person.click("button", re.compile("^Upload 2 files"))
        expect(person.page.locator("#upload-results li").filter(has_text="Succeeded")).to_have_count(2)
        person.ask("Field notes", BEES)
        person.expect_answer(WORDS)


def connect_a_model(person: Newcomer, model: OpenAIServer) -> None:
    with person.at("connect a model, and its first answer"):
        person.click("link", "Connect one")  # in the chat, where the last answer was made of quotations
        other = person.page.get_by_role("rowheader", name="Other", exact=True)
        person.click("link", re.compile("^Chat"), within=person.page.get_by_role("row").filter(has=other))
        person.fill("Name", "Ours")
        person.fill("Base URL", model.base_url)
        person.fill("Model", "gpt-4o-mini")
        person.fill("API key", model.api_key or "")
        person.click("button", "Test and save")
        expect(person.page.get_by_role("heading", name="Models", exact=True)).to_be_visible()
        person.ask("Field notes", "What does a barn owl hear?")
        person.expect_answer(re.compile("under the snow"))


def make_a_key(person: Newcomer) -> None:
    with person.at("make a key, and call the API"):
        person.place("Settings")
        person.click("link", re.compile("^API keys"))
        person.click("link", re.compile("Create (API )?key"))
        person.fill("Label", "script")
        person.click("button", "Create key")
        secret = person.page.locator("#secret").inner_text()
        request = urllib.request.Request(f"{person.url}/v1/collections", headers={"Authorization": f"Bearer {secret}"})
        assert b"Field notes" in urllib.request.urlopen(request).read()


def invite_a_colleague(person: Newcomer, open_page: Callable[[], Page]) -> None:
    with person.at("give a colleague access, until they have an answer"):
        person.place("Settings")
        person.click("link", re.compile("^People"))
        person.click("link", "Add person")
        person.fill(USER_NAME, "grace")
        person.fill(PASSWORD_LABEL, PASSWORD)
        person.choose("Role", "Can ask")
        person.choose("Collection", "Field notes")
        person.click("button", "Add person")
        expect(person.page.get_by_role("main")).to_contain_text("Field notes")
        colleague = Newcomer(open_page(), person.url, person.var, None, [Task("")])
        colleague.page.goto(person.url)
        colleague.fill(USER_NAME, "grace")
        colleague.fill(PASSWORD_LABEL, PASSWORD)
        colleague.click("button", "Log in")
        colleague.ask("Field notes", BEES)
        colleague.expect_answer()


def repair_an_answer(person: Newcomer) -> None:
    """The document that knows it is disabled, which the list of documents shows."""
    with person.at("(preparation: the document is disabled)"):
        person.page.goto(f"{person.url}/collections/Field%20notes/documents/bees.txt/")
        person.click("button", "Disable")
        person.page.wait_for_load_state()
    with person.at("find why an answer is bad, and fix it") as task:
        person.ask("Field notes", BEES)
        answer = person.page.locator(".answer, .result").last
        expect(answer).to_be_visible()
        expect(answer).not_to_contain_text(WORDS)
        person.place(re.compile("Knowledge|Collections"))
        person.click("link", "Field notes", within=person.page.get_by_role("main"))
        row = person.page.get_by_role("row").filter(has_text="bees.txt")
        task.note = "found in the list of documents, by its state"
        person.click("link", re.compile("bees"), within=row)
        person.click("button", "Enable")
        person.page.wait_for_load_state()
        person.ask("Field notes", BEES)
        person.expect_answer()


def answer_from(messages: list[dict[str, object]]) -> str:
    return "It hears a mouse under the snow [1]."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="folder for a picture of the page at the end of each task")
    options = parser.parse_args()
    if not CHROMIUM:
        sys.exit("no Chromium on this machine; install one or name it in RAGD_CHROMIUM")
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    model = OpenAIServer().start()
    model.chat_reply = answer_from
    with tempfile.TemporaryDirectory(prefix="ragd-newcomer-") as scratch, sync_playwright() as playwright:
        Path(scratch).chmod(0o755)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        expect.set_options(timeout=60_000)

        def open_page() -> Page:
            page = browser.new_context(viewport={"width": 1360, "height": 900}).new_page()
            page.set_default_timeout(20_000)
            return page

        var, began = Path(scratch) / "var", time.monotonic()
        with made_and_run(var) as url:
            person = Newcomer(open_page(), url, var, options.pictures)
            see_a_cited_answer(person, began)
            ask_own_files(person)
            make_a_key(person)
            invite_a_colleague(person, open_page)
            repair_an_answer(person)
            connect_a_model(person, model)
        browser.close()
    model.stop()
    print(f"{'task':52}{'seconds':>9}{'clicks':>8}{'fields':>8}")
    for task in person.tasks:
        if not task.name.startswith("("):
            print(f"{task.name:52}{task.seconds:9.1f}{task.clicks:8}{task.fields:8}  {task.note}".rstrip())


if __name__ == "__main__":
    main()
