"""Jobs: run once, retried, cancelled, their stages told.
What maintenance puts away, and what removing rows costs: no file and no text is read to be deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import InternalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from collections_app.collections.deletion import delete_collection
from collections_app.collections.services import create_collection
from collections_app.documents.services import delete_documents, ingest_text, reindex_documents
from collections_app.index.embedding_checkpoints import digest_batch
from collections_app.jobs import attempts, maintenance
from collections_app.jobs.attempts import JobProgress, claim_job, describe_failure
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.leases import LeaseLostError
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.recovery import cancel_job, retry_job, retry_jobs
from collections_app.jobs.stages import stage_rows
from collections_app.models import Chunk, Collection, Document, FetchedSource, IngestJob, Upload
from collections_app.uploads.services import find_batch, open_batch, submit_uploads
from ragd.readers.fetching import FetchError
from tests.builders import WordEmbedder, make_chunks
from tests.fakes.faults import failing, rate_limited
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import refuses

LONG = "\n\n".join(f"Paragraph {number} speaks of subject {number} with some more words." for number in range(60))


def upload(collection: Collection, content: str = "some text", name: str = "a.txt") -> IngestJob:
    (outcome,) = submit_uploads(collection, [SimpleUploadedFile(name, content.encode())])
    assert outcome.job is not None
    return outcome.job


def reload(job: IngestJob) -> IngestJob:
    return IngestJob.objects.get(pk=job.pk)


def test_a_job_runs_once(notes: Collection) -> None:
    job = upload(notes)
    assert (run_job(job.pk), run_job(job.pk)) == ("succeeded", None)
    assert (reload(job).attempts, Document.objects.get().revision) == (1, 1)


def test_a_file_takes_the_same_few_statements_whatever_it_is_cut_into(notes: Collection) -> None:
    run_job(upload(notes, LONG * 3, "first.txt").pk)
    counts = []
    for content in ("some text", LONG * 4):
        job, seen = upload(notes, content, f"{len(content)}.txt"), list[str]()

        def note(execute: Callable[..., Any], sql: str, *args: Any, seen: list[str] = seen) -> Any:
            seen.append(str(sql))  # Django's log has no text of some prepared ones
            return execute(sql, *args)

        with connection.execute_wrapper(note):
            assert run_job(job.pk) == "succeeded"
        assert not any("work_parts" in each for each in seen)  # there was no run before it
        counts.append(len([each for each in seen if "length_baked" not in each]))
    assert Chunk.objects.count() > 5 and max(counts) <= 17, counts


def test_a_job_that_another_worker_holds_is_left_alone(notes: Collection) -> None:
    job = upload(notes)
    assert claim_job(job.pk, "other") is not None
    assert run_job(job.pk) is None
    IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert run_job(job.pk) == "succeeded"
    assert reload(job).attempts == 2


def test_a_run_that_lost_its_job_stores_nothing(notes: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    job = upload(notes)
    progress = JobProgress(claim_job(job.pk, "first") or job)
    IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert claim_job(job.pk, "second") is not None
    with pytest.raises(LeaseLostError):
        progress.enter("embed", chunks_total=300)
    assert (reload(job).attempts, reload(job).worker, reload(job).chunks_total) == (2, "second", 0)


def test_a_cancelled_job_stops_in_the_middle_and_stores_nothing(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.RAGD_EMBED_BATCH_SIZE = 2
    monkeypatch.setattr("collections_app.jobs.leases.WRITE_EVERY_S", 0)
    job = upload(create_collection(name="notes", chunk_policy={"target_tokens": 20, "overlap_tokens": 0}), LONG)
    answer = embeddings.answer
    seen = []

    def cancel_in_between(request: Any) -> Any:
        seen.append(request)
        if len(seen) == 2:
            cancel_job(reload(job))
            connection.close()
        return answer(request)

    monkeypatch.setattr(embeddings, "answer", cancel_in_between)
    assert run_job(job.pk) == "cancelled"
    assert len(seen) == 2
    assert not Document.objects.exists() and not Chunk.objects.exists()
    assert reload(job).stage == "embed" and "system" in reload(job).error


def test_cancelling_and_retrying_twice(notes: Collection) -> None:
    job = upload(notes)
    assert cancel_job(job).state == "cancelled"
    with refuses("conflict", None, "cancelled"):
        cancel_job(job)
    assert retry_job(job).state == "queued"
    with refuses("conflict", None, "queued"):
        retry_job(job)
    assert run_job(job.pk) == "succeeded"


def test_an_embedder_that_fails_for_now_is_tried_again(notes: Collection, embeddings: OpenAIServer) -> None:
    job = upload(notes)
    embeddings.script(*[rate_limited("0")] * 5)
    assert run_job(job.pk) == "queued"
    waiting = reload(job)
    assert (waiting.attempts, waiting.error_type[:9]) == (1, "embedder_")
    assert waiting.sent_at > timezone.now()
    assert not Document.objects.exists()
    assert run_job(job.pk) == "succeeded"
    assert reload(job).error == ""


def test_an_embedder_that_keeps_failing_fails_the_job_with_its_reason(
    notes: Collection, embeddings: OpenAIServer, settings: Any
) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 1
    ingest_text(notes, "a.txt", "the old version")
    job = upload(notes)
    embeddings.script(*[rate_limited("0")] * 5)
    assert run_job(job.pk) == "failed"
    assert reload(job).error
    assert Document.objects.get().text == "the old version"
    assert retry_job(job).state == "queued"
    assert run_job(job.pk) == "succeeded"


def test_a_file_that_kills_its_worker_is_set_aside(notes: Collection, settings: Any) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 2
    job = upload(notes)
    for attempt in (1, 2):
        claimed = claim_job(job.pk, "worker")
        assert claimed is not None and claimed.attempts == attempt
        IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert claim_job(job.pk, "worker") is None
    assert (reload(job).state, reload(job).error_type) == ("quarantined", "worker_lost")
    assert all(name in reload(job).error for name in ("2", "parse"))


def test_maintenance_takes_back_what_a_dead_worker_held(notes: Collection, settings: Any) -> None:
    job = upload(notes)
    claim_job(job.pk, "dead")
    assert maintain().get("resent") == 0
    IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert maintain()["resent"] == 1
    assert (reload(job).state, reload(job).worker) == ("queued", "")
    settings.RAGD_JOB_MAX_ATTEMPTS = 1
    IngestJob.objects.update(state="running", lease_until=timezone.now() - timedelta(seconds=1))
    assert maintain()["failed"] == 1
    assert reload(job).state == "quarantined"


def test_maintenance_resends_a_lost_message_but_not_a_long_queue(notes: Collection) -> None:
    job = upload(notes)
    assert maintain()["resent"] == 0
    old = timezone.now() - timedelta(minutes=5)
    IngestJob.objects.update(sent_at=old)
    assert maintain()["resent"] == 1
    busy = upload(notes, name="busy.txt")
    claim_job(busy.pk, "worker")
    IngestJob.objects.filter(pk=job.pk).update(sent_at=old)
    IngestJob.objects.filter(pk=busy.pk).update(sent_at=old - timedelta(seconds=1))
    assert maintain()["resent"] == 0  # what runs was sent before: the queue moves
    IngestJob.objects.filter(pk=busy.pk).update(sent_at=timezone.now())
    assert maintain()["resent"] == 1  # something sent minutes later runs already


def test_deleting_the_collection_while_a_job_runs(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = create_collection(name="notes")
    other = create_collection(name="other")
    ingest_text(other, "a.txt", "stays")
    job = upload(notes)
    answer = embeddings.answer
    counts: list[Any] = []

    def delete_in_between(request: Any) -> Any:
        if not counts:
            counts.append(delete_collection(notes))
            connection.close()
        return answer(request)

    monkeypatch.setattr(embeddings, "answer", delete_in_between)
    assert run_job(job.pk) is None
    assert {name: counts[0]["before"][name] for name in ("documents", "chunks", "uploads", "jobs")} == {
        "documents": 0, "chunks": 0, "uploads": 1, "jobs": 1,
    }  # fmt: skip
    assert set(counts[0]["after"].values()) == {0}
    assert list(Document.objects.values_list("collection__name", flat=True)) == ["other"]
    assert not IngestJob.objects.exists() and not Upload.objects.exists()


def test_an_interrupted_deletion_is_finished_by_maintenance(notes: Collection) -> None:
    ingest_text(notes, "a", "text")
    Collection.objects.update(deleted_at=timezone.now())
    assert maintain()["purged"] == 0
    Collection.objects.update(deleted_at=timezone.now() - timedelta(minutes=2))
    assert maintain()["purged"] == 1
    assert not Collection.objects.exists() and not Chunk.objects.exists()


def test_reindex_uses_the_present_policy_and_keeps_what_people_set(notes: Collection, embeddings: OpenAIServer) -> None:
    run_job(upload(notes, LONG, "a.txt").pk)
    ingest_text(notes, "b", LONG, title="Title", tags=["x"])
    assert Chunk.objects.filter(doc_id="a.txt").count() == 1 + Chunk.objects.filter(doc_id="b").count() - 1
    before = Chunk.objects.count()
    Collection.objects.update(chunk_policy={"target_tokens": 30, "overlap_tokens": 0})
    notes.refresh_from_db()
    jobs = reindex_documents(notes, ["a.txt", "b", "unknown"])
    embeddings.requests.clear()
    assert [run_job(job.pk) for job in jobs] == ["succeeded", "succeeded"]
    assert embeddings.requests != []
    assert Chunk.objects.count() > before
    b = Document.objects.get(doc_id="b")
    assert (b.title, b.tags, b.revision, b.chunk_policy["target_tokens"]) == ("Title", ["x"], 2, 30)
    assert Chunk.objects.filter(doc_id="b").count() == b.chunk_count


def test_a_vector_index_is_built_when_the_load_has_paused(notes: Collection, settings: Any) -> None:
    settings.RAGD_EXACT_THRESHOLD = 2
    for name in ("a", "b", "c"):
        ingest_text(notes, name, "text")
    assert maintain()["index_builds"] == 0
    Document.objects.update(updated_at=timezone.now() - timedelta(minutes=1))
    assert maintain()["index_builds"] == 1
    assert maintain()["index_builds"] == 0
    job = IngestJob.objects.get(kind="build_index")
    assert run_job(job.pk) == "succeeded"
    assert maintain()["index_builds"] == 0
    from collections_app.collections.services import collection_statistics

    assert collection_statistics(notes)["vector_index"] == "ready"


def test_the_database_going_away_in_the_middle_costs_nothing(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = create_collection(name="notes")
    ingest_text(notes, "a.txt", "the old version")
    job = upload(notes)
    answer = embeddings.answer
    backend = connection.connection.info.backend_pid

    def break_off(request: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 2000)", [backend])
        connection.close()
        return answer(request)

    monkeypatch.setattr(embeddings, "answer", break_off)
    assert run_job(job.pk) == "queued"
    assert reload(job).error_type == "database_unavailable"
    assert Document.objects.get().text == "the old version"
    monkeypatch.setattr(embeddings, "answer", answer)
    assert run_job(job.pk) == "succeeded"
    assert Document.objects.get().text == "some text"


def send(collection: Collection, name: str, content: bytes = b"some text") -> Any:
    (outcome,) = submit_uploads(collection, [SimpleUploadedFile(name, content)])
    return outcome


def test_the_same_bytes_again_are_refused_with_the_reason_and_the_way_out(notes: Collection) -> None:
    job = upload(notes)
    IngestJob.objects.update(state="quarantined", error="quarantined after 3 attempts: The reader crashed.")
    outcome = send(notes, "other name.txt")
    assert (outcome.status, outcome.error_type) == ("rejected", "quarantined")
    assert "The reader crashed." in outcome.error and f"PATCH /v1/jobs?job={job.pk} with" in outcome.error
    assert send(notes, "a.txt", b"other bytes").status == "queued"
    assert send(create_collection(name="other"), "a.txt").status == "queued"

    assert retry_jobs(notes) == 0  # only when it is asked for by itself
    retry_job(reload(job))
    assert run_job(job.pk) == "succeeded"
    assert send(notes, "third.txt").status == "queued"


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
    later = timezone.now() + maintenance.ORPHAN_KEPT + timedelta(minutes=1)
    assert maintenance.drop_orphan_uploads(timezone.now()) == 0
    assert maintenance.drop_orphan_uploads(later) == 1
    assert Upload.objects.count() == 4 and not Upload.objects.filter(pk=orphan.pk).exists()
    with CaptureQueriesContext(connection) as asked:
        maintenance.drop_orphan_uploads(later)
    assert len(asked) == 1


def test_a_batch_whose_client_went_away_is_closed(notes: Collection) -> None:
    left, busy, fresh = (open_batch(notes) for _ in range(3))
    long_ago = timezone.now() - maintenance.ABANDONED_AFTER * 2
    for batch in (left, busy):
        type(batch).objects.filter(pk=batch.pk).update(created_at=long_ago)
        IngestJob.objects.create(collection=notes, doc_id="a", batch=batch, state="succeeded", created_at=long_ago)
    IngestJob.objects.create(collection=notes, doc_id="b", batch=busy, created_at=long_ago)
    assert maintenance.close_abandoned_batches(timezone.now()) == 1
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
    later = timezone.now() + maintenance.SESSION_LOST * 2
    Session.objects.filter(session_key=live.session_key).update(expire_date=later + timedelta(days=1))
    Session.objects.filter(session_key=expired.session_key).update(expire_date=later - timedelta(minutes=1))
    Session.objects.filter(session_key=ended.session_key).delete()
    assert maintenance.forget_sessions(later) == 3
    assert list(UserSession.objects.all()) == [live]
    assert [session.session_key for session in Session.objects.all()] == [live.session_key]


def told(job: IngestJob) -> list[tuple[str, str]]:
    return [(row.stage, row.state) for row in reload(job).stage_rows]


def test_every_stage_of_a_file_has_its_row_with_counts_and_times(notes: Collection) -> None:
    job = upload(notes, LONG)
    assert told(job) == [(stage, "waiting") for stage in ("parse", "chunk", "embed", "store")]
    run_job(job.pk)
    rows = reload(job).stage_rows
    assert [(row.stage, row.state, row.unit, row.percent) for row in rows] == [
        ("parse", "succeeded", "bytes", 100),
        ("chunk", "succeeded", "chars", 100),
        ("embed", "succeeded", "chunks", 100),
        ("store", "succeeded", "chunks", 100),
    ]
    chunks = reload(job).chunks_total
    assert [row.done for row in rows] == [len(LONG), reload(job).chars, chunks, chunks]
    assert all(row.took_ms is not None and row.rate and row.started_at and not row.error for row in rows)
    assert reload(job).timings_ms == {row.stage: row.took_ms for row in rows}


def test_what_runs_says_how_fast_and_how_long_still(notes: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collections_app.jobs.leases.WRITE_EVERY_S", 0)
    clock = [100.0]
    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    job = upload(notes)
    progress = JobProgress(claim_job(job.pk, "worker") or job)
    progress.enter("chunk", chars=5000)
    progress.enter("embed", chunks_total=100)
    clock[0] += 1
    progress.advance(20, 100)  # some were there already: no rate yet
    assert (reload(job).rate, reload(job).remaining_s) == (None, None)
    clock[0] += 2
    progress.advance(40, 100)
    found = reload(job)
    assert (found.rate, found.remaining_s, found.percent) == (10.0, 6.0, 40)
    assert told(job) == [("parse", "succeeded"), ("chunk", "succeeded"), ("embed", "running"), ("store", "waiting")]
    assert found.stage_rows[2].took_ms == 3000.0


def test_the_stage_that_broke_carries_the_reason(notes: Collection, embeddings: OpenAIServer, settings: Any) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 1
    job = upload(notes)
    embeddings.script(failing(400))
    assert run_job(job.pk) == "failed"
    assert told(job) == [("parse", "succeeded"), ("chunk", "succeeded"), ("embed", "failed")]
    assert "answered 400" in reload(job).stage_rows[2].error


def test_a_stage_under_way_when_its_job_ended_says_so(notes: Collection) -> None:
    job = upload(notes)
    claim = claim_job(job.pk, "worker") or job
    JobProgress(claim).hold()
    cancel_job(reload(job))
    assert told(job) == [("parse", "cancelled")]
    entry = {"stage": "embed", "state": "running", "done": 5, "total": 9, "unit": "chunks"}
    (row, *_) = stage_rows("reindex", "queued", [entry], "its worker ended")[2:]
    assert (row.stage, row.state, row.error, row.remaining_s) == ("embed", "interrupted", "its worker ended", None)
    assert stage_rows("build_index", "succeeded", []) == []
