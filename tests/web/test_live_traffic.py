"""The pages of live traffic and of a run's judgement: what they show, what their forms change."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.models import Collection
from evaluation_app.models import RunScore, Sampling
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.retrieval.corpus import make_collection
from tests.web.pages import has

JUDGES = 'name="do" value="judge"'
pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ada"))
    return client


@pytest.fixture
def house() -> Collection:
    return create_collection(name="house")


def scored(value: float) -> dict[str, Any]:
    return {"state": "scored", "value": value}


def make_score(**values: Any) -> RunScore:
    names = ("context_relevance", "context_utilization", "completeness", "adherence", "faithfulness")
    scores = dict.fromkeys(names, scored(0.5)) | {"answer_relevance": {"state": "unscorable", "reason": "no question"}}
    defaults: dict[str, Any] = {
        "query_run": uuid4(), "collection_name": "house", "question_text": "Where is the key?", "reason": "sampled",
        "judge": "embedded", "judge_version": "9", "outcome": "answered", "asked_at": timezone.now(), "scores": scores,
    }  # fmt: skip
    return RunScore.objects.create(**defaults | values)


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_a_run_is_judged_from_its_page(ada: Client) -> None:
    question = "What must be done before the pump is cleaned?"
    run = ask(QueryRequest(make_collection(), question, RetrievePlan(k=3), "page"))
    before = page(ada, f"/runs/{run.pk}/?view=evaluation")
    assert 'class="score-strip"' not in before and JUDGES in before
    answer = ada.post(f"/runs/{run.pk}/", {"do": "judge"})
    assert answer.status_code == 302 and answer["Location"] == f"/runs/{run.pk}/?view=evaluation"
    whole = page(ada, answer["Location"])
    assert "Faithfulness" in whole and "Evaluate again" in whole and 'class="said supported"' in whole
    assert (
        'data-mark="both"' in whole and 'href="/collections/house/chunks/0/pump.md/"' in whole
    ) or "pump.md#0" in whole


def test_a_failed_run_has_no_button(ada: Client) -> None:
    run = QueryRun.objects.create(kind="ask", collection_name="house", query="?", channel="api", status="error")
    assert JUDGES not in page(ada, f"/runs/{run.pk}/?view=evaluation") and RunScore.objects.count() == 0
    answer = ada.post(f"/runs/{run.pk}/", {"do": "judge"}, follow=True)
    assert "because it failed" in answer.content.decode() and RunScore.objects.count() == 0
    assert ada.post(f"/runs/{uuid4()}/", {"do": "judge"}).status_code == 404


@pytest.mark.parametrize("wrong", ["?days=x", "?days=8", "?day=x", "?mode=%00", "?mode=none"])
def test_a_wrong_address_shows_no_figures(ada: Client, house: Collection, wrong: str) -> None:
    make_score()
    for address in ("/evaluation/live/house/", *(["/evaluation/live/"] if "days" in wrong else [])):
        answer = ada.get(f"{address}{wrong}")
        assert answer.status_code == 422 and has(answer, '.banner[role="alert"]')
        assert not has(answer, ".measure-panel, #scored-runs, table")


def test_the_form_changes_the_sampling(ada: Client, house: Collection) -> None:
    form = {"enabled": "on", "percent": "12.5", "per_day": "30", "judge": "embedded"}
    assert ada.post("/evaluation/live/house/", form).status_code == 302
    held = Sampling.objects.get()
    assert (held.enabled, held.rate, held.per_day, held.updated_by) == (True, 0.125, 30, "ada")
    assert 'value="12.5"' in page(ada, "/evaluation/live/house/")
    for wrong in ({"percent": "0"}, {"percent": "101"}, {"per_day": "0"}, {"judge": "llm"}):
        answer = ada.post("/evaluation/live/house/", form | wrong)
        assert answer.status_code == 422 and "errorlist" in answer.content.decode()
    assert Sampling.objects.get().rate == 0.125
    ada.post("/evaluation/live/house/", {name: value for name, value in form.items() if name != "enabled"})
    assert not Sampling.objects.get().enabled
