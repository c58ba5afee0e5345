"""Cancel works in the middle of what takes long; a finished job never turns cancelled, nor a cancelled one done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from collections_app.collections.services import create_collection
from collections_app.documents import files
from collections_app.documents.services import delete_documents
from collections_app.endpoints import providers
from collections_app.errors import ServiceError
from collections_app.jobs import leases
from collections_app.jobs.attempts import IngestOutcome, JobProgress, claim_job
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.leases import LeaseLostError, interrupt, interruptible, watched
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.recovery import cancel_job
from collections_app.models import Document, IngestJob
from ragd.readers.types import ParseError
from tests.collections.test_jobs import reload, upload
from tests.fakes.openai_server import OpenAIServer

HANGS_S = 60.0


def in_between(work: Callable[[], Any]) -> threading.Thread:
    """Do it from another thread, as another process would."""

    def act() -> None:
        work()
        connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LOOK_EVERY_S", 0.05)


def test_a_request_that_hangs_is_left_when_the_job_is_cancelled(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = upload(create_collection(name="notes"))
    answer, asked = embeddings.answer, threading.Event()

    def hang(request: Any) -> Any:
        asked.set()
        embeddings.stopping.wait(HANGS_S)
        return answer(request)

    monkeypatch.setattr(embeddings, "answer", hang)
    canceller = in_between(lambda: (asked.wait(), time.sleep(0.2), cancel_job(reload(job))))
    began = time.monotonic()
    assert run_job(job.pk) == "cancelled"
    assert time.monotonic() - began < HANGS_S / 2
    canceller.join()
    assert not Document.objects.exists()


def test_a_parse_that_hangs_is_left_and_its_reader_goes(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = upload(create_collection(name="notes"))
    began = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        began.set()
        time.sleep(HANGS_S)

    monkeypatch.setattr(files, "parse", hang)
    canceller = in_between(lambda: (began.wait(), time.sleep(0.2), cancel_job(reload(job))))
    since = time.monotonic()
    assert run_job(job.pk) == "cancelled"
    assert time.monotonic() - since < HANGS_S / 2
    canceller.join()
    assert not embeddings.requests and not Document.objects.exists()


def test_the_pause_of_a_bucket_is_left_too(
    committed: None, embeddings: OpenAIServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RAGD_EMBED_REQUESTS_PER_MINUTE = 1
    monkeypatch.setattr(providers, "SLEEP_MAX_S", HANGS_S * 2)
    notes = create_collection(name="notes")
    assert run_job(upload(notes, name="a.txt").pk) == "succeeded"
    job = upload(notes, name="b.txt")
    canceller = in_between(lambda: (time.sleep(0.5), cancel_job(reload(job))))
    since = time.monotonic()
    assert run_job(job.pk) == "cancelled"
    assert time.monotonic() - since < HANGS_S / 2
    canceller.join()


def test_nothing_is_raised_where_it_was_not_allowed() -> None:
    with watched():
        interrupt(threading.main_thread())
        reached = time.monotonic()  # a handler would have raised here
        with pytest.raises(LeaseLostError), interruptible():
            raise AssertionError("not reached")
    assert reached
    interrupt(threading.main_thread())  # a moment after the run: the process lives
    with watched(), interruptible():
        pass  # the loss of one run is not that of the next
    assert not leases._run["may_raise"]


def test_a_cancelled_job_never_turns_done_and_a_done_one_never_cancelled(
    committed: None, embeddings: OpenAIServer
) -> None:
    notes = create_collection(name="notes")
    job = upload(notes)
    progress = JobProgress(claim_job(job.pk, "worker") or job)
    cancel_job(reload(job))
    with pytest.raises(LeaseLostError), transaction.atomic():
        progress.finish(IngestOutcome(1, 1, False, 1))
    assert reload(job).state == "cancelled"

    job = upload(notes)
    progress = JobProgress(claim_job(job.pk, "worker") or job)
    refused: list[str] = []

    def try_to_cancel() -> None:
        try:
            cancel_job(IngestJob(pk=job.pk))
        except ServiceError as error:
            refused.append(error.type)

    with transaction.atomic():
        progress.finish(IngestOutcome(1, 1, False, 1))
        canceller = in_between(try_to_cancel)
        time.sleep(0.2)  # it waits for the row
    canceller.join()
    assert (reload(job).state, refused) == ("succeeded", ["conflict"])


def test_a_document_deleted_while_its_job_runs_stays_deleted(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = create_collection(name="notes")
    job = upload(notes)
    answer = embeddings.answer

    def delete_in_between(request: Any) -> Any:
        delete_documents(notes, ["a.txt"])
        connection.close()
        return answer(request)

    monkeypatch.setattr(embeddings, "answer", delete_in_between)
    assert run_job(job.pk) == "cancelled"
    assert not Document.objects.exists()


def test_a_file_that_ends_its_reader_each_time_is_quarantined_with_the_reason(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 3
    stopped: list[int] = []
    monkeypatch.setattr(files, "stop_server", lambda: stopped.append(1))

    def crash(*_: Any, **__: Any) -> Any:
        raise ParseError("crashed", "The reader crashed.")

    monkeypatch.setattr(files, "parse", crash)
    job = upload(create_collection(name="notes"))
    assert [run_job(job.pk) for _ in range(3)] == ["queued", "queued", "quarantined"]
    assert len(stopped) == 2  # each further attempt reads in a fresh process
    found = reload(job)
    assert (found.error_type, found.error) == ("crashed", "quarantined after 3 attempts: The reader crashed.")
    assert [(row.stage, row.state) for row in found.stage_rows] == [("parse", "failed")]
    assert run_job(job.pk) is None and maintain()["resent"] == 0


def test_a_file_that_is_merely_broken_fails_at_once(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ParseError("encrypted", "It is locked.")

    monkeypatch.setattr(files, "parse", refuse)
    job = upload(create_collection(name="notes"))
    assert run_job(job.pk) == "failed"
    assert reload(job).error == "It is locked."


def test_a_lost_attempt_leaves_nothing_to_what_comes_after_it() -> None:
    with watched():
        interrupt(threading.main_thread())
    with interruptible():
        pass
