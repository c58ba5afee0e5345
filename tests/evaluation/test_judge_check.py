"""A panel of judges, and the check of a connected judge against judges with known faults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User

from collections_app.access import people
from collections_app.access.context import Forbidden, using_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.errors import ServiceError
from collections_app.jobs.operations import cancel_operation, process_operation
from collections_app.models import Collection, Operation
from evaluation_app.judges.protocol import MEASURES, Case, Judgement, PanelJudge, disagree
from evaluation_app.measures.scores import Annotation, Support, failed, scored, unscorable
from evaluation_app.models import EvaluationItem, EvaluationRun, Review, ReviewTask
from evaluation_app.reviews import judge_check
from evaluation_app.reviews.judge_check import (
    REPEATS,
    CheckedAnswer,
    check_answers,
    draw_answers,
    estimate_check,
    request_check,
    running_check,
)
from evaluation_app.reviews.labels import queue_run
from evaluation_app.runs.requests import count_model_calls
from evaluation_app.scoring.judge_selection import RunSettings, open_chat_judge, open_judge
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from tests.evaluation.judge_replies import ANSWER, DOCUMENTS, QUESTION, support
from tests.evaluation.made_runs import make_run, make_set
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with
from tests.web.pages import client_of, has, texts

MARKED = re.compile(r"\[([0-9]*)([a-z]+)\] (.*)")
CASE = Case.of(QUESTION, DOCUMENTS, ANSWER)


class Said:
    """A judge that says what a test states. unsupported: keys of the answer."""

    def __init__(
        self, name: str, unsupported: str = "", error: str = "", relevant: Sequence[str] = ("0a",), **values: float
    ) -> None:
        self.name, self.version, self.error = name, "1", error
        entries = [Support(key, () if key in unsupported else ("0a",), key not in unsupported) for key in "ab"]
        self.annotation = None if error else Annotation(tuple(relevant), ("0a",), tuple(entries))
        figures = dict.fromkeys(MEASURES, 0.5) | {"adherence": float(not unsupported)} | values
        self.scores = {name: failed(error) if error else scored(value) for name, value in figures.items()}
        cost = None if error else 1.0
        self.usage = {"input_tokens": 3, "output_tokens": 2, "calls": 1, "cost_usd": cost, "cached": False}

    def judge(self, case: Case) -> Judgement:
        return Judgement(self.scores, self.annotation, usage=self.usage)


def test_a_panel_takes_the_majority_and_the_median() -> None:
    judges = [Said("x", "b", completeness=0.2), Said("y", "", completeness=0.9), Said("z", "b", completeness=0.6)]
    found = PanelJudge(judges).judge(CASE)
    assert (found.scores["adherence"], found.scores["completeness"]) == (scored(0.0), scored(0.6))
    assert found.annotation is not None
    assert [(each.key, each.is_supported) for each in found.annotation.support] == [("a", True), ("b", False)]
    assert found.likely["unsupported"] == {"a": 0.0, "b": pytest.approx(2 / 3)}
    assert [(each["judge"], each["unsupported"]) for each in found.members] == [("x", ["b"]), ("y", []), ("z", ["b"])]
    assert found.usage == {"input_tokens": 9, "output_tokens": 6, "calls": 3, "cost_usd": 3.0, "cached": False}
    assert disagree(found.members) and not disagree(PanelJudge([judges[0], judges[2]]).judge(CASE).members)


def test_a_tie_is_decided_against_the_answer() -> None:
    found = PanelJudge([Said("x", "b", relevant=["0b"]), Said("y", completeness=0.8)]).judge(CASE)
    assert found.scores["adherence"] == scored(0.0) and found.scores["completeness"] == scored(0.65)
    assert found.annotation is not None and not found.annotation.support[1].is_supported
    assert found.annotation.relevant_keys == ()


def test_a_judge_that_fails_is_left_out() -> None:
    found = PanelJudge([Said("x", error="llm_timeout"), Said("y", "b"), Said("z")]).judge(CASE)
    assert found.scores["adherence"] == scored(0.0) and found.scores["faithfulness"] == scored(0.5)
    assert [each["error"] for each in found.members] == ["llm_timeout", "", ""] and found.usage["cost_usd"] is None
    lost = PanelJudge([Said("x", error="llm_timeout"), Said("y", error="bad_json")]).judge(CASE)
    assert set(lost.scores.values()) == {failed("llm_timeout")} and lost.annotation is None
    assert lost.likely == {} and not disagree(lost.members)
    assert not disagree([{"scores": {}, "unsupported": None}, {"scores": {"adherence": 1.0}, "unsupported": []}])
    silent = Said("x")
    silent.scores = dict.fromkeys(MEASURES, unscorable("-"))
    assert PanelJudge([silent, Said("y", error="bad_json")]).judge(CASE).scores["adherence"] == unscorable("-")


@pytest.mark.parametrize("names", ["embedded", "a, b, a", "a,,b", "a,b,c,d,e,f"])
def test_a_panel_has_two_to_five_different_judges(names: str) -> None:
    with raises_with(InvalidInput, field="judge_model"):
        RunSettings(judge="panel", judge_model=names)


@pytest.fixture
def chat(openai_server: OpenAIServer, settings: Any) -> OpenAIServer:
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, "test-key"
    settings.RAGD_LLM_MODEL = "gpt-4o-mini"
    return openai_server


@pytest.mark.django_db
def test_a_panel_is_opened_like_any_judge(chat: OpenAIServer) -> None:
    chat.chat_reply = judge_like()
    judge = open_judge(RunSettings(judge="panel", judge_model="embedded, judge-1 ,judge-2"))
    assert judge is not None and judge.name == "panel"
    assert [each.split()[:2][-1] for each in judge.version.split(" + ")][1:] == ["judge-1", "judge-2"]
    found = judge.judge(CASE)
    assert [request.body["model"] for request in chat.requests] == ["judge-1", "judge-2"]
    assert len(found.members) == 3 and found.usage["calls"] == 2
    assert RunSettings(judge="panel").panel == ("embedded", "") and RunSettings(judge="panel").chat_judges == ("",)
    golden_set = make_set("birds", "nature", {"Who hunts?": "owl.md", "Who sings?": "lark.md"})
    settings = RunSettings(judge="panel", judge_model="embedded,a,b")
    assert count_model_calls(golden_set, RetrievePlan(), settings, asks_model=False) == 4


@pytest.mark.django_db
def test_the_run_lists_where_judges_disagree(ada: User) -> None:
    told = [{"judge": name, "version": "1", "scores": {"adherence": value}, "unsupported": [], "error": ""}
            for name, value in (("owl-judge", 1.0), ("lark-judge", 0.0))]  # fmt: skip
    details = {"panel": told, "disagree": True}, {"panel": told[:1] * 2, "disagree": False}
    items = {place: {"details": each} for place, each in enumerate(details)}
    run = make_run([{"adherence": 0.0}] * 3, items=items, judge="panel")
    page = client_of(ada).get(f"{run.get_absolute_url()}?judges=disagree")
    assert [card.number for card in page.context["cards"]] == [1] and page.context["disagreeing"] == 1
    assert [each.split()[0] for each in texts(page, ".question-card .panel li")] == ["owl-judge", "lark-judge"]
    assert not has(client_of(ada).get(run.get_absolute_url() + "?judges=agree"), ".question-card .panel")
    item = client_of(ada).get(f"{run.get_absolute_url()}items/0/")
    assert len(texts(item, "#panel ul > li")) == 2


def judge_like(bias: str = "", server: OpenAIServer | None = None) -> Callable[[list[dict[str, Any]]], str]:
    """A judge over the protocol. A sentence is supported where the context says it word for word. bias: "fickle" by the
    seed, "order" only by the first document, "length": an answer of more than two sentences is relevant throughout."""

    def reply(messages: list[dict[str, Any]]) -> str:
        found = MARKED.findall(messages[-1]["content"])
        context = {f"{number}{key}": said for number, key, said in found if number}
        answer = {key: said for number, key, said in found if not number}
        seed = server.requests[-1].body["seed"] if server else 0
        known = {key: said for key, said in context.items() if bias != "order" or key.startswith("0")}
        by = {key: [name for name, other in known.items() if other == said][:1] for key, said in answer.items()}
        if bias == "fickle" and seed % 2:
            by = {key: list(context)[:1] for key in answer}
        return json.dumps({
            "relevance_explanation": "", "all_relevant_sentence_keys": list(context)[:1],
            "overall_supported_explanation": "", "overall_supported": all(by.values()),
            "sentence_support_information": [support(key, keys, fully=bool(keys)) for key, keys in by.items()],
            "all_utilized_sentence_keys": list(context)[:1], "refused": False,
            "answer_relevance": 1 if bias == "length" and len(answer) > 2 else 0.5,
        })  # fmt: skip

    return reply


ANSWERS = [
    CheckedAnswer("Where are owls?", ("Owls hunt at night.", "Larks sing at dawn.", f"Number {place} flies."),
                  "Owls hunt at night." if place % 2 else "Owls read books.", float(place % 2))
    for place in range(8)
]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("bias", ["", "fickle", "order", "length"])
def test_each_fault_of_a_judge_is_measured(chat: OpenAIServer, bias: str) -> None:
    """Four of eight answers are supported by the first document."""
    chat.chat_reply = judge_like(bias, chat)
    judges = [open_chat_judge("judge-1", None, seed=turn) for turn in range(REPEATS)]
    told: list[tuple[int, int]] = []
    report = check_answers(judges, judges[0], ANSWERS, ANSWERS, lambda done, total: told.append((done, total)))
    assert told == [(place, 16) for place in range(17)]
    assert report["usage"]["calls"] == len(chat.requests) == 8 * (REPEATS + 2) + 8 and report["failed"] == 0
    same = {kind: (report[kind]["same"]["right"], report[kind]["same"]["of"]) for kind in ("again", "order", "length")}
    assert same == {
        "again": (4, 8) if bias == "fickle" else (8, 8),
        "order": (4, 8) if bias == "order" else (8, 8),
        "length": (8, 8),
    }
    shifts = {kind: report[kind]["shifts"]["answer_relevance"]["mean"] for kind in ("again", "order", "length")}
    assert shifts == {"again": 0.0, "order": 0.0, "length": 0.0}
    assert report["labels"]["right"] == report["labels"]["of"] == 8 and report["labels"]["low"] < 1
    assert report["labels"]["kappa"] == pytest.approx(1.0)


@pytest.mark.django_db(transaction=True)
def test_several_calls_at_once_give_the_same(chat: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    chat.chat_reply = judge_like("order", chat)
    judges = [open_chat_judge("judge-1", None, seed=turn) for turn in range(REPEATS)]
    reports = []
    for calls in (1, 4):
        monkeypatch.setattr(judge_check, "CALLS_AT_ONCE", calls)
        reports.append(check_answers(judges, judges[0], ANSWERS, ANSWERS, lambda done, total: None))
    assert reports[0] == reports[1] and reports[0]["order"]["same"]["right"] == 4


@pytest.mark.django_db
def test_a_longer_answer_that_pleases_the_judge_shows(chat: OpenAIServer) -> None:
    chat.chat_reply = judge_like("length", chat)
    judges = [open_chat_judge("judge-1", None, seed=turn) for turn in range(REPEATS)]
    answers = [CheckedAnswer("Where?", ("Owls hunt. Larks sing.",), "Owls hunt. Larks sing.") for _ in range(3)]
    report = check_answers(judges, judges[0], answers, [], lambda done, total: None)
    assert report["length"]["shifts"]["answer_relevance"]["mean"] == 0.5
    assert report["again"]["shifts"]["answer_relevance"]["mean"] == 0.0
    assert report["labels"]["of"] == 0 and report["labels"]["share"] is None


@pytest.mark.django_db
def test_what_fails_is_counted_and_left_out(chat: OpenAIServer) -> None:
    chat.chat_reply = lambda messages: "no annotation"
    judges = [open_chat_judge("judge-1", None, seed=turn) for turn in range(REPEATS)]
    report = check_answers(judges, judges[0], ANSWERS[:1], ANSWERS[:1], lambda done, total: None)
    assert report["failed"] == REPEATS + 3 and report["again"] == {"same": report["order"]["same"], "shifts": {}}
    assert report["labels"]["of"] == 0


def answered_run(collection: Collection) -> EvaluationRun:
    items = {
        place: {
            "question_text": one.question, "answer": f"{one.answer} {place}.", "answer_sentences": [["a", one.answer]],
            "context": [{"key": f"owl.md#{place}", "sentences": [["0a", said]]} for said in one.documents],
        }
        for place, one in enumerate(ANSWERS)
    }  # fmt: skip
    return make_run([{"adherence": 1.0}] * len(ANSWERS), items=items, collection_name=collection.name)


@pytest.fixture
def nature(db: None) -> Collection:
    return create_collection(name="nature")


def test_a_check_runs_as_a_job_and_is_shown(nature: Collection, chat: OpenAIServer, ada: User) -> None:
    chat.chat_reply = judge_like("", chat)
    run = answered_run(nature)
    queue_run(run, "random", number=3)
    for task in ReviewTask.objects.all():
        Review.objects.create(task=task, reviewer=ada, reviewer_name="ada", verdicts={"adherence": 0.0})
    client, address = client_of(ada), "/evaluation/review/?view=agreement"
    page = client.get(f"{address}&collection_name=nature")
    estimate = page.context["estimate"]
    assert (estimate.answers, estimate.references, estimate.calls) == (8, 3, 8 * (REPEATS + 2) + 3)
    assert estimate.input_tokens > estimate.calls and has(page, "button[value=check]") and not chat.requests
    assert client.post(address, {"do": "check", "collection_name": "nature", "number": "5"}).status_code == 302
    operation = running_check(nature)
    assert operation is not None and operation.created_by == "ada" and not chat.requests
    with raises_with(ServiceError, type="under_way"):
        request_check(nature, actor=ada)
    process_operation(str(operation.pk))
    operation.refresh_from_db()
    assert operation.state == Operation.State.SUCCEEDED
    report = operation.report
    assert (report["answers"], report["labels"]["of"], report["model"]) == (5, 3, "gpt-4o-mini")
    assert len(chat.requests) == report["usage"]["calls"] == 5 * (REPEATS + 2) + 3
    page = client.get(f"{address}&collection_name=nature")
    assert page.context["last"] == operation and has(page, "#judge-check table") and page.context["running"] is None


def test_a_check_can_be_stopped(nature: Collection, chat: OpenAIServer, ada: User) -> None:
    answered_run(nature)
    operation = request_check(nature, actor=ada)
    values = {"do": "stop", "collection_name": "nature"}
    assert client_of(ada).post("/evaluation/review/?view=agreement", values).status_code == 302
    process_operation(str(operation.pk))
    operation.refresh_from_db()
    assert operation.state == Operation.State.CANCELLED and not chat.requests


def test_what_a_check_may_ask(nature: Collection, chat: OpenAIServer, ada: User, settings: Any) -> None:
    """bob evaluates `sea` alone: he checks nothing of `nature`, and sees no result of it."""
    with raises_with(ServiceError, type="nothing_to_judge"):
        request_check(nature, actor=ada)
    run = answered_run(nature)
    bob = User.objects.create_user("bob", password="heron-reed-marsh-7")
    people.grant(bob, Role.EVALUATOR, create_collection(name="sea"))
    operation = request_check(nature, number=2, actor=ada)
    with using_access(access_of_user(bob)):
        assert draw_answers(nature, 5) == {"items": [], "scores": [], "tasks": []}
        assert not Operation.objects.filter(pk=operation.pk).exists()
        with pytest.raises(Forbidden):
            request_check(nature, actor=bob)
    people.grant(bob, Role.EVALUATOR, nature)
    with using_access(access_of_user(bob)):
        assert len(draw_answers(nature, 5)["items"]) == 5
        cancel_operation(Operation.objects.get(pk=operation.pk), actor=bob)
    everything = EvaluationItem.objects.filter(run=run).values_list("pk", flat=True)
    assert set(draw_answers(nature, 50)["items"]) == set(everything)
    for number in (0, 51, True):
        with raises_with(InvalidInput, field="number"):
            draw_answers(nature, number)
    settings.RAGD_LLM_BASE_URL = settings.RAGD_LLM_API_KEY = ""
    with raises_with(ServiceError, type="no_judge_model"):
        estimate_check(nature)
