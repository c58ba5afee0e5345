"""What an upload would do, what it then does, and what happens when names clash.
What is stated of documents, and what a job keeps of where one came from.
A folder in step with a collection: nothing goes that was not named, and nothing that changed meanwhile."""

from __future__ import annotations

import hashlib
import threading
from functools import partial
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collections_app.collections.services import create_collection
from collections_app.documents.services import change_state, delete_documents, ingest_text
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestBatch, IngestJob, Upload
from collections_app.uploads.folder_sync import commit_sync, open_sync, plan_folder
from collections_app.uploads.options import IngestOptions, Origin
from collections_app.uploads.plan import Entry, numbered, plan_uploads
from collections_app.uploads.services import UploadOutcome, find_batch, open_batch, submit_uploads
from tests.refusals import refuses
from tests.simultaneous import call_together
from tests.stated import split


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def entry(name: str, content: str, on_clash: str = "") -> Entry:
    return Entry("", digest(content), len(content.encode()), name, on_clash)


def send(collection: Collection, *files: tuple[str, str], **values: Any) -> list[UploadOutcome]:
    options, others = split(values)
    held = [SimpleUploadedFile(name, content.encode()) for name, content in files]
    return submit_uploads(collection, held, options, **others)


def run_all() -> None:
    for pk in IngestJob.objects.filter(state="queued").order_by("created_at", "doc_id").values_list("pk", flat=True):
        assert run_job(pk) == "succeeded"


def statuses(collection: Collection, *entries: Entry, **values: Any) -> list[tuple[str, str]]:
    options, others = split(values)
    return [(line.doc_id, line.status) for line in plan_uploads(collection, entries, options, **others).lines]


def test_a_plan_says_what_each_file_would_do_and_writes_nothing(notes: Collection, settings: Any) -> None:
    settings.RAGD_MAX_DOCUMENT_MB = 1
    send(notes, ("same.txt", "the same"), ("other.txt", "before"))
    run_all()
    before = (Document.objects.count(), IngestJob.objects.count(), Upload.objects.count(), IngestBatch.objects.count())
    plan = plan_uploads(
        notes,
        [
            entry("new.txt", "brand new"),
            entry("same.txt", "the same"),
            entry("other.txt", "after"),
            Entry("", digest("big"), 1_000_001, "big.txt"),
            entry("empty.txt", ""),
            entry("bundle.zip", "PK"),
            entry("deep/same.txt", "the same"),
        ],
    )
    assert [line.status for line in plan.lines] == [
        "new", "unchanged", "changed", "rejected", "rejected", "archive", "new",
    ]  # fmt: skip
    assert [line.error_type for line in plan.lines if line.error_type] == ["too_large", "empty_content"]
    assert plan.totals == {
        "new": 2, "refetch": 0, "changed": 1, "unchanged": 1, "skipped": 0, "renamed": 0, "rejected": 2, "archive": 1,
        "deleted": 0,
    }  # fmt: skip
    assert [line.doc_id for line in plan.to_send] == ["new.txt", "other.txt", "bundle.zip", "deep/same.txt"]
    after = (Document.objects.count(), IngestJob.objects.count(), Upload.objects.count(), IngestBatch.objects.count())
    assert after == before


def test_what_is_under_way_counts_as_it_will_be(notes: Collection) -> None:
    send(notes, ("a.txt", "first"))
    (line,) = plan_uploads(notes, [entry("a.txt", "first")]).lines
    assert (line.status, line.job_id) == ("unchanged", str(IngestJob.objects.get().pk))
    assert statuses(notes, entry("a.txt", "second")) == [("a.txt", "changed")]
    run_all()
    send(notes, ("a.txt", "second"))
    assert statuses(notes, entry("a.txt", "first")) == [("a.txt", "changed")]  # the second is on its way


def test_a_disabled_document_with_the_same_bytes_is_unchanged_and_stays_disabled(notes: Collection) -> None:
    send(notes, ("a.txt", "text"))
    run_all()
    change_state(notes, ["a.txt"], "disabled")
    (line,) = plan_uploads(notes, [entry("a.txt", "text")]).lines
    assert (line.status, line.reason) == ("unchanged", "it stays disabled")
    (outcome,) = send(notes, ("a.txt", "text"))
    assert (outcome.status, outcome.job, Document.objects.get().enabled) == ("unchanged", None, False)


def test_an_archived_document_is_read_only(notes: Collection) -> None:
    send(notes, ("a.txt", "text"))
    run_all()
    Document.objects.update(state="archived")
    for content in ("text", "other"):
        (outcome,) = send(notes, ("a.txt", content))
        assert (outcome.status, outcome.error_type) == ("rejected", "archived")
        assert "unarchive it first" in outcome.error
    assert statuses(notes, entry("a.txt", "text"), entry("b.txt", "b"), delete_missing=True)[-1] == ("b.txt", "new")


def test_the_same_bytes_with_other_tags_metadata_or_policy_are_a_change(notes: Collection) -> None:
    send(notes, ("a.txt", "text"), tags=["x"], metadata={"team": "one"})
    run_all()
    same = entry("a.txt", "text")
    assert statuses(notes, same) == [("a.txt", "unchanged")]
    assert statuses(notes, same, tags=["x"], metadata={"team": "one"}) == [("a.txt", "unchanged")]
    for asked, why in (
        ({"tags": ["y"]}, "tags"),
        ({"metadata": {}}, "metadata"),
        ({"policy": {"target_tokens": 50}}, "chunk policy"),
    ):
        (line,) = plan_uploads(notes, [same], IngestOptions(**asked)).lines  # type: ignore[arg-type]
        assert (line.status, line.reason) == ("changed", f"same content, different {why}")
    (outcome,) = send(notes, ("a.txt", "text"), tags=["x"], metadata={"team": "one"}, policy={"target_tokens": 50})
    assert outcome.status == "queued"
    run_all()
    document = Document.objects.get()
    assert (document.chunk_policy["target_tokens"], document.revision) == (50, 2)


def test_a_document_that_came_as_text_has_no_bytes_to_compare(notes: Collection) -> None:
    ingest_text(notes, "a.txt", "text")
    assert statuses(notes, entry("a.txt", "text")) == [("a.txt", "changed")]
    assert plan_uploads(notes, [entry("b.txt", "b")], delete_missing=True).deletions == []


@pytest.mark.parametrize(
    ("on_clash", "status", "plan", "texts"),
    [
        ("skip", "skipped", "skipped", {"a.txt": "first"}),
        ("replace", "queued", "changed", {"a.txt": "second"}),
        ("keep_both", "queued", "renamed", {"a.txt": "first", "a (2).txt": "second"}),
    ],
)
def test_a_clash_is_settled_as_chosen(
    notes: Collection, on_clash: str, status: str, plan: str, texts: dict[str, str]
) -> None:
    send(notes, ("a.txt", "first"))
    run_all()
    assert [state for _, state in statuses(notes, entry("a.txt", "second"), on_clash=on_clash)] == [plan]
    (outcome,) = send(notes, ("a.txt", "second"), on_clash=on_clash)
    assert (outcome.status, outcome.plan) == (status, plan)
    run_all()
    assert dict(Document.objects.values_list("doc_id", "text")) == texts
    (again,) = send(notes, ("a.txt", "second"), on_clash=on_clash)
    assert again.status == ("skipped" if on_clash == "skip" else "unchanged")
    assert dict(Document.objects.values_list("doc_id", "text")) == texts


def test_a_choice_of_one_file_comes_before_that_of_all(notes: Collection) -> None:
    send(notes, ("a.txt", "1"), ("b.txt", "1"), ("c.txt", "1"))
    run_all()
    files = [("a.txt", "2"), ("b.txt", "2"), ("c.txt", "2")]
    outcomes = send(notes, *files, on_clash="skip", choices=["", "replace", "keep_both"])
    assert [outcome.plan for outcome in outcomes] == ["skipped", "changed", "renamed"]
    with refuses("invalid_input", "on_clash", "'merge'"):
        send(notes, *files, choices=["", "", "merge"])
    with refuses("invalid_input", "on_clash", "3", "1"):
        send(notes, *files, choices=["skip"])


def test_the_next_free_number_is_taken_also_inside_one_request(notes: Collection) -> None:
    send(notes, ("x", "1"), doc_ids=["d/a.tar.md"])
    run_all()
    files = [("d/a.tar.md", "2"), ("d/a.tar.md", "3"), ("d/a.tar.md", "2")]
    outcomes = send(notes, *files, doc_ids=["d/a.tar.md"] * 3, on_clash="keep_both")
    assert [each.doc_id for each in outcomes] == ["d/a.tar (2).md", "d/a.tar (3).md", "d/a.tar (2).md"]
    assert [each.status for each in outcomes] == ["queued", "queued", "unchanged"]
    assert numbered("x" * 511 + "y", 12) == "x" * 507 + " (12)"
    assert len(numbered("x" * 600 + ".pdf", 2)) == 512


def test_the_same_name_twice_is_refused_unless_both_are_kept(notes: Collection) -> None:
    entries = [entry("a.txt", "1"), entry("a.txt", "2"), entry("a.txt", "1")]
    assert [status for _, status in statuses(notes, *entries)] == ["new", "rejected", "unchanged"]
    plan = statuses(notes, *entries, on_clash="keep_both")
    assert plan == [("a.txt", "new"), ("a (2).txt", "renamed"), ("a.txt", "unchanged")]


def test_what_is_missing_from_a_folder_is_told_and_nothing_else(notes: Collection) -> None:
    names = ["team/a.txt", "team/b.txt", "teams/c.txt", "d.txt"]
    send(notes, ("x", "1"), ("y", "2"), ("z", "3"), ("w", "4"), doc_ids=names)
    run_all()
    ingest_text(notes, "team/typed.txt", "by hand")
    Document.objects.filter(doc_id="team/a.txt").update(metadata={})
    kept = Entry("team/a.txt", digest("changed"), 7)
    plan = plan_uploads(notes, [kept], delete_missing=True, prefix="team")
    assert [(line.doc_id, line.status) for line in plan.lines] == [("team/a.txt", "changed"), ("team/b.txt", "deleted")]
    assert plan.deletions == ["team/b.txt"]
    too_large = Entry("team/b.txt", digest("x"), 10**12)
    assert plan_uploads(notes, [kept, too_large], delete_missing=True, prefix="/team/").deletions == []
    whole = plan_uploads(notes, [kept], delete_missing=True)
    assert whole.deletions == ["d.txt", "team/b.txt", "teams/c.txt"]
    with refuses("invalid_input", "delete_missing"):
        plan_uploads(notes, [], delete_missing=True)


def test_wrong_choices_and_hashes_are_refused(notes: Collection) -> None:
    with refuses("invalid_input", "on_clash", "'merge'"):
        plan_uploads(notes, [], IngestOptions(on_clash="merge"))
    with refuses("invalid_input", "sha256", "'ABC'"):
        plan_uploads(notes, [Entry("a", "ABC", 1)])
    (line,) = plan_uploads(notes, [Entry("a/../b", digest("x"), 1)]).lines
    assert (line.status, line.error_type) == ("rejected", "invalid_input")


def test_every_submission_makes_a_batch_and_many_can_share_one(notes: Collection) -> None:
    send(notes, ("a.txt", "1"), ("b.txt", ""))
    batch = IngestBatch.objects.get()
    assert (batch.submitted, batch.rejected, batch.label, batch.open) == (2, 1, "2 files", False)
    run_all()
    shared = open_batch(notes, label="many")
    for number in range(3):
        outcomes = send(notes, (f"c{number}.txt", "1"), ("a.txt", "1"), batch=shared)
        assert {outcome.batch for outcome in outcomes} == {shared}
    shared.refresh_from_db()
    assert (shared.submitted, shared.unchanged, shared.open, shared.jobs.count()) == (6, 3, True, 3)
    assert find_batch(notes, str(shared.pk)) == shared


def test_two_that_keep_both_at_once_get_two_names(committed: None, embeddings: Any) -> None:
    notes = create_collection(name="notes")
    send(notes, ("a.txt", "first"))
    run_all()

    def keep(number: int) -> str:
        (outcome,) = send(notes, ("a.txt", f"text {number}"), on_clash="keep_both")
        return outcome.doc_id

    found = call_together(*(partial(keep, number) for number in range(4)))
    assert sorted(found) == ["a (2).txt", "a (3).txt", "a (4).txt", "a (5).txt"]
    assert sorted(IngestJob.objects.active().values_list("doc_id", flat=True)) == sorted(found)


def test_of_two_that_send_the_same_document_at_once_one_is_carried_out(committed: None, embeddings: Any) -> None:
    notes = create_collection(name="notes")
    call_together(*(partial(send, notes, ("a.txt", f"text {number}")) for number in range(2)))
    states = sorted(IngestJob.objects.values_list("state", flat=True))
    assert states == ["cancelled", "queued"]
    run_all()
    assert Document.objects.get().source_hash == Upload.objects.get(jobs__state="succeeded").sha256


def test_a_number_that_another_submission_is_taking_is_passed_over(committed: None, embeddings: Any) -> None:
    notes = create_collection(name="notes")
    send(notes, ("a.txt", "first"))
    run_all()
    begun, ended = threading.Event(), threading.Event()

    def hold() -> None:
        from django.db import transaction

        try:
            with transaction.atomic():
                send(notes, ("a (2).txt", "by its own name"))
                begun.set()
                ended.wait(10)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(10)
    (outcome,) = send(notes, ("a.txt", "second"), on_clash="keep_both")
    ended.set()
    thread.join()
    assert outcome.doc_id == "a (3).txt"


NAMES = st.sampled_from(["a.txt", "b.txt", "d/a.txt", "a (2).txt"])
FILES = st.lists(st.tuples(NAMES, st.sampled_from(["one", "two", "three"])), min_size=1, max_size=6)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=FILES, files=FILES, on_clash=st.sampled_from(["replace", "skip", "keep_both"]))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    notes: Collection, before: list[tuple[str, str]], files: list[tuple[str, str]], on_clash: str
) -> None:
    delete_documents(notes, Document.objects.values_list("doc_id", flat=True))
    IngestJob.objects.all().delete()
    names = [name for name, _ in before]
    send(notes, *before, doc_ids=names)
    run_all()
    entries = [Entry(name, digest(text), len(text)) for name, text in files]
    plan = plan_uploads(notes, entries, IngestOptions(on_clash=on_clash))
    outcomes = send(notes, *files, doc_ids=[name for name, _ in files], on_clash=on_clash)
    assert [outcome.plan for outcome in outcomes] == [line.status for line in plan.lines]
    taken = [outcome.doc_id for outcome in outcomes if outcome.status == "queued"]
    assert taken == [line.doc_id for line in plan.to_send]
    run_all()
    done = [each for each, outcome in zip(entries, outcomes, strict=True) if outcome.status == "queued"]
    again = plan_uploads(notes, done, IngestOptions(on_clash=on_clash))
    assert {line.status for line in again.lines} <= {"unchanged"}


def entry_of_syncing(path: str, content: bytes) -> Entry:
    return Entry(path, hashlib.sha256(content).hexdigest(), len(content))


def put(collection: Collection, files: dict[str, bytes], batch: IngestBatch | None = None) -> None:
    held = [SimpleUploadedFile("file", content) for content in files.values()]
    submit_uploads(collection, held, doc_ids=list(files), batch=batch)
    for pk in IngestJob.objects.filter(state="queued").values_list("pk", flat=True):
        run_job(pk)


def begin(collection: Collection, manifest: list[Entry], **values: Any) -> Any:
    return open_sync(collection, plan_folder(collection, manifest, **values), IngestOptions())


def present() -> list[str]:
    return sorted(Document.objects.values_list("doc_id", flat=True))


def test_a_folder_is_brought_into_step(notes: Collection) -> None:
    put(notes, {"hb/same": b"same", "hb/old": b"old", "hb/gone": b"gone", "elsewhere": b"stays"})
    manifest = [
        entry_of_syncing("same", b"same"),
        entry_of_syncing("old", b"new"),
        entry_of_syncing("sub/added", b"added"),
    ]
    sync = begin(notes, manifest, prefix="hb", delete_missing=True)
    assert [line.asked for line in sync.to_send] == ["hb/old", "hb/sub/added"]
    assert sync.deletions == ["hb/gone"]
    assert present() == ["elsewhere", "hb/gone", "hb/old", "hb/same"]
    put(notes, {"hb/old": b"new", "hb/sub/added": b"added"}, sync.batch)
    done = commit_sync(notes, sync.batch, sync.deletions)
    assert (done.deleted, done.kept) == (["hb/gone"], {})
    assert present() == ["elsewhere", "hb/old", "hb/same", "hb/sub/added"]
    batch = find_batch(notes, sync.batch.pk)
    assert (batch.submitted, batch.unchanged, batch.deleted, batch.open) == (3, 1, 1, False)
    again = plan_folder(notes, manifest, prefix="hb", delete_missing=True)
    assert {line.status for line in again.lines} == {"unchanged"}
    assert again.batch is None and IngestBatch.objects.filter(kind="sync").count() == 1


def test_what_changed_after_the_plan_or_is_gone_is_kept_and_told(notes: Collection) -> None:
    put(notes, {"a": b"1", "b": b"2"})
    sync = begin(notes, [entry_of_syncing("c", b"3")], delete_missing=True)
    assert sync.deletions == ["a", "b"]
    put(notes, {"b": b"changed by somebody"})
    done = commit_sync(notes, sync.batch, ["a", "b", "never"])
    assert done.deleted == ["a"]
    assert sorted(done.kept) == ["b", "never"]
    assert present() == ["b"]


def test_a_document_whose_new_file_is_under_way_is_kept(notes: Collection) -> None:
    put(notes, {"a": b"1", "b": b"2"})
    sync = begin(notes, [entry_of_syncing("c", b"3")], delete_missing=True)
    (sent,) = submit_uploads(notes, [SimpleUploadedFile("file", b"by somebody else")], doc_ids=["b"])
    done = commit_sync(notes, sync.batch, ["a", "b"])
    assert (done.deleted, list(done.kept)) == (["a"], ["b"])
    assert sent.job is not None
    assert run_job(sent.job.pk) == "succeeded"
    assert Document.objects.get().text == "by somebody else"


def test_nothing_is_added_to_a_batch_that_is_closed(notes: Collection) -> None:
    sync = begin(notes, [entry_of_syncing("a", b"1")])
    commit_sync(notes, sync.batch)
    with refuses("batch_closed", "batch") as caught:
        put(notes, {"a": b"1"}, sync.batch)
    assert (caught.value.status, caught.value.type) == (409, "batch_closed")
    assert not IngestJob.objects.exists()


def test_an_empty_folder_deletes_nothing(notes: Collection) -> None:
    put(notes, {"a": b"1"})
    with refuses("invalid_input", "delete_missing"):
        plan_folder(notes, [], delete_missing=True)
    sync = begin(notes, [])
    assert commit_sync(notes, sync.batch).deleted == []
    assert present() == ["a"]


def test_a_commit_holds_once_and_only_for_a_sync(notes: Collection) -> None:
    sync = begin(notes, [entry_of_syncing("a", b"1")])
    commit_sync(notes, sync.batch)
    with refuses("conflict"):
        commit_sync(notes, sync.batch)
    with refuses("invalid_input", "batch"):
        commit_sync(notes, open_batch(notes))


@pytest.mark.parametrize(
    ("origin", "stored"),
    [
        (Origin(), {}),
        (Origin("url", "https://a.org/", etag='"1"'), {"type": "url", "address": "https://a.org/", "etag": '"1"'}),
        (Origin(language="", access=(), held=(0, 7)), {"language": "", "access": [], "held": [0, 7]}),
        (Origin("archive", prefix="", unstated=("tags",)), {"type": "archive", "prefix": "", "unstated": ["tags"]}),
        (Origin(sender=(None, 3)), {"sender": [None, 3]}),
    ],
    ids=["an upload", "a page", "stated as empty", "an archive", "sent with a key"],
)
def test_a_job_reads_the_origin_that_it_was_stored_with(
    notes: Collection, origin: Origin, stored: dict[str, Any]
) -> None:
    job = IngestJob.objects.create(collection=notes, doc_id="a", origin=origin)
    assert IngestJob.objects.get(pk=job.pk).origin == origin
    assert IngestJob.objects.filter(pk=job.pk, origin=stored).exists()
    assert Origin.parse(stored | {"unknown": 1}) == origin


def test_options_are_cleaned_as_they_are_stored() -> None:
    options = IngestOptions([" b ", "a", "b"], {"k": 1}, {"target_tokens": 9, "max_chars": None}, "en").cleaned()
    assert (options.policy, options.language, options.metadata) == ({"target_tokens": 9}, "en", {"k": 1})
    assert set(options.tags or ()) == {"a", "b"}
    assert IngestOptions().cleaned() == IngestOptions()
