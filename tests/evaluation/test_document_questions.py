"""Questions made from documents, and what a chat model's replies give."""

from __future__ import annotations

import pytest

from evaluation_app.golden.suggestions import (
    Passage,
    QuestionCandidate,
    passed_critique,
    plain,
    read_questions,
    turn_sentences,
)

CANDIDATE = QuestionCandidate("What is a run?", "The record of one search.", "factual", "a", 0, 0, 1)


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("A run is the record of one search or answer.", "What is a run?"),
        ("BM25 is a sum of weights over the words.", "What is BM25?"),
        ("Humpback whales are the singers of the sea.", "What are Humpback whales?"),
        ("- **A [job](x.md)** is one piece of `background` work.", "What is a job?"),
        ("To back up ragd, dump its one database.", "How do I back up ragd?"),
        ("It is the record of one search.", None),
        ("A page that it names is the list of all answers.", None),
        ("PostgreSQL 17 is the oldest.", None),
        ("To do this, write a line of text.", None),
        ("A | is the | table of it.", None),
        ("Rain falls on the mountain in spring.", None),
        ("", None),
    ],
)
def test_definitions_and_instructions_become_questions(sentence: str, question: str | None) -> None:
    assert list(turn_sentences(sentence)) == ([question] if question else [])


def test_plain_text_keeps_the_words_of_links() -> None:
    assert plain("1. See [the **guide**](a.md), `now`.") == "See the guide, now."


@pytest.mark.parametrize(
    "reply",
    ["", "no", "[]", '{"questions": 3}', '{"questions": [{"question": "Why?"}]}', '{"questions": ["What is it?"]}'],
)
def test_a_reply_that_is_not_what_was_asked_for_gives_nothing(reply: str) -> None:
    assert read_questions(reply, Passage("a", 0, "text")) == []


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
    assert len(passed_critique(reply, [CANDIDATE])) == kept
