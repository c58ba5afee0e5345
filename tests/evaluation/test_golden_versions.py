"""A golden set's versions: a change of what decides figures makes a new one, and nothing else does."""

from __future__ import annotations

import hashlib

import pytest

from evaluation_app.golden.questions import Golden, clean_golden
from evaluation_app.golden.sets import asked_questions, digest_of, keep_version
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput
from ragd.types import canonical_json

pytestmark = pytest.mark.django_db


@pytest.fixture
def golden_set():
    made = GoldenSet.objects.create(name="trees", collection_name="woods")
    GoldenQuestion.objects.create(golden_set=made, position=1, question="How old?", expected_doc_ids=["oak"])
    GoldenQuestion.objects.create(golden_set=made, position=0, question="How tall?", expected_chunks=["fir#2"])
    return made


def test_a_version_holds_the_questions_in_their_order(golden_set):
    kept = keep_version(golden_set, reason="first")
    assert [item["question"] for item in kept.questions] == ["How tall?", "How old?"]
    assert (kept.version, golden_set.version, golden_set.digest) == (1, 1, kept.digest)


def test_the_same_questions_are_the_same_version(golden_set):
    first = keep_version(golden_set)
    golden_set.questions.update(notes="looked at")
    GoldenQuestion.objects.create(golden_set=golden_set, question="Suggested?", suggested=True)
    assert keep_version(golden_set).pk == first.pk


@pytest.mark.parametrize("change", [{"weight": 2.0}, {"expected_answer": "Very."}, {"category": "global"}])
def test_what_decides_a_figure_makes_a_new_version(golden_set, change):
    first = keep_version(golden_set)
    golden_set.questions.filter(position=1).update(**change)
    second = keep_version(golden_set, reason="changed")
    assert (second.version, golden_set.version) == (2, 2)
    assert first.digest != second.digest
    assert golden_set.versions.count() == 2


def test_sets_from_before_match_keep_their_digest():
    golden = Golden("How?", ("a", "b"), ("b#1",), "So.", weight=0.5, notes="n")
    fields = ("question", "expected_doc_ids", "expected_chunks", "expected_answer", "category", "weight", "thresholds")
    stored = {name: golden.as_dict()[name] for name in fields}
    assert Golden.from_dict(stored).match == "all", "as it was measured"
    assert digest_of([golden]) == hashlib.sha256(canonical_json([stored]).encode()).hexdigest()


def test_how_a_question_was_chosen_decides_no_figure():
    digests = {digest_of([Golden("How?", ("a",), by_construction=chosen)]) for chosen in (True, False)}
    assert len(digests) == 1


def test_match_decides_the_digest_where_several_are_expected():
    for docs, chunks, decides in ((("a",), ("a#1",), False), (("a", "b"), (), True), (("a",), ("a#1", "a#2"), True)):
        either = [digest_of([Golden("How?", docs, chunks, match=match)]) for match in ("any", "all")]
        assert (either[0] != either[1]) is decides, (docs, chunks)


def test_a_new_question_is_answered_by_any_of_what_it_expects():
    assert clean_golden({"question": "How?"}).match == clean_golden({"question": "How?", "match": None}).match == "any"
    before = Golden("How?", ("a", "b"), match="all")
    assert clean_golden({"weight": 2.0}, before).match == "all", "what is not stated stays"
    with pytest.raises(InvalidInput) as refused:
        clean_golden({"question": "How?", "match": "some"})
    assert refused.value.field == "match"


def test_a_suggestion_is_not_asked(golden_set):
    golden_set.questions.filter(position=0).update(suggested=True)
    assert [golden.question for _, golden in asked_questions(golden_set)] == ["How old?"]


def test_a_golden_question_travels_as_plain_data():
    golden = Golden("How?", ("a", "b"), ("b#1", "c#2"), "So.", "global", 0.5, {"recall@10": 0.5}, "n")
    assert Golden.from_dict(golden.as_dict()) == golden
    assert golden.relevant_docs == ("a", "b", "c")


@pytest.mark.parametrize("wrong", [{"question": " "}, {"question": "x", "weight": -1}, {"question": "x", "colour": 1}])
def test_a_wrong_question_is_told(wrong):
    with pytest.raises(InvalidInput):
        Golden.from_dict(wrong)
