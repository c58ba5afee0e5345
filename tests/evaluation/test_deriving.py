"""Questions derived from sentences and headings by rule."""

from __future__ import annotations

import json

import pytest

from evaluation_app.golden.suggestions.model_questions import passed_critique, read_questions
from evaluation_app.golden.suggestions.quality import fault_of
from evaluation_app.golden.suggestions.rule_questions import (
    Passage,
    QuestionCandidate,
    ask_for,
    ask_for_heading,
    derive,
    plain,
)
from tests.vocabulary import REPOSITORY

SUGGESTIONS = REPOSITORY / "tests" / "data" / "suggestions.jsonl"


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("A run is the record of one search or answer.", "What is a run?"),
        ("BM25 is a sum of weights over the words.", "What is BM25?"),
        ("Humpback whales are the singers of the sea.", "What are humpback whales?"),
        ("RRF stands for reciprocal rank fusion.", "What does RRF stand for?"),
        ("To back up ragd, dump its one database.", "How do I back up ragd?"),
        ("When a worker is killed, its lease ends soon.", "What happens when a worker is killed?"),
        ("If the package is missing, the error says so.", "What happens if the package is missing?"),
        ("A retry changes nothing, because ingest is idempotent.", "Why is it that a retry changes nothing?"),
    ],
)
def test_a_sentence_becomes_the_question_that_it_answers(sentence: str, question: str) -> None:
    found = ask_for(sentence)
    assert found is not None
    assert found[1] == question


@pytest.mark.parametrize(
    "sentence",
    [
        "It is the record of one search.",
        "The request is the same as before.",
        "This is a list of one answer.",
        "Forgiven are a code fence and dots.",
        "Whether a file is an archive is read from its content.",
        "PostgreSQL 17 is the oldest.",
        "When it is killed, the lease ends soon.",
        "When more than ten jobs, or larger files, wait they are refused.",
        "To do this, write a line of text.",
        "Rain falls on the mountain in spring.",
    ],
)
def test_what_cannot_be_asked_alone_is_passed_over(sentence: str) -> None:
    assert ask_for(sentence) is None


@pytest.mark.parametrize(
    ("heading", "question"),
    [
        ("Why is it slow?", "Why is it slow?"),
        ("How to rotate keys", "How do I rotate keys?"),
        ("Change the model", "How do I change the model?"),
        ("Rotating the keys", "How does rotating the keys work?"),
        ("Embedding endpoints", None),
        ("Scaling: what one node holds", None),
        ("Use it from code", None),
        ("Settings", None),
    ],
)
def test_a_heading_is_asked_for_what_it_tells(heading: str, question: str | None) -> None:
    assert ask_for_heading(heading) == question


def test_a_question_knows_the_sentence_that_answers_it() -> None:
    content = "# Jobs\n\nNothing here.\n\n- **A [job](x.md)** is one piece of `background` work. It runs later."
    (found,) = derive([Passage("jobs.md", 3, content, ("Jobs",), start=100)])
    assert (found.question, found.answer) == ("What is a job?", "A job is one piece of background work.")
    assert content[found.start - 100 : found.end - 100] == "- **A [job](x.md)** is one piece of `background` work."
    assert (found.doc_id, found.chunk_index, found.rule) == ("jobs.md", 3, "definition")


def test_a_heading_is_answered_by_its_first_sentence_and_titles_are_not_asked() -> None:
    content = "## Rotate the keys\n\nEvery key can be made anew on its own page."
    asked = [item.question for item in derive([Passage("a", 0, content, ("Keys", "Rotate the keys"))])]
    assert asked == ["How do I rotate the keys?"]
    assert derive([Passage("a", 0, content, ("Rotate the keys",))]) == []


def test_code_tables_and_links_are_no_prose() -> None:
    content = "A | is the | table of it.\n\nThe file http://x.example is a page of the net.\n\nif (x) { A is the b c; }"
    assert derive([Passage("a", 0, content)]) == []
    assert derive([]) == []
    assert plain("1. See [the **guide**](a.md), `now`.") == "See the guide, now."


@pytest.mark.parametrize(
    "reply",
    ["", "no", "[]", '{"questions": 3}', '{"questions": [{"question": "Why?"}]}', '{"questions": ["What is it?"]}'],
)
def test_a_reply_that_is_not_what_was_asked_for_gives_nothing(reply: str) -> None:
    assert read_questions(reply, Passage("a", 0, "text")) == []


def labelled() -> list[tuple[QuestionCandidate, tuple[str, ...], bool]]:
    """Every question that the rules derived from the documentation, and whether a person would have kept it."""
    rows = map(json.loads, SUGGESTIONS.read_text("utf-8").splitlines())
    return [
        (
            QuestionCandidate(row["question"], row["answer"], row["rule"], "a", 0, 0, 1),
            tuple(row["headings"]),
            row["usable"],
        )
        for row in rows
    ]


def test_most_questions_that_pass_the_filter_are_usable() -> None:
    rows = labelled()
    kept = [usable for derived, headings, usable in rows if not fault_of(derived, headings)]
    usable = sum(row[2] for row in rows)
    print(f"usable: {usable} of {len(rows)} before, {sum(kept)} of {len(kept)} after")
    assert sum(kept) >= 0.85 * len(kept)
    assert sum(kept) >= 0.85 * usable
    assert usable < 0.5 * len(rows)


@pytest.mark.parametrize(
    ("sentence", "headings"),
    [
        ("A cosine is a multiple of 1/128 everywhere.", ("Conformance",)),
        ("A point in a name is an underscore in Prometheus.", ("Costs", "Metrics")),
        ("When the mail is replaced, attachments that it has no more go.", ("Uploads", "Attachments")),
    ],
)
def test_what_makes_no_sense_alone_is_not_suggested(sentence: str, headings: tuple[str, ...]) -> None:
    (derived,) = derive([Passage("a", 0, sentence, headings)])
    assert fault_of(derived, headings)


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ('{"verdicts": [{"standalone": true, "answered": true, "useful": true}]}', 1),
        ('```json\n{"verdicts": [{"standalone": true, "answered": true, "useful": true}]}\n```', 1),
        ('{"verdicts": [{"standalone": false, "answered": true, "useful": true}]}', 0),
        ('{"verdicts": [{"standalone": true, "answered": true}]}', 0),
        ('{"verdicts": []}', 0),
        ('{"verdicts": [true]}', 0),
        ("Yes.", 0),
    ],
)
def test_what_the_critic_does_not_pass_goes(reply: str, kept: int) -> None:
    assert len(passed_critique(reply, [labelled()[0][0]])) == kept
