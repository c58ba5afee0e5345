from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone
from pytest_django import Settings

from collections_app.collections.services import create_collection
from collections_app.models import Collection
from ragd.errors import EmbedderError, InvalidInput, LexicalDisabled
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import build_plan
from retrieval_app.runs import run_log
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest
from tests.refusals import raises_with

pytestmark = pytest.mark.django_db


def test_a_past_search_by_what_documents_are_now_is_refused(house: Collection) -> None:
    plan = build_plan(house, filter={"not": {"field": "title", "op": "eq", "value": "Pump"}})
    assert query_pipeline.search(QueryRequest(house, "water", plan, "cli")).results
    with raises_with(InvalidInput, field="filter"):
        query_pipeline.search(QueryRequest(house, "water", plan, "cli", as_of=timezone.now()))


def test_a_plan_is_hybrid_where_the_collection_can() -> None:
    assert build_plan(Collection(hybrid_enabled=True)).mode == "hybrid"
    assert build_plan(Collection(hybrid_enabled=False)).mode == "vector"
    assert build_plan(Collection(hybrid_enabled=True)) == RetrievePlan()


@pytest.mark.parametrize(
    ("tags", "field"), [({"tags_any": [" "]}, "tags_any"), ({"tags_all": ["a", "\u200e"]}, "tags_all")]
)
def test_a_blank_tag_is_refused_and_not_ignored(tags: dict[str, list[str]], field: str) -> None:
    with raises_with(InvalidInput, field=field):
        build_plan(Collection(hybrid_enabled=True), **tags)  # type: ignore[arg-type]


def test_a_failing_search_is_kept_and_raised(house: Collection) -> None:
    house.hybrid_enabled = False
    house.save()
    with pytest.raises(LexicalDisabled):
        query_pipeline.search(QueryRequest(house, "pump", RetrievePlan(mode="lexical"), "cli"))
    run = QueryRun.objects.get()
    assert (run.status, run.error_type, run.results, run.retrieved_ids) == ("error", "lexical_disabled", [], [])
    assert run.timings_ms["total"] > 0


def test_a_failing_embedder_is_kept_and_the_collection_stays_usable(settings: Settings) -> None:
    settings.RAGD_EMBED_BASE_URL = "http://127.0.0.1:9/v1"
    settings.RAGD_EMBED_TIMEOUT_S = 0.2
    collection = create_collection(name="remote", embed_model="remote-model", embed_dims=8)
    with pytest.raises(EmbedderError):
        query_pipeline.search(QueryRequest(collection, "pump", build_plan(collection, mode="vector"), "cli"))
    run = QueryRun.objects.get()
    assert (run.status, run.error_type.startswith("embedder_failed"), run.error != "") == ("error", True, True)
    found = query_pipeline.search(QueryRequest(collection, "pump", build_plan(collection, mode="lexical"), "cli"))
    assert found.status == "ok"


def test_a_run_that_cannot_be_stored_does_not_lose_the_answer(
    house: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    plan = build_plan(house)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE retrieval_app_queryrun RENAME TO away")
    with caplog.at_level(logging.ERROR), transaction.atomic():
        run = query_pipeline.ask(QueryRequest(house, "How is the pump cleaned?", plan, "cli"))
    assert (run.pk, run.status, len(run.results)) == (None, "ok", 5)
    assert "could not be stored" in caplog.text


def test_search_leaves_no_setting_behind(house: Collection) -> None:
    """What a plan sets in the database lives as long as its transaction."""
    query_pipeline.search(QueryRequest(house, "pump", build_plan(house, exact="never"), "cli"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM chunks WHERE collection_id = %s", [house.pk])
        assert cursor.fetchone() == (5,)


def test_old_runs_go_in_batches(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(run_log, "DELETE_BATCH", 2)
    now = timezone.now()
    for days in (0, 1, 9, 10.5, 30, 31, 400):
        QueryRun.objects.create(
            kind="search",
            collection_name="house",
            query=str(days),
            channel="api",
            created_at=now - timedelta(days=days),
        )
    settings.RAGD_RUN_RETENTION_DAYS = 10
    assert run_log.delete_old_runs() == 4
    assert set(QueryRun.objects.values_list("query", flat=True)) == {"0", "1", "9"}
    settings.RAGD_RUN_RETENTION_DAYS = 0
    assert run_log.delete_old_runs() == 0
