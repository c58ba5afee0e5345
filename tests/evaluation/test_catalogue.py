"""The catalogue of measures: names, cuts, bands."""

from __future__ import annotations

import pytest

from evaluation_app.measures.catalogue import MEASURES, find, order_of
from ragd.errors import InvalidInput


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("recall@10", "Recall@10"),
        ("chunk_recall@5", "Chunk recall@5"),
        ("chunk_ndcg@5", "Chunk nDCG@5"),
        ("chunk_mrr@1000", "Chunk MRR@1000"),
        ("adherence", "Adherence"),
        ("rouge_l", "ROUGE-L"),
    ],
)
def test_a_name_finds_its_measure(name, title):
    found = find(name)
    assert (found.name, found.title) == (name, title)


@pytest.mark.parametrize(
    "name", ["recall", "recall@", "recall@0", "recall@x", "adherence@3", "chunk_adherence", "", "x"]
)
def test_a_wrong_name_is_told_which_there_are(name):
    with pytest.raises(InvalidInput, match="known are precision@k"):
        find(name)


@pytest.mark.parametrize(
    ("name", "value", "band"),
    [
        ("context_relevance", 0.7, "pass"),
        ("context_relevance", 0.69, "watch"),
        ("context_relevance", 0.5, "watch"),
        ("context_relevance", 0.49, "fail"),
        ("adherence", 1.0, "pass"),
        ("adherence", 0.99, "fail"),
        ("f1", 0.1, None),
    ],
)
def test_bands(name, value, band):
    assert MEASURES[name].band(value) == band


def test_bands_can_be_stated():
    measure = find("context_relevance", {"context_relevance": (0.3, 0.2)})
    assert [measure.band(value) for value in (0.3, 0.25, 0.1)] == ["pass", "watch", "fail"]


def test_a_measure_of_which_less_is_better_turns_its_bands_round():
    measure = find("noise_relevant", {"noise_relevant": (0.1, 0.3)})
    assert [measure.band(value) for value in (0.05, 0.2, 0.4)] == ["pass", "watch", "fail"]


def test_names_sort_as_the_catalogue_lists_them():
    names = ["adherence", "chunk_recall@10", "recall@10", "precision@10"]
    assert sorted(names, key=order_of) == ["precision@10", "recall@10", "chunk_recall@10", "adherence"]
