"""The pages of live traffic and of a run's judgement: what they show, what their forms change.
The page that starts an evaluation run."""

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
from evaluation_app.judges.rubrics import Rubric
from evaluation_app.models import EvaluationRun, RunScore, Sampling
from evaluation_app.runs import lifecycle
from evaluation_app.runs.requests import count_model_calls
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import save_plan
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.evaluation.made_runs import make_run, make_set
from tests.retrieval.corpus import make_collection
from tests.web.pages import attribute, has, texts, wrong_fields

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


NEW = "/evaluation/runs/?view=new"
PLAIN = {"measured": "search", "cut": "3", "name": "from the page"}


@pytest.fixture
def evaluated():
    collection = make_collection(empty=True)
    made = make_set("house questions", collection.name, {"Where is the pump?": "pump.md"})
    save_plan(collection, "wide", RetrievePlan(k=40))
    return made


def test_a_set_without_questions_cannot_be_started(admin_client, evaluated):
    evaluated.questions.all().delete()
    assert has(admin_client.get(NEW), "main form.form .actions button.primary[disabled]")
    answer = admin_client.post(f"{NEW}&set={evaluated.name}", PLAIN)
    assert (answer.status_code, wrong_fields(answer)) == (422, [""])
    assert not EvaluationRun.objects.exists()
    evaluated.delete()
    assert has(admin_client.get(NEW), "main .empty-state") and not has(admin_client.get(NEW), "main form.form")


def test_a_run_is_started_with_what_was_filled_in(admin_client, evaluated):
    filled = PLAIN | {"plan-plan": "wide", "plan-candidate_pool": "80", "least-recall": "0.5"}
    answer = admin_client.post(f"{NEW}&set={evaluated.name}", filled)
    run = EvaluationRun.objects.get()
    assert answer["Location"] == run.get_absolute_url()
    assert (run.name, run.purpose, run.plan_name, run.created_by) == ("from the page", "manual", "wide", "admin")
    assert (run.plan["k"], run.plan["candidate_pool"], run.thresholds) == (40, 80, {"recall@3": 0.5})
    assert RunSettings.from_dict(run.settings) == RunSettings(answers=False, judge="none", cut=3)


def test_a_run_begins_from_another(admin_client, evaluated):
    settings = RunSettings(cut=7, unit="sentences", corrective=False, contributions=True)
    first = lifecycle.start_run(
        evaluated,
        lifecycle.RunRequest(RetrievePlan(k=7, rrf_k=11), settings=settings, thresholds={"ndcg@7": 0.25}),
        send=False,
    )
    page = admin_client.get(f"{NEW}&run={first.pk}")
    form, plan_form, least = (page.context[name] for name in ("form", "plan_form", "least"))
    sent = {bound.html_name: bound.value() for part in (form, plan_form, least) for bound in part}
    kept = {name: value for name, value in sent.items() if value not in (None, "", False)}
    admin_client.post(f"{NEW}&set={evaluated.name}&run={first.pk}", kept)
    second = EvaluationRun.objects.exclude(pk=first.pk).get()
    assert (second.plan, second.settings, second.thresholds) == (first.plan, first.settings, first.thresholds)
    assert second.base_run == first


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"measured": "search", "cut": "0"}, "cut"),
        ({"measured": "oracle"}, "measured"),
        ({"measured": "llm"}, "measured"),
        ({"plan-k": "many"}, "plan-k"),
        ({"plan-token_budget": "90"}, "plan-token_budget"),
        ({"plan-plan": "unsaved"}, "plan-plan"),
        ({"least-recall": "2"}, "least-recall"),
        ({"least-adherence": "0.5"}, ""),  # of a judge and a threshold together
    ],
)
def test_what_does_not_fit_is_told_and_what_was_typed_stays(admin_client, evaluated, wrong, field):
    answer = admin_client.post(f"{NEW}&set={evaluated.name}", PLAIN | {"plan-rrf_k": "77"} | wrong)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert wrong_fields(answer) == [field]
    assert 'value="from the page"' in page and 'value="77"' in page
    assert not EvaluationRun.objects.exists()


def test_what_a_run_takes_is_told_before_it_is_started(admin_client, evaluated, settings):
    first = admin_client.get(NEW)
    assert (first.context["estimate"].questions, first.context["estimate"].took_s) == (1, None)
    assert first.context["model_calls"] == 0 and has(first, "#estimate .banner")
    make_run([{}] * 4, golden_set=evaluated, collection_name=evaluated.collection_name, took_ms=8000.0,
             settings=RunSettings().as_dict(), cost_usd=0.0, judge_cost_usd=0.0)  # fmt: skip
    known = admin_client.get(NEW).context["estimate"]
    assert (known.took_s, known.cost_usd) == (2.0, 0.0)
    sent = PLAIN | {"do": "estimate"}
    page = admin_client.post(f"{NEW}&set={evaluated.name}", sent)
    assert page.status_code == 200 and page.context["estimate"].took_s is None, "a run that only searches"
    assert 'value="from the page"' in page.content.decode()
    part = admin_client.post(
        f"{NEW}&set={evaluated.name}", sent, headers={"HX-Request": "true", "HX-Target": "estimate"}
    )
    assert part.content.decode().lstrip().startswith('<div id="estimate"')
    wrong = admin_client.post(f"{NEW}&set={evaluated.name}", sent | {"cut": "0"})
    assert wrong.status_code == 422 and not has(wrong, "#estimate .banner")
    assert EvaluationRun.objects.count() == 1, "nothing was started"


def test_a_run_of_a_version_with_other_settings_has_no_estimate(admin_client, evaluated):
    first = make_run([{}], golden_set=evaluated, collection_name=evaluated.collection_name)
    EvaluationRun.objects.filter(pk=first.pk).update(settings={"taste": 1})
    page = admin_client.get(f"{NEW}&run={first.pk}")
    assert page.status_code == 200 and "estimate" not in page.context


@pytest.mark.parametrize(
    ("settings", "asks_model", "calls"),
    [
        (RunSettings(), False, 0),
        (RunSettings(), True, 10),
        (RunSettings(judge="llm"), True, 10 + 10 + 4),
        (RunSettings(judge="llm"), False, 10 + 4),
        (RunSettings(contributions=True), True, 10 * (1 + 3 + 1)),
        (RunSettings(answers=False, judge="none"), True, 0),
    ],
)
def test_model_calls_are_counted(evaluated, settings, asks_model, calls):
    evaluated.questions.all().delete()
    fill(evaluated, 10, expecting=4)
    assert count_model_calls(evaluated, RetrievePlan(k=3), settings, asks_model=asks_model) == calls


def test_rubrics_in_words_ask_the_model_too(evaluated, settings):
    evaluated.rubrics = [Rubric("polite", "prompt", "Polite.").as_dict(), Rubric("short", "regex", "^.{9}$").as_dict()]
    assert count_model_calls(evaluated, RetrievePlan(), RunSettings(), asks_model=False) == 0, "no chat model is set up"
    settings.RAGD_LLM_BASE_URL = "http://127.0.0.1:1"
    assert count_model_calls(evaluated, RetrievePlan(), RunSettings(), asks_model=False) == 1
    searching = RunSettings(answers=False, judge="none")
    assert count_model_calls(evaluated, RetrievePlan(), searching, asks_model=False) == 0


def fill(golden_set, questions, *, expecting):
    """Some with an expected answer, and a suggested one beside."""
    for number in range(questions + 1):
        answer = "In the cellar." if number < expecting else ""
        is_suggested = number == questions
        golden_set.questions.create(question=f"Where is {number}?", expected_answer=answer, suggested=is_suggested)


def test_a_run_is_compared_with_the_base_that_was_chosen(admin_client, evaluated):
    base = make_run([{}], golden_set=evaluated, collection_name=evaluated.collection_name, name="before")
    other = make_run([{}], collection_name=evaluated.collection_name, name="of another set")
    admin_client.post(f"{NEW}&set={evaluated.name}", PLAIN | {"base": str(base.pk)})
    assert EvaluationRun.objects.get(name="from the page").base_run == base
    refused = admin_client.post(f"{NEW}&set={evaluated.name}", PLAIN | {"base": str(other.pk)})
    assert (refused.status_code, wrong_fields(refused)) == (422, ["base"])


@pytest.mark.parametrize("query", ["set=x", "set=1", "set=%00", "run=7", "run=%00", "set=" + "9" * 40])
def test_an_address_that_names_nothing_is_told(admin_client, evaluated, query):
    page = admin_client.get(f"{NEW}&{query}")
    assert page.status_code == 404 and has(page, '.banner[role="alert"]') and not has(page, "main form.form")
    assert attribute(page, "main ul.plain a", "href") == "?view=new&set=house%20questions"
