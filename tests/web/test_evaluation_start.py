"""The page that starts an evaluation run."""

from __future__ import annotations

import pytest

from evaluation_app.judges.rubrics import Rubric
from evaluation_app.models import EvaluationRun
from evaluation_app.runs import lifecycle
from evaluation_app.runs.requests import count_model_calls
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.types import RetrievePlan
from retrieval_app.plans.services import save_plan
from tests.evaluation.made_runs import make_run, make_set
from tests.retrieval.corpus import make_collection
from tests.web.pages import attribute, has, wrong_fields

pytestmark = pytest.mark.django_db

NEW = "/evaluation/runs/?view=new"
PLAIN = {"measured": "search", "cut": "3", "name": "from the page"}


@pytest.fixture
def house():
    collection = make_collection(empty=True)
    made = make_set("house questions", collection.name, {"Where is the pump?": "pump.md"})
    save_plan(collection, "wide", RetrievePlan(k=40))
    return made


def test_a_set_without_questions_cannot_be_started(admin_client, house):
    house.questions.all().delete()
    assert has(admin_client.get(NEW), "main form.form .actions button.primary[disabled]")
    answer = admin_client.post(f"{NEW}&set={house.name}", PLAIN)
    assert (answer.status_code, wrong_fields(answer)) == (422, [""])
    assert not EvaluationRun.objects.exists()
    house.delete()
    assert has(admin_client.get(NEW), "main .empty-state") and not has(admin_client.get(NEW), "main form.form")


def test_a_run_is_started_with_what_was_filled_in(admin_client, house):
    filled = PLAIN | {"plan-plan": "wide", "plan-candidate_pool": "80", "least-recall": "0.5"}
    answer = admin_client.post(f"{NEW}&set={house.name}", filled)
    run = EvaluationRun.objects.get()
    assert answer["Location"] == run.get_absolute_url()
    assert (run.name, run.purpose, run.plan_name, run.created_by) == ("from the page", "manual", "wide", "admin")
    assert (run.plan["k"], run.plan["candidate_pool"], run.thresholds) == (40, 80, {"recall@3": 0.5})
    assert RunSettings.from_dict(run.settings) == RunSettings(answers=False, judge="none", cut=3)


def test_a_run_begins_from_another(admin_client, house):
    settings = RunSettings(cut=7, unit="sentences", corrective=False, contributions=True)
    first = lifecycle.start_run(
        house,
        lifecycle.RunRequest(RetrievePlan(k=7, rrf_k=11), settings=settings, thresholds={"ndcg@7": 0.25}),
        send=False,
    )
    page = admin_client.get(f"{NEW}&run={first.pk}")
    form, plan_form, least = (page.context[name] for name in ("form", "plan_form", "least"))
    sent = {bound.html_name: bound.value() for part in (form, plan_form, least) for bound in part}
    kept = {name: value for name, value in sent.items() if value not in (None, "", False)}
    admin_client.post(f"{NEW}&set={house.name}&run={first.pk}", kept)
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
def test_what_does_not_fit_is_told_and_what_was_typed_stays(admin_client, house, wrong, field):
    answer = admin_client.post(f"{NEW}&set={house.name}", PLAIN | {"plan-rrf_k": "77"} | wrong)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert wrong_fields(answer) == [field]
    assert 'value="from the page"' in page and 'value="77"' in page
    assert not EvaluationRun.objects.exists()


def test_what_a_run_takes_is_told_before_it_is_started(admin_client, house, settings):
    first = admin_client.get(NEW)
    assert (first.context["estimate"].questions, first.context["estimate"].took_s) == (1, None)
    assert first.context["model_calls"] == 0 and has(first, "#estimate .banner")
    make_run([{}] * 4, golden_set=house, collection_name=house.collection_name, took_ms=8000.0,
             settings=RunSettings().as_dict(), cost_usd=0.0, judge_cost_usd=0.0)  # fmt: skip
    known = admin_client.get(NEW).context["estimate"]
    assert (known.took_s, known.cost_usd) == (2.0, 0.0)
    sent = PLAIN | {"do": "estimate"}
    page = admin_client.post(f"{NEW}&set={house.name}", sent)
    assert page.status_code == 200 and page.context["estimate"].took_s is None, "a run that only searches"
    assert 'value="from the page"' in page.content.decode()
    part = admin_client.post(f"{NEW}&set={house.name}", sent, headers={"HX-Request": "true", "HX-Target": "estimate"})
    assert part.content.decode().lstrip().startswith('<div id="estimate"')
    wrong = admin_client.post(f"{NEW}&set={house.name}", sent | {"cut": "0"})
    assert wrong.status_code == 422 and not has(wrong, "#estimate .banner")
    assert EvaluationRun.objects.count() == 1, "nothing was started"


def test_a_run_of_a_version_with_other_settings_has_no_estimate(admin_client, house):
    first = make_run([{}], golden_set=house, collection_name=house.collection_name)
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
def test_model_calls_are_counted(house, settings, asks_model, calls):
    house.questions.all().delete()
    fill(house, 10, expecting=4)
    assert count_model_calls(house, RetrievePlan(k=3), settings, asks_model=asks_model) == calls


def test_rubrics_in_words_ask_the_model_too(house, settings):
    house.rubrics = [Rubric("polite", "prompt", "Polite.").as_dict(), Rubric("short", "regex", "^.{9}$").as_dict()]
    assert count_model_calls(house, RetrievePlan(), RunSettings(), asks_model=False) == 0, "no chat model is set up"
    settings.RAGD_LLM_BASE_URL = "http://127.0.0.1:1"
    assert count_model_calls(house, RetrievePlan(), RunSettings(), asks_model=False) == 1
    searching = RunSettings(answers=False, judge="none")
    assert count_model_calls(house, RetrievePlan(), searching, asks_model=False) == 0


def fill(golden_set, questions, *, expecting):
    """Some with an expected answer, and a suggested one beside."""
    for number in range(questions + 1):
        answer = "In the cellar." if number < expecting else ""
        is_suggested = number == questions
        golden_set.questions.create(question=f"Where is {number}?", expected_answer=answer, suggested=is_suggested)


def test_a_run_is_compared_with_the_base_that_was_chosen(admin_client, house):
    base = make_run([{}], golden_set=house, collection_name=house.collection_name, name="before")
    other = make_run([{}], collection_name=house.collection_name, name="of another set")
    admin_client.post(f"{NEW}&set={house.name}", PLAIN | {"base": str(base.pk)})
    assert EvaluationRun.objects.get(name="from the page").base_run == base
    refused = admin_client.post(f"{NEW}&set={house.name}", PLAIN | {"base": str(other.pk)})
    assert (refused.status_code, wrong_fields(refused)) == (422, ["base"])


@pytest.mark.parametrize("query", ["set=x", "set=1", "set=%00", "run=7", "run=%00", "set=" + "9" * 40])
def test_an_address_that_names_nothing_is_told(admin_client, house, query):
    page = admin_client.get(f"{NEW}&{query}")
    assert page.status_code == 404 and has(page, '.banner[role="alert"]') and not has(page, "main form.form")
    assert attribute(page, "main ul.plain a", "href") == "?view=new&set=house%20questions"
