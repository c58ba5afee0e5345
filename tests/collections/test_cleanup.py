"""What maintenance puts away, and what removing rows costs: no file and no text is read to be deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import InternalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from collections_app.documents.services import delete_documents
from collections_app.index.embedding_checkpoints import digest_batch
from collections_app.jobs.attempts import describe_failure
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.maintenance import (
    ABANDONED_AFTER,
    ORPHAN_KEPT,
    SESSION_LOST,
    close_abandoned_batches,
    drop_orphan_uploads,
    forget_sessions,
)
from collections_app.jobs.recovery import retry_jobs
from collections_app.models import Collection, Document, FetchedSource, IngestJob, Upload
from collections_app.uploads.services import find_batch, open_batch, submit_uploads
from ragd.readers.fetching import FetchError
from tests.builders import WordEmbedder, make_chunks


def put(collection: Collection, *names: str, content: str = "Text of {}.") -> None:
    files = [SimpleUploadedFile(name, content.format(name).encode()) for name in names]
    for outcome in submit_uploads(collection, files):
        assert outcome.job is not None
        run_job(outcome.job.pk)


def test_files_that_nothing_needs_go_and_many_that_stay_cost_one_query(notes: Collection) -> None:
    put(notes, "a.txt", "b.txt", "c.txt")
    values = {"collection": notes, "doc_id": "gone.txt", "name": "gone.txt", "size_bytes": 1, "content": b"x"}
    orphan = Upload.objects.create(sha256="0" * 64, **values)
    waiting = Upload.objects.create(sha256="1" * 64, **values)
    IngestJob.objects.create(collection=notes, doc_id="gone.txt", upload=waiting, state="quarantined")
    later = timezone.now() + ORPHAN_KEPT + timedelta(minutes=1)
    assert drop_orphan_uploads(timezone.now()) == 0
    assert drop_orphan_uploads(later) == 1
    assert Upload.objects.count() == 4 and not Upload.objects.filter(pk=orphan.pk).exists()
    with CaptureQueriesContext(connection) as asked:
        drop_orphan_uploads(later)
    assert len(asked) == 1


def test_a_batch_whose_client_went_away_is_closed(notes: Collection) -> None:
    left, busy, fresh = (open_batch(notes) for _ in range(3))
    long_ago = timezone.now() - ABANDONED_AFTER * 2
    for batch in (left, busy):
        type(batch).objects.filter(pk=batch.pk).update(created_at=long_ago)
        IngestJob.objects.create(collection=notes, doc_id="a", batch=batch, state="succeeded", created_at=long_ago)
    IngestJob.objects.create(collection=notes, doc_id="b", batch=busy, created_at=long_ago)
    assert close_abandoned_batches(timezone.now()) == 1
    assert [find_batch(notes, batch.pk).open for batch in (left, busy, fresh)] == [False, True, True]


def test_deleting_reads_no_files_and_no_texts(notes: Collection) -> None:
    put(notes, "a.txt", "b.txt")
    FetchedSource.objects.create(
        document=Document.objects.get(doc_id="a.txt"), kind="url", address="http://x/", sha256="0" * 64, size_bytes=1,
        checked_at=timezone.now(),
    )  # fmt: skip
    with CaptureQueriesContext(connection) as asked:
        removed = delete_documents(notes, ["a.txt", "b.txt"])
    assert (removed["documents"], removed["uploads"]) == (2, 2)
    assert not FetchedSource.objects.exists()
    read = [query["sql"] for query in asked if query["sql"].startswith("SELECT")]
    assert not [sql for sql in read if '"uploads"."content"' in sql or '"documents"."text"' in sql]
    assert not hasattr(Upload.objects, "delete") and not hasattr(Document.objects, "delete")


def test_retrying_many_asks_no_more_than_retrying_one(notes: Collection) -> None:
    def fail(count: int) -> int:
        names = [f"{number}-{count}.txt" for number in range(count)]
        submit_uploads(notes, [SimpleUploadedFile(name, name.encode()) for name in names])
        IngestJob.objects.update(state="failed")
        with CaptureQueriesContext(connection) as asked:
            assert retry_jobs(notes) == count
        IngestJob.objects.all().delete()
        return len(asked)

    assert fail(1) == fail(9)


@pytest.mark.parametrize("said", ["a\x00b", "a\ud800b"], ids=ascii)
def test_a_reason_that_no_database_holds_is_kept_all_the_same(
    notes: Collection, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    from collections_app.documents import files

    def refuse(*_: Any, **__: Any) -> None:
        raise FetchError("unexpected_answer", f"it answered 299 {said}")

    monkeypatch.setattr(files, "parse", refuse)
    (outcome,) = submit_uploads(notes, [SimpleUploadedFile("a.txt", b"text")])
    assert outcome.job is not None
    assert run_job(outcome.job.pk) == "failed"
    assert IngestJob.objects.get().error == "it answered 299 a\ufffdb"
    assert describe_failure(ValueError("x"))[0] == "internal_error"
    assert describe_failure(InternalError("failure on a node"))[::2] == ("database_unavailable", True)


def test_vectors_of_other_dimensions_are_not_taken_over() -> None:
    chunks = make_chunks("a", "one", "two")
    assert digest_batch(WordEmbedder(8), chunks) == digest_batch(WordEmbedder(8), chunks)
    assert digest_batch(WordEmbedder(8), chunks) != digest_batch(WordEmbedder(16), chunks)


def test_what_is_known_of_a_log_in_goes_with_its_session(transactional_db: None, client: Any) -> None:
    user = User.objects.create_user("ada", password="a password of hers")
    for _ in range(3):
        client.cookies.clear()
        client.force_login(user)
        client.get("/")
    live, expired, ended = UserSession.objects.order_by("pk")
    later = timezone.now() + SESSION_LOST * 2
    Session.objects.filter(session_key=live.session_key).update(expire_date=later + timedelta(days=1))
    Session.objects.filter(session_key=expired.session_key).update(expire_date=later - timedelta(minutes=1))
    Session.objects.filter(session_key=ended.session_key).delete()
    assert forget_sessions(later) == 3
    assert list(UserSession.objects.all()) == [live]
    assert [session.session_key for session in Session.objects.all()] == [live.session_key]
