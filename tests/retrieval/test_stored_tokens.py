"""Where a saved plan names the built-in reranker, chunks have their token vectors: written, read, removed."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from collections_app.access.context import using_access
from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.documents.services import ingest_text, restore_documents, trash_documents
from collections_app.index.services import start_index_version
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, TrashedDocument
from ragd.models import late_interaction
from ragd.models.late_interaction import BYTES_MAX
from ragd.store.store import fetch_all
from ragd_site.operations.erasure.documents import erase_document
from retrieval_app.plans.services import build_plan, save_plan
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest
from tests.retrieval.corpus import DOCUMENTS

pytestmark = pytest.mark.django_db

QUERY = "How is the pump switched off before it is cleaned?"
CHUNK_TABLES = "SELECT relname FROM pg_class WHERE relname ~ '^chunks_c[0-9]+_g[0-9]+$'"
PUMP = DOCUMENTS["pump.md"][0]


def stored_sizes(collection: Collection) -> dict[str, int | None]:
    """doc_id -> the bytes of its one chunk, None where no token vectors are stored."""
    sql = f"SELECT doc_id, length(tokens) FROM {Collection.objects.get(pk=collection.pk).chunks_table}"
    return dict(fetch_all(connection, sql))


def results(collection: Collection) -> list[Any]:
    run = query_pipeline.search(QueryRequest(collection, QUERY, build_plan(collection, rerank="builtin"), "cli"))
    return [(found["doc_id"], found["score"]) for found in run.results]


@pytest.fixture
def reranked(house: Collection) -> Collection:
    """The house with a default plan that reranks, and an index version that was built since."""
    save_plan(house, "best", build_plan(house, rerank="builtin"), is_default=True)
    rebuild(house)
    return Collection.objects.get(pk=house.pk)


def rebuild(collection: Collection) -> None:
    version = start_index_version(Collection.objects.get(pk=collection.pk), {})
    assert run_job(version.jobs.newest()[0].pk) == "succeeded"


def test_only_where_a_plan_reranks(house: Collection) -> None:
    assert set(stored_sizes(house).values()) == {None}
    save_plan(house, "other", build_plan(house, k=3))
    ingest_text(house, "pump.md", PUMP + " It is red.")
    assert stored_sizes(house)["pump.md"] is None
    save_plan(house, "best", build_plan(house, rerank="builtin"))
    ingest_text(house, "pump.md", PUMP + " It is blue.")
    sizes = stored_sizes(house)
    assert 0 < (sizes.pop("pump.md") or 0) <= BYTES_MAX and set(sizes.values()) == {None}


def test_a_new_index_version_has_all_of_them_and_the_same_scores(
    house: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = results(house)
    save_plan(house, "best", build_plan(house, rerank="builtin"), is_default=True)
    assert results(house) == before
    rebuild(house)
    now = Collection.objects.get(pk=house.pk)
    assert now.index_version == 2 and all(stored_sizes(now).values())

    def refuse(texts: list[str], *_: Any) -> list[bytes]:
        assert not texts
        return []

    with monkeypatch.context() as patch:
        patch.setattr(late_interaction, "encode_texts", refuse)
        assert results(now) == before
        rebuild(now)  # what is known is copied
    again = Collection.objects.get(pk=house.pk)
    assert again.index_version == 3 and stored_sizes(again) == stored_sizes(now)


def test_the_trash_and_erasure_leave_none(reranked: Collection) -> None:
    before = results(reranked)
    trash_documents(reranked, ["pump.md"])
    assert "pump.md" not in stored_sizes(reranked)
    restore_documents(reranked, list(TrashedDocument.objects.values_list("pk", flat=True)))
    assert stored_sizes(reranked)["pump.md"] is None and results(reranked) == before
    (packed,) = stored_packed(reranked, "garden.md")
    erase_document(reranked, "garden.md")
    tables = [name for (name,) in fetch_all(connection, CHUNK_TABLES)]
    assert len(tables) >= 2
    for table in tables:
        left = f"SELECT FROM {table} WHERE doc_id = 'garden.md' OR tokens = %(tokens)s"
        assert fetch_all(connection, left, {"tokens": packed}) == []


def stored_packed(collection: Collection, doc_id: str) -> list[bytes]:
    sql = f"SELECT tokens FROM {collection.chunks_table} WHERE doc_id = %(doc_id)s"
    return [bytes(tokens) for (tokens,) in fetch_all(connection, sql, {"doc_id": doc_id})]


def test_a_reader_without_access_gets_none(reranked: Collection) -> None:
    Collection.objects.filter(pk=reranked.pk).update(open_role=Role.ASKER)
    reader = User.objects.create_user("reader")
    set_access(reranked, ["pump.md"])
    with using_access(access_of_user(reader)):
        assert set(stored_sizes(reranked)) == set(DOCUMENTS) - {"pump.md"}
        assert stored_packed(reranked, "pump.md") == []
        assert "pump.md" not in dict(results(reranked))
    assert "pump.md" in dict(results(reranked))
