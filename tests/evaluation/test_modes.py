"""Which failure modes a scored question shows, and that the table holds what the diagnostics ask for.
The catalogue of measures: names, cuts, bands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from evaluation_app.golden.questions import Golden
from evaluation_app.measures.catalogue import (
    CHUNK,
    DIMENSIONS,
    DOCUMENT_BANDS,
    HEADLINE,
    MEASURES,
    RUBRICS,
    Change,
    Measure,
    by_construction,
    failures,
    find,
    measure_of,
    order_of,
    read_bands,
    stored_table,
)
from evaluation_app.measures.scores import Score, failed, key_answer, scored, unscorable
from evaluation_app.models import EvaluationItem
from evaluation_app.runs.reports import result_of
from evaluation_app.scoring.correctness import measure_correctness
from evaluation_app.scoring.modes import RULES, bands_for, find_modes, thresholds_for, weak_of
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from tests.builders import WordEmbedder
from tests.refusals import raises_with

CONTEXT = [
    {"key": "one#0", "sentences": [["0a", "Red."], ["0b", "Blue."]]},
    {"key": "two#3", "sentences": [["1a", "Green."]]},
]
GOLDEN = Golden("What colour?", expected_doc_ids=("one",), expected_answer="Red.")
NOTHING = Golden("What size?", category="abstain")


@dataclass(frozen=True)
class Answer:
    scores: dict[str, Score] = field(default_factory=dict)
    outcome: str = "answered"
    context: list[dict[str, Any]] = field(default_factory=lambda: CONTEXT)
    annotation: dict[str, Any] = field(default_factory=dict)
    contributions: list[dict[str, Any]] = field(default_factory=list)


def modes_of(golden: Golden | None = GOLDEN, **scores: float) -> list[str]:
    named = {name.replace("_at_", "@"): scored(value) for name, value in scores.items()}
    return find_modes(Answer(named), golden, bands_for())


def test_a_bound_of_a_rubric_holds_where_nothing_is_expected_too() -> None:
    answer = Answer({"rubric:polite": scored(0.2)}, outcome="abstained")
    for golden in (NOTHING, GOLDEN):
        assert "below_threshold" in find_modes(answer, golden, {"rubric:polite": (0.9, 0.5)})


@pytest.mark.parametrize(
    ("measure", "failing", "passing", "mode"),
    [
        ("context_relevance", 0.499, 0.5, "low_context_relevance"),
        ("context_utilization", 0.399, 0.4, "low_context_utilization"),
        ("completeness", 0.599, 0.6, "low_completeness"),
        ("adherence", 0.0, 1.0, "unsupported_claims"),
        ("faithfulness", 0.49, 0.5, "low_faithfulness"),
        ("noise_relevant", 0.71, 0.7, "noise_sensitivity"),
        ("noise_irrelevant", 0.51, 0.5, "noise_sensitivity"),
        ("hit_at_10", 0.0, 1.0, "retrieval_miss"),
        ("chunk_hit_at_5", 0.0, 1.0, "chunk_miss"),
        ("stated", 0.49, 0.5, "low_faithfulness"),
        ("correctness", 0.49, 0.5, "wrong_answer"),
    ],
)
def test_a_mode_begins_at_its_bound(measure: str, failing: float, passing: float, mode: str) -> None:
    assert modes_of(**{measure: failing}) == [mode]
    assert modes_of(**{measure: passing}) == []


def test_nothing_is_said_of_what_is_not_scored() -> None:
    scores = {"context_relevance": unscorable("no context was retrieved"), "adherence": failed("timeout")}
    assert find_modes(Answer(scores), GOLDEN) == []


def test_a_missed_document_is_not_also_a_missed_chunk() -> None:
    assert modes_of(hit_at_10=0.0, chunk_hit_at_10=0.0) == ["retrieval_miss"]


def test_words_do_not_outweigh_the_components_of_the_expected_answer() -> None:
    assert modes_of(correctness=1.0, f1=0.05, contains=0.0) == []
    assert modes_of(correctness=0.0, f1=0.9, contains=0.0) == ["wrong_answer"]


def test_a_question_fails_by_failures_and_not_by_diagnostics() -> None:
    low = modes_of(context_relevance=0.1, context_utilization=0.1, completeness=0.1, noise_relevant=1.0)
    assert len(low) == 4 and failures(low) == ()
    assert failures([*low, "wrong_answer", "gone"]) == ("wrong_answer",)
    kinds = {mode.key: mode.kind for mode in stored_table().modes.values()}
    assert {key for key, kind in kinds.items() if kind == "failure"} == {
        "retrieval_miss", "unsupported_claims", "low_faithfulness", "wrong_answer", "wrong_abstention",
        "wrong_refusal", "unwarranted_answer", "below_threshold", "run_error",
    }  # fmt: skip
    assert not EvaluationItem(outcome="answered", modes=low).is_failing
    assert EvaluationItem(outcome="answered", modes=[*low, "wrong_answer"]).is_failing
    assert EvaluationItem(outcome="error").is_failing


def test_what_cannot_vary_or_is_told_badly_fails_no_question() -> None:
    low = Answer({"adherence": scored(0), "faithfulness": scored(0.2)})
    assert find_modes(low, GOLDEN, judge="llm") == ["unsupported_claims", "low_faithfulness"]
    assert find_modes(low, GOLDEN, judge="embedded") == []
    assert weak_of("embedded") == {"adherence", "faithfulness"} and weak_of("llm") == weak_of("") == frozenset()
    unstated = Answer({"adherence": scored(1), "faithfulness": scored(1), "stated": scored(0.4)})
    assert find_modes(unstated, GOLDEN, judge="embedded") == ["low_faithfulness"], "by rules, not by its verdict"
    assert find_modes(unstated, GOLDEN, answerer="extractive", judge="embedded") == []
    assert find_modes(low, GOLDEN, answerer="extractive", judge="llm") == []
    assert find_modes(low, GOLDEN, answerer="extractive", judge="embedded") == []


WARRANTY = "The warranty lasts 24 months from the date of sale and does not cover damage from limescale."
ACID = "Use citric acid at 3 percent; never use vinegar, because it attacks the seals of the pump."


@pytest.mark.fault("UX-F1")
@pytest.mark.parametrize(
    ("expected", "answer", "more", "result", "tone"),
    [
        ("24 months from the date of sale.", WARRANTY, {}, "right", "good"),
        ("Citric acid at 3 percent.", ACID, {}, "right", "good"),
        ("Citric acid at 3 percent.", ACID, {"hit@10": 0.0}, "flawed", "watch"),
        ("Citric acid at 3 percent. It is kept in the cellar.", ACID, {}, "partly", "watch"),
        ("Every 90 days or 1,200 cups.", "Every 60 days or 1,200 cups.", {}, "wrong", "bad"),
        ("0800 555 0199", "", {}, "silent", "bad"),
        ("", "", {}, "declined", "good"),
        ("", "The pager is 0800 555 0199.", {}, "unwarranted", "bad"),
    ],
)
def test_a_right_answer_is_green_whatever_a_judge_says_of_its_context(
    expected: str, answer: str, more: dict[str, float], result: str, tone: str
) -> None:
    golden = Golden("What?", expected_answer=expected)
    sentences, outcome = [[item.key, item.text] for item in key_answer(answer)], "answered" if answer else "abstained"
    correctness = measure_correctness(sentences, outcome, golden, WordEmbedder(256)).score
    judged = dict.fromkeys(DIMENSIONS, scored(0.0)) | {"noise_irrelevant": scored(1.0), "correctness": correctness}
    told = Answer(judged | {name: scored(value) for name, value in more.items()}, outcome=outcome)
    modes = find_modes(told, golden, {}, answerer="extractive", judge="embedded 3-tokens")
    found = result_of(outcome, correctness.value, modes, thresholds_for())
    assert (found.key, found.tone) == (result, tone)


DIAGNOSED = {"context_relevance": scored(0.1), "context_utilization": scored(0.1), "completeness": scored(0.1)}
DIAGNOSES = ["low_context_relevance", "low_context_utilization", "low_completeness"]


@pytest.mark.fault("UX-F12")
def test_no_mode_is_pinned_on_a_question_by_what_the_judge_is_too_weak_in() -> None:
    assert find_modes(Answer(DIAGNOSED), GOLDEN, judge="llm") == DIAGNOSES
    assert find_modes(Answer(DIAGNOSED), GOLDEN, judge="embedded") == ["low_context_utilization"]
    strict = {"completeness": (0.8, 0.6)}
    assert find_modes(Answer(DIAGNOSED), GOLDEN, strict, judge="embedded") == ["low_context_utilization"]


@pytest.mark.fault("UX-F12")
@pytest.mark.parametrize("judge", ["llm", "embedded", ""])
def test_no_judged_diagnostic_stands_beside_a_right_answer(judge: str) -> None:
    noisy = {"noise_irrelevant": scored(1), "correctness": scored(1)}
    assert find_modes(Answer(DIAGNOSED | noisy), GOLDEN, judge=judge) == []
    missed = find_modes(Answer(DIAGNOSED | noisy | {"hit@10": scored(0)}), GOLDEN, judge=judge)
    assert missed == ["retrieval_miss"], "that is of no judge"
    half = find_modes(Answer(DIAGNOSED | {"correctness": scored(0.6)}), GOLDEN, judge="llm")
    assert half == DIAGNOSES


@pytest.mark.fault("UX-F12")
def test_mitigations_are_those_of_the_diagnostics_document() -> None:
    modes = stored_table().modes
    for key, words in {
        "low_context_relevance": ("better embeddings", "reranking", "expand query"),
        "low_context_utilization": ("improve prompts", "context-aware generation", "context formatting"),
        "low_completeness": ("increase retrieval k", "chunk selection", "hierarchical retrieval"),
        "unsupported_claims": ("faithfulness-focused prompts", "claim verification", "noise sensitivity"),
        "low_faithfulness": ("citation requirements", "claim-level verification"),
        "noise_sensitivity": ("retrieval precision", "knowledge refinement", "retrieval evaluator"),
        "answer_mismatch": ("corrective rag", "retrieval-generator alignment"),
        "global_query": ("hierarchical retrieval", "graph-based approaches"),
    }.items():
        text = " ".join(modes[key].mitigations).lower()
        assert [word for word in words if word not in text] == [], key


def test_a_poor_threshold_that_a_person_set_fails_a_question() -> None:
    low = Answer({"completeness": scored(0.2)})
    assert find_modes(low, GOLDEN) == ["low_completeness"], "nobody set that of the document"
    assert find_modes(low, GOLDEN, {"completeness": (0.8, 0.3)}) == ["low_completeness", "below_threshold"]
    assert find_modes(low, GOLDEN, {"completeness": (0.8, 0.1)}) == []
    assert find_modes(low, GOLDEN, {"adherence": (1.0, 1.0)}) == ["low_completeness"]
    assert find_modes(replace(low, outcome="abstained"), NOTHING, {"completeness": (0.8, 0.3)}) == []


def test_where_nothing_is_expected_the_context_is_no_failure_but_an_answer_is() -> None:
    low = {"context_relevance": scored(0.0), "completeness": scored(0.0), "hit@10": scored(0.0)}
    assert find_modes(Answer(low), NOTHING) == ["unwarranted_answer"]
    assert find_modes(Answer(low, outcome="abstained"), NOTHING) == []
    assert find_modes(Answer(low, outcome="searched"), NOTHING) == []


def test_declining_is_wrong_where_something_is_expected() -> None:
    assert find_modes(Answer(outcome="abstained"), GOLDEN) == ["wrong_abstention"]
    assert find_modes(Answer(outcome="refused"), GOLDEN) == ["wrong_refusal"]
    assert find_modes(Answer(outcome="abstained"), None) == []


def test_an_expected_answer_without_a_document_is_an_expectation() -> None:
    spoken = Golden("What?", expected_answer="Red.")
    assert find_modes(Answer({"context_relevance": scored(0.1)}), spoken) == ["low_context_relevance"]
    assert find_modes(Answer(outcome="abstained"), spoken) == ["wrong_abstention"]


def test_an_error_stands_alone() -> None:
    assert find_modes(Answer({"adherence": scored(0)}, outcome="error"), GOLDEN) == ["run_error"]


def test_a_global_question_that_fails_stands_in_both_columns() -> None:
    wide = Golden("What is it all about?", expected_doc_ids=("one",), category="global")
    assert modes_of(wide, completeness=0.1) == ["low_completeness", "global_query"]
    assert modes_of(wide, completeness=0.9) == []


def test_a_question_has_thresholds_of_its_own() -> None:
    strict = Golden("What?", expected_doc_ids=("one",), thresholds={"completeness": 0.95, "noise_relevant": 0.1})
    assert modes_of(strict, completeness=0.9) == ["below_threshold"]
    assert modes_of(strict, noise_relevant=0.2) == ["below_threshold"]  # lower is better
    assert modes_of(strict, completeness=0.95, noise_relevant=0.1) == []


def support(*by: str, supported: bool = True) -> dict[str, Any]:
    return {"support": [{"key": "a", "by": list(by), "supported": supported}]}


def contributed(**effects: str) -> list[dict[str, Any]]:
    keys = {"one": "one#0", "two": "two#3"}
    return [{"key": keys[name], "effect": effect} for name, effect in effects.items()]


@pytest.mark.parametrize(
    ("annotation", "contributions", "expected"),
    [
        (support("0a", supported=False), [], True),  # rests on nothing
        (support("general"), [], False),  # on what everybody knows
        (support("0b"), [], False),  # on a chunk of which nothing more is known
        (support("0b"), contributed(one="neutral", two="helpful"), True),  # not on the one that helps
        (support("0b"), contributed(one="helpful", two="neutral"), False),
        (support("0b"), contributed(one="harmful", two="neutral"), True),
        (support("0b"), contributed(one="neutral", two="harmful"), False),  # nothing helps, but it leans on no harm
    ],
)
def test_an_answer_and_its_documents_may_not_match(
    annotation: dict[str, Any], contributions: list[dict[str, Any]], expected: bool
) -> None:
    found = find_modes(Answer(annotation=annotation, contributions=contributions), GOLDEN)
    assert ("answer_mismatch" in found) is expected


def test_bands_are_configurable() -> None:
    assert find_modes(Answer({"completeness": scored(0.3)}), GOLDEN, {"completeness": (0.5, 0.25)}) == []
    assert read_bands('{"completeness": [0.5, 0.25]}') == {"completeness": (0.5, 0.25)}
    assert read_bands("") == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("[1]", "must be an object"),
        ({"smell": [1, 0]}, "no measure 'smell'"),
        ({"completeness": [0.5]}, "two numbers"),
        ({"completeness": [float("nan"), 0.5]}, "two numbers"),
        ({"completeness": [0.2, 0.5]}, "at least its poor one"),
        ({"noise_relevant": [0.5, 0.2]}, "at most its poor one"),
    ],
)
def test_wrong_bands_are_named(given: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_bands(given)


def test_no_fix_moves_the_measure_of_its_mode_the_other_way() -> None:
    """Shares of the context fall when more is retrieved: the context is what they are divided by."""
    shares = {"context_relevance", "context_utilization", "completeness"}
    for mode in stored_table().modes.values():
        if shares & set(mode.measures):
            assert [fix.key for fix in mode.fixes if (fix.plan.get("k") or Change()).times in (2, 4)] == []
            assert mode.fixes


def test_the_table_is_whole() -> None:
    table = stored_table()
    fields = set(RetrievePlan().as_dict())
    known = set(MEASURES) | {f"{CHUNK}hit"}
    assert {
        "low_context_relevance", "low_context_utilization", "low_completeness", "unsupported_claims",
        "noise_sensitivity", "low_faithfulness", "answer_mismatch", "global_query", "retrieval_miss",
        "wrong_abstention",
    } <= set(table.modes)  # fmt: skip
    assert {mode.rule for mode in table.modes.values()} == set(RULES)
    for mode in table.modes.values():
        assert set(mode.measures) <= known
        assert mode.cause and mode.mitigations
        assert "{" not in mode.describe_band(thresholds_for())
        assert len(mode.key) <= 40
        for fix in mode.fixes:
            assert set(fix.plan) <= fields
            assert fix.plan or fix.settings


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("recall@10", "Recall@10 (documents)"), ("chunk_recall@5", "Recall@5 (chunks)"),
        ("chunk_ndcg@5", "nDCG@5 (chunks)"), ("chunk_mrr@9999", "MRR@9999 (chunks)"), ("adherence", "Adherence"),
        ("rouge_l", "ROUGE-L"), ("right_outcome", "Correct outcome"),
    ],
)  # fmt: skip
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
    with raises_with(InvalidInput, match=named, field="bands"):
        read_bands(value)
