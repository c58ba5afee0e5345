"""The invariant check: silent on what is right, and every rule speaks when exactly what it guards is broken."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction

from collections_app.access.people import EVERYWHERE
from collections_app.collections import invariants
from collections_app.collections.invariants import HASHES, OTHERS, RULES, SLICES, check_invariants
from collections_app.collections.services import create_collection
from collections_app.documents.services import change_state, ingest_text
from collections_app.index.stores import open_store
from collections_app.models import Collection, Operation, RoleGrant
from ragd.store.postings import build_postings
from tests.fakes.openai_server import OpenAIServer

TEXT = "\n\n".join(f"Paragraph {number} speaks of subject {number}." for number in range(20))

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
    with pytest.raises(SystemExit) as ended:
        call_command("ragd", "check", "consistency")
    assert ended.value.code == 1
    assert "a.md has" in capsys.readouterr().out
    assert Operation.objects.filter(kind="check").count() == 2
