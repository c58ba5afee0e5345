"""A follow-up question without a model: what leans on the thread is searched for behind the question before it."""

from __future__ import annotations

import pytest

from retrieval_app.chat.threads import QUESTION_CHARS_MAX, rewrite

WHALE = "What is the largest animal?"
LEASE = "Wie lange gilt die Garantie für den Kühlschrank?"


@pytest.mark.parametrize(
    ("question", "before"),
    [
        ("What does it eat?", WHALE),
        ("Why?", WHALE),
        ("And the smallest animal?", WHALE),
        ("How many of them are left?", WHALE),
        ("Und für die Waschmaschine?", LEASE),
        ("Wo steht das?", LEASE),
        ("Seit wann?", LEASE),
        ("Wie hoch ist ihr Preis?", LEASE),
    ],
)
def test_a_question_that_leans_on_the_thread_follows_the_question_before_it(question: str, before: str) -> None:
    assert rewrite(question, ["Who wrote Faust?", before]) == f"{before} {question}"


@pytest.mark.parametrize(
    "question",
    [
        "Which tree is the tallest?",
        "When a job fails, is it retried?",
        "Is it possible to pay by card in the museum?",
        "Gibt es einen Parkplatz am Werk Nord?",
        "Was kostet das Ticket der Linie 4?",
        "Et quelle est la plus petite ville de France ?",
        "¿Cuál es el animal más pequeño de España?",
        "Kosten Werk Nord?",
    ],
)
def test_a_question_with_a_topic_of_its_own_stays_as_it_is(question: str) -> None:
    assert rewrite(question, [WHALE]) == question


def test_without_an_earlier_question_and_at_the_bounds() -> None:
    assert rewrite("What does it eat?", []) == "What does it eat?"
    assert rewrite("  ", [WHALE]) == ""
    long = "it " * (QUESTION_CHARS_MAX // 3 + 1)
    assert rewrite(long, [WHALE]) == long.strip()
    assert len(rewrite("Why?", ["x" * 900])) == QUESTION_CHARS_MAX + len(" Why?")
