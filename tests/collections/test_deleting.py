"""A deletion leaves nothing, in any table that there is or will be, whatever goes on meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.utils import timezone

from collections_app.collections import deletion
from collections_app.collections.deletion import (
    chunk_tables,
    collection_tables,
    count_rows,
    delete_collection,
    purge_deleted,
)
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.index.services import start_index_version
from collections_app.index.stores import open_store
from collections_app.jobs.dispatch import run_job
from collections_app.models import ChunkOverlay, Collection, DocumentRevision, IngestBatch, IngestJob, Operation
from collections_app.uploads.services import submit_uploads
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.store.postings import build_postings
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import save_plan
from retrieval_app.search import query_pipeline as retrieval
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import refuses

TEXT = "\n\n".join(f"Paragraph {number} speaks of subject {number}." for number in range(20))


@pytest.fixture
def everything(committed: None, embeddings: OpenAIServer) -> Collection:
    """A collection of which every table has something."""
    collection = create_collection(name="everything", chunk_policy={"target_tokens": 20, "overlap_tokens": 0})
    ingest_text(collection, "a.md", TEXT)
    ingest_text(collection, "a.md", TEXT + "\n\nMore.")
    (outcome,) = submit_uploads(collection, [SimpleUploadedFile("b.txt", b"A file about subjects.")])
    assert outcome.job is not None
    run_job(outcome.job.pk)
    now = timezone.now()
    DocumentRevision.objects.get_or_create(
        collection=collection, doc_id="a.md", revision=1, defaults={"made_at": now, "text": "Old"}
    )
    ChunkOverlay.objects.create(collection=collection, doc_id="a.md", kind="disable", anchor_hash="0" * 64)
    IngestBatch.objects.create(collection=collection, label="a batch")
    index_version = start_index_version(collection, {"language": "simple"}, automatic=False)
    run_job(index_version.jobs.get().pk)
    assert chunk_tables(collection.pk) == [f"chunks_c{collection.pk}_g1", f"chunks_c{collection.pk}_g2"]
    build_postings(open_store(collection))
    save_plan(collection, "wide", RetrievePlan(k=5))
    golden = GoldenSet.objects.create(name="of everything", collection_name="everything")
    GoldenQuestion.objects.create(golden_set=golden, question="What?")
    retrieval.search(retrieval.QueryRequest(collection, "subject", RetrievePlan(), "api"))
    return collection


def other(name: str = "other") -> Collection:
    collection = create_collection(name=name)
    ingest_text(collection, "kept.md", "Kept.")
    return collection


def test_every_table_of_the_catalog_is_empty_of_it(everything: Collection) -> None:
    """The tables are asked for from the catalog itself, so that a new one is looked at without anybody naming it."""
    kept = count_rows(other().pk)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
            "WHERE a.attname = 'collection_id' AND c.relkind IN ('r', 'p')"
        )
        tables = [name for (name,) in cursor.fetchall()]
    assert {"documents", "chunks", "uploads", "ingest_jobs", "chunk_terms", "chunk_segments"} <= set(tables)
    proof = delete_collection(everything)
    for table in tables:
        if table not in chunk_tables(everything.pk) and not table.startswith(f"chunks_c{everything.pk}_"):
            with connection.cursor() as cursor:
                cursor.execute(f'SELECT count(*) FROM "{table}" WHERE collection_id = %s', [everything.pk])
                assert cursor.fetchone() == (0,), table
    assert chunk_tables(everything.pk) == []
    before = proof["before"]
    for noun in (
        "documents", "chunks", "revisions", "overlays", "uploads", "jobs", "batches", "index_versions",
        "index_version_documents", "statistics", "terms", "segments", "plans", "runs", "golden_questions",
    ):  # fmt: skip
        assert before[noun] > 0, noun
    assert before["chunk_tables"] == 2 and set(proof["after"]) == set(before)
    assert not any(proof["after"].values())
    assert count_rows(Collection.objects.get(name="other").pk) == kept, "another collection is not touched"


def test_runs_keep_nothing_but_the_name(everything: Collection) -> None:
    delete_collection(everything)
    (run,) = QueryRun.objects.all()
    assert (run.collection_id, run.collection_name) == (None, "everything")


def test_a_table_that_comes_later_is_emptied_too(everything: Collection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE later_table (collection_id bigint NOT NULL, note text)")
        cursor.execute("INSERT INTO later_table VALUES (%s, 'x'), (%s, 'y')", [everything.pk, everything.pk + 1])
    try:
        assert ("later_table", True) in collection_tables()
        proof = delete_collection(everything)
        assert (proof["before"]["later_table"], proof["after"]["later_table"]) == (1, 0)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE later_table")


def test_the_proof_is_kept(everything: Collection) -> None:
    proof = delete_collection(everything)
    operation = Operation.objects.get(kind="deletion")
    assert (operation.subject, operation.state, operation.report) == ("everything", "succeeded", proof)


def test_deleting_while_something_reads_ends_with_maintenance(
    everything: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that no lock timeout moves: the collection is invisible at once, its rows go when it has ended."""
    monkeypatch.setattr(deletion, "PURGE_ATTEMPTS", 1)
    params = connection.get_connection_params()
    with psycopg.connect(**{**params, "cursor_factory": psycopg.Cursor}) as reader:
        reader.execute(f"SELECT count(*) FROM chunks_c{everything.pk}_g1")  # type: ignore[arg-type]
        with refuses("still_in_use") as busy:
            delete_collection(everything)
    assert busy.value.status == 503
    assert not Collection.objects.live().filter(name="everything").exists()
    assert purge_deleted(timezone.now() + deletion.PURGE_GRACE * 2) == 1
    assert not any(count_rows(everything.pk).values())
    newest = Operation.objects.filter(kind="deletion")[0]
    assert newest.state == "succeeded" and newest.report["before"]["documents"] == 2


def test_deleting_while_a_job_runs_and_an_index_builds(everything: Collection) -> None:
    """A job in its middle loses its collection, and an index is being built: both end, and nothing is left."""
    (outcome,) = submit_uploads(everything, [SimpleUploadedFile("c.txt", TEXT.encode())])
    assert outcome.job is not None
    job = outcome.job.pk
    failures: list[BaseException] = []

    def work(task: Callable[[], Any]) -> None:
        try:
            task()
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [
        threading.Thread(target=work, args=[lambda: run_job(job)]),
        threading.Thread(target=work, args=[lambda: open_store(everything).build_vector_index(concurrently=True)]),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    try:
        delete_collection(everything)
    except ServiceError as busy:
        assert busy.status == 503
    for thread in threads:
        thread.join(30)
    purge_deleted(timezone.now() + deletion.PURGE_GRACE * 2)
    assert not any(count_rows(everything.pk).values())
    assert not IngestJob.objects.filter(collection_id=everything.pk).exists()
