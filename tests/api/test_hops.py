"""Hops through the API and the pages: the link of each chunk that one found, its replay, and the past."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.documents.services import ingest_text
from retrieval_app.models import QueryRun
from retrieval_app.search.schemas import SearchResponse
from tests.library.test_retrieval import QUESTION, TEXTS
from tests.retrieval.corpus import bearer, make_collection, post
from tests.shapes import check_shape

pytestmark = pytest.mark.django_db
LINK = {"hop": 2, "term": "Halden Works", "doc_id": "engine", "chunk_index": 0}
PLAN = {"mode": "lexical", "k": 3, "hops": 2}


def test_links_are_in_results_replays_explanations_and_pages(client: Client, django_user_model: type[User]) -> None:
    collection = make_collection(empty=True)
    for name, text in TEXTS.items():
        ingest_text(collection, name, text)
    headers, search = bearer(scope="write"), "/v1/collections/house/search"
    status, body = post(client, search, {"query": QUESTION, "explain": True} | PLAN, headers)
    assert status == 200
    check_shape(SearchResponse, body)
    linked = {each["doc_id"]: each["link"] for each in body["results"] if "link" in each}
    assert linked == {"works": LINK} and body["explanation"]["links"] == {"works#0": LINK}
    assert [column["name"] for column in body["explanation"]["columns"]] == ["lexical", "hop2", "fused", "final"]
    for record in body["explanation"]["candidates"].values():
        if sums := record["arithmetic"]["rrf"]:
            assert sums["score"] == record["ranks"]["fused"]["score"]
    assert post(client, f"/v1/runs/{body['run_id']}/replay", {}, headers)[1]["same"] is True
    before = timezone.now()
    ingest_text(collection, "works", "Nothing of it.")
    now = post(client, search, {"query": QUESTION} | PLAN, headers)[1]
    past = post(client, search, {"query": QUESTION, "as_of": before.isoformat()} | PLAN, headers)[1]
    assert all("link" not in each for each in now["results"])
    assert [each["doc_id"] for each in past["results"]] == [each["doc_id"] for each in body["results"]]
    assert post(client, search, {"query": "x", "hops": 4}, headers)[1]["error"]["field"] == "hops"
    assert QueryRun.objects.get(pk=body["run_id"]).plan["hops"] == 2

    client.force_login(django_user_model.objects.create_superuser("root"))
    page = client.get(f"/runs/{body['run_id']}/").content.decode()
    assert "Halden Works" in page.partition('class="small hop-link"')[2][:400]
    ingest_text(collection, "works", TEXTS["works"])
    page = client.get("/collections/house/playground/", {"q": QUESTION} | PLAN).content.decode()
    assert 'data-column="hop2"' in page and 'name="hops" value="2"' in page
