"""Noise sensitivity on cases that can be worked out by hand. Words decide: the embedder counts them alone."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation_app.golden.questions import Golden
from evaluation_app.measures.scores import failed, scored, unscorable
from evaluation_app.scoring.correctness import measure_correctness
from evaluation_app.scoring.modes import NOT_JUDGED, noise_scores
from ragd.errors import EmbedderError
from tests.builders import WordEmbedder

CONTEXT = [
    {"key": "moon#0", "sentences": [["0a", "The moon orbits the earth."], ["0b", "Its surface carries dust."]]},
    {"key": "cheese#0", "sentences": [["1a", "Cheddar ripens for twelve months."]]},
]
GOLDEN = Golden("What does the moon do?", expected_doc_ids=("moon",), expected_answer="The moon orbits the earth.")
ANSWER = [
    ["a", "The moon orbits the earth."],
    ["b", "Its surface carries dust."],
    ["c", "Cheddar ripens for twelve months."],
    ["d", "Pigs fly."],
]


def support(*entries: tuple[str, list[str], bool]) -> dict[str, Any]:
    return {"support": [{"key": key, "by": by, "supported": supported} for key, by, supported in entries]}


WHOLE = support(("a", ["0a"], True), ("b", ["0b"], True), ("c", ["1a"], True), ("d", [], False))


def measure(annotation: dict[str, Any] = WHOLE, golden: Golden | None = GOLDEN, **changes: Any) -> dict[str, Any]:
    given = {"context": CONTEXT, "answer_sentences": ANSWER, "embedder": WordEmbedder(128)} | changes
    return noise_scores(annotation, golden=golden, **given)


def test_what_is_wrong_counts_by_the_chunk_that_it_comes_from() -> None:
    """ "b" is wrong and from the relevant chunk, "c" from the irrelevant one, "d" from none, "a" is right."""
    assert measure() == {"noise_relevant": scored(0.25), "noise_irrelevant": scored(0.25)}


def test_a_relevant_source_goes_before_an_irrelevant_one() -> None:
    both = support(("a", ["0a"], True), ("b", ["0b", "1a"], True), ("c", [], False), ("d", [], False))
    assert measure(both) == {"noise_relevant": scored(0.25), "noise_irrelevant": scored(0.0)}


def test_a_chunk_that_the_question_names_is_relevant() -> None:
    named = Golden("What?", expected_chunks=("cheese#0",), expected_answer="The moon orbits the earth.")
    assert measure(golden=named) == {"noise_relevant": scored(0.5), "noise_irrelevant": scored(0.0)}


@pytest.mark.parametrize(
    ("expected", "wrong"),
    [
        ("Cheddar ripens for twelve months.", False),
        ("Cheddar does not ripen for twelve months.", True),  # negated
        ("Mature cheddar ripens slowly for twelve long months.", False),  # holds all the words
        ("Cheddar is a cheese that is yellow.", True),  # says something else
    ],
)
def test_what_counts_as_stated(expected: str, wrong: bool) -> None:
    golden = Golden("How long?", expected_doc_ids=("cheese",), expected_answer=expected)
    found = measure(support(("c", ["0b"], True)), golden=golden, answer_sentences=[ANSWER[2]])
    assert found["noise_irrelevant"] == scored(float(wrong))


def test_another_number_is_another_statement() -> None:
    golden = Golden("When?", expected_doc_ids=("x",), expected_answer="The lamp was switched on in 1969 by the crew.")
    said = [["a", "The lamp was switched on in 1972 by the crew."]]
    found = measure(support(("a", ["1a"], True)), golden=golden, answer_sentences=said)
    assert found["noise_irrelevant"] == scored(1.0)


def test_what_cannot_be_measured_says_why() -> None:
    silent = Golden("What?", expected_doc_ids=("moon",))
    assert measure(golden=silent)["noise_relevant"] == unscorable("no expected answer is known")
    assert measure(golden=None)["noise_relevant"] == unscorable("no expected answer is known")
    assert measure(answer_sentences=[["a", " "]])["noise_relevant"] == unscorable("there is no answer")
    assert measure(context=[])["noise_irrelevant"] == unscorable("no context was retrieved")
    assert measure({})["noise_irrelevant"] == unscorable(NOT_JUDGED)


def test_an_embedder_that_fails_is_an_error() -> None:
    class Broken(WordEmbedder):
        def embed(self, texts: Any) -> list[Any]:
            raise EmbedderError("the model is away", kind="timeout", retryable=True)

    assert measure(embedder=Broken()) == dict.fromkeys(("noise_relevant", "noise_irrelevant"), failed("embedder"))


def test_only_chunks_behind_wrong_sentences_are_embedded() -> None:
    embedder = WordEmbedder(128)
    measure(support(("a", ["0a"], True)), answer_sentences=ANSWER[:1], embedder=embedder)
    assert set(embedder.embedded) == {"The moon orbits the earth."}


def test_a_sentence_that_holds_what_is_expected_is_not_wrong() -> None:
    golden = Golden(
        "What is the largest document?", expected_doc_ids=("limits",),
        expected_answer="50 MB by default, set by RAGD_MAX_DOCUMENT_MB.",
    )  # fmt: skip
    said = "The largest document has 50 MB, unless RAGD_MAX_DOCUMENT_MB says otherwise; 1 MB is 1,000,000 bytes."
    given: dict[str, Any] = {
        "golden": golden, "answer_sentences": [["a", said]],
        "context": [{"key": "limits#0", "sentences": [["0a", said]]}],
    }  # fmt: skip
    annotation = support(("a", ["0a"], True))
    correctness = measure_correctness([["a", said]], "answered", golden, WordEmbedder(128))
    assert correctness.holding == {"a"}
    assert measure(annotation, **given)["noise_relevant"] == scored(1.0), "it tells more than is expected"
    assert measure(annotation, holding=correctness.holding, **given)["noise_relevant"] == scored(0.0)
