from __future__ import annotations

import json
import random

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from collections_app.errors import ServiceError
from collections_app.models import Collection
from evaluation_app.commands import calibrate as calibrating
from evaluation_app.models import GoldenSet
from evaluation_app.runs.calibration_fit import (
    FOLDS,
    LabelledList,
    calibrate,
    confidence,
    fit,
    fit_weights,
    fold_of,
    held_out_figures,
    share,
    thresholds,
)
from ragd.errors import InvalidInput
from retrieval_app.plans.services import build_plan, calibration_of
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest
from tests.evaluation.made_runs import make_set


def labelled(question: int, strength: float, answers: bool) -> LabelledList:
    rows = ((strength, strength, strength, 1.0), (0.1, 0.0, 0.0, 1.0))
    return LabelledList(f"question {question}", rows, (int(answers), 0), answers)


def noisy_lists(number: int, noise: float) -> list[LabelledList]:
    chance = random.Random(3)
    lists = []
    for question in range(number):
        lists.append(labelled(question, 0.7 + noise * chance.uniform(-1, 1), True))
        lists.append(labelled(question, 0.3 + noise * chance.uniform(-1, 1), False))
    return lists


def test_lists_that_differ_are_told_apart() -> None:
    fitted = fit(noisy_lists(20, 0.1))
    figures = fitted.figures
    assert figures["auroc"] == 1.0 and figures["lists"] == 40 and figures["answering"] == 20
    assert fitted.rule.upper is not None and fitted.rule.lower is not None
    assert figures["correct"]["share"] == figures["incorrect"]["share"] == figures["right"]["share"] == 1.0
    good, bad = (confidence(fitted.rule.weights, labelled(99, value, True)) for value in (0.7, 0.3))
    assert fitted.rule.action([good]) == "correct" and fitted.rule.action([bad]) == "incorrect"


def test_lists_that_are_alike_give_no_threshold() -> None:
    """What answers and what does not have the same features: nothing may be called correct or incorrect."""
    lists = [labelled(number // 2, 0.5, number % 2 == 0) for number in range(60)]
    fitted = fit(lists)
    assert (fitted.rule.upper, fitted.rule.lower) == (None, None)
    assert fitted.figures["actions"]["ambiguous"] == {"answering": 30, "not_answering": 30}
    assert fitted.figures["correct"]["share"] is None and fitted.figures["auroc"] == pytest.approx(0.5)


def test_the_figures_are_of_lists_that_were_held_out() -> None:
    """A question whose label contradicts all others is told wrongly, although the last fit has seen it."""
    lists = noisy_lists(20, 0.05)
    odd = LabelledList("odd one", ((0.7, 0.7, 0.7, 1.0),), (0,), False)
    figures = held_out_figures([*lists, odd], 0.9)
    assert figures["actions"]["correct"]["not_answering"] == 1
    assert figures["correct"]["share"] == pytest.approx(20 / 21)


def test_thresholds_part_the_scores_at_the_target() -> None:
    scores = [0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9]
    answers = [False] * 5 + [True] * 5
    assert thresholds(scores, answers, 1.0) == pytest.approx((0.475, 0.475))
    answers[4], answers[5] = True, False
    assert thresholds(scores, answers, 1.0) == (None, None)  # four at each end are too few
    assert thresholds(scores, answers, 0.8) == pytest.approx((0.425, 0.425))  # they would cross: 0.55 were lower
    answers[4] = False
    assert thresholds(scores, answers, 0.8) == pytest.approx((None, 0.55))
    assert thresholds([], [], 0.9) == (None, None)


def test_too_few_lists_or_of_one_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="9 with and 9 without"):
        fit(noisy_lists(9, 0.1))
    with pytest.raises(ValueError, match="30 with and 0 without"):
        fit([labelled(number, 0.7, True) for number in range(30)])


def test_folds_and_weights_do_not_depend_on_the_order() -> None:
    lists = noisy_lists(20, 0.2)
    assert {fold_of(item.question) for item in lists} == set(range(FOLDS))
    one, other = fit_weights(lists), fit_weights(lists[::-1])
    assert one.coefficients == pytest.approx(other.coefficients, abs=1e-9)


def test_wilson_intervals() -> None:
    """The values that Wilson's formula has for 9 of 10 and 0 of 10."""
    assert share(9, 10)["low"] == pytest.approx(0.5958, abs=1e-4)
    assert share(9, 10)["high"] == pytest.approx(0.9821, abs=1e-4)
    assert share(0, 10)["low"] == 0.0 and share(0, 10)["high"] == pytest.approx(0.2775, abs=1e-4)
    assert share(0, 0) == {"right": 0, "of": 0, "share": None, "low": None, "high": None}


QUESTIONS = {
    "How many litres of water does the main pump move?": "pump.md",
    "When was the pump built?": "pump.md",
    "With which key is the pump locked?": "pump.md",
    "When are the roses cut?": "garden.md",
    "When is the hedge cut?": "garden.md",
    "Who may visit the garden?": "garden.md",
    "What does coffee cost?": "kitchen.md",
    "May the oven be left alone?": "kitchen.md",
    "Where is the box for the coffee money?": "kitchen.md",
    "Who opens the archive?": "archive.md",
    "How old are documents in the archive?": "archive.md",
    "How warm is the water of the boiler?": "boiler.md",
    "How often is the boiler inspected?": "boiler.md",
}


@pytest.fixture
def golden(house: Collection) -> GoldenSet:
    return make_set("house questions", house.name, QUESTIONS)


@pytest.mark.django_db
def test_a_collection_is_calibrated_on_its_questions(house: Collection, golden: GoldenSet) -> None:
    plan = build_plan(house, k=2)
    made = calibrate(house, golden, plan=plan, target=0.8)
    kept = calibration_of(house)
    assert kept is not None and kept.rule == made.fitted.rule
    assert kept.embed_model == house.embed_model and kept.figures == made.fitted.figures
    assert kept.data["set"] == golden.name and kept.data["digest"] == golden.digest
    assert kept.data["lists"] == 26  # each question finds its document, and is asked once more without it
    assert kept.figures["auroc"] > 0.9
    run = query_pipeline.search(QueryRequest(house, "How many litres does the main pump move?", plan, "cli"))
    assert run.retrieval_action == "correct"
    again = calibrate(house, golden, plan=plan, target=0.8, keep=False)
    assert again.fitted == made.fitted


@pytest.mark.django_db
def test_questions_of_other_sets_show_what_a_miss_is(house: Collection, golden: GoldenSet) -> None:
    other = make_set("elsewhere", "elsewhere", {f"Which planet number {n} orbits a dying star?": "x" for n in range(6)})
    made = calibrate(house, golden, unanswerable=[other], plan=build_plan(house, k=2), target=0.8)
    assert (made.data["lists"], made.data["unanswerable"]) == (32, {"elsewhere": 1})
    run = query_pipeline.search(QueryRequest(house, "Which planets orbit?", build_plan(house, k=2), "cli"))
    assert run.retrieval_action == "incorrect"


@pytest.mark.django_db
def test_what_cannot_calibrate_is_refused_and_nothing_is_kept(house: Collection, golden: GoldenSet) -> None:
    other = GoldenSet.objects.create(name="elsewhere", collection_name="elsewhere")
    empty = GoldenSet.objects.create(name="empty", collection_name=house.name)
    with pytest.raises(ServiceError, match="not of 'house'"):
        calibrate(house, other)
    with pytest.raises(ServiceError, match="0 with and 0 without"):
        calibrate(house, empty)
    with pytest.raises(InvalidInput, match="target"):
        calibrate(house, golden, target=0.5)
    assert calibration_of(house) is None


@pytest.mark.django_db
def test_the_command_tells_what_is_kept(
    house: Collection, golden: GoldenSet, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("ragd", "index", "calibrate", "house", "--set", golden.name, "--target", "0.8", "--dry-run")
    assert "kept: no" in capsys.readouterr().out and calibration_of(house) is None
    call_command("ragd", "index", "calibrate", "house", "--set", golden.name, "--target", "0.8", "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["kept"], told["data"]["questions"], told["data"]["version"]) == (True, 13, 1)
    assert (told["figures"]["folds"], told["figures"]["lists"], told["figures"]["answering"]) == (5, 26, 13)
    kept = calibration_of(house)
    assert kept is not None and kept.upper == told["upper"]
    with pytest.raises((CommandError, SystemExit)):
        call_command("ragd", "index", "calibrate", "house", "--set", "no such set")


def test_a_fit_without_thresholds_fails_the_command() -> None:
    assert not calibrating.has_passed({"upper": None, "lower": None})
    assert calibrating.has_passed({"upper": 0.9, "lower": None})
