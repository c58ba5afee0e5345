"""Syncs: what they bring, change and delete, what they leave alone, and what happens when they are disturbed.
Who sees sources, their syncs and what these changed: whoever may write, without documents kept from them.
Sources over the API and the command line, and the gauge of their states."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.context import Access, using_access
from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.jobs.operations import cancel_operation, process_operation, requeue_operations
from collections_app.models import (
    AuditEvent,
    Collection,
    Document,
    IngestJob,
    Operation,
    RoleGrant,
    Source,
    SourceChange,
    TrashedDocument,
)
from collections_app.sources import sync as syncs
from collections_app.sources.kinds import registry
from collections_app.sources.kinds.protocol import BaseSource, Field, File, Item, SourceError
from collections_app.sources.records import (
    SourceValues,
    count_states,
    delete_source,
    list_sources,
    save_source,
    troubled_sources,
)
from collections_app.sources.sync import request_run, start_syncs
from collections_app.tasks import run_operation
from ragd.errors import InvalidInput
from tests.api.conftest import Api
from tests.refusals import raises_with
from tests.sources.syncing import changes, sync, totals

pytestmark = pytest.mark.django_db

Connect = Callable[..., Source]


class Shelf(BaseSource):
    """A source that a test states: id -> (version, text); None as text cannot be read."""

    kind = "shelf"
    title = "Shelf"
    fields = (Field("label", "Label"), Field("token", "Token", "secret"))
    items: dict[str, tuple[str, str | None]] = {}
    fetched: list[str] = []
    breaks_after: int | None = None
    complete = True

    def list_items(self) -> Iterator[Item]:
        for number, (name, (version, _)) in enumerate(self.items.items()):
            if number == self.breaks_after:
                raise SourceError("unreachable", "the shelf fell down", retryable=True)
            yield Item(name, version, url=f"https://shelf.example/{name}")
        self.is_complete = self.complete

    def fetch(self, item: Item) -> File:
        text = self.items[item.id][1]
        if text is None:
            raise SourceError("unreadable", "torn")
        self.fetched.append(item.id)
        return File(f"{item.id}.txt", text.encode())


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> Source:
    kinds = {**registry.source_kinds(), "shelf": Shelf}
    monkeypatch.setattr("collections_app.sources.records.source_kinds", lambda: kinds)
    monkeypatch.setattr(Shelf, "items", {name: ("1", f"About {name}.") for name in ("a", "b", "c")})
    monkeypatch.setattr(Shelf, "fetched", [])
    return connect("shelf", into="shelf")


def documents(collection: Collection) -> dict[str, str]:
    return dict(Document.objects.filter(collection=collection).values_list("doc_id", "text"))


def test_new_changed_and_missing_items_reach_the_collection(shelf: Source, notes: Collection) -> None:
    run = sync(shelf)
    assert (run.state, totals(run)) == ("succeeded", (3, 0, 0, 0, 0))
    assert documents(notes) == {f"shelf/{name}": f"About {name}." for name in "abc"}
    assert Document.objects.get(doc_id="shelf/a").source == "https://shelf.example/a"
    assert shelf.last_success is not None and shelf.state == "succeeded"
    assert [row.document_total for row in list_sources(notes)] == [3]
    Shelf.fetched.clear()
    assert totals(sync(shelf)) == (0, 0, 0, 3, 0)
    assert Shelf.fetched == []
    Shelf.items = {"a": ("2", "Anew."), "b": ("1", "About b."), "d": ("1", "About d.")}
    run = sync(shelf)
    assert totals(run) == (1, 1, 1, 1, 0)
    assert changes(run) == {"added": ["shelf/d"], "updated": ["shelf/a"], "deleted": ["shelf/c"]}
    assert documents(notes) == {"shelf/a": "Anew.", "shelf/b": "About b.", "shelf/d": "About d."}
    assert Shelf.fetched == ["a", "d"]
    assert [row.doc_id for row in TrashedDocument.objects.all()] == ["shelf/c"]


def test_a_preview_tells_and_changes_nothing(shelf: Source, notes: Collection) -> None:
    sync(shelf)
    Shelf.items = {"a": ("2", "Anew."), "b": ("", "About b."), "d": ("", "About d.")}
    run = sync(shelf, dry_run=True)
    assert changes(run) == {"added": ["shelf/d"], "updated": ["shelf/a", "shelf/b"], "deleted": ["shelf/c"]}
    assert documents(notes) == {f"shelf/{name}": f"About {name}." for name in "abc"}
    assert "batch_id" not in run.report and not IngestJob.objects.active().exists()


def test_without_versions_the_bytes_tell(shelf: Source) -> None:
    Shelf.items = {"a": ("", "One."), "b": ("", "Two.")}
    sync(shelf)
    Shelf.items = {"a": ("", "One."), "b": ("", "Three.")}
    assert totals(sync(shelf)) == (0, 1, 0, 1, 0)


def test_documents_of_others_are_neither_overwritten_nor_deleted(shelf: Source, notes: Collection) -> None:
    ingest_text(notes, doc_id="shelf/a", content="Mine.")
    run = sync(shelf)
    assert changes(run) == {"added": ["shelf/b", "shelf/c"], "failed": ["shelf/a"]}
    ingest_text(notes, doc_id="shelf/b", content="Replaced here.")
    Shelf.items = {"c": ("1", "About c."), "b": ("2", "From the source.")}
    run = sync(shelf)
    assert changes(run) == {"failed": ["shelf/b"]}
    Shelf.items = {"c": ("1", "About c.")}
    assert totals(sync(shelf)) == (0, 0, 0, 1, 0)
    assert documents(notes) == {"shelf/a": "Mine.", "shelf/b": "Replaced here.", "shelf/c": "About c."}


def test_a_sync_that_would_delete_more_than_half_asks_first(shelf: Source, notes: Collection) -> None:
    sync(shelf)
    Shelf.items = {"a": ("1", "About a.")}
    run = sync(shelf)
    assert (run.state, run.report["held"], run.report["deleted"]) == ("succeeded", 2, 0)
    assert (shelf.state, troubled_sources(notes)) == ("held", [shelf])
    assert len(documents(notes)) == 3
    Shelf.items = {}  # more than was agreed to
    assert sync(shelf, agreed_run=run).report["held"] == 3
    Shelf.items = {"a": ("1", "About a.")}
    run = sync(shelf, agreed_run=run)
    assert changes(run) == {"deleted": ["shelf/b", "shelf/c"]}
    assert (list(documents(notes)), shelf.state) == (["shelf/a"], "succeeded")


@pytest.mark.parametrize("how", ["breaks", "incomplete", "keeps"])
def test_what_cannot_be_listed_whole_deletes_nothing(shelf: Source, monkeypatch: Any, how: str) -> None:
    sync(shelf)
    Shelf.items = {"a": ("1", "About a."), "b": ("1", "About b."), "d": ("1", "About d.")}
    if how == "breaks":
        monkeypatch.setattr(Shelf, "breaks_after", 2)
    elif how == "incomplete":
        monkeypatch.setattr(Shelf, "complete", False)
    else:
        Source.objects.update(keep_missing=True)
    run = sync(shelf)
    assert (run.state, run.error_type) == (("failed", "unreachable") if how == "breaks" else ("succeeded", ""))
    assert Document.objects.filter(doc_id="shelf/c").exists()


def test_the_alarm_begins_with_a_failure_and_ends_with_a_success(shelf: Source, monkeypatch: Any) -> None:
    monkeypatch.setattr(Shelf, "breaks_after", 0)
    for _ in range(2):
        assert sync(shelf).state == "failed"
    assert (shelf.state, troubled_sources()) == ("failed", [shelf])
    assert AuditEvent.objects.filter(action="source.fail").count() == 1
    monkeypatch.setattr(Shelf, "breaks_after", None)
    sync(shelf)
    assert (shelf.last_error, troubled_sources()) == ("", [])


def test_one_item_that_cannot_be_read_holds_up_no_other(shelf: Source, monkeypatch: Any) -> None:
    Shelf.items = {"a": ("1", None), "b": ("1", "About b."), "d": ("1", "")}
    run = sync(shelf)
    assert run.state == "succeeded"
    assert changes(run) == {"added": ["shelf/b"], "failed": ["shelf/a", "shelf/d"]}
    Shelf.items = dict.fromkeys("abcdefgh", ("1", None))
    monkeypatch.setattr(syncs, "FAILURES_IN_ROW_MAX", 5)
    run = sync(shelf)
    assert (run.state, run.error_type, run.done) == ("failed", "unreachable", 7)  # b is there already


def test_an_item_that_cannot_be_read_under_a_new_prefix_keeps_its_document(shelf: Source) -> None:
    sync(shelf)
    Source.objects.update(prefix="new/")
    Shelf.items["a"] = ("1", None)
    held = ["shelf/b", "shelf/c"]
    assert changes(sync(shelf)) == {"added": ["new/b", "new/c"], "failed": ["new/a"], "held": held}


def test_a_file_that_could_not_be_ingested_is_not_read_again(shelf: Source) -> None:
    Shelf.items = {"a": ("1", "%PDF-1.4 broken"), "b": ("1", "Good.")}
    sync(shelf)
    assert IngestJob.objects.get(doc_id="shelf/a").state == "failed"
    Shelf.fetched.clear()
    assert (totals(sync(shelf)), Shelf.fetched) == ((0, 0, 0, 1, 1), [])
    Shelf.items["a"] = ("2", "Repaired.")
    assert totals(sync(shelf)) == (0, 0, 0, 1, 0) or Shelf.fetched == ["a"]
    assert Document.objects.get(doc_id="shelf/a").text == "Repaired."


def test_an_interrupted_sync_goes_on_and_tells_of_all(shelf: Source, monkeypatch: Any) -> None:
    run = request_run(shelf)
    real = Shelf.fetch

    def die(self: Shelf, item: Item) -> File:
        if item.id == "b":
            raise KeyboardInterrupt  # as a worker that is stopped
        return real(self, item)

    monkeypatch.setattr(Shelf, "fetch", die)
    with pytest.raises(KeyboardInterrupt):
        process_operation(str(run.pk))
    monkeypatch.setattr(Shelf, "fetch", real)
    assert IngestJob.objects.count() == 1
    Operation.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert requeue_operations(timezone.now()) == 1
    process_operation(str(run.pk))
    run.refresh_from_db()
    assert (run.state, totals(run)) == ("succeeded", (3, 0, 0, 0, 0))
    assert IngestJob.objects.count() == 3


def test_two_syncs_never_run_at_once_and_one_can_be_cancelled(shelf: Source) -> None:
    run = request_run(shelf)
    with raises_with(ServiceError, status=409):
        request_run(shelf, dry_run=True)
    cancel_operation(run, actor=None)
    with pytest.raises(ServiceError):
        cancel_operation(run, actor=None)
    process_operation(str(run.pk))
    assert not IngestJob.objects.exists()
    assert request_run(shelf).is_running


def test_the_schedule_begins_what_is_due(shelf: Source, notes: Collection) -> None:
    values = SourceValues("shelf", "hourly", {}, schedule=60)
    hourly = save_source(notes, values)
    now = timezone.now()
    assert start_syncs(now) == 0
    later = now + timedelta(minutes=61)
    assert start_syncs(later) == 1
    assert Operation.objects.get().source == hourly
    start_syncs(later)
    assert Operation.objects.count() == 1
    hourly.refresh_from_db()
    assert hourly.next_at is not None and hourly.next_at > now + timedelta(minutes=59)


def test_of_scheduled_syncs_that_changed_nothing_the_newest_is_kept(shelf: Source) -> None:
    first = sync(shelf)
    for _ in range(3):
        last = sync(shelf)
    assert list(shelf.runs.all()) == [last, first]


def test_limits_of_items_and_bytes(shelf: Source, settings: Any) -> None:
    settings.RAGD_SOURCE_MAX_ITEMS = 2
    run = sync(shelf)
    assert (run.state, run.error_type, run.done, Document.objects.count()) == ("failed", "too_many_items", 2, 2)


def test_settings_and_secrets_are_checked(shelf: Source, notes: Collection) -> None:
    def change(row: Source | None = shelf, **values: Any) -> Source:
        return save_source(notes, SourceValues("shelf", **{"name": "n", "settings": {}, **values}), row=row)

    assert change(settings={"label": "x"}, secret="s3cret").secret not in ("", "s3cret")
    stored = shelf.secret
    assert change(settings={"label": "x"}).secret == stored
    for values, field in (
        ({"settings": {"label": "elsewhere"}}, "token"),
        ({"settings": {"label": 7}, "secret": "x"}, "label"),
        ({"settings": {"other": "x"}}, "settings"),
        ({"name": " ", "settings": {"label": "x"}}, "name"),
        ({"schedule": -1, "settings": {"label": "x"}}, "schedule"),
    ):
        with raises_with(InvalidInput, field=field):
            change(**values)
    assert Source.objects.get(pk=shelf.pk).settings == {"label": "x"}
    with raises_with(ServiceError, status=409, field="name"):
        change(None, name="n")
    assert "s3cret" not in str(list(AuditEvent.objects.values("before", "after", "message")))


def test_deleting_a_source_leaves_or_takes_its_documents(shelf: Source, notes: Collection) -> None:
    sync(shelf)
    ingest_text(notes, doc_id="shelf/b", content="Mine now.")
    assert delete_source(shelf, with_documents=True) == 2
    assert list(documents(notes)) == ["shelf/b"]


def test_a_folder_is_read_within_its_bounds(connect: Connect, share: Path, notes: Collection) -> None:
    (share / "sub").mkdir()
    (share / "sub" / "b.md").write_text("# B")
    (share / "a.txt").write_text("First.")
    (share / ".hidden").write_text("no")
    with zipfile.ZipFile(share / "all.zip", "w") as archive:
        archive.writestr("a.txt", "Not to come from here.")
    (share.parent / "outside.txt").write_text("secret")
    (share / "link.txt").symlink_to(share.parent / "outside.txt")
    (share / "away").symlink_to(share.parent)
    with raises_with(InvalidInput, field="path"):
        connect("folder", path="/etc")
    folder = connect("folder", path=str(share))
    assert changes(sync(folder)) == {"added": ["a.txt", "sub/b.md"], "failed": ["all.zip"]}
    assert Document.objects.get(doc_id="sub/b.md").source == "folder://share/sub/b.md"
    (share / "a.txt").write_text("Second.")
    os.utime(share / "a.txt", (1, 1))
    assert totals(sync(folder)) == (0, 1, 0, 1, 1)
    (share / "a.txt").unlink()
    (share / "a.txt").symlink_to("x" * 300)  # an error that does not say that it is gone
    run = sync(folder)
    assert (run.state, run.error_type, str(share / "a.txt") in run.error) == ("failed", "unreachable", True)
    share.rename(share.parent / "gone")
    run = sync(folder)
    assert (run.state, run.error_type, Document.objects.count()) == ("failed", "unreachable", 2)


def make_source(collection: Collection) -> Source:
    source = Source.objects.create(collection=collection, kind="website", name="docs", last_error="torn")
    run = Operation.objects.create(kind="sync", subject=collection.name, source=source, finished_at=timezone.now())
    for doc_id in ("open.md", "secret.md"):
        SourceChange.objects.create(run=run, collection=collection, doc_id=doc_id, kind="added")
    return source


def as_role(name: str, role: str, collection: Collection) -> Access:
    user = User.objects.create_user(name)
    RoleGrant.objects.create(user=user, collection_id=collection.pk, role=role)
    return access_of_user(user)


def test_rows_are_those_of_who_may_write_there(notes: Collection, embeddings: Any) -> None:
    other = create_collection(name="other")
    source = make_source(notes)
    make_source(other)
    set_access(notes, ["secret.md"])
    seen = {}
    for name, role in (("viewer", Role.VIEWER), ("curator", Role.CURATOR), ("administrator", Role.ADMINISTRATOR)):
        with using_access(as_role(name, role, notes)):
            changes = sorted(SourceChange.objects.values_list("doc_id", flat=True))
            seen[name] = (list(Source.objects.all()), Operation.objects.count(), changes)
    assert (seen["viewer"], seen["curator"]) == (([], 0, []), ([source], 1, ["open.md"]))
    assert seen["administrator"] == ([source], 1, ["open.md", "secret.md"])


def test_a_curator_deletes_a_source_with_changes_that_they_do_not_see(notes: Collection) -> None:
    source = make_source(notes)
    set_access(notes, ["secret.md"])
    with using_access(as_role("curator", Role.CURATOR, notes)):
        delete_source(Source.objects.select_related("collection").get(pk=source.pk))
    assert not SourceChange.objects.exists()


def test_a_sync_that_a_curator_runs_sees_what_it_brought(notes: Collection, share: Path, connect: Any) -> None:
    (share / "secret.md").write_text("# Secret")
    source = connect("folder", path=str(share))
    sync(source)
    set_access(notes, ["secret.md"])
    (share / "secret.md").write_text("# Secret, longer")
    with using_access(as_role("curator", Role.CURATOR, notes)):
        run = sync(source, ingests=False)
    assert changes(run) == {"updated": ["secret.md"]}


ALL = "/collections/notes/sources"


def test_a_source_by_the_api(notes: Collection, share: Path) -> None:
    api = Api(Client(), create_key(NewKey("tests"))[1])
    (share / "a.txt").write_text("About a.")
    body = {"kind": "folder", "name": "share", "settings": {"path": str(share)}, "schedule": 60, "tags": ["x"]}
    refused = api.send("POST", ALL, body | {"settings": {"path": "/etc"}})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "path")
    made = api.send("POST", ALL, body)
    assert (made.status_code, made.json()["state"], made.json()["documents"]) == (201, "new", 0)
    pk = made.json()["id"]
    assert "secret" not in made.json()
    begun = api.send("POST", f"{ALL}/{pk}/sync", {"dry_run": True})
    assert (begun.status_code, begun.json()["state"]) == (202, "running")
    assert api.send("POST", f"{ALL}/{pk}/sync", {}).status_code == 409
    run_operation(begun.json()["id"])
    run = api.send("GET", f"{ALL}/{pk}/runs/{begun.json()['id']}", None).json()
    assert (run["report"]["added"], run["changes"]) == (1, [{"doc_id": "a.txt", "kind": "added", "reason": ""}])
    assert [each["report"]["dry_run"] for each in api.send("GET", "/operations?kind=sync", None).json()["items"]] == [
        True
    ]
    assert [each["name"] for each in api.send("GET", ALL, None).json()["items"]] == ["share"]
    assert api.send("POST", f"{ALL}/{pk + 1}/sync", {}).status_code == 404


def ragd(*arguments: str) -> tuple[dict[str, Any], int]:
    out, status = StringIO(), 0
    try:
        call_command("ragd", *arguments, "--json", stdout=out)
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    return json.loads(out.getvalue()), status


def test_a_source_by_the_command_line(notes: Collection, share: Path, connect: Any) -> None:
    for name in ("a.txt", "b.txt"):
        (share / name).write_text(f"About {name}.")
    source = connect("folder", path=str(share))
    answer, status = ragd("sync", "notes", "--dry-run")
    assert (status, answer["runs"][0]["added"], answer["runs"][0]["dry_run"]) == (0, 2, True)
    answer, status = ragd("sync", "notes", "--source", source.name)
    assert (status, [each["doc_id"] for each in answer["runs"][0]["changes"]]) == (0, ["a.txt", "b.txt"])
    rows = ragd("api", "GET", "/v1/collections/notes/sources")[0]["items"]
    assert [each["state"] for each in rows] == ["succeeded"]
    share.rename(share.parent / "gone")
    answer, status = ragd("sync", "notes")
    assert (status, answer["runs"][0]["state"]) == (1, "failed")
    assert count_states() == {"new": 0, "succeeded": 0, "failed": 1, "held": 0, "disabled": 0}
    assert Operation.objects.count() == 3 and Source.objects.get().last_error
