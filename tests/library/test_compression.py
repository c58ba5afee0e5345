"""compress(): exact slices, budget, choice and order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.errors import InvalidInput
from ragd.search.compression import CompressPolicy, compress
from ragd.types import Candidate
from tests.refusals import raises_with

DOCUMENT = "Cats sleep a lot. Dogs bark at night. Birds sing. Cats and dogs fight. Fish are quiet."


def candidate(start: int = 0, end: int | None = None, *, doc_id: str = "d", index: int = 0) -> Candidate:
    return Candidate(doc_id, index, DOCUMENT[start:end], 1.0, start=start)


def found(spans: list[dict[str, Any]]) -> list[str]:
    return [span["content"] for span in spans]


def test_a_span_says_where_it_is_from() -> None:
    assert compress("Do birds sing?", [candidate(), candidate(18, 37, index=1)]) == [
        {
            "doc_id": "d", "chunk_index": 0, "rank": 1, "start": 38, "end": 49, "content": "Birds sing.",
            "score": pytest.approx(0.5, abs=0.2), "tokens_before": 17, "tokens_after": 2,
        }
    ]  # fmt: skip


def test_neighbours_become_one_span_and_order_is_that_of_the_text() -> None:
    assert found(compress("dogs cats", [candidate()])) == [
        "Cats sleep a lot. Dogs bark at night.",
        "Cats and dogs fight.",
    ]


def test_max_sentences_takes_the_best() -> None:
    assert found(compress("dogs cats", [candidate()], CompressPolicy(max_sentences=1))) == ["Cats and dogs fight."]


def test_a_heading_is_kept_for_its_neighbours_only() -> None:
    text = "## Scores fused\n\nThe scores are added.\n\n# scores\nadd(scores)\n\nNothing else."
    chunk = [Candidate("d", 0, text, 1.0)]
    assert found(compress("scores fused", chunk)) == ["The scores are added.\n\n# scores\nadd(scores)"]
    assert found(compress("scores fused", chunk, CompressPolicy(kind="window", max_sentences=1))) == [
        text[:-14].rstrip()
    ]
    assert found(compress("heading", [Candidate("d", 0, "# Scores\n\nThey.", 1.0)])) == ["# Scores\n\nThey."]


def test_the_budget_skips_what_does_not_fit() -> None:
    assert found(compress("dogs cats birds", [candidate()], CompressPolicy(token_budget=6))) == [
        "Birds sing. Cats and dogs fight."
    ]


def test_a_window_brings_its_neighbours() -> None:
    policy = CompressPolicy(kind="window", window=1, max_sentences=1)
    assert found(compress("birds", [candidate()], policy)) == ["Dogs bark at night. Birds sing. Cats and dogs fight."]
    tight = CompressPolicy(kind="window", window=1, token_budget=6)
    assert found(compress("birds", [candidate()], tight)) == ["Dogs bark at night. Birds sing."]


def test_one_sentence_of_two_overlapping_chunks_is_taken_once() -> None:
    spans = compress("birds", [candidate(18, 49, index=0), candidate(38, 70, index=1)])
    assert [(span["chunk_index"], span["start"], span["content"]) for span in spans] == [(0, 38, "Birds sing.")]


def test_what_is_left_of_a_sentence_that_a_chunk_cuts_is_not_taken_beside_the_whole() -> None:
    whole = candidate(38, 70, index=0)
    assert whole.content == "Birds sing. Cats and dogs fight."
    tail, head = candidate(55, 70, index=1), candidate(50, 63, index=2)
    assert (tail.content, head.content) == ("and dogs fight.", "Cats and dogs")
    assert found(compress("dogs", [whole, tail, head])) == ["Cats and dogs fight."]
    assert found(compress("dogs", [tail, whole])) == ["and dogs fight.", "Cats and dogs fight."]


def test_what_a_higher_chunk_covers_hides_only_itself() -> None:
    assert found(compress("birds cats", [candidate(38, 49), candidate(38, 70, index=1)])) == [
        "Birds sing.",
        "Cats and dogs fight.",
    ]


def test_what_a_person_wrote_is_taken_beside_the_text_of_its_place() -> None:
    written = replace(candidate(38, 49, index=1), attributes={"overlay": "edit"})
    assert found(compress("birds", [candidate(38, 49), written])) == ["Birds sing.", "Birds sing."]


def test_equal_sentences_of_different_documents_are_both_taken() -> None:
    spans = compress("birds", [candidate(38, 49), candidate(38, 49, doc_id="e")])
    assert [(span["doc_id"], span["rank"]) for span in spans] == [("d", 1), ("e", 2)]


def test_without_a_shared_word_the_best_candidates_begin() -> None:
    policy = CompressPolicy(token_budget=8)
    assert found(compress("oiseaux", [candidate()], policy)) == ["Cats sleep a lot. Dogs bark at night."]


def test_a_sentence_larger_than_the_budget_is_cut() -> None:
    (span,) = compress("bark", [candidate()], CompressPolicy(token_budget=2))
    assert (span["content"], span["start"], span["end"], span["tokens_after"]) == ("Dogs bark", 18, 27, 2)
    assert found(compress("bark", [candidate()], CompressPolicy(token_budget=1))) == ["Dogs"]


def test_a_sentence_larger_than_the_budget_brings_no_neighbours() -> None:
    policy = CompressPolicy(kind="window", window=1, token_budget=3)
    assert found(compress("bark night", [candidate()], policy)) == ["Dogs bark at"]


def test_rare_words_weigh_more() -> None:
    texts = ["The red fox ran. It hid.", "The red car. The car was fast.", "A red rose."]
    candidates = [Candidate("d", place, text, 1.0, start=100 * place) for place, text in enumerate(texts)]
    (span,) = compress("red fast", candidates, CompressPolicy(max_sentences=1))
    assert span["content"] == "The car was fast."
    # "fast" is in 1 of 3, ln(1 + 2.5 / 1.5); "red" in all, ln(1 + 0.5 / 3.5)
    assert span["score"] == pytest.approx(0.980829 / (0.980829 + 0.133531), abs=1e-6)


def test_scripts_without_spaces() -> None:
    item = Candidate("d", 0, "今天天气很好。我们去公园吧！", 1.0, start=5)
    (span,) = compress("去公园", [item])
    assert (span["content"], span["start"], span["end"]) == ("我们去公园吧！", 12, 19)
    assert found(compress("天气", [item])) == ["今天天气很好。"]


@pytest.mark.parametrize(
    ("query", "sentence"), [("公园", "公园很大。"), ("很大", "公园很大。"), ("很好", "天气很好。"), ("雨", "雨。")]
)
def test_words_of_scripts_without_spaces_are_pairs_and_single_characters(query: str, sentence: str) -> None:
    item = Candidate("d", 0, "今日。天气很好。公园很大。雨。", 1.0)
    assert found(compress(query, [item])) == [sentence]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"kind": "magic"}, "kind"),
        ({"token_budget": 0}, "token_budget"),
        ({"token_budget": 1.5}, "token_budget"),
        ({"max_sentences": 0}, "max_sentences"),
        ({"window": -1}, "window"),
        ({"window": None}, "window"),
        ({"budget": 1}, "budget"),
    ],
)
def test_wrong_policies_are_named(values: dict[str, Any], field: str) -> None:
    with raises_with(InvalidInput, field=field) as caught:
        CompressPolicy.from_dict(values)
    assert field in str(caught.value)


SENTENCES = st.lists(
    st.sampled_from(["Cats run. ", "A b c d e. ", "Dogs bark\n\n", "汉字。", "no mark ", "# H\n\n"]), max_size=12
)


@given(
    st.lists(SENTENCES.map("".join), max_size=5),
    st.sampled_from(["cats", "dogs b", "汉字", "", "zebra"]),
    st.builds(
        CompressPolicy,
        kind=st.sampled_from(("sentences", "window")),
        token_budget=st.none() | st.integers(1, 30),
        max_sentences=st.none() | st.integers(1, 5),
        window=st.integers(0, 3),
    ),
)
def test_spans_are_exact_ordered_and_within_the_budget(texts: list[str], query: str, policy: CompressPolicy) -> None:
    candidates = [Candidate("d", place, text, 1.0, start=1000 * place) for place, text in enumerate(texts)]
    spans = compress(query, candidates, policy)
    assert spans == compress(query, candidates, policy)
    assert bool(spans) == any(text.strip() for text in texts)
    places = [(span["rank"], span["start"]) for span in spans]
    assert places == sorted(set(places))
    ends = [(span["rank"], span["end"]) for span in spans]
    assert all(end <= start for end, start in zip(ends, places[1:], strict=False)), "no two overlap"
    for span in spans:
        origin = candidates[span["rank"] - 1]
        assert span["content"] == origin.content[span["start"] - origin.start : span["end"] - origin.start] != ""
        assert span["tokens_after"] == len(span["content"].split()) <= span["tokens_before"]
    assert sum(span["tokens_after"] for span in spans) <= (policy.token_budget or 10**9)


def test_no_budget_takes_all_that_scores() -> None:
    policy = CompressPolicy(token_budget=None)
    assert found(compress("cats dogs birds fish", [candidate()], policy)) == [DOCUMENT]


def test_policy_as_dict_and_back() -> None:
    policy = CompressPolicy(kind="window", token_budget=None, max_sentences=3, window=2)
    assert CompressPolicy.from_dict(policy.as_dict()) == policy
