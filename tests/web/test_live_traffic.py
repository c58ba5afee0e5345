"""The pages of live traffic and of a run's judgement: what they show, what their forms change."""

from __future__ import annotations

import re
from datetime import timedelta
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
from tests.web.pages import has, texts

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


def test_the_list_tells_what_is_scored_of_each_collection(ada: Client, house: Collection) -> None:
    create_collection(name="garden")
    Sampling.objects.create(collection_name="house", enabled=True, rate=0.125, per_day=40)
    make_score()
    make_score(scores={"adherence": {"state": "error", "reason": "bad_json"}})
    make_score(reason="asked")
    make_score(asked_at=timezone.now() - timedelta(days=8))
    whole = page(ada, "/evaluation/live/")
    assert "12.5 %" in whole and "2 of 40" in whole and "1 of 2" in whole and "garden" in whole
    assert ">3</a>" in page(ada, "/evaluation/live/?days=30") and ">3</a>" not in whole


def test_a_collection_shows_its_trend_and_its_newest(ada: Client, house: Collection) -> None:
    make_score(question_text="The old one", judge_version="8", asked_at=timezone.now() - timedelta(days=2))
    make_score(modes=["unsupported_claims"], question_text="The wrong one")
    whole = page(ada, "/evaluation/live/house/")
    assert "Context relevance over 7 days" in whole and whole.count('class="cut"') == 5  # one measure has no score
    assert "embedded 8" in whole and "embedded 9" in whole and "0 of 2 scored" in whole
    assert "The old one" in whole and "The wrong one" in whole
    narrowed = page(ada, "/evaluation/live/house/?mode=unsupported_claims")
    assert "The old one" not in narrowed and "The wrong one" in narrowed and "Show all" in narrowed
    day = timezone.localdate() - timedelta(days=2)
    assert "The wrong one" not in page(ada, f"/evaluation/live/house/?day={day}")
    page(ada, "/evaluation/live/house/?page=99")


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


def test_an_estimate_stands_beside_the_score_of_a_run(ada: Client, house: Collection) -> None:
    run = QueryRun.objects.create(kind="ask", collection_name="house", query="?", channel="api", status="ok")
    make_score(query_run=run.pk, details={"estimates": {"completeness": {"value": 0.4, "low": 0.2, "high": 0.6}}})
    whole = ada.get(f"/runs/{run.pk}/?view=evaluation")
    assert re.findall(r"[\d.]*\d", texts(whole, '[data-estimate="completeness"]')[0]) == ["0.40", "0.20", "0.60"]
