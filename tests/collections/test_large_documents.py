"""Documents of many chunks: stored is what the plain way stores, and nothing is embedded twice."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.documents import stored_documents
from collections_app.documents.services import ingest_text, reindex_documents
from collections_app.index import embedding_checkpoints, ingestion
from collections_app.index.embedding_checkpoints import JobCheckpoints, SpooledCheckpoints, VectorBatch
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.recovery import cancel_job, retry_job
from collections_app.models import Collection, Document, IngestJob, WorkPart
from ragd.store import indexing
from ragd.store.store import fetch_all
from ragd.types import Segment
from tests.collections.test_jobs import reload, upload
from tests.fakes.faults import failing
from tests.fakes.openai_server import OpenAIServer

POLICY = {"target_tokens": 8, "overlap_tokens": 2}
ROWS = """
SELECT chunk_index, content, start_char, end_char, context, tags, metadata::text, token_count, revision, enabled,
       switched_off, embedding::text, fts::text, lexical::text
FROM chunks WHERE collection_id = %(id)s ORDER BY doc_id, chunk_index
"""
STATS = "SELECT chunk_count, length_total, length_baked FROM chunk_stats WHERE collection_id = %(id)s"
TERMS = "SELECT term, chunk_count FROM chunk_terms WHERE collection_id = %(id)s AND chunk_count <> 0 ORDER BY term"
DOCUMENT = """
SELECT doc_id, title, tags, metadata::text, text, size_chars, token_count, chunk_count, content_hash, source_hash,
       segments::text, chunk_policy::text, revision, enabled
FROM documents WHERE collection_id = %(id)s ORDER BY doc_id
"""


def text_of(count: int, *, changed: int = 0, begin: str = "") -> str:
    """About `count` chunks; every seventh says something else when `changed`."""
    parts = [
        f"Part {number}{f' in state {changed}' if changed and number % 7 == 0 else ''} speaks of über {number * 3}."
        for number in range(count)
    ]
    return begin + "\n\n".join(parts)


def everything(collection: Collection) -> list[Any]:
    return [fetch_all(connection, sql, {"id": collection.pk}) for sql in (ROWS, STATS, TERMS, DOCUMENT)]


def asked(server: OpenAIServer) -> list[str]:
    return [text for body in server.bodies("/v1/embeddings") for text in body["input"]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """A document of more than six chunks, and a text of more than a hundred characters, counts as large."""
    settings.RAGD_EMBED_BATCH_SIZE = 4
    monkeypatch.setattr(embedding_checkpoints, "HELD_CHUNKS", 6)
    monkeypatch.setattr(ingestion, "LONG_CHARS", 100)
    monkeypatch.setattr(stored_documents, "PIECE_CHARS", 33)
    monkeypatch.setattr(indexing, "PIECE", 5)


def both(monkeypatch: pytest.MonkeyPatch, *steps: Any) -> list[list[Any]]:
    """What the steps leave in a collection, the plain way and the way of large documents."""
    found = []
    for name, most, chars in (("plain", 10**9, 10**9), ("large", 6, 100)):
        monkeypatch.setattr(embedding_checkpoints, "HELD_CHUNKS", most)
        monkeypatch.setattr(ingestion, "LONG_CHARS", chars)
        collection = create_collection(name=name, chunk_policy=POLICY)
        for step in steps:
            step(collection)
        found.append(everything(collection))
    return found


def put(content: Any, **values: Any) -> Any:
    return lambda collection: ingest_text(collection, "a", content, **values)


def run_last(collection: Collection) -> None:
    (job,) = reindex_documents(collection, ["a"])
    assert run_job(job.pk) == "succeeded"


@pytest.mark.parametrize(
    "steps",
    [
        [put(text_of(40))],
        [put(text_of(40)), put(text_of(40, changed=1))],
        [put(text_of(40)), put(text_of(38, begin="Something before. "), mode="upsert", title="T", tags=["t"])],
        [put(text_of(40)), put(text_of(12), mode="upsert")],
        [put(text_of(3)), put(text_of(30), mode="upsert"), put(text_of(3))],
        [put(text_of(20)), run_last],
        [put([Segment(f"Segment {n} says something of its own here", n, n + 1) for n in range(25)])],
        [put("# One\n\n" + text_of(15) + "\n\n# Two\n\n" + text_of(15), metadata={"k": "v"})],
    ],
)
def test_the_large_way_leaves_what_the_plain_way_leaves(
    db: None, embeddings: OpenAIServer, small: None, monkeypatch: pytest.MonkeyPatch, steps: list[Any]
) -> None:
    plain, large = both(monkeypatch, *steps)
    assert plain == large
    assert len(plain[0]) > 2
    assert not WorkPart.objects.exists()


def test_a_text_that_the_document_had_keeps_its_vector(
    db: None, embeddings: OpenAIServer, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = create_collection(name="notes", chunk_policy={"target_tokens": 8, "overlap_tokens": 0})
    ingest_text(collection, "a", text_of(40))
    before = set(collection.chunks.values_list("content", flat=True))
    embeddings.requests.clear()
    ingest_text(collection, "a", text_of(40, changed=1), mode="upsert")
    after = set(collection.chunks.values_list("content", flat=True))
    assert set(asked(embeddings)) == after - before
    assert before & after and before - after


@pytest.fixture
def broken(committed: None, embeddings: OpenAIServer, small: None, settings: Any) -> IngestJob:
    """A job that was stopped by the embedder after three batches of four, and may go on."""
    settings.RAGD_JOB_MAX_ATTEMPTS = 2
    collection = create_collection(name="notes", chunk_policy=POLICY)
    job = upload(collection, text_of(30))
    good = embeddings.answer

    def answer(request: Any) -> Any:
        if len(asked(embeddings)) > 12:
            embeddings.answer = good  # type: ignore[method-assign]
            IngestJob.objects.filter(pk=job.pk).update(attempts=9)  # as if another worker had taken it over
            connection.close()
        return good(request)

    embeddings.answer = answer  # type: ignore[method-assign]
    assert run_job(job.pk) == "running"
    IngestJob.objects.filter(pk=job.pk).update(attempts=1, state="queued", lease_until=None)
    assert sorted(WorkPart.objects.values_list("position", "size")) == [(0, 4), (4, 4), (8, 4)]
    embeddings.requests.clear()
    return job


def test_the_next_run_goes_on_where_the_last_one_stopped(broken: IngestJob, embeddings: OpenAIServer) -> None:
    seen: list[int] = []
    good = embeddings.answer

    def note(request: Any) -> Any:
        seen.append(IngestJob.objects.get(pk=broken.pk).attempts_forgiven)
        connection.close()
        return good(request)

    embeddings.answer = note  # type: ignore[method-assign]
    assert run_job(broken.pk) == "succeeded"
    texts_asked = asked(embeddings)
    fresh = create_collection(name="fresh", chunk_policy=POLICY)
    embeddings.requests.clear()
    other = upload(fresh, text_of(30))
    assert run_job(other.pk) == "succeeded"
    assert texts_asked == asked(embeddings)[12:]
    resumed, undisturbed = everything(broken.collection), everything(fresh)
    assert resumed == undisturbed
    assert not WorkPart.objects.exists()
    assert seen[0] == 0 and seen[-1] == 1  # the attempts before are forgiven once something new is kept


def test_batches_of_other_texts_or_another_model_are_not_taken(broken: IngestJob, embeddings: OpenAIServer) -> None:
    WorkPart.objects.filter(position=4).update(digest="0" * 64)
    assert run_job(broken.pk) == "succeeded"
    texts_asked = asked(embeddings)
    assert "Part 1 " not in " ".join(texts_asked[:1])
    stored = list(broken.collection.chunks.order_by("chunk_index").values_list("content", flat=True))
    assert texts_asked[:4] == stored[4:8]
    assert texts_asked[4:] == stored[12:]


def test_what_a_cancelled_job_embedded_goes_and_what_a_failed_one_did_stays_for_a_day(
    broken: IngestJob, embeddings: OpenAIServer
) -> None:
    assert "kept_vectors" in maintain() and WorkPart.objects.count() == 3
    embeddings.script(*[failing(401)] * 3)
    assert run_job(broken.pk) == "failed"
    maintain()
    assert WorkPart.objects.count() == 3
    retry_job(reload(broken))
    cancel_job(reload(broken))
    assert maintain()["kept_vectors"] == 3
    assert not WorkPart.objects.exists()


def test_what_nobody_retries_goes_after_a_day(broken: IngestJob) -> None:
    IngestJob.objects.filter(pk=broken.pk).update(state="failed", finished_at=timezone.now() - timedelta(hours=25))
    assert maintain()["kept_vectors"] == 3


def test_a_run_that_lost_its_job_keeps_nothing_more(notes: Collection) -> None:
    class Lost(Exception):
        pass

    class Progress:
        def hold(self, *, forgive: bool = False) -> None:
            raise Lost

    kept = JobCheckpoints(upload(notes), Progress())
    with pytest.raises(Lost):
        kept.keep(0, "d", VectorBatch(np.zeros((2, 32), np.float32)))
    assert kept.find() == {}
    with pytest.raises(LookupError):
        kept.read(0)


def test_vectors_come_back_as_they_were_kept(notes: Collection) -> None:
    class Progress:
        def hold(self, *, forgive: bool = False) -> None:
            assert forgive

    numbers = np.random.default_rng(1).standard_normal((7, 32)).astype(np.float32)
    for kept in (JobCheckpoints(upload(notes), Progress()), SpooledCheckpoints()):
        tokens = [b"one", b"", b"three"]
        kept.keep(4, "first", VectorBatch(numbers[4:]))
        kept.keep(0, "second", VectorBatch(numbers[:4]))
        kept.keep(4, "third", VectorBatch(numbers[4:] * 2, tokens))
        assert kept.find() == {0: "second", 4: "third"}
        assert np.array_equal(kept.read(0).vectors, numbers[:4])
        assert [each for _, each in kept.read(0)] == [None] * 4
        assert np.array_equal(kept.read(4).vectors, numbers[4:] * 2)
        assert [each for _, each in kept.read(4)] == [b"one", None, b"three"]
        kept.drop()
        assert kept.find() == {}


def test_a_change_laid_over_a_large_document_while_it_is_embedded_is_stored(
    committed: None, embeddings: OpenAIServer, small: None
) -> None:
    from collections_app.chunks.overlays import hash_anchor
    from collections_app.models import ChunkOverlay

    collection = create_collection(name="notes", chunk_policy={"target_tokens": 8, "overlap_tokens": 0})
    ingest_text(collection, "a", text_of(20))
    content = collection.chunks.get(chunk_index=3).content
    good = embeddings.answer

    def lay_over(request: Any) -> Any:
        embeddings.answer = good  # type: ignore[method-assign]
        ChunkOverlay.objects.create(
            collection=collection, doc_id="a", kind="edit", anchor_hash=hash_anchor(content), content="edited by hand"
        )
        connection.close()
        return good(request)

    embeddings.answer = lay_over  # type: ignore[method-assign]
    ingest_text(collection, "a", text_of(20) + "\n\nOne more part.")
    stored = list(collection.chunks.order_by("chunk_index").values_list("content", flat=True))
    assert stored[3] == "edited by hand" and "One more part." in stored[-1]
    expected = everything(collection)[0]
    other = create_collection(name="other", chunk_policy={"target_tokens": 8, "overlap_tokens": 0})
    ChunkOverlay.objects.create(
        collection=other, doc_id="a", kind="edit", anchor_hash=hash_anchor(content), content="edited by hand"
    )
    ingest_text(other, "a", text_of(20))
    ingest_text(other, "a", text_of(20) + "\n\nOne more part.")
    assert [row[11] for row in everything(other)[0]] == [row[11] for row in expected]


@pytest.mark.parametrize("size", [0, 1, 32, 33, 34, 66, 67, 500])
def test_facts_about_long_texts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    monkeypatch.setattr(stored_documents, "PIECE_CHARS", 33)
    chooser = random.Random(size)
    text = "".join(chooser.choice("ab \n\u3000é😀") for _ in range(size))
    assert "".join(stored_documents.text_pieces(text)) == text
    assert stored_documents.hash_text(text) == hashlib.sha256(text.encode()).hexdigest()
    assert stored_documents.count_words(text) == len(text.split())
    assert stored_documents.size_utf8(text) == len(text.encode())


def test_a_long_text_is_stored_as_it_is(notes: Collection, small: None) -> None:
    text = "Überall 中文 😀 with a \\ backslash, a\ttab and 'quotes'. " * 20
    ingest_text(notes, "a", text)
    ingest_text(notes, "b", text + "more")
    assert Document.objects.get(doc_id="a").text == text
    assert Document.objects.get(doc_id="b").text == text + "more"


def index_version_rows(collection: Collection, number: int) -> list[Any]:
    chunks = ROWS.replace("FROM chunks", f"FROM chunks_c{collection.pk}_g{number}")
    stats = f"{STATS} AND index_version = {number}"
    terms = TERMS.replace("AND chunk_count", f"AND index_version = {number} AND chunk_count")
    return [fetch_all(connection, sql, {"id": collection.pk}) for sql in (chunks, stats, terms)]


@pytest.mark.parametrize("spec", [{"chunk_policy": {"target_tokens": 11, "overlap_tokens": 3}}, {"embed_dims": 48}])
def test_an_index_version_of_large_documents_holds_what_the_plain_way_makes(
    committed: None, embeddings: OpenAIServer, small: None, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    from collections_app.index.services import start_index_version
    from collections_app.models import IndexVersionDocument

    wanted = {"embed_model": "text-embedding-3-large", **spec} if "embed_dims" in spec else spec
    found, notes = [], []
    for name, most in (("plain", 10**9), ("large", 6)):
        monkeypatch.setattr(embedding_checkpoints, "HELD_CHUNKS", most)
        collection = create_collection(name=name, chunk_policy=POLICY)
        for doc_id, size in (("a", 2), ("b", 30), ("c", 3), ("d", 25)):
            ingest_text(collection, doc_id, text_of(size))
        job = start_index_version(collection, wanted).jobs.get()
        embeddings.requests.clear()
        assert run_job(job.pk) == "succeeded"
        found.append([*index_version_rows(collection, 2), sorted(set(asked(embeddings)))])
        noted = IndexVersionDocument.objects.filter(index_version__collection=collection).order_by("doc_id")
        notes.append(list(noted.values_list("doc_id", "chunk_count", "content_hash", "enabled")))
    assert found[0] == found[1]
    assert notes[0] == notes[1] and len(notes[0]) == 4
    assert not WorkPart.objects.exists()


def test_cancelling_while_the_rows_are_written_stores_nothing(
    committed: None, embeddings: OpenAIServer, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections_app.jobs.attempts import JobProgress

    job = upload(create_collection(name="notes", chunk_policy=POLICY), text_of(30))
    check, calls = JobProgress.check, []

    def cancel() -> None:
        cancel_job(reload(job))
        connection.close()

    def cancel_before(progress: JobProgress) -> None:
        calls.append(1)
        if len(calls) == 2:
            canceller = threading.Thread(target=cancel)  # the row is held by nobody, so this does not wait
            canceller.start()
            canceller.join(30)
            assert not canceller.is_alive()
        check(progress)

    monkeypatch.setattr(JobProgress, "check", cancel_before)
    assert run_job(job.pk) == "cancelled"
    assert len(calls) == 2
    assert not Document.objects.exists() and not job.collection.chunks.exists()
    assert maintain()["kept_vectors"] > 0
    assert not WorkPart.objects.exists()
