"""The measures: against pytrec_eval, against sums by hand, and what they do where there is nothing to measure."""

from __future__ import annotations

import math
import random

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from evaluation_app.measures import downstream, ranking, statistics
from evaluation_app.measures.scores import Score, failed, mean, scored, unscorable

THEIR_NAMES = {"precision": "P", "recall": "recall", "hit": "success", "map": "map_cut", "ndcg": "ndcg_cut"}
IDS = [f"d{number}" for number in range(30)]


@given(
    st.lists(st.sampled_from(IDS), unique=True, min_size=1),
    st.dictionaries(st.sampled_from(IDS), st.integers(0, 3), min_size=1),
    st.integers(1, 25),
)
def test_every_measure_equals_trec_eval(order: list[str], grades: dict[str, int], k: int) -> None:
    names = {f"{theirs}.{k}" for theirs in THEIR_NAMES.values()}
    run = {"q": {item: float(len(order) - place) for place, item in enumerate(order)}}
    theirs = pytrec_eval.RelevanceEvaluator({"q": grades}, names).evaluate(run)["q"]
    first = {"q": {item: score for item, score in run["q"].items() if item in order[:k]}}
    theirs |= pytrec_eval.RelevanceEvaluator({"q": grades}, {"recip_rank"}).evaluate(first)["q"]
    for name, measure in ranking.MEASURES.items():
        score = measure(order, grades, k)
        if not any(grades.values()):
            assert score == unscorable(ranking.NOTHING_RELEVANT)
            continue
        expected = theirs["recip_rank"] if name == "mrr" else theirs[f"{THEIR_NAMES[name]}_{k}"]
        assert score.value == pytest.approx(expected, abs=1e-9), name


def test_a_ranking_by_hand() -> None:
    order, relevant = ["a", "b", "c", "d"], {"b": 1.0, "d": 2.0, "z": 1.0}
    assert ranking.precision(order, relevant, 4).value == 0.5
    assert ranking.recall(order, relevant, 4).value == pytest.approx(2 / 3)
    assert ranking.reciprocal_rank(order, relevant, 4).value == 0.5
    assert ranking.average_precision(order, relevant, 4).value == pytest.approx((1 / 2 + 2 / 4) / 3)
    gain = 1 / math.log2(3) + 2 / math.log2(5)
    ideal = 2 + 1 / math.log2(3) + 1 / 2
    assert ranking.ndcg(order, relevant, 4).value == pytest.approx(gain / ideal)
    assert ranking.hit([], relevant, 3).value == 0.0


@pytest.mark.parametrize(
    ("order", "relevant", "k"), [(["a", "a"], {"a": 1.0}, 2), (["a"], {"a": 1.0}, 0), (["a"], {"a": math.nan}, 1)]
)
def test_what_is_no_ranking_is_refused(order: list[str], relevant: dict[str, float], k: int) -> None:
    with pytest.raises(ValueError, match="must"):
        ranking.precision(order, relevant, k)


def test_a_mean_says_what_it_covers() -> None:
    values = mean([scored(1.0), scored(0.0), unscorable("empty"), failed("llm_timeout")])
    assert (values.value, values.scored, values.total, values.is_complete) == (0.5, 2, 4, False)
    assert mean([scored(1.0), scored(0.0)], [3, 1]).value == 0.75
    assert mean([]).value is None and mean([unscorable("empty")]).value is None
    assert mean([scored(0.5)], [0.0]).value is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_is_never_nan(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        scored(value)


@pytest.mark.parametrize("score", [scored(0.25), unscorable("no answer"), failed("bad_json")])
def test_a_score_survives_its_dict(score: Score) -> None:
    assert Score.from_dict(score.as_dict()) == score


def test_a_score_without_its_reason_is_refused() -> None:
    for state, value, reason in (
        ("scored", None, ""),
        ("unscorable", None, ""),
        ("error", 0.0, "x"),
        ("good", 1.0, ""),
    ):
        with pytest.raises(ValueError):
            Score(state, value, reason)  # type: ignore[arg-type]


def test_answers_against_expected_ones() -> None:
    wanted = ["The kettle boils at 100 degrees", "100 degrees"]
    assert downstream.exact_match("A kettle boils at 100 degrees.", wanted).value == 1.0
    assert downstream.exact_match("At 100 degrees", wanted).value == 0.0
    assert downstream.contains("It boils at 100 degrees, says the book", wanted).value == 1.0
    assert downstream.contains("It boils at 1000 degrees", wanted).value == 0.0
    assert downstream.f1("at 100 degrees", wanted).value == pytest.approx(2 * 2 / 5)
    assert downstream.rouge_l("degrees 100", ["100 degrees"]).value == pytest.approx(2 * 1 / 4)
    assert downstream.accuracy("Yes, it does.", ["yes"]).value == 1.0
    assert downstream.accuracy("It does, yes", ["yes"]).value == 0.0
    for measure in downstream.DOWNSTREAM.values():
        assert measure("anything", []) == unscorable(downstream.NOTHING_EXPECTED)
        assert measure("", ["word"]).value == 0.0


def test_labels_of_documents_become_one_figure() -> None:
    assert downstream.aggregate([0, 1, 1], "mrr").value == 0.5
    assert downstream.aggregate([0, 1, 1], "map").value == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert downstream.aggregate([0, 1, 1], "precision", 2).value == 0.5
    assert downstream.aggregate([0.2, 0.6], "precision").value == pytest.approx(0.4)
    assert downstream.aggregate([0.2, 0.6], "success").value == 0.6
    assert downstream.aggregate([0.0, 0.0], "ndcg").value == 0.0
    assert downstream.aggregate([], "precision") == unscorable(downstream.NO_LABELS)
    for labels, measure in (([0.5], "map"), ([1.5], "precision"), ([math.nan], "precision"), ([1.0], "f1")):
        with pytest.raises(ValueError):
            downstream.aggregate(labels, measure)
    assert [downstream.effect(downstream.contribution(alone, 0.5)) for alone in (0.9, 0.52, 0.1)] == [
        "helpful",
        "neutral",
        "harmful",
    ]


def test_an_interval_tells_noise_from_a_change() -> None:
    generator = random.Random(3)
    before = [generator.random() for _ in range(200)]
    noise = [value + generator.gauss(0, 0.3) for value in before]
    better = [value + 0.2 + generator.gauss(0, 0.3) for value in before]
    same, changed = statistics.paired_difference(before, noise), statistics.paired_difference(before, better)
    assert same is not None and not same.excludes_zero
    assert changed is not None and changed.excludes_zero and changed.low < 0.2 < changed.high
    assert statistics.paired_difference(before, better) == changed
    assert statistics.bootstrap_mean([]) is None
    with pytest.raises(ValueError, match="pairs"):
        statistics.paired_difference([1.0], [])


def test_agreement_and_correlation_by_hand() -> None:
    assert statistics.auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]) == 0.75
    assert statistics.auroc([0.5, 0.5], [True, False]) == 0.5
    assert statistics.auroc([0.5], [True]) is None
    assert statistics.rmse([0.0, 1.0], [0.0, 0.0]) == pytest.approx(math.sqrt(0.5))
    assert statistics.kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert statistics.kendall_tau([1, 1], [1, 2]) is None
    assert statistics.spearman([1, 2, 3], [10, 100, 1000]) == pytest.approx(1.0)
    assert statistics.pearson([1.0, 1.0], [1.0, 2.0]) is None
    yes_no = [True] * 25 + [False] * 25
    other = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert statistics.cohen_kappa(yes_no, other) == pytest.approx(0.4)
    assert statistics.cohen_kappa(["a"], ["a"]) is None
