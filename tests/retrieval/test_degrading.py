"""Queries that go on without a part: what answers then, where it is said, and where nothing is done without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import describe
from collections_app.models import Collection
from evaluation_app.models import AlertRule
from evaluation_app.telemetry.alerts.rules import KINDS, Reading
from ragd import telemetry
from ragd.errors import EmbedderError, QueryVectorError, RerankerError
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search import fallbacks, query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest
from tests.fakes.faults import Fault, cut_short, failing, not_json, with_vectors
from tests.fakes.openai_server import BadRequest, OpenAIServer, openai_server
from tests.telemetry.conftest import Recorder, provider, recorder
from tests.web.pages import has

__all__ = ["openai_server", "provider", "recorder"]
pytestmark = pytest.mark.django_db
QUESTION = "How long does the seal of the pump last?"


@pytest.fixture(autouse=True)
def nobody_is_known_to_be_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fallbacks, "AWAY_S", 15.0)
    yield
    fallbacks.absences.clear()


@pytest.fixture
def house(openai_server: OpenAIServer, settings: Any) -> Collection:
    settings.RAGD_EMBED_BASE_URL, settings.RAGD_EMBED_API_KEY = openai_server.base_url, openai_server.api_key
    collection = create_collection(name="house", embed_model="text-embedding-3-small", embed_dims=32)
    ingest_text(collection, "seals.md", "# Seals\n\nThe seal of the pump lasts one year. Order it from the store.")
    ingest_text(collection, "valves.md", "# Valves\n\nClose valve B before the pump is cleaned.")
    return collection


def steps(run: QueryRun) -> list[str]:
    return [each["step"] for each in QueryRun.objects.get(pk=run.pk).degraded]


def ask(collection: Collection, plan: RetrievePlan | None = None, **values: Any) -> QueryRun:
    return query_pipeline.ask(QueryRequest(collection, QUESTION, plan or RetrievePlan(), "api", **values))


def test_without_its_embedder_a_hybrid_search_is_one_by_keywords(
    house: Collection, openai_server: OpenAIServer, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps(ask(house)) == []
    openai_server.script(*[failing(503)] * 9)
    run = ask(house)
    assert (steps(run), run.status) == (["embedder"], "ok") and set(run.lists) == {"lexical"}
    assert run.citations[0]["doc_id"] == "seals.md" and "503" in run.degraded[0]["reason"]
    roots = [span for span in recorder.spans if span.name.startswith("rag.pipeline")]
    assert [(span.attributes or {}).get("ragd.degraded") for span in roots] == [None, ("embedder",)]
    openai_server._scripts.clear()
    asked = len(openai_server.requests)
    assert steps(ask(house)) == ["embedder"] and len(openai_server.requests) == asked, "not asked again at once"
    monkeypatch.setattr(fallbacks.time, "monotonic", lambda now=fallbacks.time.monotonic: now() + 16)
    assert steps(ask(house)) == [] and len(openai_server.requests) > asked


CAUSES: dict[str, Fault] = {
    "500": failing(500, **{"retry-after-ms": "1"}),
    "401": failing(401),
    "400": failing(400),
    "NaN": with_vectors([float("nan")] * 32),
    "zeros": with_vectors([0.0] * 32),
    "other dimensions": with_vectors([0.5] * 31),
    "no JSON": not_json(),
}


@pytest.mark.fault("F12")
@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_of_a_missing_query_vector_has_one_rule(
    house: Collection, openai_server: OpenAIServer, cause: str
) -> None:
    openai_server.script(*[CAUSES[cause]] * 90)
    run = ask(house)
    assert (steps(run), run.status, set(run.lists)) == (["embedder"], "ok", {"lexical"})
    fallbacks.absences.clear()
    with pytest.raises(QueryVectorError) as caught:
        query_pipeline.search(QueryRequest(house, QUESTION, RetrievePlan(mode="vector"), "api"))
    status, body = describe(caught.value)
    assert (status, body["error"]["type"]) == (502, "embedder_failed")


@pytest.mark.fault("F12")
def test_one_refused_query_leaves_the_embedder_to_others(
    house: Collection, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = openai_server.answer

    def refuse(request: Any) -> Any:
        if QUESTION in request.body.get("input", ()):
            raise BadRequest(500, "unsupported value: NaN")
        return answer(request)

    monkeypatch.setattr(openai_server, "answer", refuse)
    assert steps(query_pipeline.search(QueryRequest(house, QUESTION, RetrievePlan(), "api"))) == ["embedder"]
    assert steps(query_pipeline.search(QueryRequest(house, "valves", RetrievePlan(), "api"))) == []


def test_what_is_not_done_without(house: Collection, openai_server: OpenAIServer, settings: Any) -> None:
    openai_server.script(*[failing(503)] * 40)
    with pytest.raises(EmbedderError):
        query_pipeline.search(QueryRequest(house, QUESTION, RetrievePlan(mode="vector"), "api"))
    with telemetry.environment(telemetry.EVALUATION), pytest.raises(EmbedderError):
        ask(house)
    settings.RAGD_DEGRADE = False
    with pytest.raises(EmbedderError):
        ask(house)
    assert not QueryRun.objects.exclude(degraded=[]).exists()


def test_without_its_reranker_the_search_keeps_its_order(house: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*values: Any) -> Any:
        raise RerankerError("the reranker stands still")

    before = [item["doc_id"] for item in ask(house).results]
    monkeypatch.setattr("ragd.search.retrieval.rerank", fail)
    run = ask(house, RetrievePlan(rerank="builtin"))
    assert (steps(run), [item["doc_id"] for item in run.results]) == (["reranker"], before)
    assert run.plan["rerank"] == "builtin", "what was asked for is kept"


def test_pages_answer_by_quotations_without_the_model_and_every_place_says_so(
    house: Collection, openai_server: OpenAIServer, settings: Any, admin_client: Client
) -> None:
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    openai_server.chat_reply = lambda messages: "One year [1]."
    openai_server.script(cut_short(2), model="gpt-4o-mini")
    page = admin_client.post("/chat/", {"query": QUESTION, "collection": "house"}, follow=True)
    run = QueryRun.objects.get()
    assert (steps(run), run.answerer, run.status) == (["model"], "extractive", "ok")
    shown = admin_client.get(f"/runs/{run.pk}/")
    assert has(shown, "[data-degraded=model]") and page.status_code == 200
    plain = ask(house, llm_model="extractive")
    assert admin_client.get("/activity/").context["page"].paginator.count == 2
    assert [row.pk for row in admin_client.get("/activity/?degraded=yes").context["page"]] == [run.pk] != [plain.pk]
    rule = AlertRule.objects.get(kind="degraded")
    assert KINDS["degraded"].read(rule) == [Reading(0.5)]


@pytest.mark.fault("A3")
def test_a_reranker_that_cannot_read_the_texts_keeps_the_order_and_the_run_says_so(
    openai_server: OpenAIServer, settings: Any, admin_client: Client
) -> None:
    settings.RAGD_EMBED_BASE_URL, settings.RAGD_EMBED_API_KEY = openai_server.base_url, openai_server.api_key
    water = create_collection(name="water", embed_model="text-embedding-3-small", embed_dims=32)
    for number, text in enumerate(("水在一百度时沸腾。", "河流流经三个城镇。", "烧水壶放在厨房里。")):
        ingest_text(water, f"{number}.txt", text)
    body, headers = {"query": "什么时候烧开水", "k": 3}, {"Authorization": f"Bearer {create_key(NewKey('tests'))[1]}"}
    before, after = (
        Client().post(
            "/v1/collections/water/search", body | {"rerank": name}, content_type="application/json", headers=headers
        )
        for name in ("none", "builtin")
    )
    assert [item["doc_id"] for item in after.json()["results"]] == [item["doc_id"] for item in before.json()["results"]]
    assert before.json()["degraded"] == []
    (told,) = after.json()["degraded"]
    assert told["step"] == "reranker" and "3 results" in told["reason"]
    run = QueryRun.objects.get(pk=after.json()["run_id"])
    assert run.degraded == [told] and {item["score_kind"] for item in run.results} == {"rrf"}
    assert has(admin_client.get(f"/runs/{run.pk}/"), "[data-degraded=reranker]")
