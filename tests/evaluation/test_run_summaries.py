"""What a run's items add up to, and when a run and a question pass."""

from __future__ import annotations

import pytest

from evaluation_app.measures.statistics import bootstrap_mean
from evaluation_app.runs.summaries import Line, question_misses, run_misses, run_verdict, summarize
from evaluation_app.scoring.judge_selection import RunSettings

SETTINGS = RunSettings()


def scored(value):
    return {"state": "scored", "value": value}


UNSCORABLE, FAILED = {"state": "unscorable", "reason": "it abstained"}, {"state": "error", "reason": "timeout"}


def line(scores, *, own=None, weight=1.0, outcome="answered", category="factual", modes=()):
    return Line(scores, category, weight, outcome, list(modes), {"thresholds": own or {}})


def test_means_are_weighted_and_carry_their_coverage():
    lines = [
        line({"f1": scored(1.0), "adherence": UNSCORABLE}, weight=3, modes=["noise"]),
        line({"f1": scored(0.0), "adherence": FAILED}, category="global", outcome="abstained", modes=["noise", "miss"]),
    ]
    summary = summarize(lines, SETTINGS)
    assert list(summary["measures"]) == ["adherence", "f1"], "in the catalogue's order"
    f1 = summary["measures"]["f1"]
    assert (f1["value"], f1["low"], f1["high"], f1["scored"]) == (0.75, 0.0, 1.0, 2)
    assert summary["measures"]["adherence"] == {
        "value": None, "scored": 0, "unscorable": 1, "errors": 1, "total": 2, "low": None, "high": None,
    }  # fmt: skip
    assert {name: found["f1"]["value"] for name, found in summary["categories"].items()} == {"factual": 1, "global": 0}
    assert (summary["outcomes"], summary["modes"]) == ({"abstained": 1, "answered": 1}, {"noise": 2, "miss": 1})
    assert summarize(lines, SETTINGS, intervals=False)["measures"]["f1"]["low"] is None


def test_failing_questions_are_counted_apart_from_diagnostics():
    lines = [
        line({}, modes=["low_completeness"]), line({}, modes=["wrong_answer", "low_completeness"]),
        line({}, outcome="error", modes=["run_error"]), line({}),
    ]  # fmt: skip
    summary = summarize(lines, SETTINGS, answerer="extractive")
    assert summary["failing"] == 2 and summary["modes"]["low_completeness"] == 2
    assert summary["by_construction"] == ["adherence", "faithfulness", "stated"]
    assert summarize(lines, SETTINGS)["by_construction"] == []


def test_nothing_adds_up_to_nothing():
    summary = summarize([], SETTINGS)
    assert (summary["measures"], summary["outcomes"], summary["passed_questions"]) == ({}, {}, 0)


def test_weights_in_a_bootstrap():
    plain = bootstrap_mean([0.1, 0.4, 0.9])
    assert bootstrap_mean([0.1, 0.4, 0.9], weights=[2, 2, 2]) == plain
    only = bootstrap_mean([0.0, 1.0, 1.0], weights=[0, 1, 5])
    assert only is not None and (only.mean, only.low, only.high, only.count) == (1.0, 1.0, 1.0, 2)
    assert bootstrap_mean([0.0, 1.0], weights=[0, 0]) is None
    for wrong in ([1.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="as many weights"):
            bootstrap_mean([0.0, 1.0], weights=wrong)


@pytest.mark.parametrize(
    ("scores", "own", "of_run", "missed"),
    [
        ({"f1": scored(0.5)}, {}, {}, None),
        ({"f1": scored(0.5)}, {}, {"f1": 0.5}, []),
        ({"f1": scored(0.5)}, {}, {"f1": 0.6}, ["f1"]),
        ({"f1": scored(0.5)}, {"f1": 0.4}, {"f1": 0.6}, []),
        ({"noise_relevant": scored(0.2)}, {"noise_relevant": 0.1}, {}, ["noise_relevant"]),
        ({"noise_relevant": scored(0.2)}, {"noise_relevant": 0.3}, {}, []),
        ({"f1": UNSCORABLE}, {}, {"f1": 0.6}, None),
        ({"f1": UNSCORABLE}, {"f1": 0.0}, {}, ["f1"]),
        ({"f1": FAILED}, {}, {"f1": 0.0}, ["f1"]),
        ({"f1": scored(0.5)}, {"recall@20": 1.0}, {}, None),
    ],
)
def test_a_question_passes_by_its_own_thresholds_over_those_of_the_run(scores, own, of_run, missed):
    misses = question_misses(line(scores, own=own), of_run)
    assert (None if misses is None else [miss.measure for miss in misses]) == missed


def test_a_question_that_failed_misses_what_it_should_have_reached():
    misses = question_misses(line({}, outcome="error"), {"f1": 0.1})
    assert misses is not None and [(miss.measure, miss.value) for miss in misses] == [("f1", None)]


def test_a_run_passes_when_its_means_and_every_question_do():
    good = summarize([line({"f1": scored(0.5)}), line({"f1": scored(0.9)}, own={"f1": 0.8})], SETTINGS)
    bad = summarize([line({"f1": scored(0.9)}), line({"f1": scored(0.5)}, own={"f1": 0.8})], SETTINGS)
    bare = summarize([line({"f1": scored(0.5)})], SETTINGS)
    assert run_verdict(good, {"f1": 0.7}, 0) is True
    assert run_verdict(good, {"f1": 0.8}, 0) is False
    assert run_verdict(good, {}, 0) is True
    assert run_verdict(bad, {"f1": 0.7}, 0) is False, "one question misses its own"
    assert run_verdict(bare, {}, 0) is None
    assert run_verdict(bare, {}, 1) is False, "a run with a hole is never green"
    assert [miss.reason for miss in run_misses(bare, {"recall@10": 0.1})] == ["nothing was scored"]
