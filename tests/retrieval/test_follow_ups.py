"""Follow-up questions are made whole by rules: what they lean on comes from the thread, and nothing else changes."""

from __future__ import annotations

import pytest

from retrieval_app.chats.follow_ups import Turn, rewrite
from tests.benchmarks.bench_follow_ups import SETS, read_cases

WHALE = [Turn("What is the largest animal?", "The blue whale is the largest animal.")]
LEASE = [Turn("Wie lange gilt die Garantie für den Kühlschrank?", "Zwei Jahre.")]


@pytest.mark.parametrize(
    ("question", "history", "query", "rule"),
    [
        ("What does it eat?", WHALE, "What does the largest animal eat?", "pronoun"),
        ("Why?", WHALE, "Why? (What is the largest animal)", "ellipsis"),
        ("And the smallest animal?", WHALE, "What is the smallest animal?", "swap"),
        ("Und für die Waschmaschine?", LEASE, "Wie lange gilt die Garantie für die Waschmaschine?", "swap"),
        ("Wo steht das?", LEASE, "Wo steht das? (Wie lange gilt die Garantie für den Kühlschrank)", "reference"),
        ("Which tree is the tallest?", WHALE, "Which tree is the tallest?", ""),
        ("When a job fails, is it retried?", WHALE, "When a job fails, is it retried?", ""),
        ("What does it eat?", [], "What does it eat?", ""),
        ("  ", WHALE, "", ""),
        ("Et le plus petit ?", [Turn("Quel est le plus grand animal ?")], "Et le plus petit ?", ""),
    ],
)
def test_a_question_is_made_whole_by_the_rule_for_its_form(
    question: str, history: list[Turn], query: str, rule: str
) -> None:
    found = rewrite(question, history)
    assert (found.query, found.rule) == (query, rule)
    assert bool(found.carried) == bool(rule)


@pytest.mark.parametrize(("name", "least"), [("tuned", 0.95), ("held out", 0.85)])
def test_the_measured_cases_stay_as_good(name: str, least: float) -> None:
    cases = list(read_cases(name))
    assert len(cases) >= 36 and {case.language for case in cases} == {"de", "en"} and name in SETS
    assert sum(case.passes for case in cases) / len(cases) >= least


@pytest.mark.parametrize("question", ["?", "it", "es", "and", "und?", "(", "it it it", "What about?", "🐋", "a" * 399])
def test_odd_questions_keep_their_words(question: str) -> None:
    for history in (WHALE, LEASE, [Turn("?")], [Turn("it")]):
        assert rewrite(question, history).query
