"""TRACe by hand, its edges, and rows in the shape of RAGBench."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation_app.measures.scores import (
    NO_ANSWER,
    NO_CONTEXT,
    REFUSED,
    Annotation,
    Sentence,
    Support,
    check_annotation,
    key_answer,
    key_documents,
    letters,
    trace_scores,
    unscorable,
)
from tests.evaluation.ragbench_rows import row_answer, row_context, row_scores

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
