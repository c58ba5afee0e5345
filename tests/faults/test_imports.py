"""An import whose process is killed with SIGKILL in its middle: nothing of it is seen, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connection
from django.utils import timezone

from collections_app.models import Collection, Operation
from collections_app.services.collections.collections import create_collection, purge_collection
from collections_app.services.collections.deletion import count_rows, purge_deleted
from collections_app.services.documents.documents import ingest_text
from collections_app.services.transfer import import_stage
from collections_app.services.transfer.export import export_to_file
from collections_app.services.transfer.import_stage import import_collection

IMPORT = """
import sys, time, django
django.setup()
from collections_app.services.transfer.import_stage import import_collection

def tell(stage, done, total):
    print(stage, flush=True)
    if stage == sys.argv[2]:
        time.sleep(60)

import_collection(sys.argv[1], name="copy", on_progress=tell)
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


@pytest.mark.parametrize("stage", ["check", "documents", "chunks"])
def test_a_killed_import_leaves_nothing(exported: Path, stage: str) -> None:
    kept = connection.settings_dict
    address = f"postgresql://{kept['USER']}:{quote(kept['PASSWORD'])}@{kept['HOST']}:{kept['PORT']}/{kept['NAME']}"
    environment = os.environ | {"DATABASE_URL": address, "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
    command = [sys.executable, "-c", IMPORT, str(exported), stage]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
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
    Operation.objects.filter(kind="import").update(beat_at=timezone.now() - import_stage.FENCE)
    assert Operation.objects.get(kind="import").shown_state == "interrupted"
    assert import_collection(exported, name="copy")["counts"]["documents"] == 5
