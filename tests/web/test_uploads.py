"""The upload page: what its script asks for beforehand, the batch that many requests share, and the plain form.
The pages of sources that a collection is kept in step with.
The pages that bring documents from elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestBatch, IngestJob, Operation, Source
from collections_app.sources.kinds.registry import BUILT_IN
from collections_app.tasks import run_operation
from evaluation_app.telemetry.alerts.rules import evaluate_alerts
from tests.web.pages import attribute, has, is_empty, numbers, states, texts, wrong_fields

pytestmark = pytest.mark.usefixtures("bound")

HERE = "/collections/nature/upload/"
PART = {"HX-Request": "true", "HX-Target": "upload-results"}


def entry(name: str, content: bytes, on_clash: str = "") -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "on_clash": on_clash}


def send_json(visitor: Client, part: str, values: Any) -> Any:
    return visitor.post(f"{HERE}?view={part}", json.dumps(values), content_type="application/json")


def put(visitor: Client, files: dict[str, bytes], **fields: Any) -> Any:
    uploads = [SimpleUploadedFile("file", content) for content in files.values()]
    return visitor.post(HERE, {"uploads": uploads, "doc_ids": list(files), **fields}, headers=PART)


def run_all() -> None:
    for pk in IngestJob.objects.filter(state="queued").values_list("pk", flat=True):
        run_job(pk)


def test_the_plan_is_asked_for_with_hashes_alone(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=0)
    put(visitor, {"f/a.txt": b"a", "f/b.txt": b"b", "f/c.txt": b"c"})
    run_all()
    entries = [entry("f/a.txt", b"a"), entry("f/b.txt", b"other", "keep_both"), entry("f/d.txt", b"d")]
    plan = send_json(visitor, "plan", {"entries": entries, "prefix": "f", "delete_missing": True}).json()
    assert [item["doc_id"] for item in plan["items"]] == ["f/a.txt", "f/b (2).txt", "f/d.txt", "f/c.txt"]
    assert [item["status"] for item in plan["items"]] == ["unchanged", "renamed", "new", "would_delete"]
    assert (plan["totals"]["unchanged"], plan["totals"]["would_delete"]) == (1, 1)


def test_a_wrong_request_of_the_script_says_what_is_wrong(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=0)
    for part, values, word in (
        ("plan", {"entries": [{"name": "a"}]}, "sha256 is missing"),
        ("plan", {"entries": [], "delete_missing": True}, "at least one file"),
        ("finish", {"delete": []}, "batch"),
        ("finish", {"batch": "5f1d3c1e-0000-4000-8000-000000000000"}, "has no batch"),
    ):
        response = send_json(visitor, part, values)
        assert response.status_code in (404, 422)
        assert word in response.json()["detail"]
    deep = visitor.post(f"{HERE}?view=finish", "[" * 100_000, content_type="application/json")
    assert deep.status_code == 422
    assert visitor.post(f"{HERE}?view=begin", {"kind": "reindex"}).status_code == 422
    assert visitor.post(f"{HERE}?view=members", {}).status_code == 422


def test_a_sync_deletes_what_was_named(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=0)
    put(visitor, {"hb/a.txt": b"a", "hb/b.txt": b"b"})
    run_all()
    batch = visitor.post(f"{HERE}?view=begin", {"kind": "sync", "label": "hb"}).json()["batch"]
    done = send_json(visitor, "finish", {"batch": batch, "delete": ["hb/b.txt", "hb/none.txt"]}).json()
    assert done == {"deleted": ["hb/b.txt"], "kept": {"hb/none.txt": "it is not there any more"}}
    assert [document.doc_id for document in Document.objects.all()] == ["hb/a.txt"]
    assert send_json(visitor, "finish", {"batch": batch, "delete": []}).status_code == 409


def test_the_plain_form_settles_clashes_by_its_field(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=0)
    put(visitor, {"a.txt": b"first"}, tags="kept")
    run_all()
    response = visitor.post(HERE, {"uploads": [SimpleUploadedFile("a.txt", b"second")], "on_clash": "skip"})
    assert ">Skipped</span>" in response.content.decode()
    response = visitor.post(HERE, {"uploads": [SimpleUploadedFile("a.txt", b"first")]})
    assert ">Unchanged</span>" in response.content.decode()
    visitor.post(HERE, {"uploads": [SimpleUploadedFile("a.txt", b"second")]})
    run_all()
    document = Document.objects.get()
    assert (document.text, document.tags) == ("second", ["kept"])  # nothing was typed, so its tags stay


def test_a_queue_that_is_full_tells_the_script_to_wait(
    visitor: Client, fill: Callable[..., Any], settings: Any
) -> None:
    fill(documents=0)
    put(visitor, {"a.txt": b"a"})
    settings.RAGD_QUEUE_MAX_JOBS = 1
    response = put(visitor, {"b.txt": b"b"})
    assert response.status_code == 429
    assert int(response["Retry-After"]) > 0


def test_a_mail_and_its_attachments_link_to_each_other(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=0)
    message = EmailMessage()
    message["Subject"] = "Plans"
    message.set_content("Please read.")
    message.add_attachment(b"The plan.", maintype="text", subtype="plain", filename="plan.txt")
    put(visitor, {"mail.eml": message.as_bytes()})
    run_all()
    waiting = visitor.get("/collections/nature/documents/mail.eml/").content.decode()
    assert "plan.txt" in waiting and "processing" in waiting
    run_all()
    html = visitor.get("/collections/nature/documents/mail.eml/").content.decode()
    assert '<a href="/collections/nature/documents/mail.eml/plan.txt/">plan.txt</a>' in html
    html = visitor.get("/collections/nature/documents/mail.eml/plan.txt/").content.decode()
    assert 'Attachment of <a href="/collections/nature/documents/mail.eml/">mail.eml</a>' in html
    question = visitor.get("/collections/nature/?view=change&doc_id=mail.eml").content.decode()
    assert "1 document attached to them will be deleted too: mail.eml/plan.txt." in question


@pytest.mark.fault("UX-F11")
def test_the_state_of_an_upload_counts_what_is_ready(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=0)
    plain = visitor.post(HERE, {"uploads": [SimpleUploadedFile(f"{n}.txt", b"%d owls" % n) for n in range(3)]})
    batch = IngestBatch.objects.get()
    assert f"uploads/{batch.pk}/" in plain.content.decode()

    def state(name: str = "nature") -> Any:
        part = {"HX-Request": "true", "HX-Target": "upload-state"}
        return visitor.get(f"/collections/{name}/upload/?batch={batch.pk}", headers=part)

    def figures() -> tuple[int, int, int, bool]:
        progress = state().context["progress"]
        return progress.ready, progress.errors, progress.total, progress.is_active

    assert figures() == (0, 0, 3, True)
    assert "/chat/?collection=" not in state().content.decode()
    first, second, third = IngestJob.objects.order_by("doc_id")
    run_job(first.pk)
    assert figures() == (1, 0, 3, True)
    assert "/chat/?collection=nature" in state().content.decode()
    IngestJob.objects.filter(pk=second.pk).update(state="failed")
    IngestJob.objects.filter(pk=third.pk).update(state="quarantined")
    assert figures() == (1, 2, 3, False)
    assert "hx-trigger" not in state().content.decode().split("components")[0]
    visitor.post(HERE, {"uploads": [SimpleUploadedFile("0.txt", b"0 owls")]})
    batch = IngestBatch.objects.latest("created_at")
    assert figures() == (1, 0, 1, False)  # it is stored like that

    fill(name="secret", documents=0)
    assert state("secret").status_code == 404  # an upload is shown in its own collection alone
    assert visitor.get(f"{HERE}?batch=none").status_code == 404


SOURCES = "/collections/nature/sources/"


@pytest.fixture
def nature(fill: Callable[..., Collection], tmp_path: Path, settings: Any) -> Collection:
    settings.RAGD_SOURCE_FOLDERS = [str(tmp_path)]
    return fill("nature", 1)


def own_states(page: Any) -> list[str]:
    """The states below the collection's own."""
    return states(page)[1:]


def work() -> Operation:
    """The newest sync and its jobs, as the worker does them."""
    run = Operation.objects.latest("created_at")
    run_operation(str(run.pk))
    run.refresh_from_db()
    for job in IngestJob.objects.filter(batch=run.report.get("batch_id")):
        run_job(job.pk)
    return run


def test_a_source_from_the_form_to_its_documents(visitor: Client, nature: Collection, tmp_path: Path) -> None:
    assert is_empty(visitor.get(SOURCES))
    assert len(texts(visitor.get(f"{SOURCES}?view=new"), "tbody th a")) == len(BUILT_IN)
    form = f"{SOURCES}?view=new&kind=folder"
    assert has(visitor.get(form), "input[name=path]")
    answer = visitor.post(
        form, {"name": "share", "path": "/etc", "schedule": "60", "enabled": "on", "include": "*.txt"}
    )
    assert (answer.status_code, wrong_fields(answer)) == (422, ["path"])
    assert attribute(answer, "input[name=path]", "value") == "/etc"
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"About {name}.")
    values = {"name": "share", "path": str(tmp_path), "schedule": "60", "enabled": "on", "do": "preview"}
    answer = visitor.post(form, values)
    source = Source.objects.get()
    assert (source.schedule, source.enabled, source.created_by) == (60, True, "ada")
    page = visitor.get(answer["Location"])
    assert own_states(page) == ["running"] and has(page, "#source-run[hx-get]")
    assert visitor.post(f"{SOURCES}{source.pk}/", {"do": "sync"})["Location"] == f"{SOURCES}{source.pk}/"
    work()
    page = visitor.get(answer["Location"])
    assert numbers(page) == ["3", "0", "0", "0"]
    assert not Document.objects.filter(doc_id="a.txt").exists()
    answer = visitor.post(f"{SOURCES}{source.pk}/", {"do": "sync"})
    run = work()
    assert texts(visitor.get(answer["Location"]), "[data-change=added] th a") == ["a.txt", "b.txt", "c.txt"]
    page = visitor.get(f"{SOURCES}{source.pk}/")
    assert own_states(page) == ["succeeded"] * 3
    assert own_states(visitor.get(SOURCES)) == ["succeeded"]
    for name in "bc":
        (tmp_path / f"{name}.txt").unlink()
    visitor.post(f"{SOURCES}{source.pk}/", {"do": "sync"})
    run = work()
    at = f"/collections/nature/syncs/{run.pk}/"
    assert texts(visitor.get(at), "[data-change=held] th") == ["b.txt", "c.txt"]
    for address in ("/", "/collections/nature/"):
        assert attribute(visitor.get(address), ".banner[data-source]", "data-source") == str(source.pk)
    visitor.post(f"{SOURCES}{source.pk}/", {"do": "agree", "run": str(run.pk)})
    assert work().report["deleted"] == 2
    assert not has(visitor.get("/collections/nature/"), ".banner[data-source]")
    visitor.post(f"{SOURCES}{source.pk}/", {"do": "delete", "with_documents": "on"})
    assert not Source.objects.exists()
    assert not Document.objects.filter(doc_id__endswith=".txt").exists()


def test_a_failing_source_raises_the_alarm_and_can_be_changed(
    visitor: Client, admin_client: Client, nature: Collection, tmp_path: Path
) -> None:
    visitor.post(
        f"{SOURCES}?view=new&kind=folder",
        {"name": "share", "path": str(tmp_path / "none"), "schedule": "0", "do": "sync"},
    )
    source = Source.objects.get()
    run = work()
    assert (run.state, source.enabled) == ("failed", False)
    Source.objects.update(enabled=True)
    evaluate_alerts()
    assert has(admin_client.get("/operations/"), ".banner[data-alert=failing_sources]")
    assert has(visitor.get("/"), f".banner[data-source='{source.pk}']")
    home = admin_client.get("/")
    assert has(home, f".banner[data-source='{source.pk}']") and not has(home, "[data-alert=failing_sources]")
    assert own_states(visitor.get(SOURCES)) == ["failed"]
    edit = f"{SOURCES}{source.pk}/?view=edit"
    page = visitor.get(f"/collections/nature/syncs/{run.pk}/")
    assert has(page, f"#source-run form[action='{SOURCES}{source.pk}/'] [value=sync]") and has(
        page, f"a[href='{edit}']"
    )
    assert attribute(visitor.get(edit), "input[name=path]", "value") == str(tmp_path / "none")
    answer = visitor.post(edit, {"name": "other", "path": str(tmp_path), "schedule": "1440", "do": "save"})
    assert answer["Location"] == f"{SOURCES}{source.pk}/"
    visitor.post(f"{SOURCES}{source.pk}/", {"do": "sync"})
    at = Operation.objects.latest("created_at")
    visitor.post(f"/collections/operation/{at.pk}/")
    assert own_states(visitor.get(f"/collections/nature/syncs/{at.pk}/")) == ["cancelled"]
    assert visitor.get(f"{SOURCES}?view=new&kind=none").status_code == 404


URLS = "/collections/nature/upload/?view=urls"


def test_a_look_first_writes_nothing(visitor: Client, nature: Collection) -> None:
    answer = visitor.post(URLS, {"urls": "https://example.org/a\nnothing\n", "tags": "x, y"})
    page = answer.content.decode()
    assert answer.status_code == 200
    assert ">New 1<" in page and ">Rejected 1<" in page
    assert "https://example.org/a\nnothing" in page and 'value="x, y"' in page
    assert not IngestBatch.objects.exists()


def test_addresses_are_queued_and_the_attempt_is_shown(visitor: Client, nature: Collection) -> None:
    answer = visitor.post(URLS, {"urls": "https://example.org/a", "tags": "x", "metadata": '{"y": 1}', "go": "1"})
    batch = IngestBatch.objects.get()
    assert answer["Location"] == f"/collections/nature/uploads/{batch.pk}/"
    job = IngestJob.objects.get()
    assert (job.kind, job.tags, job.metadata, job.created_by) == ("fetch", ["x"], {"y": 1}, "ada")
    page = visitor.get(answer["Location"]).content.decode()
    assert "1 document queued." in page and "example.org/a" in page


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.txt", b"# ours\nhttps://example.org/a\n\nhttps://example.org/b\n"),
        ("list.csv", b"\xef\xbb\xbftitle;url;doc_id\nA;https://example.org/a;\nB;https://example.org/b;mine\n"),
        ("list.csv", b"link,other\nhttps://example.org/a,x\nhttps://example.org/b,y\n"),
    ],
)
def test_a_list_comes_as_a_file(visitor: Client, nature: Collection, name: str, content: bytes) -> None:
    visitor.post(URLS, {"file": SimpleUploadedFile(name, content), "urls": "https://example.org/c", "go": "1"})
    jobs = {job.origin.address: job for job in IngestJob.objects.all()}
    assert sorted(jobs) == [f"https://example.org/{letter}" for letter in "abc"]
    if b"doc_id" in content:
        assert (jobs["https://example.org/b"].doc_id, jobs["https://example.org/a"].title) == ("mine", "A")


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [
        ({"urls": ""}, "urls"),
        ({"urls": "https://a.org", "metadata": "[1]"}, "metadata-key"),
        ({"urls": "https://a.org", "tags": "x" * 300}, "tags"),
        ({"urls": "\n".join(f"https://a.org/{number}" for number in range(10_001))}, "urls"),
    ],
)
def test_what_is_wrong_stands_beside_its_field(
    visitor: Client, nature: Collection, typed: dict[str, str], wrong: str
) -> None:
    answer = visitor.post(URLS, {**typed, "go": "1"})
    assert answer.status_code == 422
    assert wrong_fields(answer) == [wrong]
    assert not IngestJob.objects.exists()
