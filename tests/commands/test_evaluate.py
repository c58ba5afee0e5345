"""`manage.py ragd evaluate`: its exit status is what a build server goes by."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError

from collections_app.models import AuditEvent
from evaluation_app.models import EvaluationRun, GoldenQuestion, KeptJudgement, ReviewTask
from evaluation_app.reviews.labels import queue_run, review
from evaluation_app.runs import lifecycle
from retrieval_app.search import query_pipeline as retrieval_services
from tests.commands.conftest import run, run_json
from tests.evaluation.made_runs import make_set
from tests.refusals import raises_with

pytestmark = pytest.mark.django_db

SEARCH = ("evaluate", "house questions", "--search-only", "--cut", "3", "-k", "3")


@pytest.fixture
def house(house):
    asked = {"What does coffee cost?": "kitchen.md", "When are roses <cut> \x0b?": "garden.md", "Who?": "nowhere.md"}
    return make_set("house questions", house.name, asked)


@pytest.mark.usefixtures("house")
def test_a_run_that_reaches_its_thresholds_ends_with_0():
    told = run(*SEARCH, "--fail-under", "hit@3=0.6")
    assert "3 of 3 questions" in told
    assert re.search(r"^hit@3 +0\.6667 .* 3 of 3 +0\.6$", told, re.MULTILINE)
    assert told.rstrip().endswith("passed")
    assert EvaluationRun.objects.get().purpose == "cli"


@pytest.mark.usefixtures("house")
def test_kept_judgements_are_forgotten_when_asked():
    for number, model in enumerate(("a", "b")):
        KeptJudgement.objects.create(key=str(number), model=model, value={})
    run(*SEARCH, "--judge-model", "a", "--forget-judgements")
    assert [each.model for each in KeptJudgement.objects.all()] == ["b"]


@pytest.mark.usefixtures("house")
def test_a_missed_threshold_ends_with_1_and_is_told():
    answer = run_json(*SEARCH, "--fail-under", "hit@3=0.9", "--fail-under", "mrr@3=0.1", status=1)
    assert answer["verdict"]["passed"] is False
    assert answer["verdict"]["reasons"] == ["hit@3 is 0.6667, and 0.9 must be reached"]


def test_an_anchored_score_passes_by_the_lower_end_of_its_interval(house, django_user_model):
    """People label all three answers of a first run as in part correct: the second run has the same answers."""
    ask = ("evaluate", "house questions", "-k", "3", "--judge", "none")
    house.questions.update(expected_answer="Coffee costs 50 cents.")
    reasons = run_json(*ask, "--fail-under", "anchored:correctness=0.1", status=1)["verdict"]["reasons"]
    assert len(reasons) == 1
    assert "correctness" in reasons[0]
    queue_run(EvaluationRun.objects.get(), "random")
    ada = django_user_model.objects.create_user("ada")
    for task in ReviewTask.objects.all():
        review(task, {"correctness": 0.5}, actor=ada)
    assert run_json(*ask, "--fail-under", "anchored:correctness=0.5", status=0)["verdict"]["passed"] is True
    assert run_json(*ask, "--fail-under", "anchored:correctness=0.51", status=1)["verdict"]["passed"] is False
    with pytest.raises(CommandError, match="recall@3"):
        run(*ask, "--fail-under", "anchored:recall@3=0.5")


def test_a_question_that_misses_its_own_threshold_ends_with_1(house, tmp_path):
    house.questions.filter(position=2).update(thresholds={"hit@3": 1})
    report = tmp_path / "report.xml"
    answer = run_json(*SEARCH, "--junit", str(report), status=1)
    assert answer["verdict"]["reasons"] == ["1 questions miss a threshold of their own"]
    root = ElementTree.parse(report).getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "0")
    cases = root.findall("./testsuite/testcase")
    assert [case.get("name") for case in cases] == ["What does coffee cost?", "When are roses <cut> \ufffd?", "Who?"]
    assert cases[2].find("failure").text == "hit@3: 0 does not reach 1"


def test_an_error_ends_with_1_and_is_retried_alone(house, monkeypatch, tmp_path):
    find = retrieval_services.read_store

    def break_at_roses(collection, read, **values):
        if EvaluationRun.objects.get().done == 1:
            raise RuntimeError("out of roses")
        return find(collection, read, **values)

    report = tmp_path / "report.xml"
    with monkeypatch.context() as patch:
        patch.setattr(retrieval_services, "read_store", break_at_roses)
        answer = run_json(*SEARCH, "--junit", str(report), status=1)
    assert answer["verdict"]["reasons"] == ["1 of 3 questions failed or could not be scored"]
    assert ElementTree.parse(report).getroot().get("errors") == "1"
    again = run_json("evaluate", "--retry-failed", answer["id"])
    assert (again["id"], again["done"], again["failed"], again["retries"]) == (answer["id"], 3, 0, 1)


def test_a_regression_against_the_baseline_ends_with_1(house, tmp_path):
    for number in range(12):
        GoldenQuestion.objects.create(
            golden_set=house, position=9, question=f"Coffee or oven, {number}?", expected_doc_ids=["kitchen.md"]
        )
    good = run_json(*SEARCH, "--make-baseline")
    house.refresh_from_db()
    assert str(house.baseline_id) == good["id"]
    assert run_json(*SEARCH, "--no-regressions")["comparison"]["baseline"] == good["id"]
    report = tmp_path / "report.xml"
    worse = (*SEARCH, "--tag-any", "outside")
    answer = run_json(*worse, "--no-regressions", "--only", "hit@3", "--junit", str(report), status=1)
    assert len(answer["verdict"]["reasons"]) == 1
    assert answer["verdict"]["reasons"][0].startswith("hit@3 is worse by -0.8")
    suites = {suite.get("name"): suite for suite in ElementTree.parse(report).getroot()}
    assert suites["house questions.regressions"].get("failures") == "1"
    unscored = run_json(*SEARCH, "--no-regressions", "--only", "hit@9", status=1)
    assert len(unscored["verdict"]["reasons"]) == 1, "a metric that no run scored is not held"
    decided = run_json(*worse, "--no-regressions", status=1)
    assert decided["comparison"]["conclusion"]["kind"] == "worse"
    assert decided["verdict"]["reasons"] == [decided["comparison"]["conclusion"]["sentence"]]
    assert run_json(*worse, "--baseline", good["id"])["verdict"]["passed"], "only looked at, not demanded"
    house.questions.filter(position=0).update(question="Changed?")
    with raises_with(CommandError, match="would say nothing", returncode=2):
        run(*SEARCH, "--baseline", good["id"])
    assert EvaluationRun.objects.latest("created_at").state == "cancelled"


def test_a_run_is_written_as_json_lines_and_resumed(house, tmp_path):
    file = tmp_path / "run.jsonl"
    done = run_json(*SEARCH, "--jsonl", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["run"]["id"] == done["id"] and len(lines) == 4
    (event,) = AuditEvent.objects.filter(action="evaluationrun.export")
    assert (event.subject_kind, event.after) == ("evaluationrun", {"rows": 3})
    stopped = lifecycle.cancel_run(lifecycle.start_run(house, lifecycle.RunRequest(_plan(done)), send=False), None)
    with pytest.raises(CommandError, match="has no baseline"):
        run("evaluate", "--resume", str(stopped.pk), "--no-regressions")
    stopped.refresh_from_db()
    assert stopped.state == "cancelled"
    answer = run_json("evaluate", "--resume", str(stopped.pk))
    assert (answer["done"], answer["judge"]) == (3, "embedded")


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluate",), "either a SET"),
        (("evaluate", "nobody's"), "no golden set"),
        ((*SEARCH, "--fail-under", "hit@3"), "KEY=VALUE"),
        ((*SEARCH, "--fail-under", "hit@3=much"), "MEASURE=NUMBER"),
        ((*SEARCH, "--fail-under", "hit@9=1"), "cut is 3"),
        ((*SEARCH, "--judge", "embedded"), "only searches"),
        ((*SEARCH, "--plan", "unsaved"), "no saved plan"),
        ((*SEARCH, "--no-regressions"), "has no baseline"),
        ((*SEARCH, "--only", "hit@3"), "--no-regressions"),
        ((*SEARCH, "--baseline", "set"), "has no baseline"),
        ((*SEARCH, "--no-regressions", "--only", "loudness"), "no measure"),
        ((*SEARCH, "--baseline", "7"), "no evaluation run"),
        (("evaluate", "--resume", "7"), "no evaluation run"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_asks_nothing(arguments, words):
    with raises_with(CommandError, match=words, returncode=2):
        run(*arguments)
    assert not EvaluationRun.objects.exists(), "nothing waits for a worker"


def _plan(answer):
    from ragd.types import RetrievePlan

    return RetrievePlan.from_dict(answer["plan"])
