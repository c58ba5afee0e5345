"""Backups on the page Server settings: made and drilled by a worker, downloaded by administrators alone."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from collections_app.access.context import system_access
from collections_app.access.people import grant
from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection
from collections_app.endpoints.server_settings import stored
from collections_app.jobs.operations import process_operation
from collections_app.models import AuditEvent, Operation, ServerSetting
from ragd_site.backup import server_restore
from ragd_site.backup.operations import back_up_on_schedule, last_slot
from ragd_site.backup.repository import FolderStore, Repository
from ragd_site.backup.streams import Key
from tests.web.pages import texts, tree

PAGE = "/settings/server/?subject=backup"


@pytest.fixture
def place(committed: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    top = Path(tempfile.mkdtemp(prefix="ragd-page-"))  # a drill beside that of another process needs its own RAGD_VAR
    top.chmod(0o755)
    settings.RAGD_VAR = top / "var"
    settings.RAGD_VAR.mkdir()
    monkeypatch.setattr(server_restore, "CHECKS", ())
    values = connection.settings_dict
    address = f"{values['USER']}:{values['PASSWORD']}@{values['HOST']}:{values['PORT']}/{values['NAME']}"
    settings.DATABASE_URL, settings.RAGD_STATED = f"postgresql://{address}", frozenset()
    settings.RAGD_BACKUP_TO, settings.RAGD_BACKUP_KEY = str(top / "place"), Key.generate().strip()
    yield top / "place"
    stored.apply({})
    shutil.rmtree(top)


def act(client: Client, do: str) -> Operation:
    assert client.post(PAGE, {"do": do}).headers["Location"] == PAGE
    operation = Operation.objects.filter(kind=do).latest("created_at")
    return process(operation)


def process(operation: Operation) -> Operation:
    with system_access():  # as a worker
        process_operation(str(operation.pk))
    operation.refresh_from_db()
    return operation


def test_a_worker_makes_it_and_a_download_restores(place: Path, admin_client: Client, settings: Any) -> None:
    made, drilled = act(admin_client, "backup"), act(admin_client, "drill")
    assert (made.state, made.created_by, made.error, drilled.state, drilled.error) == (
        "succeeded", "admin", "", "succeeded", "",
    )  # fmt: skip
    assert drilled.report["backup"] == made.report["backup"] and drilled.report["log"] and drilled.findings == 0
    rows = tree(admin_client.get(PAGE)).css("#backups tbody tr")
    assert len(rows) == 2 and not (place.parent / "var" / "drill").exists()
    assert made.report["backup"] in str(texts(admin_client.get(f"/collections/operation/{made.pk}/"), "dd"))
    answer: Any = admin_client.get(f"{PAGE}&download={made.pk}")
    content = b"".join(answer.streaming_content)
    assert answer.headers["Content-Disposition"].endswith(f'"ragd-{made.report["backup"]}.tar"')
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(place.parent / "elsewhere", filter="data")
    copy = Repository.open(FolderStore(place.parent / "elsewhere"), settings.RAGD_BACKUP_KEY)
    assert [each.id for each in copy.backups()] == [made.report["backup"]] and copy.verify(copy.backups()[0])
    events = AuditEvent.objects.filter(action__startswith="backup.").order_by("id")
    assert list(events.values_list("action", "actor_name")) == [
        ("backup.request", "admin"), ("backup.create", "the system"), ("backup.request", "admin"),
        ("backup.drill", "the system"), ("backup.download", "admin"),
    ]  # fmt: skip
    assert admin_client.get(f"{PAGE}&download={drilled.pk}").headers["Location"] == PAGE, "a drill is no backup"


def test_nobody_else_gets_a_backup_or_makes_one(place: Path, admin_client: Client) -> None:
    made = act(admin_client, "backup")
    notes, eve, before = create_collection(name="notes"), User.objects.create_user("eve"), AuditEvent.objects.count()
    grant(eve, Role.ADMINISTRATOR, notes)
    visitor, known = Client(), {path for path in place.rglob("*") if path.is_file()}
    visitor.force_login(eve)
    for client, status in ((visitor, 403), (Client(), 302)):
        answers = [client.get(PAGE), client.get(f"{PAGE}&download={made.pk}")]
        answers += [client.post(PAGE, {"do": do}) for do in ("backup", "drill", "key")]
        assert {answer.status_code for answer in answers} == {status}
        assert not any(made.report["backup"] in str(answer.headers) + str(answer.content) for answer in answers)
    assert visitor.get(f"/collections/operation/{made.pk}/").status_code == 404
    assert Operation.objects.count() == 1 and {path for path in place.rglob("*") if path.is_file()} == known
    assert not AuditEvent.objects.filter(action__startswith="backup.", actor_name="eve").exists() and before


def test_the_key_is_shown_once(place: Path, admin_client: Client, settings: Any) -> None:
    settings.RAGD_BACKUP_KEY = settings.RAGD_AT_START["RAGD_BACKUP_KEY"] = ""
    assert admin_client.post(PAGE, {"do": "backup"}).status_code == 302 and not Operation.objects.exists()
    shown = admin_client.post(PAGE, {"do": "key"})
    [key] = texts(shown, "#backup-key")
    assert Key(key) and key == settings.RAGD_BACKUP_KEY and "no-store" in shown.headers["Cache-Control"]
    assert key not in ServerSetting.objects.get().secret and key not in admin_client.get(PAGE).content.decode()
    assert not texts(admin_client.post(PAGE, {"do": "key"}), "#backup-key") and key == settings.RAGD_BACKUP_KEY


def test_a_restored_server_does_not_go_on_with_the_backup_that_made_it(place: Path) -> None:
    again = process(Operation.objects.create(kind="backup", arguments={}, attempts=1))
    assert again.state == "failed" and again.error and not place.exists()


@pytest.mark.parametrize(
    ("every", "now", "slot"),
    [
        ("daily", "2026-11-25T01:00", "2026-11-25T01:00"), ("daily", "2026-11-25T00:59", "2026-11-24T01:00"),
        ("sunday", "2026-11-25T09:00", "2026-11-22T01:00"), ("sunday", "2026-11-22T00:59", "2026-11-15T01:00"),
        ("wednesday", "2026-11-25T01:00", "2026-11-25T01:00"), ("thursday", "2026-11-25T09:00", "2026-11-19T01:00"),
        ("off", "2026-11-25T09:00", None),
    ],
)  # fmt: skip
def test_the_schedule_makes_one_backup_for_each_time(
    place: Path, settings: Any, every: str, now: str, slot: str | None
) -> None:
    settings.RAGD_BACKUP_EVERY, settings.RAGD_BACKUP_HOUR = every, 1
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    due = slot and datetime.fromisoformat(slot).replace(tzinfo=UTC)
    assert last_slot(at) == due
    made = back_up_on_schedule(at)
    assert (made is None) == (due is None)
    if made and due:
        Operation.objects.filter(pk=made.pk).update(state="failed", finished_at=at, created_at=due)
        assert back_up_on_schedule(at) is None and not place.exists()
        settings.RAGD_BACKUP_KEY = ""
        Operation.objects.all().delete()
        assert back_up_on_schedule(at) is None, "without a key there is nothing to encrypt with"
