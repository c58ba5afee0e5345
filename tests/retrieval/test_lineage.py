"""From a chunk back to the runs that retrieved it."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from collections_app.collections.deletion import purge_collection
from collections_app.documents.services import ingest_text
from collections_app.models import Collection
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun, RetrievedChunk
from retrieval_app.runs import run_log
from retrieval_app.runs.lineage import count_retrievals, keep_run, retrieval_counts, runs_of_chunk, runs_of_document
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest

PLAN = RetrievePlan(mode="lexical", k=3)


def search(collection: Collection, query: str) -> QueryRun:
    return query_pipeline.search(QueryRequest(collection, query, PLAN, "api"))


def test_a_search_is_noted_with_the_chunks_that_it_found(house: Collection) -> None:
    first = search(house, "pump water")
    second = search(house, "pump")
    search(house, "nothing of the kind xyzzy")
    rows = RetrievedChunk.objects.filter(run=first).order_by("rank")
    assert [(row.doc_id, row.chunk_index, row.rank) for row in rows] == [
        (result["doc_id"], result["chunk_index"], result["rank"]) for result in first.results
    ]
    found = runs_of_chunk(house, "pump.md", 0)
    assert [(each.run_id, each.query, each.rank, each.cited) for each in found] == [
        (second.pk, "pump", 1, False),
        (first.pk, "pump water", 1, False),
    ]
    assert runs_of_document(house, "pump.md", limit=1) == found[:1]
    assert runs_of_chunk(house, "pump.md", 7) == []
    assert count_retrievals(house, "pump.md").runs == 2
    assert count_retrievals(house, "pump.md", 0).last_at == second.created_at


def test_a_run_is_kept_as_a_queryset_would_save_it(house: Collection) -> None:
    run = QueryRun(
        kind="search", collection=house, collection_name=house.name, query='Ä "quote" \\ 钥匙\n', channel="api"
    )
    run.timings_ms, run.lists = {"total": 0.1 + 0.2, "small": 1e-7}, {"vector": [["a#0", 1.0], ["b#1", 5e-324]]}
    run.replay_of, run.evidence, run.fallback_triggered, run.history = uuid.uuid4(), 1 / 3, True, [{"content": "\x7f'"}]
    keep_run(run)
    saved = QueryRun.objects.get(pk=run.pk)
    saved.pk = uuid.uuid4()
    saved.save(force_insert=True)
    [kept, other] = [QueryRun.objects.filter(pk=pk).values().get() for pk in (run.pk, saved.pk)]
    assert kept | {"id": None} == other | {"id": None}
    assert {name: kept[name] for name in kept} == {
        field.attname: getattr(run, field.attname) for field in run._meta.fields
    }
    assert QueryRun.objects.filter(pk=run.pk, compression__isnull=True, short_result__isnull=True).exists(), (
        "not a null"
    )


def test_counts_of_a_collection(house: Collection) -> None:
    assert retrieval_counts(house) == {}
    search(house, "pump")
    search(house, "pump")
    search(house, "hedge")
    counts = retrieval_counts(house)
    assert {doc_id: each.runs for doc_id, each in counts.items()} == {"pump.md": 2, "garden.md": 1}
    assert retrieval_counts(house, since=timezone.now() + timedelta(days=1)) == {}


def test_an_answer_tells_what_it_cites(house: Collection) -> None:
    run = query_pipeline.ask(QueryRequest(house, "What does the main pump move per minute?", PLAN, "api"))
    assert run.citations
    cited = {(citation["doc_id"], citation["chunk_index"]) for citation in run.citations}
    rows = RetrievedChunk.objects.filter(run=run)
    assert {(row.doc_id, row.chunk_index) for row in rows if row.cited} == cited
    assert retrieval_counts(house)["pump.md"].cited == 1


def test_a_run_that_failed_and_one_whose_collection_goes_leave_nothing(house: Collection) -> None:
    with pytest.raises(Exception, match="query"):
        search(house, " ")
    assert not RetrievedChunk.objects.exists()
    run = search(house, "pump")
    run.collection_id = 999_999  # gone, as far as the database knows
    QueryRun.objects.filter(pk=run.pk).delete()
    assert not RetrievedChunk.objects.exists()
    query_pipeline._store_run(run)
    assert QueryRun.objects.filter(pk=run.pk).exists()
    assert not RetrievedChunk.objects.exists()


def test_rows_go_with_their_runs_and_with_their_collection(house: Collection) -> None:
    old = search(house, "pump")
    search(house, "hedge")
    QueryRun.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=40))
    assert run_log.delete_old_runs(30) == 1
    assert set(retrieval_counts(house)) == {"garden.md"}
    purge_collection(house)
    assert not RetrievedChunk.objects.exists()
    assert QueryRun.objects.count() == 1


def test_an_earlier_revision_is_told_apart(house: Collection) -> None:
    search(house, "pump")
    ingest_text(house, "pump.md", "The pump is new, and it moves 900 litres.")
    search(house, "pump")
    assert [each.revision for each in runs_of_document(house, "pump.md")] == [2, 1]
