"""A deletion leaves nothing, in any table that there is or will be, whatever goes on meanwhile.
The invariant check: silent on what is right, and every rule speaks when exactly what it guards is broken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from collections_app.access.people import EVERYWHERE
from collections_app.collections import deletion, invariants
from collections_app.collections.deletion import (
    chunk_tables,
    collection_tables,
    count_rows,
    delete_collection,
    purge_deleted,
)
from collections_app.collections.invariants import HASHES, OTHERS, RULES, SLICES, check_invariants
from collections_app.collections.services import create_collection
from collections_app.documents.services import change_state, ingest_text
from collections_app.errors import ServiceError
from collections_app.index.services import start_index_version
from collections_app.index.stores import open_store
from collections_app.jobs.dispatch import run_job
from collections_app.models import (
    ChunkOverlay,
    Collection,
    DocumentRevision,
    IngestBatch,
    IngestJob,
    Operation,
    RoleGrant,
)
from collections_app.uploads.services import submit_uploads
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.store.postings import build_postings
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import save_plan
from retrieval_app.search import query_pipeline as retrieval
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with, refuses

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


# rule -> what breaks it; {c} is the collection's id, {chunks} its table
SABOTAGE = {
    "chunk counts": "UPDATE documents SET chunk_count = chunk_count + 1 WHERE doc_id = 'a.md'",
    "chunk indexes": "UPDATE {chunks} SET chunk_index = 99 WHERE doc_id = 'a.md' AND chunk_index = 1",
    "chunks without a document": "ALTER TABLE documents DISABLE TRIGGER documents_chunks; "
    "DELETE FROM documents WHERE doc_id = 'a.md'",
    "switches": "UPDATE {chunks} SET enabled = false WHERE doc_id = 'a.md' AND chunk_index = 0",
    "statistics": "UPDATE chunk_stats SET length_total = length_total + 1 WHERE collection_id = {c}",
    "document frequencies": "UPDATE chunk_terms SET chunk_count = chunk_count + 1 WHERE term = "
    "(SELECT min(term) FROM chunk_terms WHERE collection_id = {c})",
    "keyword index": "UPDATE {chunks} SET lexical = NULL WHERE doc_id = 'a.md' AND chunk_index = 0",
    "vectors": "ALTER TABLE {chunks} DROP CONSTRAINT {chunks}_dims; DROP INDEX {chunks}_compact; "
    "UPDATE {chunks} SET embedding = '[1,2]' WHERE doc_id = 'a.md' AND chunk_index = 0",
    "packed postings": "UPDATE chunk_segments SET size = size - 1 WHERE collection_id = {c}",
    "indexes": "DROP INDEX {chunks}_tags",
    "uploads without an owner": "INSERT INTO uploads (collection_id, doc_id, sha256, name, media_type, size_bytes, "
    "content, created_at) VALUES ({c}, 'x', 'y', 'x', '', 1, 'x', now() - interval '9 days')",
    "revisions without a document": "INSERT INTO document_revisions SELECT (r).* FROM (SELECT jsonb_populate_record("
    'NULL::document_revisions, to_jsonb(r) || \'{{"doc_id": "gone", "id": 999999}}\') AS r FROM document_revisions r '
    "LIMIT 1) AS copied",
    "overlays without a document": "INSERT INTO chunk_overlays (collection_id, doc_id, kind, anchor_hash, anchor_text, "
    "start_char, content, applies, revision, created_by, created_at, updated_at) VALUES ({c}, 'gone', 'disable', '', "
    "'', 0, '', true, 1, '', now(), now())",
    "hanging jobs": "INSERT INTO ingest_jobs SELECT (j).* FROM (SELECT jsonb_populate_record(NULL::ingest_jobs, "
    "to_jsonb(j) || jsonb_build_object('id', gen_random_uuid(), 'state', 'running', 'lease_until', "
    "now() - interval '10 minutes')) AS j FROM ingest_jobs j LIMIT 1) AS copied",
    "slices": "UPDATE documents SET text = replace(text, 'subject 7', 'SUBJECT 7') WHERE doc_id = 'a.md'",
    "content hashes": "UPDATE documents SET title = 'Another' WHERE doc_id = 'a.md'",
    "tables without an index version": "CREATE TABLE chunks_c999999_g1 (id bigint)",
    "rows without a collection": "INSERT INTO chunk_overlays (collection_id, doc_id, kind, anchor_hash, anchor_text, "
    "start_char, content, applies, revision, created_by, created_at, updated_at) VALUES (999999, 'gone', 'disable', "
    "'', '', 0, '', true, 1, '', now(), now())",
    "deletions that hang": "INSERT INTO collections (name, embed_model, embed_dims, deleted_at) VALUES "
    "('gone', 'x', 3, now() - interval '2 hours')",
}


@pytest.fixture
def sound(db: None, embeddings: OpenAIServer) -> Collection:
    collection = create_collection(name="sound", chunk_policy={"target_tokens": 20, "overlap_tokens": 4})
    ingest_text(collection, "a.md", TEXT, title="A")
    ingest_text(collection, "a.md", TEXT + "\n\nOne more.", title="A")
    ingest_text(collection, "b.md", "Æther and naïve 🎈 words.\n\nMore of them.")
    change_state(collection, ["b.md"], "disabled")
    build_postings(open_store(collection))
    return collection


@pytest.fixture
def job(sound: Collection) -> None:
    from collections_app.models import IngestJob

    IngestJob.objects.create(collection=sound, state="succeeded", doc_id="a.md")


class BackAgain(Exception):
    """Undoes what was broken."""


def test_a_sound_database_has_no_finding(sound: Collection, admin_user: User) -> None:
    RoleGrant.objects.create(user=admin_user, role="viewer", collection_id=EVERYWHERE)
    operation = check_invariants()
    assert operation.findings == 0 and operation.report["findings"] == [], operation.report
    assert operation.report["rules"] == len(RULES) + 2 + len(OTHERS) and operation.report["unfinished"] == []


def test_every_rule_speaks_of_what_it_guards(sound: Collection, job: None) -> None:
    assert set(SABOTAGE) == {rule.name for rule in (*RULES, *OTHERS, SLICES, HASHES)}
    names = {"c": sound.pk, "chunks": f"chunks_c{sound.pk}_g1"}
    for rule, sql in SABOTAGE.items():
        with pytest.raises(BackAgain), transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(sql.format(**names))
                assert cursor.rowcount != 0, rule
            operation = check_invariants()
            found = {finding["rule"]: finding for finding in operation.report["findings"]}
            assert rule in found, (rule, operation.report)
            assert operation.findings == len(found) and found[rule]["rows"] and found[rule]["remedy"]
            raise BackAgain
    assert check_invariants(sound).findings == 0, "the check itself changes nothing"


def test_a_rule_that_takes_too_long_is_not_taken_for_a_pass(sound: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = invariants.Rule("slow", "it sleeps", "SELECT pg_sleep(2)::text", "wait")
    monkeypatch.setattr(invariants, "RULES", (slow,))
    monkeypatch.setattr(invariants.Check.__init__, "__defaults__", (0.05,))
    operation = check_invariants(sound)
    assert "slow of sound" in operation.report["unfinished"] and operation.findings == 0


def test_the_command_fails_on_a_finding(sound: Collection, capsys: Any) -> None:
    call_command("ragd", "check", "consistency", "sound")
    assert "passed: yes" in capsys.readouterr().out
    with connection.cursor() as cursor:
        cursor.execute(SABOTAGE["chunk counts"])
    with raises_with(SystemExit, code=1):
        call_command("ragd", "check", "consistency")
    assert "a.md has" in capsys.readouterr().out
    assert Operation.objects.filter(kind="check").count() == 2
