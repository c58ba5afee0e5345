"""The embedded judge: what it measures, its figures, its edges, and that the stored model is one."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation_app.judges import feature_model
from evaluation_app.judges.embedded_judge import EmbeddedJudge
from evaluation_app.judges.features import ANSWER_NAMES, CONTEXT_NAMES, SUPPORT_NAMES, measure_case
from evaluation_app.judges.protocol import MEASURES, NO_QUESTION, Case, Judgement, is_refusal, texts_of
from evaluation_app.measures import scores
from evaluation_app.runs.summaries import question_bands
from evaluation_app.scoring.modes import weak_of
from ragd.errors import EmbedderError
from ragd.models.embedding import LocalEmbedder
from tests.builders import WordEmbedder

DOCUMENTS = [
    "The lighthouse of Brack was lit in 1871. It stands on a granite rock. Its keeper was Ann Hale.",
    "Tea grows on hills. Pickers bring the leaves to the valley.",
]
QUESTION = "When was the lighthouse of Brack lit?"
ANSWER = "The lighthouse of Brack was lit in 1871."


def plain(names: Sequence[str], intercept: float = 0.0, **coefficients: float) -> feature_model.Logistic:
    zeros = (0.0,) * len(names)
    return feature_model.Logistic(
        tuple(names), tuple(coefficients.get(name, 0.0) for name in names), intercept, zeros, (1.0,) * len(names)
    )


def model_of(
    relevant: float = 0.0, utilized: float = 0.0, both: float = 0.0, **support: float
) -> feature_model.JudgeModel:
    """Heads that say the same of every sentence, the logit given, and "unsupported" of the given coefficients."""
    heads = {
        name: feature_model.Head(plain(CONTEXT_NAMES, logit), plain(feature_model.SECOND_NAMES, own=1.0))
        for name, logit in zip(feature_model.HEADS, (relevant, utilized, both), strict=True)
    }
    return feature_model.JudgeModel(
        heads,
        unsupported=plain(SUPPORT_NAMES, **support),
        altered=plain(ANSWER_NAMES),
        completeness=plain(feature_model.CASE_NAMES, both_of_relevant=1.0),
        adherence=plain(feature_model.ADHERENCE_NAMES, highest=-1.0),
        threshold=0.5,
        spreads=dict.fromkeys(feature_model.ESTIMATED, feature_model.Spread((0.5, 1.0), (-0.1, -0.2), (0.3, 0.4))),
        version="test",
        embedder="words",
        fitted_on="nothing",
    )


def measure(question: str = QUESTION, documents: Sequence[str] = DOCUMENTS, answer: str = ANSWER) -> dict[str, Any]:
    """Tables as {name: values}, under "context" and "answer"."""
    case, embedder = Case.of(question, documents, answer), WordEmbedder()
    texts = texts_of(case)
    features = measure_case(case, dict(zip(texts, embedder.embed(texts), strict=True)))
    return {
        "context": {name: features.context[:, place] for place, name in enumerate(CONTEXT_NAMES)},
        "answer": {name: features.answer[:, place] for place, name in enumerate(ANSWER_NAMES)},
        "features": features,
    }


def test_sentences_are_measured_against_question_and_answer() -> None:
    context = measure()["context"]
    assert context["answer_cosine"][0] == pytest.approx(1.0)
    assert context["words_in_answer"][0] == 1.0 and context["jaccard_answer"][0] == 1.0
    assert list(context["opens_document"]) == [1, 0, 0, 1, 0]
    assert np.argmax(context["question_bm25"]) == 0 and context["question_bm25"][3] == 0
    assert context["question_bm25"].max() <= 1.0
    assert context["question_cosine"].max() == context["question_best"][4]
    assert context["document_best"][1] == context["question_cosine"][:3].max()
    assert sorted(context["question_rank"] * 5) == pytest.approx([0, 1, 2, 3, 4])


def test_what_the_context_does_not_hold_is_counted() -> None:
    answer = measure(answer="It was lit in 1871 by Ann Hale. It was never lit by Tom Crane in 1999.")["answer"]
    assert list(answer["has_number"]) == [1, 1]
    assert answer["unknown_numbers"] == pytest.approx([0, math.log(2)])
    assert answer["unknown_names"] == pytest.approx([0, math.log(3)])
    assert answer["share_of_unknown_names"] == pytest.approx([0, 1])
    assert list(answer["negates"]) == [0, 1] and list(answer["negation_differs"]) == [0, 1]
    assert answer["words_in_context"][0] == 1.0 > answer["words_in_context"][1]


def test_a_copied_sentence_is_whole_in_the_context_and_names_it_as_nearest() -> None:
    measured = measure(answer=f"{DOCUMENTS[1].split('.')[0]}.")
    answer = measured["answer"]
    for name in ("cosine_best", "words_in_nearest", "pairs_in_context", "weighted_words_in_context"):
        assert answer[name][0] == pytest.approx(1.0), name
    assert list(measured["features"].nearest) == [3]
    assert list(measured["features"].documents) == [0, 0, 0, 1, 1]


def test_what_was_put_in_from_elsewhere_is_behind_what_stands_together() -> None:
    said = "The lighthouse of Brack was lit in 1871."
    documents = [f"{said} Its keeper was Ann Hale.", "In 1999 Tom Crane grew tea on hills near Tay."]
    changed = "The lighthouse of Tay was lit in 1871. The lighthouse of Brack was lit in 1999. "
    changed += "The lighthouse of Brack was not lit in 1871."
    plain_row = measure(documents=documents, answer=said)["answer"]
    rows = measure(documents=documents, answer=changed)["answer"]
    for name in ("number_behind_best", "name_behind_best", "word_behind_best", "negations_differ"):
        assert plain_row[name][0] == 0, name
    assert list(rows["name_behind_best"] < 0) == [True, False, False]
    assert list(rows["number_behind_best"] < 0) == [False, True, False]
    assert list(rows["negations_differ"]) == [0, 0, 1]
    assert (rows["words_in_context"] == 1.0).all() and (rows["pairs_in_best_sentence"] < 1).all()
    before = measure(documents=["Oil it before the start."], answer="Oil it after the start.")["answer"]
    assert before["opposite_beside"][0] == 1 and plain_row["opposite_beside"][0] == 0


def test_a_changed_fact_counts_from_a_certain_doubt_on() -> None:
    table = np.zeros((3, len(ANSWER_NAMES)))
    table[:, ANSWER_NAMES.index("negations_differ")] = [0.0, 1.0, 3.0]
    unsupported = plain(SUPPORT_NAMES, -2.0)
    chances = feature_model.doubt(unsupported, plain(ANSWER_NAMES, negations_differ=1.0), table)
    logits = np.log(chances / (1 - chances))
    assert logits == pytest.approx([-2.0, -2.0, -2.0 + 3.0 - feature_model.ALTERED_FROM])


def test_the_stored_model_doubts_sentences_with_one_fact_changed() -> None:
    documents = [
        "The lighthouse of Brack was lit in 1871 and rises 41 metres above the rock. Its keeper was Ann Hale.",
        "The harbour of Tay was closed in 1934, when Tom Crane left the town.",
    ]
    said = "The lighthouse of Brack was lit in 1871 and rises 41 metres above the rock."
    changes = {"1871": "1934", "Brack": "Tay", "was lit": "was not lit", "above": "below"}
    texts = [said, *(said.replace(old, new) for old, new in changes.items())]
    judged = EmbeddedJudge(LocalEmbedder()).judge_many([Case.of(QUESTION, documents, text) for text in texts])
    doubts = [item.likely["unsupported"]["a"] for item in judged]
    assert all(other > doubts[0] for other in doubts[1:]), doubts
    assert value(judged[0], "adherence") == 1.0


def test_accuracy_is_what_the_benchmark_stored() -> None:
    adherence, relevance = (feature_model.accuracy_of("embedded", name) for name in ("adherence", "context_relevance"))
    assert adherence is not None and relevance is not None
    assert adherence.statistic == "auroc" and relevance.statistic == "rmse"
    stored = json.loads(feature_model.ACCURACY_FILE.read_text(encoding="utf-8"))["embedded"]["measures"]
    assert set(stored) == set(feature_model.ESTIMATED)
    for name, figures in stored.items():
        found = feature_model.accuracy_of("embedded", name)
        assert found is not None and found.as_dict() == figures
        assert found.low <= found.value <= found.high and found.rows > 1000
    assert (
        feature_model.accuracy_of("llm", "adherence") is None
        and feature_model.accuracy_of("embedded", "answer_relevance") is None
    )


@pytest.mark.parametrize(
    ("statistic", "accuracy", "beside", "expected"),
    [("auroc", 0.74, 0.6, True), ("auroc", 0.76, 0.6, False), ("rmse", 0.15, 0.2, True), ("rmse", 0.13, 0.2, False)],
)
def test_a_weak_judge_gives_no_verdict_per_question(
    statistic: feature_model.Statistic, accuracy: float, beside: float, expected: bool
) -> None:
    assert feature_model.Accuracy(statistic, accuracy, accuracy, accuracy, 100, beside).is_weak is expected


def test_what_a_folders_model_decides_has_no_measured_accuracy() -> None:
    own = EmbeddedJudge(LocalEmbedder())
    folder = f"{own.name} {own.version} lettucedetect 0123456789ab"
    assert (
        feature_model.accuracy_of(f"{own.name} {own.version}", "adherence")
        == feature_model.accuracy_of("embedded", "adherence")
        is not None
    )
    assert feature_model.accuracy_of(folder, "adherence") is feature_model.accuracy_of(folder, "faithfulness") is None
    assert feature_model.accuracy_of(folder, "context_relevance") == feature_model.accuracy_of(
        "embedded", "context_relevance"
    )
    assert weak_of(f"{own.name} {own.version}") and not weak_of(folder)
    bands = {"adherence": (0.9, 0.5), "context_relevance": (0.9, 0.5)}
    assert set(question_bands(folder, bands)) == {"adherence"}


def test_logistic_regression_finds_the_least_loss() -> None:
    generator = np.random.Generator(np.random.PCG64(5))
    table = generator.normal(size=(400, 3)) * [1, 5, 0.1] + [0, 3, -2]
    labels = generator.random(400) < 1 / (1 + np.exp(-(table[:, 0] * 1.5 - 0.4)))
    weights = generator.random(400) + 0.5
    model = feature_model.fit_logistic(("a", "b", "c"), table, labels, ridge=2.0, weights=weights)

    def loss(coefficients: Sequence[float], intercept: float) -> float:
        score = (table - model.means) / model.scales @ np.asarray(coefficients) + intercept
        shares = weights / weights.mean()
        return float(shares @ (np.logaddexp(0, score) - labels * score) + np.square(coefficients).sum())

    least = loss(model.coefficients, model.intercept)
    for place, step in itertools.product(range(3), (-0.01, 0.01)):
        moved = list(model.coefficients)
        moved[place] += step
        assert loss(moved, model.intercept) > least
    assert loss(model.coefficients, model.intercept + 0.01) > least
    assert np.average(model.predict(table), weights=weights) == pytest.approx(np.average(labels, weights=weights))
    assert feature_model.fit_logistic(("a", "b", "c"), table, labels, ridge=2.0, weights=weights) == model
    again = feature_model.Logistic.from_dict(json.loads(json.dumps(model.as_dict())))
    assert again.predict(table) == pytest.approx(model.predict(table), abs=1e-6)


def test_a_column_that_never_changes_and_labels_of_one_kind_are_no_trouble() -> None:
    table = np.column_stack([np.ones(20), np.arange(20.0)])
    model = feature_model.fit_logistic(("same", "rising"), table, np.arange(20) >= 10, ridge=0.1)
    assert model.coefficients[0] == 0 and model.predict(table)[-1] > 0.9 > 0.1 > model.predict(table)[0]
    assert feature_model.fit_logistic(("same", "rising"), table, np.ones(20), ridge=1.0).predict(table).min() > 0.99


@pytest.mark.parametrize(("columns", "ridge"), [(3, 1.0), (2, 0.0)])
def test_fits_that_make_no_sense_are_refused(columns: int, ridge: float) -> None:
    with pytest.raises(ValueError, match=r"is needed|must be above 0"):
        feature_model.fit_logistic(("a", "b"), np.ones((4, columns)), [0, 1, 0, 1], ridge=ridge)


def test_estimates_are_expectations_over_words_or_sentences() -> None:
    case = Case(
        "q",
        [[scores.Sentence("0a", "one two three"), scores.Sentence("0b", "four")]],
        [scores.Sentence("a", "one two")],
    )
    first = plain(CONTEXT_NAMES, opens_document=2.0)
    heads = {
        name: feature_model.Head(first, plain(feature_model.SECOND_NAMES, own=1.0)) for name in feature_model.HEADS
    }
    base = model_of()
    model = replace(base, heads=heads)
    high = 1 / (1 + math.exp(-2))
    tokens = EmbeddedJudge(WordEmbedder(), model=model).judge(case)
    sentences = EmbeddedJudge(WordEmbedder(), model=model, unit="sentences").judge(case)
    assert tokens.estimates["context_relevance"].value == pytest.approx((3 * high + 0.5) / 4)
    assert sentences.estimates["context_relevance"].value == pytest.approx((high + 0.5) / 2)
    # three words of four are nearest to 3.1 expected, one sentence of two to 1.4
    assert [judged.scores["context_relevance"].value for judged in (tokens, sentences)] == [0.75, 0.5]
    assert tokens.likely["relevant"] == pytest.approx({"0a": high, "0b": 0.5})


def test_completeness_reads_what_is_both_of_what_is_relevant() -> None:
    """With that feature alone it is the share itself, kept inside 0 and 1."""
    judge = EmbeddedJudge(WordEmbedder(), model=model_of(relevant=1.0, utilized=-2.0, both=-1.0))
    estimates = judge.judge(Case.of(QUESTION, DOCUMENTS, ANSWER)).estimates
    chance = {logit: 1 / (1 + math.exp(-logit)) for logit in (1.0, -1.0, -2.0)}
    assert estimates["completeness"].value == pytest.approx(chance[-1.0] / chance[1.0])
    assert estimates["context_utilization"].value == pytest.approx(chance[-2.0])
    more = EmbeddedJudge(WordEmbedder(), model=model_of(relevant=-1.0, both=1.0)).judge(
        Case.of(QUESTION, DOCUMENTS, ANSWER)
    )
    assert more.estimates["completeness"].value == pytest.approx(1 - feature_model.SURE)


def test_completeness_reads_the_case_as_a_whole() -> None:
    case = Case.of(QUESTION, DOCUMENTS, ANSWER)
    features = measure_case(case, dict(zip(texts_of(case), WordEmbedder().embed(texts_of(case)), strict=True)))
    likely = {"relevant": np.full(5, 0.5), "utilized": np.full(5, 0.25), "both": np.full(5, 0.25)}
    row = dict(zip(feature_model.CASE_NAMES, feature_model.case_row(likely, features.context)[0], strict=True))
    assert row["both_of_relevant"] == pytest.approx(0.0) and row["relevant_mean"] == pytest.approx(0.0)
    assert row["utilized_mean"] == pytest.approx(math.log(1 / 3))
    assert row["sentences"] == pytest.approx(math.log(5)) and row["documents"] == pytest.approx(math.log(2))
    model = replace(model_of(), completeness=plain(feature_model.CASE_NAMES, 1.0, documents=-1.0))
    assert model.complete(likely, features.context) == pytest.approx(1 / (1 + math.exp(math.log(2) - 1)))


def test_one_unsupported_sentence_makes_an_answer_not_adherent() -> None:
    judge = EmbeddedJudge(WordEmbedder(), model=model_of(intercept=-3.0, unknown_numbers=10.0))
    good = judge.judge(Case.of(QUESTION, DOCUMENTS, ANSWER))
    bad = judge.judge(Case.of(QUESTION, DOCUMENTS, f"{ANSWER} It is 77 metres high."))
    assert good.scores["adherence"] == scores.scored(1.0) and bad.scores["adherence"] == scores.scored(0.0)
    assert bad.likely["unsupported"]["b"] > 0.9 > 0.1 > bad.likely["unsupported"]["a"]
    assert bad.scores["faithfulness"] == scores.scored(0.5)
    chances = list(bad.likely["unsupported"].values())
    assert bad.estimates["faithfulness"].value == pytest.approx(1 - np.mean(chances))
    assert bad.estimates["adherence"].value == pytest.approx(1 - max(chances))
    assert bad.annotation is not None
    assert [item.is_supported for item in bad.annotation.support] == [True, False]
    assert bad.annotation.support[0].supporting_keys == ("0a",)


@pytest.mark.parametrize("unit", ["tokens", "sentences"])
def test_every_figure_is_the_formula_over_the_marks(unit: scores.Unit) -> None:
    """Also where a sentence is blank, the case is judged by the stored model, and figures lie between 0 and 1."""
    generator = np.random.Generator(np.random.PCG64(4))
    judge = EmbeddedJudge(LocalEmbedder(), unit=unit)
    texts = [sentence for document in DOCUMENTS for sentence in document.split(". ")] + ["It has 77 steps.", " "]
    cases = []
    for _ in range(20):
        context = [
            [
                scores.Sentence(f"{number}{scores.letters(place)}", str(text))
                for place, text in enumerate(generator.choice(texts, 3))
            ]
            for number in range(4)
        ]
        answer = [scores.Sentence("a", ANSWER), scores.Sentence("b", str(generator.choice(texts)))]
        cases.append(Case(QUESTION, context, answer))
    judgements = judge.judge_many(cases)
    figures = set()
    for case, judged in zip(cases, judgements, strict=True):
        assert judged.annotation is not None
        counted = scores.trace_scores(case.context, case.answer, judged.annotation, unit=unit).by_name()
        assert {name: judged.scores[name] for name in counted} == counted
        assert set(judged.estimates) == set(counted)
        figures |= {(name, score.value) for name, score in counted.items()}
        for sentence, item in zip(case.answer, judged.annotation.support, strict=True):
            assert item.is_supported is (judged.likely["unsupported"][item.key] < judge.model.threshold)
            assert sentence.text.strip() or item.supporting_keys == ("general",)
    assert len(figures) > 12


def test_as_many_sentences_are_marked_as_are_expected() -> None:
    chances, lengths = np.array([0.3, 0.2, 0.4, 0.3]), np.array([2.0, 5.0, 1.0, 3.0])
    marked = [
        list(np.flatnonzero(feature_model.mark_likeliest(chances, lengths, expected)))
        for expected in (0, 0.5, 1.9, 2.1, 99)
    ]
    assert marked == [[], [], [2], [0, 2], [0, 1, 2, 3]]
    assert not len(feature_model.mark_likeliest(np.zeros(0), np.zeros(0), 0.0))


def test_what_is_utilized_is_marked_first_where_it_is_relevant_too() -> None:
    likely = {
        "relevant": np.array([0.9, 0.8, 0.2, 0.1]),
        "utilized": np.array([0.2, 0.8, 0.7, 0.3]),
        "both": np.array([0.1, 0.7, 0.1, 0.1]),
    }
    for completeness, expected in ((0.5, [1, 2]), (1.0, [0, 1]), (0.0, [2, 3])):
        relevant, utilized = feature_model.mark_context(likely, np.ones(4), completeness)
        assert list(np.flatnonzero(relevant)) == [0, 1] and list(np.flatnonzero(utilized)) == expected


def test_an_interval_holds_the_labels_of_held_out_rows() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    values = generator.random(4000)
    truth = np.clip(values + generator.normal(size=4000) * values / 4, 0, 1)
    spread = feature_model.fit_spread(values[:2000], truth[:2000])
    estimates = [spread.around(float(value)) for value in values[2000:]]
    inside = [item.low <= label <= item.high for item, label in zip(estimates, truth[2000:], strict=True)]
    assert 0.92 < np.mean(inside) < 0.98
    assert spread.around(0.05).high - spread.around(0.05).low < spread.around(0.7).high - spread.around(0.7).low
    assert feature_model.Spread.from_dict(json.loads(json.dumps(spread.as_dict()))) == spread
    assert spread.around(9.0).low <= 9.0  # beyond the last bin its interval holds
    with pytest.raises(ValueError, match="at least 5 rows"):
        feature_model.fit_spread([0.1], [0.2])
    for bins in ([], [{"up_to": 0.5, "low": 0, "high": 0}, {"up_to": 0.4, "low": 0, "high": 0}]):
        with pytest.raises(ValueError, match="at least one bin"):
            feature_model.Spread.from_dict(bins)


def test_answer_relevance_follows_its_formula_and_the_documents_do_not_matter() -> None:
    embedder = WordEmbedder()
    judge = EmbeddedJudge(embedder, model=model_of())
    with_documents = judge.judge(Case.of(QUESTION, DOCUMENTS, ANSWER)).scores["answer_relevance"]
    assert judge.judge(Case.of(QUESTION, [], ANSWER)).scores["answer_relevance"] == with_documents
    question, answer = (np.asarray(vector) for vector in embedder.embed([QUESTION, ANSWER]))
    assert with_documents.value == pytest.approx(0.7 * float(question @ answer) + 0.3 * 1.0, abs=1e-6)


UNSCORABLE = {
    "no context": ((QUESTION, [], ANSWER), dict.fromkeys(MEASURES[:5], scores.NO_CONTEXT)),
    "blank context": ((QUESTION, ["", " \n"], ANSWER), dict.fromkeys(MEASURES[:5], scores.NO_CONTEXT)),
    "no answer": ((QUESTION, DOCUMENTS, " "), dict.fromkeys(MEASURES[1:], scores.NO_ANSWER)),
    "refusal": (
        (QUESTION, DOCUMENTS, "The documents do not contain this information."),
        dict.fromkeys(MEASURES[1:], scores.REFUSED),
    ),
    "no question": (
        ("", DOCUMENTS, ANSWER),
        dict.fromkeys(("context_relevance", "completeness", "answer_relevance"), NO_QUESTION),
    ),
}


@pytest.mark.parametrize("name", UNSCORABLE)
def test_what_cannot_be_judged_says_why_and_the_rest_is_scored(name: str) -> None:
    given_case, expected = UNSCORABLE[name]
    judged = EmbeddedJudge(WordEmbedder(), model=model_of()).judge(Case.of(*given_case))
    assert {key: score for key, score in judged.scores.items() if not score.is_scored} == {
        key: scores.unscorable(reason) for key, reason in expected.items()
    }
    assert set(judged.scores) == set(MEASURES) and judged.refused is (name == "refusal")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I could not find this with enough certainty. The closest passages:", True),
        ("I'm sorry, but I cannot answer this from the sources.", True),
        ("The sources don't say when it was lit.", True),
        (
            "It is not specified who built it. But it was lit in 1871, and its keeper was Ann Hale for many years.",
            False,
        ),
        ("It was not lit in 1871.", False),
        ("", False),
    ],
)
def test_refusals_are_recognised(answer: str, expected: bool) -> None:
    assert is_refusal(Case.of(QUESTION, DOCUMENTS, answer)) is expected


def test_many_cases_take_one_call_and_get_what_each_gets_alone() -> None:
    cases = [
        Case.of(QUESTION, DOCUMENTS, ANSWER),
        Case.of("What grows on hills?", DOCUMENTS, "Tea grows on hills."),
        Case.of("", [], ""),
    ]
    calls: list[int] = []

    class Counting(WordEmbedder):
        def embed(self, texts: Sequence[str]) -> list[Any]:
            calls.append(len(texts))
            return super().embed(texts)

    embedder = Counting()
    judge = EmbeddedJudge(embedder, model=model_of())
    together = judge.judge_many(cases)
    assert len(calls) == 1 and len(set(embedder.embedded)) == len(embedder.embedded)
    assert [EmbeddedJudge(WordEmbedder(), model=model_of()).judge(case) for case in cases] == together
    assert judge.judge_many(cases) == together and len(calls) == 1  # nothing is embedded twice
    assert judge.judge_many([]) == []


def test_a_failed_embedder_fails_the_scores_and_no_more() -> None:
    class Broken(WordEmbedder):
        def embed(self, texts: Sequence[str]) -> list[Any]:
            raise EmbedderError("the model is gone", kind="unreachable", retryable=True)

    judged = EmbeddedJudge(Broken(), model=model_of()).judge(Case.of(QUESTION, DOCUMENTS, ANSWER))
    assert judged.scores == dict.fromkeys(MEASURES, scores.failed("embedder")) and judged.annotation is None
    assert judged.explanation == "the model is gone"


def test_another_embedder_and_an_unknown_unit_are_refused() -> None:
    with pytest.raises(ValueError, match="fitted with vectors of all-MiniLM-L6-v2, not of words"):
        EmbeddedJudge(WordEmbedder())
    with pytest.raises(ValueError, match="unit must be one of"):
        EmbeddedJudge(WordEmbedder(), model=model_of(), unit="letters")  # type: ignore[arg-type]


TEXTS = st.text(alphabet=st.sampled_from("aB1 .\n-'\u00e9\u4f60\u200b\ud800"), max_size=40)


@settings(max_examples=20, deadline=None)
@given(TEXTS, st.lists(TEXTS, max_size=3), TEXTS)
def test_no_text_breaks_it_and_no_score_leaves_0_to_1(question: str, documents: list[str], answer: str) -> None:
    model = model_of(relevant=-1.0, words=0.1, unknown_words=1.0)
    judged = EmbeddedJudge(SafeEmbedder(), model=model).judge(Case.of(question, documents, answer))
    for score in judged.scores.values():
        assert score.value is None or 0 <= score.value <= 1
    for name, estimate in judged.estimates.items():
        assert judged.scores[name].is_scored and 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert all(0 <= chance <= 1 for by_key in judged.likely.values() for chance in by_key.values())


class SafeEmbedder(WordEmbedder):
    """Accepts lone surrogates, as real embedders do."""

    def _vector(self, text: str) -> Any:
        return super()._vector(text.encode("utf-8", "replace").decode())


def test_the_second_look_sees_neighbours_document_and_case() -> None:
    likely, documents = np.array([0.9, 0.1, 0.2]), np.array([0, 0, 1])
    look = dict(zip(feature_model.SECOND_NAMES, feature_model.second_look(likely, documents).T, strict=True))
    assert look["before"][1] == pytest.approx(math.log(9)) and look["after"][1] == pytest.approx(math.log(0.25))
    assert look["document_mean"] == pytest.approx([0, 0, math.log(0.25)], abs=1e-9)
    assert look["case_mean"][2] == pytest.approx(math.log(0.4 / 0.6)) and look["case_share_likely"][0] == 1 / 3


def test_the_stored_model_is_readable_and_travels() -> None:
    model = feature_model.stored_model()
    assert feature_model.JudgeModel.from_dict(model.as_dict()).as_dict() == json.loads(
        feature_model.FILE.read_text(encoding="utf-8")
    )
    data = model.as_dict()
    del data["unsupported"]["features"]["words"]
    with pytest.raises(ValueError, match="differ in \\['words'\\]"):
        feature_model.JudgeModel.from_dict(data)


def test_the_stored_model_tells_good_from_bad() -> None:
    judge = EmbeddedJudge(LocalEmbedder())
    ask = "Who kept the lighthouse of Brack?"
    good, bad, nothing = judge.judge_many(
        [
            Case.of(ask, DOCUMENTS, "Its keeper was Ann Hale."),
            Case.of(ask, DOCUMENTS, "Captain Robert Stone and his 12 daughters kept it until Queen Victoria came."),
            Case.of("Which planet has the most moons?", DOCUMENTS, "Saturn has 146 moons."),
        ]
    )
    assert value(good, "adherence") == 1.0 and value(bad, "adherence") == 0.0
    assert value(good, "faithfulness") > value(bad, "faithfulness")
    assert max(good.likely["relevant"], key=good.likely["relevant"].__getitem__) == "0c"
    assert max(good.likely["utilized"], key=good.likely["utilized"].__getitem__) == "0c"
    assert value(good, "context_relevance") > value(nothing, "context_relevance")
    beside = judge.judge(Case.of(ask, DOCUMENTS, "Pickers bring the leaves to the valley."))
    assert value(good, "answer_relevance") > value(beside, "answer_relevance") + 0.1
    case = Case.of(ask, DOCUMENTS, "Its keeper was Ann Hale.")
    assert good.annotation == scores.check_annotation(good.annotation, case.context, case.answer)  # type: ignore[arg-type]
    assert judge.judge(case) == good


def value(judged: Judgement, name: str) -> float:
    found = judged.scores[name].value
    assert found is not None
    return found
