"""An erased document, collection or person is in no column of any table any more, and the audit log stays whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.utils import timezone

from collections_app.audit.services import verify_chain
from collections_app.chunks.edits import edit_chunk
from collections_app.chunks.finding_scan import scan_collection
from collections_app.chunks.outliers import scan_duplicates
from collections_app.collections.invariants import check_invariants
from collections_app.collections.services import update_collection
from collections_app.documents.edits import edit_document
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.index.past_indexes import read_as_of
from collections_app.index.services import start_index_version
from collections_app.jobs.dispatch import run_job
from collections_app.models import (
    AuditEvent,
    Chunk,
    Collection,
    Document,
    DocumentRevision,
    Erasure,
    IdempotencyRecord,
    IngestJob,
    Operation,
    WorkPart,
)
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.services import submit_uploads
from evaluation_app.golden.edits import add_question
from evaluation_app.models import (
    EvaluationItem,
    Experiment,
    GoldenQuestion,
    GoldenSet,
    KeptJudgement,
    Review,
    ReviewTask,
    Span,
)
from evaluation_app.reviews.labels import give_feedback
from evaluation_app.runs import lifecycle
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.sampling import judge_run
from ragd.types import RetrievePlan
from ragd_site.operations.erasure.documents import erase_collection, erase_document, erase_person
from ragd_site.operations.erasure.ledger import ledger_path
from ragd_site.operations.erasure.scrub import Fingerprint, word_runs
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.commands.conftest import run_json
from tests.exports import export_to_file
from tests.refusals import refuses
from tests.retrieval.corpus import make_collection

pytestmark = pytest.mark.django_db(transaction=True)

MARKER = "vermilionheron"
SENTENCE = f"The {MARKER} guards exactly seventeen silver keys beneath the old observatory."
EDITED = f"The {MARKER} now guards eighteen copper keys beneath the new observatory instead."
QUESTION = "Who guards the seventeen silver keys beneath the observatory?"
OTHER_QUESTION = "How much water does the main pump move?"
SECRET = "secret.md"
TABLES = r"""
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname
"""


def find_marker(marker: str = MARKER) -> dict[str, int]:
    """Table -> rows that hold the marker in any column, written out or as bytes."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        for (table,) in cursor.fetchall():
            cursor.execute(
                f'SELECT count(*) FROM "{table}" t WHERE t::text ILIKE %s OR t::text ILIKE %s',
                [f"%{marker}%", f"%{marker.encode().hex()}%"],
            )
            (count,) = cursor.fetchone()
            if count:
                found[str(table)] = int(count)
    return found


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, settings: Any) -> None:
    settings.RAGD_VAR = tmp_path


@pytest.fixture
def house() -> Iterator[Collection]:
    collection = make_collection()
    update_collection(collection, changes={"retention": {"deleted_days": 30}})
    collection.refresh_from_db()
    yield collection
    for left in Collection.objects.live():
        erase_collection(left)
    Span.objects.all().delete()


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", email="ada@example.org", password="lovelace-1815")


def fill(house: Collection, ada: User) -> QueryRun:
    """The secret document, and as much as possible of what is made of a document."""
    file = SimpleUploadedFile(SECRET, f"# Tower\n\n{SENTENCE}\n\nIt is open on Mondays.".encode())
    job = submit_uploads(house, [file], IngestOptions(metadata={"note": SENTENCE}), doc_ids=[SECRET], actor=ada)[0].job
    assert job is not None
    run_job(job.pk)
    ingest_text(house, "copy.md", f"# Copy\n\n{SENTENCE} {SENTENCE}", title="Copy")
    moment = timezone.now()
    edit_document(house, SECRET, {"title": EDITED, "metadata": {"note": EDITED}}, actor=ada)
    chunk = Chunk.objects.filter(collection_id=house.pk, doc_id=SECRET, content__contains=MARKER).first()
    assert chunk is not None
    edit_chunk(house, SECRET, chunk.chunk_index, content=EDITED, actor=ada)
    read_as_of(house, moment, lambda store: store)
    index_version = start_index_version(house, {"language": "german"}, automatic=False)
    run_job(index_version.jobs.newest()[0].pk)
    scan_duplicates(house)
    scan_collection(house)
    run = ask(QueryRequest(house, QUESTION, RetrievePlan(k=3), "api", user=ada))
    assert MARKER in json.dumps(run.results)
    give_feedback(run, correct=False, comment=SENTENCE, correction=EDITED, actor=ada)
    judge_run(run, actor=None)
    golden_set = GoldenSet.objects.create(name="keys", collection_name=house.name)
    add_question(golden_set, {"question": QUESTION, "expected_doc_ids": [SECRET], "expected_answer": SENTENCE})
    add_question(golden_set, {"question": f"Is it true? {SENTENCE}", "expected_doc_ids": [SECRET]}, suggested=True)
    add_question(golden_set, {"question": OTHER_QUESTION, "expected_doc_ids": ["pump.md"], "expected_answer": "400"})
    started = lifecycle.start_run(
        golden_set,
        lifecycle.RunRequest(RetrievePlan(k=2), settings=RunSettings(answers=True, judge="embedded")),
        send=False,
    )
    lifecycle.run_now(started)
    item = EvaluationItem.objects.get(question_text=QUESTION)
    task = ReviewTask.objects.create(
        item=item, collection_name=house.name, question_text=QUESTION, answer=item.answer, context=item.context
    )
    Review.objects.create(task=task, reviewer=ada, reviewer_name="ada", note=SENTENCE)
    Experiment.objects.create(kind="models", collection_name=house.name, questions=[{"question": SENTENCE}])
    KeptJudgement.objects.create(key="k" * 64, model="m", value={"statement": f"It says: {SENTENCE}"})
    IdempotencyRecord.objects.create(owner="o", key="k", request_hash="h", status=200, response={"answer": SENTENCE})
    for trace, run_id, text in ((run.trace_id or "a" * 32, run.pk, SENTENCE), ("b" * 32, None, f"so: {EDITED} (end)")):
        Span.objects.create(
            trace_id=trace, span_id="c" * 16, name="chat gpt", kind="CLIENT", started_at=moment, ended_at=moment,
            duration_ms=1.0, collection=house.name, run_id=run_id, attributes={"gen_ai.prompt": [text]},
            events=[{"name": "x", "attributes": {"t": text}}],
        )  # fmt: skip
    operation = Operation.objects.create(
        kind="export", state="succeeded", subject=house.name, finished_at=timezone.now(), report={"sample": SENTENCE}
    )
    WorkPart.objects.create(kind="file", key=str(operation.pk), position=0, content=SENTENCE.encode())
    Operation.objects.create(
        kind="bisection", state="cancelled", subject=house.name, finished_at=timezone.now(), arguments={},
        error="cancelled by ada", report={"events": [{"doc_id": SECRET, "by": "ada"}]},
    )  # fmt: skip
    return run


def test_an_erased_document_is_in_no_table_any_more(house: Collection, ada: User, tmp_path: Path) -> None:
    run = fill(house, ada)
    export_to_file(house, tmp_path / "house.zip")
    other = ask(QueryRequest(house, OTHER_QUESTION, RetrievePlan(k=1), "api", user=ada))
    delete_documents(house, ["copy.md"], actor=ada)
    before = find_marker()
    wanted = {
        "documents", "document_revisions", "chunk_overlays", "uploads", "state_changes", "retrieval_app_queryrun",
        "evaluation_items", "review_tasks", "reviews", "golden_questions", "golden_set_versions", "experiments",
        "kept_judgements", "idempotency_records", "operations", "work_parts", "run_scores", "ingest_jobs",
        "audit_events",
    }  # fmt: skip
    assert wanted - before.keys() == set() and any(table.startswith("spans") for table in before)
    assert len([table for table in before if table.startswith("chunks_")]) >= 3, "the active one, a next and a past one"
    trial = erase_document(house, SECRET, dry_run=True)
    assert find_marker() == before and not Erasure.objects.exists() and not ledger_path().exists()
    done = erase_document(house, SECRET)
    assert {name: count for name, count in done.counts.items() if name != "audit_events"} == {
        name: count for name, count in trial.counts.items() if name != "audit_events"
    }
    erase_document(house, "copy.md")
    assert find_marker() == {}

    assert not QueryRun.objects.filter(pk=run.pk).exists() and QueryRun.objects.filter(pk=other.pk).exists()
    assert Document.objects.filter(collection=house).count() == 5
    item = EvaluationItem.objects.get(question_text=QUESTION)
    assert item.scores and (item.answer, item.context) == ("", [])
    question = GoldenQuestion.objects.get(question=QUESTION)
    assert (question.expected_doc_ids, question.expected_answer) == ([], "")
    assert GoldenQuestion.objects.get(question=OTHER_QUESTION).expected_answer == "400"
    assert check_invariants(house).findings == 0
    verdict = verify_chain()
    assert verdict.is_whole, verdict
    event = AuditEvent.objects.filter(action="erase.document").earliest("id")
    assert event.after is not None and event.after["doc_id"] == SECRET and event.after["erased_what"]
    assert AuditEvent.objects.filter(what_salt=None).exists()
    line = json.loads(ledger_path().read_text().splitlines()[0])
    assert (line["kind"], line["subject"]) == ("document", {"collection": "house", "doc_id": SECRET})
    assert ledger_path().stat().st_mode & 0o077 == 0
    assert not Operation.objects.filter(report__icontains=SECRET).exists()


def test_what_other_documents_say_too_is_not_taken_from_them(house: Collection) -> None:
    ingest_text(house, "one.md", SENTENCE)
    ingest_text(house, "two.md", SENTENCE)
    run = ask(QueryRequest(house, OTHER_QUESTION, RetrievePlan(k=1), "api"))
    golden_set = GoldenSet.objects.create(name="keys", collection_name=house.name)
    add_question(golden_set, {"question": QUESTION, "expected_doc_ids": ["two.md"], "expected_answer": SENTENCE})
    erase_document(house, "one.md")
    assert QueryRun.objects.filter(pk=run.pk).exists()
    assert GoldenQuestion.objects.get().expected_answer == SENTENCE
    assert Document.objects.filter(doc_id="two.md", text__contains=MARKER).exists()


def test_an_unknown_document_is_refused(house: Collection) -> None:
    with refuses("unknown_document", "doc_id"):
        erase_document(house, "none.md")


def test_an_erased_collection_is_in_no_table_any_more(house: Collection, ada: User) -> None:
    fill(house, ada)
    make_collection("other")
    done = erase_collection(house, actor=ada)
    assert find_marker() == {} and done.counts["query_runs"] >= 1
    assert not Document.objects.filter(collection_id=house.pk).exists()
    assert not GoldenSet.objects.exists() and not DocumentRevision.objects.exists()
    assert not IngestJob.objects.filter(collection_id=house.pk).exists()
    assert not Operation.objects.filter(subject="house", kind__in=("bisection", "duplicates", "findings")).exists()
    assert Document.objects.filter(collection__name="other").count() == 5
    assert AuditEvent.objects.filter(action="collection.delete", collection_name="house", actor_name="ada").exists()
    assert verify_chain().is_whole


def test_an_erased_person_is_in_no_table_any_more(house: Collection, ada: User) -> None:
    client = Client(REMOTE_ADDR="203.0.113.9")
    client.post("/accounts/login/", {"username": "ada", "password": "wrong"})
    assert client.post("/accounts/login/", {"username": "ada", "password": "lovelace-1815"}).status_code == 302
    run = fill(house, ada)
    verdicts = Review.objects.get(task__query_run=run.pk).verdicts
    own = "Does my neighbour Winifred Abernathy still owe the library nine books?"
    ask(QueryRequest(house, own, RetrievePlan(k=1), "page", user=ada))
    assert {"auth_user", "axes_accesslog", "audit_events"} <= find_marker("ada").keys()
    assert "audit_events" in find_marker("203.0.113.9") and find_marker("Abernathy")
    kept = AuditEvent.objects.filter(actor_name="ada").count()
    done = erase_person(ada)
    pseudonym = done.subject["person"]
    for marker in ("ada@example", '"ada"', "203.0.113.9", "Abernathy"):
        assert find_marker(marker) == {}, marker
    with connection.cursor() as cursor:  # the name as a whole value: other words hold these three letters
        cursor.execute(r"""
            SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
            WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.atttypid IN (25, 1043)
              AND NOT a.attisdropped""")
        for table, column in cursor.fetchall():
            cursor.execute(f'SELECT count(*) FROM "{table}" WHERE "{column}" = %s', ["ada"])
            assert cursor.fetchone() == (0,), (table, column)
    assert not User.objects.filter(pk=done.subject["user_id"]).exists()
    bisection = Operation.objects.get(kind="bisection")
    assert (bisection.error, bisection.report["events"][0]["by"]) == (f"cancelled by {pseudonym}", pseudonym)
    assert AuditEvent.objects.filter(actor_name=pseudonym).count() >= kept
    review = Review.objects.filter(reviewer_name=pseudonym).first()
    assert review is not None and review.note == ""
    assert verdicts is not None and not QueryRun.objects.filter(pk=run.pk).exists()
    assert verify_chain().is_whole


def test_a_restored_backup_is_erased_again(house: Collection, ada: User) -> None:
    ingest_text(house, SECRET, SENTENCE)
    erase_document(house, SECRET)
    pseudonym = erase_person(ada).subject["person"]
    # what a restore of an earlier backup brings back, and the table of erasures is the earlier one too
    Erasure.objects.all().delete()
    ingest_text(house, SECRET, SENTENCE)
    again = User.objects.create_user("ada")
    ingest_text(house, "new.md", "Written by ada.", actor=again)
    answer = run_json("audit", "erase", "replay")
    assert sorted(row["kind"] for row in answer["erased"]) == ["document", "person"]
    assert find_marker() == {} and not User.objects.filter(username="ada").exists()
    assert AuditEvent.objects.filter(actor_name=pseudonym).exists()
    assert run_json("audit", "erase", "replay")["erased"] == []
    assert verify_chain().is_whole


def test_the_command_line(house: Collection, ada: User) -> None:
    ingest_text(house, SECRET, SENTENCE)
    counted = run_json("audit", "erase", "document", "house", SECRET, "--dry-run")
    assert counted["dry_run"] and counted["counts"]["documents"] == 1 and find_marker()
    assert run_json("audit", "erase", "document", "house", SECRET)["counts"]["documents"] == 1
    assert run_json("audit", "erase", "document", "house", SECRET, status=1)["error"]["type"] == "unknown_document"
    assert run_json("audit", "erase", "person", "nobody", status=1)["error"]["type"] == "unknown_user"
    assert run_json("audit", "erase", "document", "house", status=2)["error"]["type"] == "usage"
    assert run_json("audit", "erase", "person", "ada")["counts"]["accounts"] == 1
    assert [row["kind"] for row in run_json("audit", "erase", "list")["erasures"]] == ["document", "person"]


def test_word_runs_do_not_depend_on_what_stands_between_the_words() -> None:
    assert list(word_runs("One two three, four-five SIX")) == list(word_runs("one\ntwo three four five six."))
    assert list(word_runs("one two three four five")) == []
    fingerprint = Fingerprint([SENTENCE])
    assert fingerprint.tells({"a": [f"... exactly seventeen silver keys beneath the {MARKER}"]})
    assert not fingerprint.tells({"a": ["seventeen silver keys"], "b": 3, "c": None})
    assert fingerprint.without({"a": [SENTENCE, 1]}) == {"a": ["(erased)", 1]}
    fingerprint.forget(SENTENCE)
    assert not fingerprint.tells(SENTENCE)
