"""A follow-up question without a model: what leans on the thread is searched for behind the question before it."""

from __future__ import annotations

import pytest

from retrieval_app.answers.question import QUESTION_CHARS_MAX, rewrite

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
    assert rewrite(question, ["Who wrote Faust?", before]) == f"{before}\n{question}"


@pytest.mark.parametrize(
    ("questions", "asked"),
    [
        (["Who is Dr. Ode?", "Where was he born?", "When are his hours?"], "Who is Dr. Ode?\nWhen are his hours?"),
        (["How much is the rent?", "And the fee?", "When is it due?"], "How much is the fee?\nWhen is it due?"),
        (["Who is Ode?", "When are his hours?", "And those of Ash?"], "When are his hours?\nAnd those of Ash?"),
        (["Who is Ode?", "What is his number?", "And his office?"], "Who is Ode?\nAnd his office?"),
        (["Is it a\nlong one?", "Where is the long red bridge?", "Why?"], "Where is the long red bridge?\nWhy?"),
    ],
)
def test_a_thread_leans_on_what_was_named_last(questions: list[str], asked: str) -> None:
    earlier: list[str] = []
    for question in questions:
        earlier.append(rewrite(question, earlier))
    assert earlier[-1] == asked


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
