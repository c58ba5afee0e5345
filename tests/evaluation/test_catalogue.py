"""The catalogue of measures: names, cuts, bands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation_app.measures.catalogue import (
    DOCUMENT_BANDS,
    HEADLINE,
    MEASURES,
    RUBRICS,
    Measure,
    by_construction,
    find,
    measure_of,
    order_of,
    read_bands,
)
from ragd.errors import InvalidInput
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("recall@10", "Recall@10 (documents)"),
        ("chunk_recall@5", "Recall@5 (chunks)"),
        ("chunk_ndcg@5", "nDCG@5 (chunks)"),
        ("chunk_mrr@9999", "MRR@9999 (chunks)"),
        ("adherence", "Adherence"),
        ("rouge_l", "ROUGE-L"),
        ("right_outcome", "Correct outcome"),
    ],
)
def test_a_name_finds_its_measure(name, title):
    found, known = find(name), MEASURES[name.removeprefix("chunk_").partition("@")[0]]
    assert found == replace(known, name=name, title=title)


def test_a_rubric_of_a_test_set_is_a_measure():
    name = "rubric:polite_-tone-2_"
    found = find(name, {name: (0.9, 0.5)})
    assert (found.name, found.title, found.group, found.needs) == (name, "Rubric: Polite tone 2", "answer", RUBRICS)
    assert found.meaning.startswith("how far") and found.band(0.95) == "pass" and find(name).band(0.95) is None
    assert read_bands({name: [1, 0]}) == {name: (1.0, 0.0)}


def test_a_measure_that_is_gone_keeps_its_name():
    assert measure_of("old_measure@3", {"f1": (0.5, 0.2)}) == Measure("old_measure@3", "Old measure@3", "outcome", "")
    assert measure_of("f1", {"f1": (0.5, 0.2)}) == find("f1", {"f1": (0.5, 0.2)}) != measure_of("f1")


@pytest.mark.parametrize(
    "name",
    ["recall", "recall@", "recall@0", "recall@x", "adherence@3", "chunk_adherence", "", "x",
     "polite", "rubric:", "rubric:Polite", "rubric:x@3", "chunk_rubric:x",
     "recall@00", "recall@12345", "recall@١", "recall@1.5", "chunk_f1@2", "chunk_recall"],
)  # fmt: skip
def test_a_wrong_name_is_told_which_there_are(name):
    with pytest.raises(InvalidInput, match=r"known are precision@k, .*, f1, ") as caught:
        find(name)
    assert caught.value.field == "measure" and repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "band"),
    [
        ("context_relevance", 0.71, "pass"),
        ("context_relevance", 0.7, "watch"),
        ("context_relevance", 0.5, "watch"),
        ("context_relevance", 0.49, "fail"),
        ("adherence", 1.0, "pass"),  # nothing exceeds the end of the scale
        ("adherence", 0.99, "fail"),
        ("noise_relevant", 0.0, "pass"),
        ("noise_relevant", 0.01, "watch"),
        ("noise_relevant", 0.51, "fail"),
    ],
)
def test_a_value_passes_above_the_good_threshold_and_fails_below_the_poor_one(name, value, band):
    bands = {"context_relevance": (0.7, 0.5), "adherence": (1.0, 1.0), "noise_relevant": (0.0, 0.5)}
    assert find(name, bands).band(value) == band


def test_thresholds_of_reference_colour_nothing():
    assert (MEASURES["context_relevance"].good, MEASURES["context_relevance"].poor) == (0.7, 0.5)
    assert {MEASURES[name].band(value) for name in MEASURES for value in (0.0, 0.5, 1.0)} == {None}
    assert find("context_relevance", {"f1": (0.5, 0.2)}).band(0.9) is None


def test_few_measures_are_shown_first():
    assert all(name in MEASURES for name in HEADLINE) and 4 <= len(HEADLINE) <= 5
    assert DOCUMENT_BANDS == {
        "context_relevance": (0.7, 0.5), "context_utilization": (0.6, 0.4), "completeness": (0.8, 0.6),
        "adherence": (1.0, 1.0),
    }  # fmt: skip
    assert find("hit@10").is_headline and find("correctness").is_headline
    assert not find("chunk_hit@10").is_headline and not find("f1").is_headline


def test_quotations_are_supported_by_construction():
    assert by_construction(ExtractiveAnswerer.model) == {"adherence", "faithfulness", "stated"} <= set(MEASURES)
    assert by_construction("gpt-4o-mini") == by_construction("") == frozenset()


def test_names_sort_as_the_catalogue_lists_them():
    names = ["adherence", "chunk_recall@10", "recall@10", "precision@10"]
    assert sorted(names, key=order_of) == ["precision@10", "recall@10", "chunk_recall@10", "adherence"]


@pytest.mark.parametrize(
    ("good", "poor", "bands"),
    [
        (None, None, [None, None, None]),
        (0.6, None, ["fail", "fail", "pass"]),  # with one bound there is no middle
        (None, 0.4, ["fail", "pass", "pass"]),
        (0.6, 0.4, ["fail", "watch", "pass"]),
    ],
)
def test_one_bound_alone_has_no_middle(good, poor, bands):
    measure = replace(MEASURES["f1"], good=good, poor=poor, has_bands=True)
    assert [measure.band(value) for value in (0.3, 0.5, 0.61)] == bands


def test_bands_of_one_measure_change_no_other():
    assert find("adherence", {"completeness": (0.3, 0.2)}) == MEASURES["adherence"]
    assert (find("recall@3", {"recall": (0.9, 0.5)}).good, find("recall@3").good) == (0.9, None)


def test_unknown_names_sort_last():
    names = ["x@3", "right_outcome", "chunk_x@1", "ndcg@5", "chunk_ndcg@5", "a"]
    assert sorted(names, key=order_of) == ["ndcg@5", "chunk_ndcg@5", "right_outcome", "a", "x@3", "chunk_x@1"]
    assert order_of("precision@1") == (0, "precision@1") and order_of("chunk_recall@2") == (3, "chunk_recall@2")


def test_bands_as_people_write_them():
    pairs = {"completeness": (0.8, 0.6), "noise_relevant": (0.0, 1.0), "f1": (0.5, 0.5)}
    assert read_bands({"completeness": [0.8, 0.6], "noise_relevant": (0, 1), "f1": [0.5, 0.5]}) == pairs
    assert read_bands('{"completeness": [1, 0]}') == {"completeness": (1.0, 0.0)}
    assert read_bands("") == read_bands(" \n") == read_bands({}) == {}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("{", "object"), ("[]", "object"), (None, "object"), ({"recall@10": [1, 0]}, "'recall@10'"),
        ({"f1": 0.5}, "f1 .*0.5"), ({"f1": "ab"}, "f1 .*'ab'"), ({"f1": [0.5]}, "f1"), ({"f1": [0.5, 0.4, 0.3]}, "f1"),
        ({"f1": [1.1, 0.5]}, "f1"), ({"f1": [0.5, -0.1]}, "f1"), ({"f1": [True, 0]}, "f1"), ({"f1": ["1", 0]}, "f1"),
        ({"f1": [float("nan"), 0]}, "f1"), ({"f1": [10**400, 0]}, "f1"),  # no float
        ({"f1": [0.4, 0.6]}, "f1 .* at least .* 0.4 and 0.6"),
        ({"noise_relevant": [0.6, 0.4]}, "noise_relevant .* at most .* 0.6 and 0.4"),
    ],
)  # fmt: skip
def test_what_is_no_band_is_refused(value, named):
    with pytest.raises(InvalidInput, match=named) as caught:
        read_bands(value)
    assert caught.value.field == "bands"
