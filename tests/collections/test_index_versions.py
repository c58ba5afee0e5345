"""Index versions by their services: built beside, kept up with, swapped, cancelled, brought back, dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import copy
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.documents.services import (
    change_state,
    delete_documents,
    ingest_text,
    reindex_documents,
    restore_documents,
    trash_documents,
)
from collections_app.index import builder
from collections_app.index.services import (
    activate_index_version,
    cancel_index_version,
    count_differences,
    drop_index_version,
    get_index_version,
    list_index_versions,
    start_index_version,
)
from collections_app.index.stores import open_store
from collections_app.index.swap import expire_retired
from collections_app.jobs import attempts
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.recovery import cancel_job, retry_job
from collections_app.models import (
    Chunk,
    Collection,
    Document,
    IndexVersion,
    IndexVersionDocument,
    IngestJob,
    StateChange,
    TrashedChunk,
    TrashedDocument,
)
from evaluation_app.runs.lifecycle import apply_retention
from ragd.errors import DimensionMismatch, InvalidInput
from ragd.search.retrieval import retrieve
from ragd.store.store import fetch_all
from ragd.store.tables import SwapBlocked
from ragd.types import RetrievePlan
from tests.fakes.faults import failing
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with, refuses

LONG = "\n\n".join(f"Paragraph {number} speaks of subject {number} with some more words." for number in range(30))
SMALL = {"target_tokens": 20, "overlap_tokens": 0}
OTHER = {"embed_model": "text-embedding-3-large", "embed_dims": 48}


def reload(row: Any) -> Any:
    return type(row).objects.get(pk=row.pk)


def run(index_version: IndexVersion) -> str | None:
    return run_job(index_version.jobs.newest()[0].pk)


def states(collection: Collection) -> dict[int, str]:
    return {each.number: each.state for each in list_index_versions(reload(collection))}


def tables(collection: Collection) -> list[str]:
    sql = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %(name)s ORDER BY relname"
    return [name for (name,) in fetch_all(connection, sql, {"name": f"chunks_c{collection.pk}_g_"})]


def search(collection: Collection, query: str = "subject", **values: Any) -> list[str]:
    found = retrieve(query, RetrievePlan(**values), open_store(collection))
    return [f"{each.doc_id}#{each.chunk_index}" for each in found]


def check_whole(collection: Collection) -> None:
    """Documents and chunks fit each other, whatever happened before."""
    collection = reload(collection)
    spec = get_index_version(collection, collection.index_version)
    assert spec.state == "serving"
    for document in Document.objects.filter(collection=collection):
        chunks = list(Chunk.objects.of_document(document))
        assert [chunk.chunk_index for chunk in chunks] == list(range(document.chunk_count)), document.doc_id
        for chunk in chunks:
            assert document.text[chunk.start_char : chunk.end_char] == chunk.content
            assert (chunk.enabled, len(chunk.embedding)) == (document.enabled, spec.embed_dims)
    stored = set(Chunk.objects.of(collection).values_list("doc_id", flat=True))
    assert stored == set(Document.objects.filter(collection=collection).values_list("doc_id", flat=True))
    state = open_store(collection).state()
    assert state.chunk_count == Chunk.objects.of(collection).count()
    sql = "SELECT coalesce(sum(cardinality(positions)), 0) FROM chunks, unnest(fts) WHERE collection_id = %(id)s"
    assert fetch_all(connection, sql, {"id": collection.pk}) == [(state.length_total,)]


@pytest.fixture(scope="module")
def filled_of_module(notes_of_module: Collection) -> Collection:
    for name in ("a", "b", "c"):
        ingest_text(notes_of_module, name, LONG, title=name.upper(), tags=[name])
    change_state(notes_of_module, ["c"], "disabled")
    return notes_of_module


@pytest.fixture
def filled(filled_of_module: Collection, db: None) -> Collection:
    return copy(filled_of_module)


def test_another_model_and_policy_are_built_beside_and_swapped_in(filled: Collection, embeddings: OpenAIServer) -> None:
    before = search(filled)
    index_version = start_index_version(filled, OTHER | {"chunk_policy": SMALL})
    assert (index_version.number, index_version.state, states(filled)) == (2, "building", {2: "building", 1: "serving"})
    assert search(filled) == before
    embeddings.requests.clear()
    assert run(index_version) == "succeeded"
    assert {request.body["model"] for request in embeddings.requests} == {OTHER["embed_model"]}
    now = reload(filled)
    assert (now.index_version, now.embed_model, now.embed_dims) == (2, OTHER["embed_model"], OTHER["embed_dims"])
    assert now.chunk_policy == SMALL
    assert states(filled) == {2: "serving", 1: "retired"}
    check_whole(filled)
    assert len(search(now, k=50)) > len(before)
    told = reload(index_version)
    assert (told.documents_done, told.documents_total, told.percent) == (3, 3, 100)
    assert told.chunks_done == Chunk.objects.count() and told.chunks_per_s > 0
    # what is sent again is what is stored: the hashes speak of the new definition
    assert ingest_text(now, "a", LONG, title="A", tags=["a"]).unchanged is True
    assert run(index_version) is None


def test_a_change_of_language_embeds_nothing(filled: Collection, embeddings: OpenAIServer) -> None:
    rows = Chunk.objects.values_list("doc_id", "chunk_index", "embedding")
    vectors = sorted((*key, list(vector)) for *key, vector in rows.iterator())
    index_version = start_index_version(filled, {"language": "german"})
    embeddings.requests.clear()
    assert run(index_version) == "succeeded"
    assert embeddings.requests == []
    assert sorted((*key, list(vector)) for *key, vector in rows.all()) == vectors
    assert reload(filled).language == "german"
    check_whole(filled)


def test_who_read_the_collection_before_a_swap_writes_into_what_serves_now(
    filled: Collection, embeddings: OpenAIServer
) -> None:
    stale = [Collection.objects.get(pk=filled.pk) for _ in range(3)]
    assert run(start_index_version(filled, OTHER)) == "succeeded"
    now = reload(filled)
    change_state(stale[0], ["a"], "disabled")
    change_state(stale[1], ["b"], "archived")
    assert not Chunk.objects.of(now).filter(enabled=True).exists()  # "c" was disabled before
    trash_documents(stale[2], ["c"])
    vectors = TrashedChunk.objects.values_list("embedding", flat=True)
    assert {len(vector) for vector in vectors} == {OTHER["embed_dims"]}
    check_whole(filled)


def test_what_comes_back_from_the_trash_is_cut_as_the_index_version_says_that_serves_now(filled: Collection) -> None:
    trash_documents(filled, ["a"])
    assert run(start_index_version(filled, {"chunk_policy": SMALL})) == "succeeded"
    now = reload(filled)
    assert restore_documents(now, list(TrashedDocument.objects.values_list("pk", flat=True))).done == ["a"]
    assert Document.objects.get(doc_id="a").chunk_policy["target_tokens"] == SMALL["target_tokens"]
    assert ingest_text(now, "a", LONG, title="A", tags=["a"]).unchanged is True
    check_whole(filled)


def test_giving_up_the_lexical_index_and_taking_it_back(filled: Collection) -> None:
    assert run(start_index_version(filled, {"hybrid_enabled": False})) == "succeeded"
    assert not Chunk.objects.exclude(fts=None).exists()
    assert run(start_index_version(reload(filled), {"hybrid_enabled": True})) == "succeeded"
    assert not Chunk.objects.filter(fts=None).exists()
    assert "a#0" in search(reload(filled), mode="lexical")
    check_whole(filled)
    assert states(filled) == {3: "serving", 2: "retired", 1: "dropped"}
    assert len(tables(filled)) == 2


def change_all(collection: Collection) -> None:
    """Everything that can happen to documents: replaced, removed, removed and made again, added, switched."""
    ingest_text(collection, "a", "All of this is new.")
    delete_documents(collection, ["b"])
    delete_documents(collection, ["c"])
    ingest_text(collection, "c", "Made again under the same name.")
    ingest_text(collection, "e", "Added. " + LONG)
    change_state(collection, ["d"], "disabled")


def change_after(step: str, change: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, when a builder first ends the step."""
    original: Callable[..., Any] = getattr(builder.Builder, step)
    done = []

    def then_change(self: builder.Builder, *values: Any) -> Any:
        made = original(self, *values)
        if not done:
            done.append(change())
        return made

    monkeypatch.setattr(builder.Builder, step, then_change)


@pytest.mark.parametrize("step", ["_store", "complete"])  # after the first batch, before the last look
def test_what_changes_meanwhile_is_right_in_the_new_index_version(
    filled: Collection, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(builder, "STORE_EVERY_CHUNKS", 1)
    ingest_text(filled, "d", LONG)
    index_version = start_index_version(filled, {"chunk_policy": SMALL})
    change_after(step, lambda: change_all(filled), monkeypatch)
    assert run(index_version) == "succeeded"
    assert reload(filled).index_version == 2
    assert set(Document.objects.values_list("doc_id", "enabled")) == {
        ("a", True), ("c", True), ("d", False), ("e", True)
    }  # fmt: skip
    check_whole(filled)
    assert Document.objects.get(doc_id="a").chunk_count == 1


def test_a_document_that_changes_between_reading_and_storing_is_read_again(
    filled: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_version = start_index_version(filled, {"chunk_policy": SMALL})
    change_after("_embed", lambda: ingest_text(filled, "b", "Short now."), monkeypatch)
    assert run(index_version) == "succeeded"
    check_whole(filled)
    assert Chunk.objects.get(doc_id="b").content == "Short now."


def test_the_way_back_catches_up_first(filled: Collection, embeddings: OpenAIServer) -> None:
    assert run(start_index_version(filled, OTHER)) == "succeeded"
    change_all(reload(filled))
    first = get_index_version(reload(filled), 1)
    assert first.state == "retired"
    assert count_differences(first) == {"changed": 1, "added": 2, "removed": 2, "switched": 0}
    embeddings.requests.clear()
    activate_index_version(first)
    with refuses("conflict", None, "Index version 1"):
        start_index_version(filled, {})
    assert run(first) == "succeeded"
    assert {request.body["model"] for request in embeddings.requests} == {"text-embedding-3-small"}
    now = reload(filled)
    assert (now.index_version, now.embed_model, now.embed_dims, states(now)) == (
        1, "text-embedding-3-small", 32, {2: "retired", 1: "serving"}
    )  # fmt: skip
    check_whole(filled)
    assert not IndexVersionDocument.objects.filter(index_version=first).exists()
    assert run(activate_index_version(get_index_version(now, 2))) == "succeeded"
    check_whole(filled)


def test_one_that_is_ready_waits_to_be_let_serve(filled: Collection, admin_user: User) -> None:
    index_version = start_index_version(filled, OTHER, automatic=False)
    assert run(index_version) == "succeeded"
    assert (states(filled), reload(filled).index_version) == ({2: "ready", 1: "serving"}, 1)
    check_whole(filled)
    with refuses("conflict", None, "index version 2", "ready"):
        start_index_version(filled, {})
    ingest_text(filled, "late", "Came while it waited.")
    assert run(activate_index_version(index_version, actor=admin_user)) == "succeeded"
    assert states(filled) == {2: "serving", 1: "retired"}
    assert StateChange.objects.get(kind="serving").made_by == "admin", "not the one who built it"
    check_whole(filled)
    assert Chunk.objects.filter(doc_id="late").exists()
    with refuses("conflict", None, "index version 2", "serving"):
        activate_index_version(index_version)


def test_asking_for_it_while_it_is_built_makes_it_serve(filled: Collection) -> None:
    index_version = start_index_version(filled, OTHER, automatic=False)
    activate_index_version(index_version)
    assert index_version.jobs.count() == 1
    assert run(index_version) == "succeeded"
    assert reload(filled).index_version == 2


def test_a_failing_embedder_leaves_the_old_one_serving(
    filled: Collection, embeddings: OpenAIServer, settings: Any
) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 1
    before = search(filled)
    index_version = start_index_version(filled, OTHER | {"chunk_policy": SMALL})
    embeddings.script(*[failing(401)] * 9, model=OTHER["embed_model"])
    assert run(index_version) == "failed"
    told = reload(index_version)
    assert told.state == "failed" and "401" in told.error
    assert (search(filled), reload(filled).index_version) == (before, 1)
    check_whole(filled)
    embeddings._scripts.clear()
    retry_job(index_version.jobs.get())
    assert reload(index_version).state == "building"
    assert run(index_version) == "succeeded"
    assert reload(filled).index_version == 2
    check_whole(filled)


@pytest.mark.parametrize(
    ("choices", "field", "error"),
    [
        ({"embed_model": "unheard-of"}, "embed_dims", InvalidInput),
        ({"embed_dims": 4001}, "embed_dims", InvalidInput),
        ({"embed_model": "all-MiniLM-L6-v2", "embed_dims": 7}, "embed_dims", DimensionMismatch),
        ({"language": "klingon"}, "language", InvalidInput),
        ({"chunk_policy": {"size": 1}}, "chunk_policy", InvalidInput),
        ({"name": "x"}, "name", InvalidInput),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(notes: Collection, choices: Any, field: str, error: Any) -> None:
    with raises_with(error, field=field):
        start_index_version(notes, choices)


def test_an_interrupted_build_goes_on_where_it_stopped(
    filled: Collection, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "STORE_EVERY_CHUNKS", 1)
    index_version = start_index_version(filled, OTHER)
    job = index_version.jobs.get()
    original = builder.Builder._store
    stored = []

    def die(self: builder.Builder, *values: Any) -> None:
        if len(stored) == 2:
            raise SystemExit  # as abruptly as a thread can end
        original(self, *values)
        stored.append(values)

    monkeypatch.setattr(builder.Builder, "_store", die)
    with pytest.raises(SystemExit):
        run(index_version)
    assert (reload(index_version).documents_done, reload(job).state, reload(job).attempts_forgiven) == (2, "running", 0)
    monkeypatch.setattr(builder.Builder, "_store", original)
    IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert maintain()["resent"] == 1
    embeddings.requests.clear()
    assert run(index_version) == "succeeded"
    assert len(embeddings.requests) == 1
    assert (reload(job).attempts, reload(job).attempts_forgiven) == (2, 1)
    check_whole(filled)


def test_attempts_that_got_somewhere_do_not_count(notes: Collection, settings: Any) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 2
    job = start_index_version(notes, {}).jobs.get()
    for _ in range(4):
        claimed = attempts.claim_job(job.pk, "worker")
        assert claimed is not None
        attempts.JobProgress(claimed).hold(forgive=True)
        IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert attempts.claim_job(job.pk, "worker") is not None
    IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert attempts.claim_job(job.pk, "worker") is None
    assert reload(job).error.startswith("given up after 2 attempts")
    maintain()
    assert states(notes) == {2: "failed", 1: "serving"}


def test_cancelling_ends_it_between_two_batches(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collections_app.jobs.leases.WRITE_EVERY_S", 0)
    monkeypatch.setattr(builder, "STORE_EVERY_CHUNKS", 1)
    notes = create_collection(name="notes")
    for name in ("a", "b", "c"):
        ingest_text(notes, name, LONG)
    index_version = start_index_version(notes, OTHER)
    answer = embeddings.answer
    seen = []

    def cancel_in_between(request: Any) -> Any:
        seen.append(request)
        if len(seen) == 2:
            cancel_index_version(get_index_version(notes, 2))
            connection.close()
        return answer(request)

    monkeypatch.setattr(embeddings, "answer", cancel_in_between)
    assert run(index_version) == "cancelled"
    assert len(seen) == 2
    assert states(notes) == {2: "cancelled", 1: "serving"} and "system" in reload(index_version).error
    maintain()
    assert len(tables(notes)) == 1
    check_whole(notes)
    with refuses("conflict", None, "index version 2", "cancelled"):
        retry_job(index_version.jobs.get())
    with refuses("conflict", None, "index version 2", "cancelled"):
        cancel_index_version(reload(index_version))
    assert run(start_index_version(notes, OTHER)) == "succeeded"
    assert states(notes) == {3: "serving", 2: "cancelled", 1: "retired"}


def test_cancelling_its_job_cancels_the_index_version(filled: Collection) -> None:
    index_version = start_index_version(filled, OTHER)
    with refuses("conflict", None, "index version 2"):
        start_index_version(filled, {})
    cancel_job(index_version.jobs.get())
    assert states(filled) == {2: "cancelled", 1: "serving"}


def test_cancelling_the_way_back_keeps_it(filled: Collection) -> None:
    assert run(start_index_version(filled, {})) == "succeeded"
    first = activate_index_version(get_index_version(reload(filled), 1))
    assert cancel_index_version(first).state == "retired"
    assert reload(filled).index_version == 2


def test_dropping(filled: Collection) -> None:
    with refuses("conflict", None, "index version 1", "serving"):
        drop_index_version(get_index_version(filled, 1))
    second = start_index_version(filled, {})
    with refuses("conflict", None, "index version 2", "building"):
        drop_index_version(second)
    run(second)
    first = get_index_version(reload(filled), 1)
    assert drop_index_version(first).state == "dropped"
    assert tables(filled) == [f"chunks_c{filled.pk}_g2"]
    with refuses("conflict", None, "index version 1", "dropped"):
        drop_index_version(first)
    with refuses("conflict", None, "index version 1", "dropped"):
        activate_index_version(first)
    check_whole(filled)


def test_a_retired_one_is_given_up_after_its_days(filled: Collection, settings: Any) -> None:
    settings.RAGD_INDEX_VERSION_KEEP_DAYS = 3
    run(start_index_version(filled, {}))
    assert expire_retired(timezone.now() + timedelta(days=2)) == 0
    activate_index_version(get_index_version(filled, 1))
    assert expire_retired(timezone.now() + timedelta(days=4)) == 0  # somebody wants it back
    cancel_index_version(get_index_version(filled, 1))
    IndexVersion.objects.filter(number=1).update(retired_at=timezone.now() - timedelta(days=4))
    assert apply_retention().report["index_versions"] == 1
    assert maintain()["index_versions"] == 1
    assert states(filled) == {2: "serving", 1: "dropped"}


def test_the_vector_index_is_there_before_it_serves(filled: Collection, settings: Any) -> None:
    settings.RAGD_EXACT_THRESHOLD = 5
    assert open_store(filled).state().vector_index is False
    assert run(start_index_version(filled, OTHER | {"chunk_policy": SMALL})) == "succeeded"
    assert open_store(filled).state().vector_index is True
    assert len(search(filled, k=5, exact="never")) == 5


def test_jobs_of_the_old_definition_end_in_the_new_one(filled: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A re-index that has embedded by the old model when the swap comes begins again by the new one."""
    from collections_app.index import ingestion

    (job,) = reindex_documents(filled, ["a"])
    index_version = start_index_version(filled, OTHER | {"chunk_policy": SMALL})
    original = ingestion.embed
    done = []

    def then_swap(*values: Any, **named: Any) -> Any:
        made = original(*values, **named)
        if not done:
            done.append(run(index_version))
        return made

    monkeypatch.setattr(ingestion, "embed", then_swap)
    assert run_job(job.pk) == "succeeded"
    assert done == ["succeeded"]
    check_whole(filled)
    assert Document.objects.get(doc_id="a").chunk_policy["target_tokens"] == 20


def test_a_search_whose_index_version_is_dropped_meanwhile_begins_again(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search.query_pipeline import QueryRequest
    from retrieval_app.search.query_pipeline import search as search_service

    notes = create_collection(name="notes", chunk_policy=SMALL)
    ingest_text(notes, "a", LONG)
    second = start_index_version(notes, OTHER, automatic=False)
    run(second)
    answer = embeddings.answer
    done = []

    def swap_and_drop(request: Any) -> Any:
        if not done and request.body["model"] == notes.embed_model:
            done.append(run(activate_index_version(reload(second))))
            drop_index_version(get_index_version(reload(notes), 1))
            connection.close()
        return answer(request)

    monkeypatch.setattr(embeddings, "answer", swap_and_drop)
    kept = search_service(QueryRequest(notes, "which subject", build_plan(notes, k=2), "page"))
    assert done == ["succeeded"]
    assert (kept.index_version, kept.embed_model, len(kept.results)) == (2, OTHER["embed_model"], 2)


def test_the_swap_waits_for_who_reads_the_table_and_lets_the_others_pass(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "SWAP_AGAIN_S", 0.05)
    notes = create_collection(name="notes", chunk_policy=SMALL)
    ingest_text(notes, "a", LONG)
    index_version = start_index_version(notes, OTHER)
    blocked = threading.Event()
    original = builder.swap_in
    ended: list[Any] = []

    def note_block(*values: Any, **named: Any) -> None:
        try:
            original(*values, **named)
        except SwapBlocked:
            blocked.set()
            raise

    monkeypatch.setattr(builder, "swap_in", note_block)

    def work() -> None:
        ended.append(run(index_version))
        connection.close()

    worker = threading.Thread(target=work)
    with transaction.atomic():
        assert Chunk.objects.of(notes).exists()  # holds its lock on the table to the end
        worker.start()
        assert blocked.wait(30)
        others = threading.Thread(target=lambda: (ingest_text(notes, "b", "Written meanwhile."), connection.close()))
        others.start()
        others.join(30)
        assert not others.is_alive()
        assert reload(notes).index_version == 1 and ended == []
    worker.join(30)
    assert ended == ["succeeded"]
    assert reload(notes).index_version == 2
    check_whole(notes)
    assert Chunk.objects.filter(doc_id="b").exists()


def test_an_empty_collection_is_redefined_in_place(notes: Collection) -> None:
    from collections_app.collections.services import update_collection

    (first,) = list_index_versions(notes)
    changed = update_collection(notes, changes={"language": "german", "chunk_policy": SMALL})
    (again,) = list_index_versions(changed)
    assert (again.number, again.language, again.policy["target_tokens"]) == (1, "german", 20)
    assert again.hash != first.hash
    ingest_text(changed, "a", LONG)
    update_collection(changed, changes={"chunk_policy": {"target_tokens": 30, "overlap_tokens": 0}})
    assert list_index_versions(changed)[0].hash == again.hash  # what it was built by is what it was built by
    with refuses("not_empty", "language"):
        update_collection(changed, changes={"language": "english"})
