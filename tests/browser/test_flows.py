"""What a person does, from logging in to the cited place in a source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import Visit

if TYPE_CHECKING:
    from collections_app.models import Collection


def test_a_file_is_dropped_on_home_and_asked(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    expect(page.get_by_label("Question")).to_be_focused()
    drop = page.evaluate_handle(
        """text => { const data = new DataTransfer(); data.items.add(new File([text], "bees.txt")); return data; }""",
        "A honey bee visits about five thousand flowers in one day.",
    )
    page.dispatch_event("#composer textarea", "dragover", {"dataTransfer": drop})
    expect(page.locator("#chat[data-dropping]")).to_have_count(1)
    page.dispatch_event("#composer textarea", "drop", {"dataTransfer": drop})
    expect(page.locator("#chat-jobs li[data-state=succeeded]")).to_have_count(1)
    expect(page.locator("[data-chosen]")).to_have_text("My files")
    expect(page.get_by_label("Question")).to_be_focused()
    page.keyboard.type("How many flowers does a honey bee visit in one day?")
    page.keyboard.press("Enter")
    expect(page.locator(".answer")).to_contain_text("five thousand flowers")
    expect(page).to_have_url(re.compile(r"/chat/[0-9a-f-]{36}/"))
    page.go_back()
    expect(page.locator("#chat-jobs li[data-state=succeeded]")).to_have_count(1)


def test_a_slow_model_server_is_waited_for_in_sight(visit: Visit) -> None:
    page = visit.go("/models/?view=new&preset=other&purpose=chat")
    waiting: list[Route] = []
    page.route("**/models/?view=new**", lambda route: waiting.append(route))
    working = page.locator(".working")
    for name in ("Test connection", "List the models of the server"):
        expect(working).to_be_hidden()
        page.get_by_role("button", name=name).click()
        expect(working).to_be_visible()
        waiting.pop().fulfill(status=204)


def test_from_nothing_to_a_cited_answer(visit: Visit, tmp_path: Path) -> None:
    page = visit.go("/collections/?view=new")
    page.get_by_label("Name", exact=True).fill("Field notes")
    page.get_by_role("button", name="Create collection").click()
    expect(page.locator("#toasts")).to_contain_text("Collection Field notes created.")

    for name, text in {
        "owls.md": "# Owls\n\nThe barn owl hunts at night. It hears a mouse under snow.",
        "bees.txt": "A honey bee visits about five thousand flowers in one day.",
        "broken.pdf": "%PDF-1.7 and nothing else",
    }.items():
        (tmp_path / name).write_text(text)
    page.locator("#id_uploads").set_input_files([tmp_path / "owls.md", tmp_path / "bees.txt", tmp_path / "broken.pdf"])
    page.locator("[data-options] > summary").click()
    page.get_by_label("Tags").fill("outdoors")
    page.get_by_role("button", name="Upload 3 files").click()
    expect(page.locator("#upload-results li")).to_have_count(3)
    expect(page.locator("[data-sent]")).to_have_text("3 of 3 files uploaded")
    lines = page.locator("#upload-results li")
    expect(lines.filter(has_text="Succeeded")).to_have_count(2)
    expect(lines.filter(has_text="Failed").locator(".why")).to_be_visible()
    expect(page.locator("#collection-facts")).to_contain_text("2 documents")
    expect(page.locator("#documents-tally")).to_have_text("2")

    page.get_by_role("link", name=re.compile(r"^Documents \d")).click()
    expect(page.locator("#documents tbody tr")).to_have_count(3)
    expect(page.locator("#documents tbody tr").filter(has_text="Failed")).to_contain_text("broken.pdf")
    page.get_by_role("link", name="Uploads", exact=True).click()
    page.get_by_role("link", name="All files").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(3)
    expect(page.get_by_text("Failed", exact=True).last).to_be_visible()

    page.get_by_role("link", name="Ask", exact=True).last.click()
    page.get_by_label("Question").fill("How many flowers does a honey bee visit in one day?")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".answer")).to_contain_text("five thousand flowers")
    expect(page).to_have_url(re.compile(r"/chat/[0-9a-f-]{36}/"))
    page.reload()
    page.locator(".answer .cite").first.click()
    expect(page.locator("#cited")).to_be_in_viewport()
    expect(page.locator("#cited")).to_contain_text("five thousand flowers")


def test_files_chosen_before_the_script_has_loaded_are_reviewed(
    visit: Visit, nature: Collection, tmp_path: Path
) -> None:
    page = visit.page
    held: list[Route] = []
    page.route("**/upload*.js", lambda route: held.append(route))
    page.goto(f"{visit.base}/collections/nature/upload/", wait_until="commit")
    (tmp_path / "owls.md").write_text("# Owls\n\nThe barn owl hunts at night.")
    page.locator("#id_uploads").set_input_files([tmp_path / "owls.md"])
    assert len(held) == 1
    held[0].continue_()
    expect(page.get_by_role("button", name="Upload 1 file")).to_be_enabled()


def test_a_citation_deep_in_a_long_document_comes_into_view(visit: Visit, nature: Collection) -> None:
    text = nature.documents.get(doc_id="animals/whales.md").text
    start = text.index("song number 57")
    page = visit.go(f"/collections/nature/documents/animals/whales.md/?start={start}&end={start + 14}#cited")
    expect(page.locator("#cited")).to_have_text("song number 57")
    expect(page.locator("#cited")).to_be_in_viewport()
    expect(page.locator(".chunk.cited").first).to_be_in_viewport()


def test_a_chunk_opens_in_the_drawer_and_has_its_address(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/nature/documents/trees.md/")
    before = page.url
    page.get_by_role("link", name="Open chunk 0").click()
    expect(page.locator("#drawer #detail")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/collections/nature/chunks/0/trees\.md/$"))
    page.go_back()
    expect(page.locator("#drawer")).not_to_be_visible()
    expect(page).to_have_url(before)
    page.get_by_role("link", name="Open chunk 0").click()
    expect(page.locator("#drawer #detail")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).not_to_be_visible()
    page.wait_for_url(before)
    page.go_forward()
    page.reload()
    expect(page.get_by_role("heading", name="Chunk 0")).to_be_visible()


def test_the_table_is_filtered_while_typing(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/nature/")
    page.keyboard.press("/")
    page.keyboard.type("tree")
    expect(page.locator("#documents tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?q=tree$"))
    expect(page.locator("#id_q")).to_be_focused()
    page.reload()
    expect(page.locator("#documents tbody tr")).to_have_count(1)
    page.go_back()
    expect(page.locator("#documents tbody tr")).to_have_count(3)


def test_documents_are_chosen_and_changed_together(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/nature/")
    page.get_by_label("Select trees.md").check()
    page.get_by_label("Select rivers.md").check()
    expect(page.locator(".bulk output")).to_have_text("2 selected")
    page.get_by_role("button", name="Disable").click()
    expect(page.locator("#toasts")).to_contain_text("2 documents disabled.")
    page.get_by_role("button", name="Dismiss").click()
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete 3 documents?")).to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    expect(page.locator("#documents tbody tr")).to_have_count(3)


def test_all_that_match_are_chosen_and_labelled(
    visit: Visit, nature: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collections_app.documents.views.DOCUMENTS.per_page", 2)
    page = visit.go("/collections/nature/")
    expect(page.get_by_label("Select all 3 matching")).to_be_hidden()
    page.locator("#documents tbody input[type=checkbox]").first.check()
    page.get_by_label("Select all 3 matching").check()
    expect(page.locator(".bulk output")).to_have_text("3 selected")
    page.get_by_label("Select trees.md").or_(page.get_by_label("Select rivers.md")).first.uncheck()
    expect(page.get_by_label("Select all 3 matching")).not_to_be_checked()
    expect(page.locator(".bulk output")).to_have_text("1 selected")
    page.get_by_label("Select all 3 matching").check()
    page.get_by_role("button", name="Edit tags and metadata").click()
    expect(page.get_by_role("heading", name="Tags and metadata of all 3 documents that match")).to_be_visible()
    page.get_by_label("Add tags").fill("green")
    page.get_by_role("button", name="Update 3 documents").click()
    expect(page.locator("#toasts")).to_contain_text("3 documents updated.")


def test_the_theme_is_kept_and_reaches_the_admin(visit: Visit) -> None:
    page = visit.page
    dark = visit.darken()
    visit.go("/admin/")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_running_jobs_are_followed(visit: Visit, nature: Collection) -> None:
    from collections_app.models import IngestJob

    job = IngestJob.objects.create(collection=nature, doc_id="new.pdf", state="running", stage="parse")
    page = visit.go("/collections/nature/")
    expect(page.locator("#jobs-strip")).to_contain_text("Parse")
    page.get_by_label("Select trees.md").check()
    for done in (25, 30, 35):  # what is selected stays so while the jobs go on
        IngestJob.objects.filter(pk=job.pk).update(stage="embed", chunks_total=40, chunks_done=done)
        expect(page.locator("#jobs-strip")).to_contain_text(f"{done} of 40")
    expect(page.get_by_label("Select trees.md")).to_be_checked()
    page.get_by_label("Select trees.md").uncheck()
    nature.documents.filter(doc_id="trees.md").update(title="Trees, written anew")
    IngestJob.objects.filter(pk=job.pk).update(state="succeeded")
    expect(page.locator("#jobs-strip section")).to_have_count(0)
    expect(page.locator("#documents")).to_contain_text("Trees, written anew")
    expect(page.locator("#progress-note")).to_have_text("All jobs finished")


def test_a_failing_server_is_said(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/nature/")
    page.route("**/collections/nature/?q=*", lambda route: route.fulfill(status=500, body="broken"))
    page.locator("#id_q").fill("x")
    expect(page.locator("#toasts")).to_contain_text("Error 500.")
    page.unroute("**/collections/nature/?q=*")
    page.route("**/collections/nature/?q=*", lambda route: route.abort())
    page.locator("#id_q").fill("xy")
    expect(page.locator("#toasts")).to_contain_text("The server is not responding.")
    assert len(visit.complaints) >= 2
    visit.complaints.clear()


def test_everything_works_without_script(
    chromium: Any, live_server: Any, nature: Collection, django_user_model: Any
) -> None:
    django_user_model.objects.create_superuser("ada", password="lovelace")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{live_server.url}/chat/")
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill("lovelace")
    page.get_by_role("button", name="Log in", exact=True).click()
    page.get_by_label("Question").fill("Which tree is the tallest?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator(".answer")).to_contain_text("coast redwood")
    page.locator(".answer .cite").first.click()
    expect(page.locator("#cited")).to_contain_text("coast redwood")
    page.goto(f"{live_server.url}/collections/nature/upload/")
    page.locator("#id_uploads").set_input_files({"name": "new.txt", "mimeType": "text/plain", "buffer": b"A new text."})
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#upload-results")).to_contain_text("new.txt")
    page.goto(f"{live_server.url}/collections/nature/?q=new")
    page.get_by_label("Select new.txt").check()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete 1 document").click()
    expect(page.locator("#toasts")).to_contain_text("1 document deleted with 1 chunk.")
    page.goto(f"{live_server.url}/go/?q=rivers")
    page.get_by_role("link", name="Rivers nature").click()
    page.locator("summary[aria-label^=Account]").click()
    page.get_by_role("button", name="Dark theme").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    context.close()


def test_a_collection_is_deleted_and_restored_from_the_trash(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/nature/settings/")
    page.get_by_role("link", name="Delete collection").click()
    faults = visit.faults()
    page.get_by_label("Type the collection name to confirm").fill("nature")
    page.get_by_role("button", name="Delete collection").click()
    expect(page.locator("#toasts")).to_contain_text("nature is in the trash.")
    expect(page.locator("main")).not_to_contain_text("nature")
    faults += visit.faults()
    page.get_by_role("link", name="Trash").click()
    row = page.locator("[data-trashed=nature]")
    row.locator("summary").click()
    expect(row.get_by_role("button", name="Delete nature for good")).to_be_visible()
    faults += visit.faults()
    page.keyboard.press("Escape")
    assert faults + visit.faults() == []
    row.get_by_role("button", name="Restore").click()
    expect(page).to_have_url(re.compile("/collections/nature/$"))
    expect(page.locator("#documents tbody tr")).to_have_count(nature.documents.count())
