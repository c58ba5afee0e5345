from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.written_answers import read_answers
from evaluation_app.golden.questions import Golden
from evaluation_app.judges.embedded_judge import EmbeddedJudge
from evaluation_app.judges.protocol import Case, is_refusal
from evaluation_app.judges.refutations import refute
from evaluation_app.scoring.contributions import sentences_of
from evaluation_app.scoring.correctness import measure_correctness
from evaluation_app.scoring.judge_selection import judging_embedder
from evaluation_app.scoring.scorer import stated_share

KETTLE = "The kettle boils water at 100 degrees."
WARRANTY = "The warranty lasts 24 months from the date of sale and does not cover damage from limescale."


def judged(answer: str, *documents: str) -> tuple[float | None, float | None, float | None]:
    """(adherence, faithfulness, stated)."""
    case = Case.of("What is it like?", documents, answer)
    context = [{"key": str(number), "sentences": sentences_of(each)} for number, each in enumerate(case.context)]
    scores = EmbeddedJudge(judging_embedder()).judge(case).scores
    stated = stated_share(sentences_of(case.answer), context, case.question, judging_embedder())
    return scores["adherence"].value, scores["faithfulness"].value, stated.value


@pytest.mark.fault("F11")
@pytest.mark.parametrize(
    "answer",
    [
        "Water boils at 250 degrees [1].",
        "The kettle does not boil water at 100 degrees.",
        "The kettle contains quickly.",
        "The warranty lasts 12 months.",
    ],
)
def test_what_the_context_contradicts_is_supported_by_no_measure(answer: str) -> None:
    assert judged(answer, KETTLE, WARRANTY) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("The rate is 0.5 %.", "The rate is 5 %."), ("It has -5 degrees outside.", "It has 5 degrees outside."),
        ("The fee is 1,200 euros per year.", "The fee is 1,200 euros per month."),
        ("Drei Mitarbeiter arbeiten in Oslo.", "Drei Mitarbeiter arbeiten in Bergen."),
        ("Rauchen ist in der Halle verboten.", "Rauchen ist in der Halle erlaubt."),
        ("Der Umsatz stieg um 5 %.", "Der Umsatz sank um 5 %."),
    ],
)  # fmt: skip
def test_the_word_in_which_a_short_sentence_differs_is_enough(source: str, answer: str) -> None:
    assert (judged(answer, source)[:2], judged(source, source)[:2]) == ((0.0, 0.0), (1.0, 1.0))


def test_what_the_context_says_stays_supported() -> None:
    for answer in ("Water boils at 100 degrees [1].", KETTLE, WARRANTY):
        assert judged(answer, KETTLE, WARRANTY) == (1.0, 1.0, 1.0), answer


LONG = (
    "By June 2014 the ministry of Guinea had opened four upper wards beside the river, because the clinics that stood"
    " there were always full of patients, and the nurses can not treat them in ward B-12 alone."
)


@pytest.mark.parametrize(
    ("said", "instead", "kind"),
    [
        ("Guinea", "Liberia", "name"), ("upper", "lower", "opposite"), ("always", "never", "opposite"),
        ("B-12", "B-19", "number"), ("can not treat", "can treat", "opposite"), ("opened", "not opened", "opposite"),
        ("Guinea", "Guineas", None), ("ministry", "office", None), ("because the", "since the", None),
    ],
)  # fmt: skip
def test_one_fact_changed_in_a_long_copy_is_found_and_another_wording_is_not(
    said: str, instead: str, kind: str | None
) -> None:
    case = Case.of("What happened?", [LONG], LONG.replace(said, instead))
    found = refute(case.answer[0], case.context)
    assert (found and {each.kind for each in found.contradictions}) == (kind and {kind})


def test_a_sentence_is_compared_with_what_it_cites() -> None:
    other = "The old kettle boils water at 90 degrees."
    case = Case.of("?", [KETTLE, other], "The kettle boils water at 90 degrees.")
    (sentence,) = case.answer
    assert refute(sentence, case.context) is None
    assert refute(sentence, case.context, cited=[1]) is None
    found = refute(sentence, case.context, cited=[0])
    assert found is not None and found.is_miscited and found.source_key == "0a"
    assert [(item.said, item.source) for item in found.contradictions] == [("90 degrees", "100 degrees")]
    miscited = replace(case, cited={sentence.key: (0,)})
    judgement = EmbeddedJudge(judging_embedder()).judge(miscited)
    assert judgement.scores["adherence"].value == 1.0 and judgement.refuted[sentence.key].is_miscited


@pytest.mark.fault("UX-F1")
def test_right_answers_are_told_from_wrong_ones() -> None:
    """The figures of `bench_correctness --written` over the answers that no constant was chosen by."""
    sides: dict[bool, list[bool]] = {True: [], False: []}
    for item in read_answers("held_out"):
        case = Case.of(item.question, [item.context], item.text)
        outcome = "abstained" if is_refusal(case) else "answered"
        golden = Golden(item.question, expected_answer=item.expected)
        score = measure_correctness(sentences_of(case.answer), outcome, golden, judging_embedder()).score
        sides[item.is_right].append((score.value or 0.0) >= 0.5)
    assert sum(sides[True]) / len(sides[True]) >= 0.99
    assert sum(sides[False]) / len(sides[False]) <= 0.03
