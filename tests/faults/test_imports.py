"""An import whose process is killed with SIGKILL in its middle is never seen in part; a requested one ends once."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.db import connection
from django.utils import timezone

from collections_app.collections import import_stage
from collections_app.collections.deletion import count_rows, purge_collection, purge_deleted
from collections_app.collections.import_stage import import_collection, request_import
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.jobs import leases
from collections_app.jobs.leases import RESEND_AFTER, lease_length
from collections_app.jobs.operations import requeue_operations
from collections_app.models import AuditEvent, Collection, Operation, WorkPart
from tests.exports import export_to_file

IMPORT = """
import sys, time, django
django.setup()
from collections_app.collections.import_stage import import_collection, request_import

def tell(stage, done, total):
    print(stage, flush=True)
    if stage == sys.argv[2]:
        time.sleep(60)

import_collection(sys.argv[1], name="copy", on_progress=tell)
"""

REQUESTED = """
import sys, time, django
django.setup()
from collections_app import tasks
from collections_app.jobs.operations import OperationProgress
from collections_app.collections import import_stage
from collections_app.collections.import_writer import ImportWriter

def wait_to_be_killed(*_, **__):
    print("now", flush=True)
    time.sleep(60)

owner, name = {
    "filled": (ImportWriter, "show"), "visible": (import_stage, "_rebuild"), "unsaid": (OperationProgress, "succeed"),
}[sys.argv[2]]
setattr(owner, name, wait_to_be_killed)
tasks.run_operation(sys.argv[1])
"""


@pytest.fixture
def exported(transactional_db: None, tmp_path: Path) -> Iterator[Path]:
    collection = create_collection(name="whole", chunk_policy={"target_tokens": 20, "overlap_tokens": 0})
    for number in range(5):
        ingest_text(collection, f"{number}.md", "\n\n".join(f"Line {line} of {number}." for line in range(30)))
    export_to_file(collection, tmp_path / "whole.zip")
    yield tmp_path / "whole.zip"
    for left in Collection.objects.all():
        purge_collection(left)


def environment() -> dict[str, str]:
    """Of a process that uses the database of the tests."""
    kept = connection.settings_dict
    address = f"postgresql://{kept['USER']}:{quote(kept['PASSWORD'])}@{kept['HOST']}:{kept['PORT']}/{kept['NAME']}"
    return os.environ | {"DATABASE_URL": address, "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}


@pytest.mark.parametrize("stage", ["check", "documents", "chunks"])
def test_a_killed_import_leaves_nothing(exported: Path, stage: str) -> None:
    command = [sys.executable, "-c", IMPORT, str(exported), stage]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == stage:
                break
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not Collection.objects.live().filter(name="copy").exists()
    begun = Collection.objects.filter(name="copy").values_list("pk", flat=True)
    purge_deleted(timezone.now() + 2 * import_stage.FENCE)
    for pk in begun:
        assert not any(count_rows(pk).values())
    assert list(Collection.objects.values_list("name", flat=True)) == ["whole"]
    Operation.objects.filter(kind="import").update(lease_until=timezone.now() - import_stage.FENCE)
    assert Operation.objects.get(kind="import").shown_state == "interrupted"
    assert import_collection(exported, name="copy")["counts"]["documents"] == 5


def request(exported: Path, user: User, **options: Any) -> Operation:
    """As the page does it, by a web process that dies before it sends the message."""
    chosen = {"name": "copy", "replace": False, "embed_model": None, "embed_dims": None} | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "send", lambda *_, **__: None)
        content = exported.read_bytes()
        return request_import(UploadedFile(io.BytesIO(content), size=len(content)), **chosen, actor=user)


def test_a_requested_import_outlives_the_process_that_took_the_file(
    exported: Path, django_user_model: type[User], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_stage, "PART_BYTES", 1000)
    operation = request(exported, django_user_model.objects.create_user("ada"))
    assert operation.is_running and WorkPart.objects.filter(key=str(operation.pk)).count() > 1
    assert requeue_operations(timezone.now()) == 0
    assert requeue_operations(timezone.now() + 2 * RESEND_AFTER) == 1  # the queue of the tests works it off at once
    operation.refresh_from_db()
    assert (operation.state, operation.attempts, operation.report["counts"]["documents"]) == ("succeeded", 1, 5)
    requeue_operations(timezone.now())
    assert not WorkPart.objects.exists()


@pytest.mark.parametrize("moment", ["filled", "visible", "unsaid"])
def test_a_requested_import_whose_worker_is_killed_is_sent_again_and_ends_once(
    exported: Path, django_user_model: type[User], moment: str
) -> None:
    operation = request(exported, django_user_model.objects.create_user("ada"))
    command = [sys.executable, "-c", REQUESTED, str(operation.pk), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None and process.stdout.readline().strip() == "now"
        process.send_signal(signal.SIGKILL)
    assert Collection.objects.live().filter(name="copy").exists() == (moment != "filled")
    assert requeue_operations(timezone.now()) == 0, "its worker may still live"
    assert requeue_operations(timezone.now() + 2 * lease_length()) == 1
    operation.refresh_from_db()
    assert (operation.state, operation.attempts, operation.error) == ("succeeded", 2, "")
    assert (operation.report["counts"]["documents"], operation.report["warnings"]) == (5, [])
    purge_deleted(timezone.now() + 2 * import_stage.FENCE)
    copy = Collection.objects.get(name="copy")
    assert copy.documents.count() == 5 and Collection.objects.count() == 2
    assert AuditEvent.objects.filter(subject_id=str(copy.pk), message__startswith="imported").count() == 1


def test_a_requested_import_that_ends_its_worker_each_time_is_given_up(
    exported: Path, django_user_model: type[User], settings: Any
) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 2
    operation = request(exported, django_user_model.objects.create_user("ada"))
    gone = timezone.now() - timedelta(seconds=1)
    Operation.objects.filter(pk=operation.pk).update(attempts=2, worker="a:1", lease_until=gone, stage="chunks")
    assert requeue_operations(timezone.now()) == 0
    operation.refresh_from_db()
    assert (operation.state, operation.error_type, operation.is_running) == ("failed", "worker_lost", False)
    assert "after 2 attempts" in operation.error and not Collection.objects.filter(name="copy").exists()


def test_a_name_that_is_taken_meanwhile_ends_the_import(exported: Path, django_user_model: type[User]) -> None:
    operation = request(exported, django_user_model.objects.create_user("ada"))
    create_collection(name="copy")
    assert requeue_operations(timezone.now() + 2 * RESEND_AFTER) == 1
    operation.refresh_from_db()
    assert (operation.state, operation.error_type) == ("failed", "name_taken")
