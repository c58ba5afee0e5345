"""A folder in a real browser: what it will do is shown, it is sent, and then kept in step."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import Document, IngestBatch, IngestJob
from tests.browser.conftest import Visit
from tests.parsing.builders import make_pdf


def fill(folder: Path) -> None:
    for name, text in {"owls.md": "# Owls\n\nThe barn owl.", "in/bees.txt": "Bees fly.", "empty.txt": ""}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / ".hidden").write_text("left out")
    with zipfile.ZipFile(folder / "more.zip", "w") as archive:
        archive.writestr("inside/moss.txt", "Moss grows in the shade.")


def test_a_folder_is_looked_at_sent_and_kept_in_step(visit: Visit, tmp_path: Path) -> None:
    create_collection(name="nature")
    folder = tmp_path / "field"
    fill(folder)
    page = visit.go("/collections/nature/upload/")
    page.locator("input[webkitdirectory]").set_input_files(folder)
    rows = page.locator("[data-review] tbody tr")
    expect(rows).to_have_count(5)  # with the file inside the archive
    expect(page.locator("[data-note]")).to_contain_text("1 hidden file skipped")
    expect(rows.filter(has_text="field/empty.txt")).to_contain_text("Rejected")
    expect(page.locator("[data-totals]")).to_contain_text("New 3")
    assert not Document.objects.exists() and not IngestBatch.objects.exists()
    assert visit.faults() == []

    page.get_by_role("button", name="Upload 3 files").click()
    expect(page.locator("#upload-state p")).to_have_text("3 ready.")
    expect(page.locator("#upload-results li").filter(has_text="Succeeded")).to_have_count(3)
    expect(page.get_by_role("link", name="View upload")).to_have_attribute(
        "href", re.compile("/uploads/[0-9a-f-]{36}/$")
    )
    ids = ["field/in/bees.txt", "field/inside/moss.txt", "field/owls.md"]
    assert sorted(Document.objects.values_list("doc_id", flat=True)) == ids
    assert (IngestBatch.objects.get().kind, IngestBatch.objects.get().open) == ("folder", False)

    (folder / "owls.md").write_text("# Owls\n\nThe tawny owl.")
    (folder / "in" / "bees.txt").unlink()
    page.locator("input[webkitdirectory]").set_input_files(folder)
    page.get_by_label("Sync: also list documents that are missing in field").check()
    gone = rows.filter(has_text="field/in/bees.txt")
    expect(gone).to_contain_text("Delete")
    expect(rows.filter(has_text="field/more.zip")).to_contain_text("Unchanged")
    expect(gone.get_by_role("checkbox")).not_to_be_checked()
    page.get_by_label("Action for field/owls.md").select_option("keep_both")
    expect(rows.filter(has_text="field/owls.md")).to_contain_text("as field/owls (2).md")
    gone.get_by_role("checkbox").check()
    send = page.get_by_role("button", name="Upload 1 file and delete 1 document")
    send.click()
    expect(page.get_by_role("heading", name="Delete 1 document?")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    assert Document.objects.count() == 3
    send.click()
    page.locator("#sync-dialog").get_by_role("button", name="Delete 1 document").click()
    expect(page.locator("[data-done]")).to_contain_text("1 document deleted.")
    expect(page.locator("#upload-results li").filter(has_text="Succeeded")).to_have_count(1)
    assert sorted(Document.objects.values_list("doc_id", flat=True)) == [
        "field/inside/moss.txt",
        "field/owls (2).md",
        "field/owls.md",
    ]


def test_an_archive_has_a_choice_for_the_files_in_it(visit: Visit, tmp_path: Path) -> None:
    ingest_text(create_collection(name="nature"), "moss.txt", "Moss is green.")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("moss.txt", "Moss grows in the shade.")
    page = visit.go("/collections/nature/upload/")
    page.locator("#id_uploads").set_input_files(tmp_path / "more.zip")
    inside = page.locator("[data-review] tbody tr[data-inner]")
    expect(inside).to_contain_text("Replace")
    page.get_by_label("Action for more.zip").select_option("keep_both")
    expect(inside).to_contain_text("as moss (2).txt")
    page.get_by_role("button", name="Upload 1 file").click()
    expect(page.locator("#upload-results li").filter(has_text="Succeeded")).to_have_count(1)
    assert sorted(Document.objects.values_list("doc_id", flat=True)) == ["moss (2).txt", "moss.txt"]
    expect(page.locator("[data-sent]")).to_have_text("1 of 1 file uploaded")
    page.locator("#id_uploads").set_input_files(tmp_path / "more.zip")
    expect(page.locator("[data-sent]")).to_have_text("")


def test_what_could_not_be_sent_is_named_and_sent_again(visit: Visit, tmp_path: Path) -> None:
    create_collection(name="nature")
    page = visit.go("/collections/nature/upload/")
    (tmp_path / "a.txt").write_text("Some text.")
    page.locator("#id_uploads").set_input_files(tmp_path / "a.txt")
    held: list[Route] = []
    page.route(re.compile("/upload/$"), lambda route: held.append(route))
    leave = "window.dispatchEvent(new Event('beforeunload', {cancelable: true}))"  # false: the browser would ask
    assert page.evaluate(leave) is True
    page.get_by_role("button", name="Upload 1 file").click()
    expect(page.locator("[data-sent]")).to_have_text("0 of 1 file uploaded")
    while not held:
        page.wait_for_timeout(50)
    assert page.evaluate(leave) is False
    with page.expect_console_message():  # the browser notes the request that was cut off
        held[0].abort()
    expect(page.locator("#upload-results li")).to_contain_text("The server does not answer.")
    expect(page.get_by_role("button", name="Upload 1 file")).to_be_hidden()
    visit.complaints.clear()
    page.unroute(re.compile("/upload/$"))
    page.get_by_role("button", name="Retry failed").click()
    expect(page.locator("#upload-results li").filter(has_text="Succeeded")).to_have_count(1)
    assert Document.objects.get().doc_id == "a.txt"
    assert page.evaluate(leave) is True


@pytest.mark.fault("UX-F3")
@pytest.mark.parametrize("way", ["choose", "drop"])
def test_chosen_files_and_the_button_are_in_view(visit: Visit, tmp_path: Path, way: str) -> None:
    create_collection(name="nature")
    names = [f"note {number}.txt" for number in range(8)]
    for name in names:
        (tmp_path / name).write_text(f"{name} tells of owls.")
    page = visit.go("/collections/nature/upload/")
    options = page.locator("[data-options]")
    assert options.get_attribute("open") is None
    expect(page.get_by_label("Tags")).to_be_hidden()
    if way == "choose":
        page.locator("#id_uploads").set_input_files([tmp_path / name for name in names])
    else:
        page.evaluate(
            """names => {
              const transfer = new DataTransfer();
              for (const name of names) transfer.items.add(new File([name], name, {type: "text/plain"}));
              const drop = new DragEvent("drop", {bubbles: true, dataTransfer: transfer});
              document.querySelector(".drop").dispatchEvent(drop);
            }""",
            names,
        )
    button = page.get_by_role("button", name="Upload 8 files")
    expect(button).to_be_focused()
    rows = page.locator("[data-review] tbody tr")
    expect(rows).to_have_count(8)
    zone, review = page.locator(".drop").bounding_box(), page.locator("[data-review]").bounding_box()
    place, last = button.bounding_box(), rows.last.bounding_box()
    assert zone and review and place and last
    assert zone["y"] + zone["height"] <= place["y"] and place["y"] + place["height"] <= review["y"]
    assert last["y"] + last["height"] <= 800  # the height of the window

    options.locator("> summary").click()
    page.get_by_label("Tags").fill("bird")
    button.press("Enter")
    expect(page.locator("#upload-results li").filter(has_text="Succeeded")).to_have_count(8)
    assert set(Document.objects.values_list("tags", flat=True).distinct()[0]) == {"bird"}
    page.get_by_role("link", name="Ask this collection").click()
    page.wait_for_url("**/chat/?collection=nature")
    page.go_back()
    expect(page.locator("#upload-state p")).to_have_text("8 ready.")


@pytest.mark.fault("UX-F11")
def test_the_state_after_an_upload_is_true(visit: Visit, tmp_path: Path) -> None:
    collection = create_collection(name="nature")
    (tmp_path / "owl.txt").write_text("The barn owl hunts at night.")
    page = visit.go("/collections/nature/upload/")
    page.locator("#id_uploads").set_input_files(tmp_path / "owl.txt")
    page.get_by_role("button", name="Upload 1 file").click()
    state, ask = page.locator("#upload-state p"), page.get_by_role("link", name="Ask this collection")
    expect(state).to_have_text("1 ready.")
    expect(page).to_have_url(re.compile(r"/collections/nature/upload/\?batch=[0-9a-f-]{36}$"))

    # work as a worker would leave it in between, and then
    batch, finished = IngestBatch.objects.get(), IngestJob.objects.get()
    finished.state = "running"
    finished.save()
    others = [IngestJob(collection=collection, batch=batch, doc_id=f"{n}.pdf", state="queued") for n in range(2)]
    IngestJob.objects.bulk_create(others)
    page.reload()
    expect(state).to_contain_text("0 of 3 ready")
    expect(page.get_by_role("button", name="Ask this collection")).to_be_disabled()
    IngestJob.objects.filter(pk=finished.pk).update(state="succeeded")
    expect(state).to_contain_text("1 of 3 ready")
    expect(ask).to_be_visible()
    IngestJob.objects.filter(batch=batch, state="queued").update(state="failed", error="It is locked.")
    expect(state).to_have_text("1 ready, 2 need attention.")
    expect(page.locator("#upload-state .banner")).to_have_attribute("data-tone", "watch")
    assert visit.faults() == []
    page.get_by_role("link", name="2 need attention").click()
    expect(page.locator("#batch tbody tr").first).to_contain_text("It is locked.")
    page.go_back()
    expect(state).to_have_text("1 ready, 2 need attention.")


@pytest.mark.fault("UX-F18")
def test_the_password_of_a_file_is_asked_in_view(visit: Visit, tmp_path: Path) -> None:
    create_collection(name="nature")
    (tmp_path / "plan.pdf").write_bytes(make_pdf(["Locked page"], password="Ahab"))
    page = visit.go("/collections/nature/upload/")
    visit.look("dark", 390)
    page.locator("#id_uploads").set_input_files(tmp_path / "plan.pdf")
    page.get_by_role("button", name="Upload 1 file").click()
    expect(page.locator("#upload-state p")).to_have_text("0 ready, 1 needs attention.")
    visit.go("/collections/nature/")
    page.get_by_role("link", name="Enter the password").click()
    drawer, field = page.locator("#drawer"), page.get_by_label("Password of the file")
    expect(field).to_be_focused()
    box, bar = field.bounding_box(), drawer.locator(".drawer-close").bounding_box()
    assert box and bar and bar["y"] + bar["height"] <= box["y"] and box["y"] + box["height"] <= 800
    cut = "boxes => boxes.filter(box => box.scrollWidth > box.clientWidth).map(box => box.outerHTML.slice(0, 80))"
    expect(drawer.locator("table").first).to_be_attached()
    assert drawer.locator(".scroll, .dialog-body").evaluate_all(cut) == []
    page.keyboard.type("Ahab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("plan.pdf")
    expect(page.locator("[data-failed-file]")).to_have_count(0)
