"""A worker killed in the middle of an index version, an index build that breaks off: nothing is lost or done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tests.collections.conftest import committed, embeddings
from tests.fakes.openai_server import OpenAIServer
from tests.server import wait_for

__all__ = ["committed", "embeddings"]

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
OTHER = {"embed_model": "text-embedding-3-large", "embed_dims": 48}
RUN_JOB = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
import django; django.setup()
from collections_app.jobs.dispatch import run_job
run_job(sys.argv[1])
"""
INDEX_STATE = """
SELECT i.indisvalid FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relname = %s
"""


def database_url() -> str:
    """That of the tests' own database, for another process."""
    values = connection.settings_dict
    return f"postgresql://{values['USER']}:{values['PASSWORD']}@{values['HOST']}:{values['PORT']}/{values['NAME']}"


def text_of(name: str) -> str:
    """A document of 130 chunks: more than are stored at once, so that each document is a batch of its own."""
    return "\n\n".join(f"Part {number} of {name} speaks of something." for number in range(130))


def test_killed_in_the_middle_another_goes_on_where_it_stopped(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections_app.collections.services import create_collection
    from collections_app.documents.services import ingest_text
    from collections_app.index.services import start_index_version
    from collections_app.jobs.dispatch import run_job
    from collections_app.jobs.maintenance import maintain
    from collections_app.models import Collection, IndexVersion

    notes = create_collection(name="notes", chunk_policy={"target_tokens": 7, "overlap_tokens": 0})
    for name in "abcd":
        ingest_text(notes, name, text_of(name))
    index_version = start_index_version(notes, OTHER)
    job = index_version.jobs.get()
    answer, reached = embeddings.answer, threading.Event()
    asked: list[str] = []

    def stop_at_c(request: Any) -> Any:
        texts = request.body["input"]
        asked.extend(texts)
        if any(" of c " in text for text in texts) and not reached.is_set():
            reached.set()
            time.sleep(PATIENCE_S)  # the worker is killed while it waits for this answer
        return answer(request)

    monkeypatch.setattr(embeddings, "answer", stop_at_c)
    worker = subprocess.Popen(
        [sys.executable, "-c", RUN_JOB, str(job.pk)],
        cwd=REPOSITORY,
        env=os.environ
        | {
            "DATABASE_URL": database_url(),
            "EMBED_BASE_URL": embeddings.base_url,
            "EMBED_API_KEY": embeddings.api_key or "",
            "RAGD_JOB_LEASE_S": "2",
        },
    )
    try:
        assert reached.wait(PATIENCE_S)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    index_version.refresh_from_db()
    assert (index_version.state, index_version.documents_done) == ("building", 2)
    first = {text for text in asked if " of a " in text or " of b " in text}
    assert len(first) == 260

    asked.clear()
    wait_for(lambda: bool(maintain().get("resent")), "the end of the lease")
    monkeypatch.setattr("collections_app.index.builder.measure", lambda store: {})  # it asks probes too
    assert run_job(job.pk) == "succeeded"
    assert not first & set(asked)
    assert len(asked) == len(set(asked)) == 260
    index_version.refresh_from_db()
    job.refresh_from_db()
    assert (index_version.state, index_version.chunks_done, job.attempts) == ("serving", 520, 2)
    assert Collection.objects.get().index_version == 2
    assert IndexVersion.objects.get(number=1).state == "retired"
    assert sorted(set(notes.chunks.values_list("doc_id", flat=True))) == ["a", "b", "c", "d"]
    assert run_job(job.pk) is None


def test_an_index_build_that_breaks_off_is_cancelled_within_seconds_and_built_anew(
    committed: None, embeddings: OpenAIServer, settings: Any
) -> None:
    """A write that is not committed makes CREATE INDEX CONCURRENTLY wait where it leaves an invalid index."""
    import psycopg

    from collections_app.collections.services import collection_statistics, create_collection
    from collections_app.documents.services import ingest_text
    from collections_app.jobs.dispatch import run_job
    from collections_app.jobs.maintenance import maintain
    from collections_app.jobs.queue import submit_index_build
    from collections_app.jobs.recovery import cancel_job
    from collections_app.models import Document

    settings.RAGD_EXACT_THRESHOLD = 1
    notes = create_collection(name="notes")
    for name in "abc":
        ingest_text(notes, name, text_of(name))
    index = f"chunks_c{notes.pk}_g1_embedding"

    def state() -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(INDEX_STATE, [index])
            return [valid for (valid,) in cursor.fetchall()]

    job = submit_index_build(notes)
    assert job is not None
    ended: list[Any] = []

    def build() -> None:
        ended.append(run_job(job.pk))
        connection.close()

    with psycopg.connect(database_url()) as old:
        old.execute(f"LOCK TABLE chunks_c{notes.pk}_g1 IN ROW EXCLUSIVE MODE")  # as a write that is not committed
        worker = threading.Thread(target=build)
        worker.start()
        wait_for(lambda: state() == [False], "the build's wait")
        assert collection_statistics(notes)["vector_index"] == "building"
        cancel_job(job)
        worker.join(PATIENCE_S)
        assert ended == ["cancelled"]
    assert state() == [False]
    assert collection_statistics(notes)["vector_index"] == "none"

    Document.objects.update(updated_at=timezone.now() - timedelta(minutes=1))
    assert maintain()["index_builds"] == 1
    again = notes.jobs.filter(kind="build_index").newest()[0]
    assert run_job(again.pk) == "succeeded"
    assert state() == [True]
