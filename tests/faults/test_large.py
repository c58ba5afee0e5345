"""A large document whose ingest is broken off: another run embeds only what is missing and stores what was to be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from tests.collections.conftest import committed, embeddings
from tests.fakes.openai_server import OpenAIServer
from tests.faults.test_index_versions import PATIENCE_S, REPOSITORY, RUN_JOB, database_url
from tests.server import wait_for

__all__ = ["committed", "embeddings"]

BATCH = 16
BEFORE_THE_FAULT = 5  # batches
POLICY = {"target_tokens": 7, "overlap_tokens": 0}
ROWS = """
SELECT chunk_index, content, start_char, end_char, context, metadata::text, revision, embedding::text, fts::text,
       lexical::text
FROM chunks WHERE collection_id = %s ORDER BY chunk_index
"""
OTHER_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
FILL_DISK = """
CREATE FUNCTION fill_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {table} FOR EACH ROW {when} EXECUTE FUNCTION fill_disk();
"""
EMPTY_DISK = "DROP FUNCTION IF EXISTS fill_disk CASCADE"


def text_of(size: int, word: str = "something") -> str:
    return "\n\n".join(f"Part {number} speaks of {word} else." for number in range(size))


def submit(name: str, text: str) -> Any:
    from collections_app.collections.services import create_collection
    from collections_app.models import Collection
    from tests.collections.test_jobs import upload

    known = Collection.objects.filter(name=name).first()
    return upload(known or create_collection(name=name, chunk_policy=POLICY), text)


def rows(collection: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(ROWS, [collection.pk])
        return list(cursor.fetchall())


@pytest.fixture
def asked(embeddings: OpenAIServer, settings: Any) -> Iterator[list[str]]:
    """The texts that were embedded, in order of arrival."""
    settings.RAGD_EMBED_BATCH_SIZE = BATCH
    texts: list[str] = []
    receive = embeddings.receive

    def note(request: Any) -> Any:
        texts.extend(request.body["input"])
        return receive(request)

    embeddings.receive = note  # type: ignore[method-assign]
    yield texts


def at_batch(embeddings: OpenAIServer, number: int, act: Callable[[], None]) -> None:
    """`act` runs once, while the worker waits for the answer to its request of that number."""
    answer = embeddings.answer

    def act_in_between(request: Any) -> Any:
        if len(embeddings.requests) == number:
            embeddings.answer = answer  # type: ignore[method-assign]
            act()
        return answer(request)

    embeddings.answer = act_in_between  # type: ignore[method-assign]


def start_worker(job: Any, embeddings: OpenAIServer) -> subprocess.Popen[bytes]:
    variables = {
        "DATABASE_URL": database_url(),
        "EMBED_BASE_URL": embeddings.base_url,
        "EMBED_API_KEY": embeddings.api_key or "",
        "RAGD_EMBED_BATCH_SIZE": str(BATCH),
        "RAGD_JOB_LEASE_S": "2",
    }
    return subprocess.Popen([sys.executable, "-c", RUN_JOB, str(job.pk)], cwd=REPOSITORY, env=os.environ | variables)


def assert_as_undisturbed(job: Any, text: str, asked: list[str], first: list[str], in_flight: int) -> None:
    """Nothing but the batch that was in flight was asked for twice, and the chunks are those of an ingest in peace."""
    from collections_app.jobs.dispatch import run_job
    from collections_app.models import WorkPart

    assert len(first) == BATCH * BEFORE_THE_FAULT + in_flight
    assert asked[:in_flight] == first[-in_flight:] if in_flight else True
    repeated = set(first[: BATCH * BEFORE_THE_FAULT]) & set(asked)
    assert not repeated
    second = list(asked)
    peaceful = submit("peaceful", text)
    asked.clear()
    assert run_job(peaceful.pk) == "succeeded"
    assert first[: BATCH * BEFORE_THE_FAULT] + second == asked
    found, expected = rows(job.collection), rows(peaceful.collection)
    assert len(expected) == len(asked) > 256
    assert found == expected
    assert not WorkPart.objects.exists()


def test_a_killed_worker_s_large_document_goes_on_where_it_stopped(
    committed: None, embeddings: OpenAIServer, asked: list[str]
) -> None:
    from collections_app.jobs.maintenance import maintain

    text = text_of(300)
    job = submit("notes", text)
    reached = threading.Event()

    def hang() -> None:
        reached.set()
        embeddings.stopping.wait(2.0)  # the worker is killed while it waits for this answer

    at_batch(embeddings, BEFORE_THE_FAULT + 1, hang)
    worker = start_worker(job, embeddings)
    try:
        assert reached.wait(PATIENCE_S)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    first = list(asked)
    job.refresh_from_db()
    assert (job.state, job.stage) == ("running", "embed")
    assert not job.collection.chunks.exists()
    asked.clear()
    wait_for(lambda: bool(maintain().get("resent")), "the end of the lease")
    assert start_worker(job, embeddings).wait(PATIENCE_S) == 0
    job.refresh_from_db()
    assert (job.state, job.attempts, job.attempts_forgiven) == ("succeeded", 2, 1)
    assert_as_undisturbed(job, text, asked, first, in_flight=BATCH)


def test_connections_cut_in_the_middle_lose_one_batch(
    committed: None, embeddings: OpenAIServer, asked: list[str]
) -> None:
    from collections_app.jobs.dispatch import run_job

    text = text_of(300)
    job = submit("notes", text)

    def cut() -> None:
        with connection.cursor() as cursor:
            cursor.execute(OTHER_SESSIONS)
        connection.close()

    connection.close()
    at_batch(embeddings, BEFORE_THE_FAULT + 1, cut)
    assert start_worker(job, embeddings).wait(PATIENCE_S) == 0
    first = list(asked)
    job.refresh_from_db()
    assert (job.state, job.error_type, job.attempts) == ("queued", "database_unavailable", 1)
    asked.clear()
    assert run_job(job.pk) == "succeeded"
    assert_as_undisturbed(job, text, asked, first, in_flight=BATCH)


@pytest.mark.parametrize(
    ("table", "when", "again"),
    [
        ("work_parts", f"WHEN (NEW.position = {BATCH * BEFORE_THE_FAULT})", BATCH),
        ("chunks_c{collection}_g1", "WHEN (NEW.chunk_index = 250)", 0),
    ],
)
def test_a_full_disk_leaves_the_version_before_and_what_was_embedded(
    committed: None, embeddings: OpenAIServer, asked: list[str], table: str, when: str, again: int
) -> None:
    """The database reports the error as it does when its disk is full, while vectors are kept or rows are written."""
    from collections_app.jobs.dispatch import run_job

    before = submit("notes", text_of(20, "nothing"))
    assert run_job(before.pk) == "succeeded"
    served = rows(before.collection)
    text = text_of(300)
    job = submit("notes", text)
    asked.clear()
    try:
        with connection.cursor() as cursor:
            cursor.execute(FILL_DISK.format(table=table.format(collection=job.collection_id), when=when))
        assert run_job(job.pk) == "queued"
    finally:
        with connection.cursor() as cursor:
            cursor.execute(EMPTY_DISK)
    job.refresh_from_db()
    assert job.error_type == "database_unavailable"
    assert rows(job.collection) == served
    first = list(asked)
    asked.clear()
    assert run_job(job.pk) == "succeeded"
    assert asked[:again] == first[len(first) - again :]
    assert not set(first[: len(first) - again]) & set(asked)
    assert sorted(row[1] for row in rows(job.collection)) == sorted({*first, *asked})
    assert {row[6] for row in rows(job.collection)} == {2}
