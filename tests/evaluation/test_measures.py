"""The measures: against pytrec_eval, against sums by hand, and what they do where there is nothing to measure.
TRACe by hand, its edges, and rows in the shape of RAGBench."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from evaluation_app.measures import scores, statistics
from evaluation_app.measures.scores import (
    NO_ANSWER,
    NO_CONTEXT,
    REFUSED,
    Annotation,
    Score,
    Sentence,
    Support,
    check_annotation,
    failed,
    key_answer,
    key_documents,
    letters,
    mean,
    scored,
    trace_scores,
    unscorable,
)
from tests.evaluation.ragbench_rows import row_answer, row_context, row_scores

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
    for name, measure in scores.MEASURES.items():
        score = measure(order, grades, k)
        if not any(grades.values()):
            assert score == unscorable(scores.NOTHING_RELEVANT)
            continue
        expected = theirs["recip_rank"] if name == "mrr" else theirs[f"{THEIR_NAMES[name]}_{k}"]
        assert score.value == pytest.approx(expected, abs=1e-9), name


def test_a_ranking_by_hand() -> None:
    order, relevant = ["a", "b", "c", "d"], {"b": 1.0, "d": 2.0, "z": 1.0}
    assert scores.precision(order, relevant, 4).value == 0.5
    assert scores.recall(order, relevant, 4).value == pytest.approx(2 / 3)
    assert scores.reciprocal_rank(order, relevant, 4).value == 0.5
    assert scores.average_precision(order, relevant, 4).value == pytest.approx((1 / 2 + 2 / 4) / 3)
    gain = 1 / math.log2(3) + 2 / math.log2(5)
    ideal = 2 + 1 / math.log2(3) + 1 / 2
    assert scores.ndcg(order, relevant, 4).value == pytest.approx(gain / ideal)
    assert scores.hit([], relevant, 3).value == 0.0


@pytest.mark.parametrize(
    ("order", "relevant", "k", "named"),
    [
        (["a", "a"], {"a": 1.0}, 2, "ranking"),
        (["a"], {"a": 1.0}, 0, "^k .* 0$"),
        (["a"], {"a": math.nan}, 1, "grades"),
        (["a"], {"a": math.inf}, 1, "grades"),
    ],
)
def test_what_is_no_ranking_is_refused(order: list[str], relevant: dict[str, float], k: int, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        scores.precision(order, relevant, k)


def test_a_mean_says_what_it_covers() -> None:
    values = mean([scored(1.0), scored(0.0), unscorable("empty"), failed("llm_timeout")])
    assert (values.value, values.scored, values.total, values.is_complete) == (0.5, 2, 4, False)
    assert mean([scored(1.0), scored(0.0)], [3, 1]).value == 0.75
    assert mean([]).value is None and mean([unscorable("empty")]).value is None
    assert mean([scored(0.5)], [0.0]).value is None
    assert mean([scored(0.5)], [0.25]).value == 0.5
    assert mean([scored(1.5e308)]).value == 1.5e308
    assert values.as_dict() == {"value": 0.5, "scored": 2, "unscorable": 1, "errors": 1, "total": 4}


@pytest.mark.parametrize("weights", [[], [1.0, 1.0], [-1.0], [math.nan], [math.inf]])
def test_weights_that_do_not_fit_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        mean([scored(0.5)], weights)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_is_never_nan(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        scored(value)


@pytest.mark.parametrize("score", [scored(0.25), unscorable("no answer"), failed("bad_json")])
def test_a_score_survives_its_dict(score: Score) -> None:
    assert Score.from_dict(score.as_dict()) == score


def test_a_score_without_its_reason_is_refused() -> None:
    for state, value, reason, named in (
        ("scored", None, "", "None"),
        ("unscorable", None, "", "unscorable"),
        ("error", 0.0, "x", "error"),
        ("good", 1.0, "", "'good'"),
    ):
        with pytest.raises(ValueError, match=named):
            Score(state, value, reason)  # type: ignore[arg-type]


def test_answers_against_expected_ones() -> None:
    wanted = ["The kettle boils at 100 degrees", "100 degrees"]
    assert scores.exact_match("A kettle boils at 100 degrees.", wanted).value == 1.0
    assert scores.exact_match("At 100 degrees", wanted).value == 0.0
    assert scores.contains("It boils at 100 degrees, says the book", wanted).value == 1.0
    assert scores.contains("It boils at 1000 degrees", wanted).value == 0.0
    assert scores.f1("at 100 degrees", wanted).value == pytest.approx(2 * 2 / 5)
    assert scores.rouge_l("degrees 100", ["100 degrees"]).value == pytest.approx(2 * 1 / 4)
    assert scores.rouge_l("one two three", ["one two"]).value == pytest.approx(2 * 2 / 5)
    assert scores.rouge_l("one three", ["one two three"]).value == pytest.approx(2 * 2 / 5)
    assert scores.rouge_l("one two three four", ["two zero four one"]).value == pytest.approx(2 * 2 / 8)
    assert scores.accuracy("Yes, it does.", ["yes"]).value == 1.0
    assert scores.accuracy("It does, yes", ["yes"]).value == 0.0
    for measure in scores.DOWNSTREAM.values():
        assert measure("anything", []) == unscorable(scores.NOTHING_EXPECTED)
        assert measure("", ["word"]).value == 0.0
        assert measure("word", [""]).value == 0.0
        assert measure("word", ["other", "word"]).value == 1.0


@pytest.mark.parametrize(("name", "value"), [("exact_match", 1.0), ("f1", 1.0), ("rouge_l", 1.0), ("contains", 1.0),
                                             ("accuracy", 0.0)])  # fmt: skip
def test_no_words_against_no_words(name: str, value: float) -> None:
    assert scores.DOWNSTREAM[name]("", ["The!"]).value == value


def test_words_are_compared_as_squad_does() -> None:
    assert scores.normal_words("The  CAT's $5 a\u00a0hat, an ﬁne + Straße") == [
        "cat", "s", "5", "hat", "fine", "strasse",
    ]  # fmt: skip


def test_graded_labels_are_grades_of_ndcg_and_relevant_from_a_threshold_on() -> None:
    labels = [0.2, 0.9, 0.5]
    ideal = 0.9 + 0.5 / math.log2(3) + 0.2 / 2
    gained = 0.2 + 0.9 / math.log2(3) + 0.5 / 2
    assert scores.aggregate(labels, "ndcg").value == pytest.approx(gained / ideal)
    assert scores.aggregate(labels, "mrr").value == 0.5
    assert scores.aggregate(labels, "mrr", threshold=0.2).value == 1.0
    assert scores.aggregate(labels, "map").value == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert scores.aggregate(labels, "map", threshold=0.6).value == 0.5
    assert scores.aggregate([0.2, 0.3], "map").value == 0.0, "none is relevant"
    assert scores.aggregate(labels, "ndcg", 1).value == pytest.approx(0.2 / 0.9)


def test_labels_of_documents_become_one_figure() -> None:
    assert scores.aggregate([0, 1, 1], "mrr").value == 0.5
    assert scores.aggregate([0, 1, 1], "map").value == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert scores.aggregate([0, 1, 1], "precision", 2).value == 0.5
    assert scores.aggregate([0, 1, 1], "precision", 1).value == 0.0
    assert scores.aggregate([0, 1, 1], "precision", 6).value == pytest.approx(2 / 6)
    assert scores.aggregate([0.2, 0.6, 0.7], "precision", 2).value == pytest.approx(0.4)
    assert scores.aggregate([0.2, 0.6, 0.7], "success", 2).value == 0.6
    assert scores.aggregate([0.2, 0.6], "precision", 4).value == pytest.approx(0.4)
    assert scores.aggregate([0.2, 0.6], "precision").value == pytest.approx(0.4)
    assert scores.aggregate([0.2, 0.6], "success").value == 0.6
    assert scores.aggregate([0.0, 0.0], "ndcg").value == 0.0
    assert scores.aggregate([], "precision") == unscorable(scores.NO_LABELS)
    for labels, measure, k, named in (
        ([1.5], "precision", None, "1.5"),
        ([-0.5], "precision", None, "-0.5"),
        ([math.nan], "precision", None, "nan"),
        ([1.0], "f1", None, "'f1'"),
        ([1.0], "map", 0, "^k .* 0$"),
    ):
        with pytest.raises(ValueError, match=named):
            scores.aggregate(labels, measure, k)
    for threshold in (0.0, 1.01, math.nan):
        with pytest.raises(ValueError, match="threshold"):
            scores.aggregate([1.0], "map", threshold=threshold)
    assert [scores.effect(scores.contribution(alone, 0.5)) for alone in (0.9, 0.52, 0.1)] == [
        "helpful",
        "neutral",
        "harmful",
    ]
    assert [scores.effect(value) for value in (0.05, -0.05)] == ["neutral", "neutral"]
    assert [scores.effect(value, margin=0.0) for value in (1e-9, 0.0, -1e-9)] == ["helpful", "neutral", "harmful"]


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
    with pytest.raises(ValueError, match="1 values before and 0 after"):
        statistics.paired_difference([1.0], [])
    with pytest.raises(ValueError, match="finite"):
        statistics.bootstrap_mean([math.nan])


def test_the_interval_of_two_values_by_hand() -> None:
    """The means of two drawn values are 1, 2, 2 and 3 with equal chances; weighted 1 to 3: 1, 2.5, 2.5 and 3."""
    plain = {"mean": 2.0, "count": 2}
    for values in ([1, 3], [1, 3, 99]):
        weights = [5, 5, 0][: len(values)]
        whole = statistics.bootstrap_mean(values, weights=weights)
        assert whole is not None and whole.as_dict() == plain | {"low": 1.0, "high": 3.0}
        middle = statistics.bootstrap_mean(values, weights=weights, level=0.4)
        assert middle is not None and middle.as_dict() == plain | {"low": 2.0, "high": 2.0}
    weighted = {"mean": 2.5, "count": 2}
    whole, middle = (statistics.bootstrap_mean([1, 3], weights=[1, 3], level=level) for level in (0.95, 0.4))
    assert whole is not None and whole.as_dict() == weighted | {"low": 1.0, "high": 3.0}
    assert middle is not None and middle.as_dict() == weighted | {"low": 2.5, "high": 2.5}
    assert statistics.bootstrap_mean([1, 3], weights=[0, 0]) is None
    single = statistics.bootstrap_mean([0.25])
    assert single is not None and single.as_dict() == {"mean": 0.25, "low": 0.25, "high": 0.25, "count": 1}
    for wrong in ([1.0], [1.0, -1.0], [1.0, math.inf], [1.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match=r"finite|weights"):
            statistics.bootstrap_mean([1, 3], weights=wrong)


def test_equal_weights_give_the_interval_of_the_plain_mean() -> None:
    values = [0.1 * number for number in range(1, 8)]
    assert statistics.bootstrap_mean(values, weights=[0.7] * 7) == statistics.bootstrap_mean(values)


@pytest.mark.parametrize(
    ("low", "high", "excludes"),
    [(0.0, 1.0, False), (0.1, 1.0, True), (-1.0, 0.0, False), (-1.0, -0.1, True), (-1, 1, False)],
)
def test_an_interval_that_touches_zero_does_not_exclude_it(low: float, high: float, excludes: bool) -> None:
    assert statistics.Interval(0.0, low, high, 3).excludes_zero is excludes


@pytest.mark.parametrize(
    ("count", "shapes"), [(2, [(5, 2)]), (10, [(2, 10), (2, 10), (1, 10)]), (30, [(1, 30)] * 5), (5, [(5, 5)])]
)
def test_draws_come_in_pieces_that_fit_in_memory(
    count: int, shapes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "INDEXES_MAX", 25)
    pieces = [*statistics.Draws(resamples=5).pieces(count)]
    assert [piece.shape for piece in pieces] == shapes
    assert {int(index) for piece in pieces for index in piece.flat} <= set(range(count))
    again = [*statistics.Draws(resamples=5).pieces(count)]
    assert [piece.tolist() for piece in again] == [piece.tolist() for piece in pieces]


def test_draws_are_made_once_where_they_fit() -> None:
    draws = statistics.Draws(resamples=50, seed=3)
    (first,), (second,) = draws.pieces(4), draws.pieces(4)
    assert first is second and set(first.flat) == {0, 1, 2, 3}
    (other,) = statistics.Draws(resamples=50, seed=4).pieces(4)
    assert (other != first).any()


def test_agreement_and_correlation_by_hand() -> None:
    assert statistics.auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]) == 0.75
    assert statistics.auroc([0.5, 0.5], [True, False]) == 0.5
    assert statistics.auroc([0.5], [True]) is None
    assert statistics.auroc([0.5], [False]) is None
    assert statistics.auroc([0.1, 0.9, 0.2], [0, 1, 0]) == 1.0  # type: ignore[list-item]
    assert statistics.rmse([0.0, 1.0], [0.0, 0.0]) == pytest.approx(math.sqrt(0.5))
    assert statistics.rmse([3.0, 1.0], [1.0, 1.0]) == pytest.approx(math.sqrt(2))
    assert statistics.rmse([True, False], [False, False]) == pytest.approx(math.sqrt(0.5))
    assert statistics.rmse([], []) is None
    assert statistics.spearman([1, 2, 3], [10, 100, 1000]) == pytest.approx(1.0)
    assert statistics.spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(math.sqrt(0.9))
    assert statistics.pearson([1.0, 1.0], [1.0, 2.0]) is None
    assert statistics.pearson([1.0, 2.0], [1.0, 1.0]) is None
    assert statistics.pearson([1.0], [1.0]) is None
    assert statistics.pearson([1.0, 2.0], [0.0, 2.0]) == pytest.approx(1.0)
    assert statistics.pearson([0.0, 2.0], [2.0, 1.0]) == pytest.approx(-1.0)


DOCUMENTS = ["Water boils at 100 degrees. It freezes at zero.", "Tea is a drink."]
ANSWER = "Water boils at 100 degrees. It is blue."


def annotation(*, second_supported: bool = False) -> Annotation:
    support = (Support("a", ("0a",), True), Support("b", ("general",) if second_supported else (), second_supported))
    return Annotation(("0a", "0b"), ("0a", "1a"), support)


def test_keys_are_those_of_the_data_set() -> None:
    assert [letters(number) for number in (0, 25, 26, 27, 701, 702)] == ["a", "z", "aa", "ab", "zz", "aaa"]
    assert [[sentence.key for sentence in document] for document in key_documents(DOCUMENTS)] == [["0a", "0b"], ["1a"]]
    assert key_answer(ANSWER) == [Sentence("a", "Water boils at 100 degrees."), Sentence("b", "It is blue.")]
    assert key_documents(["", "One."])[1][0].key == "1a"


@given(st.integers(0, 20_000))
def test_letters_never_repeat(number: int) -> None:
    assert letters(number) != letters(number + 1) and len(letters(number)) <= len(letters(number + 1))


def test_the_figures_by_hand() -> None:
    context, answer = key_documents(DOCUMENTS), key_answer(ANSWER)
    by_tokens = trace_scores(context, answer, annotation())
    assert by_tokens.context_relevance.value == pytest.approx(9 / 13)
    assert by_tokens.context_utilization.value == pytest.approx(9 / 13)
    assert by_tokens.completeness.value == pytest.approx(5 / 9)
    assert (by_tokens.adherence.value, by_tokens.faithfulness.value) == (0.0, 0.5)
    by_sentences = trace_scores(context, answer, annotation(second_supported=True), unit="sentences")
    assert by_sentences.context_relevance.value == pytest.approx(2 / 3)
    assert by_sentences.completeness.value == 0.5
    assert by_sentences.as_dict() == {
        "context_relevance": {"state": "scored", "value": pytest.approx(2 / 3)},
        "context_utilization": {"state": "scored", "value": pytest.approx(2 / 3)},
        "completeness": {"state": "scored", "value": 0.5},
        "adherence": {"state": "scored", "value": 1.0},
        "faithfulness": {"state": "scored", "value": 1.0},
    }
    assert (by_sentences.adherence.value, by_sentences.faithfulness.value) == (1.0, 1.0)


def test_nothing_relevant_is_complete() -> None:
    nothing = Annotation((), ("0a",), annotation().support)
    scores = trace_scores(key_documents(DOCUMENTS), key_answer(ANSWER), nothing)
    assert (scores.context_relevance.value, scores.completeness.value) == (0.0, 1.0)


def test_what_cannot_be_scored_says_why() -> None:
    context, answer = key_documents(DOCUMENTS), key_answer(ANSWER)
    empty = trace_scores([], answer, Annotation((), (), (Support("a"), Support("b"))))
    assert empty.context_relevance == empty.completeness == unscorable(NO_CONTEXT)
    assert empty.adherence.value == 0.0
    silent = trace_scores(context, [], Annotation(("0a",)))
    assert silent.context_relevance.value and silent.adherence == unscorable(NO_ANSWER)
    refused = trace_scores(context, answer, annotation(), refused=True)
    assert refused.completeness == refused.faithfulness == unscorable(REFUSED)
    with pytest.raises(ValueError, match="unit"):
        trace_scores(context, answer, annotation(), unit="words")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (Annotation(("0a", "9z"), (), annotation().support), "^relevant_keys.*'9z'"),
        (Annotation((), ("0c",), annotation().support), "^utilized_keys.*'0c'"),
        (Annotation((), (), (Support("a"),)), "^support.* a, b$"),
        (Annotation((), (), (Support("a"), Support("a"))), "^support.* a, b$"),
        (Annotation((), (), (Support("a"), Support("b"), Support("b"))), "^support.* a, b$"),
        (Annotation((), (), (Support("a", ("0a", "0x"), True), Support("b"))), "'a' .*'0x'"),
    ],
)
def test_an_annotation_that_does_not_fit_is_refused(wrong: Annotation, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        check_annotation(wrong, key_documents(DOCUMENTS), key_answer(ANSWER))


def test_an_annotation_as_json() -> None:
    assert annotation().as_dict() == {
        "relevant_keys": ["0a", "0b"],
        "utilized_keys": ["0a", "1a"],
        "support": [
            {"key": "a", "supporting_keys": ["0a"], "fully_supported": True},
            {"key": "b", "supporting_keys": [], "fully_supported": False},
        ],
    }


def test_keys_are_ordered_by_document_not_by_letter() -> None:
    context = key_documents(["One."] * 11)
    checked = check_annotation(Annotation(("10a", "2a"), ("10a", "9a", "0a")), context, [])
    assert (checked.relevant_keys, checked.utilized_keys) == (("2a", "10a"), ("0a", "9a", "10a"))


def test_keys_count_once_and_in_order() -> None:
    mixed = Annotation(("1a", "0a", "1a"), (), annotation().support[::-1])
    checked = check_annotation(mixed, key_documents(DOCUMENTS), key_answer(ANSWER))
    assert checked.relevant_keys == ("0a", "1a") and [item.key for item in checked.support] == ["a", "b"]


ROW: dict[str, Any] = {
    "documents_sentences": [[["0a", "One."], ["0b", "Two."]], [["1a", "Three."], ["1b", "Four."]]],
    "response_sentences": [["a", "One."]],
    "all_relevant_sentence_keys": ["0a", "1a", "1a"],  # listed twice, counted twice
    "all_utilized_sentence_keys": ["0a", "7z"],  # no sentence has this one, and it counts
    "unsupported_response_sentence_keys": [],
}


def test_a_row_counts_keys_as_they_are_listed() -> None:
    scores = row_scores(ROW)
    assert {name: score.value for name, score in scores.items()} == {
        "context_relevance": 0.75,
        "context_utilization": 0.5,
        "completeness": pytest.approx(1 / 3),
        "adherence": 1.0,
    }
    assert row_scores(ROW | {"all_relevant_sentence_keys": []})["completeness"].value == 1.0
    assert row_scores(ROW | {"unsupported_response_sentence_keys": ["a"]})["adherence"].value == 0.0
    assert row_context(ROW)[1] == [Sentence("1a", "Three."), Sentence("1b", "Four.")]
    assert row_answer(ROW) == [Sentence("a", "One.")]


def test_a_row_without_context() -> None:
    scores = row_scores(ROW | {"documents_sentences": [[]]})
    assert scores["context_relevance"] == scores["context_utilization"] == unscorable(NO_CONTEXT)
