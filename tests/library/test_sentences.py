"""split_sentences(): golden cases by kind, and what must hold for any text."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.text.chunking import split_sentences
from ragd.text.sentences import last_sentence_end, sentence_ends

# Each case is the list of its sentences; the text is their join with one space, or as CJK needs it with none.
CASES: dict[str, list[list[str]]] = json.loads(
    (Path(__file__).parent.parent / "data" / "sentences.json").read_text("utf-8")
)
BY_LINES = [
    ["A title", "The text below it."],
    ["1. Introduction", "2. Methods"],
    ["- first item", "- second item", "+ third"],
    ["| a | b |", "| 1. | 2 |"],
    ["## Heading", "Text."],
]
IN_BRACKETS = [
    ["「行く。」と言った。", "次。"], ["（一。二）三\n四。"], ["（甲）乙（一。", "二"], ["（一。", "二\n三）"],
    ["（一。", "二" * 301 + "）"], ["（甲\n乙。", "丙）丁"],
]  # fmt: skip


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


# list items and rows of tables need no blank line
CLAUSES = [["ก" * 25, "ข" * 15], ["ก" * 10 + " " + "ข" * 15], ["It is by A. I. Smith."]]
JOINED = {" ": CASES["spaced"] + CLAUSES, "": CASES["unspaced"] + IN_BRACKETS, "\n\n": BY_LINES, "\n": BY_LINES[1:4]}


@pytest.mark.parametrize(("between", "sentences"), [(key, case) for key, cases in JOINED.items() for case in cases])
def test_golden_sentences(between: str, sentences: list[str]) -> None:
    assert cut(between.join(sentences)) == sentences


@pytest.mark.parametrize("text", ["", " ", "\n\n\t"])
def test_blank_text_has_no_sentence(text: str) -> None:
    assert split_sentences(text) == []


@given(st.text(alphabet="aA.!? \n\"')1。-|#é") | st.text())
def test_spans_are_ordered_trimmed_and_cover_everything(text: str) -> None:
    spans = split_sentences(text)
    at = 0
    for start, end in spans:
        assert not text[at:start].strip()
        assert text[start:end] == text[start:end].strip() != ""
        at = end
    assert not text[at:].strip()


@pytest.mark.parametrize("sentences", [["1. Introduction"], ["It is\nX 1.", "Next one."], ["Part 1.", "Next."]])
def test_a_number_at_the_beginning_of_its_line_ends_nothing(sentences: list[str]) -> None:
    assert cut("\n" + " ".join(sentences)) == sentences


@given(st.text(alphabet="aA.!? \n\"')1。-|#é", min_size=1), st.data())
def test_the_last_end_is_the_last_of_all(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, len(text)))
    assert last_sentence_end(text, start, end) == max(sentence_ends(text, start, end), default=0)


@pytest.mark.parametrize(
    ("text", "start", "end", "last"),
    [
        ("One. Two. Three", 0, 15, 9),
        ("One. Two. Three", 0, 9, 4),  # the end itself is none
        ("One. Two. Three", 4, 15, 9),
        ("One. Two. Three", 9, 15, 0),
        ("Two。 Dr. Who", 0, 12, 4),
        ("Dr. Who", 0, 7, 0),
        ("", 0, 0, 0),
    ],
)
def test_where_the_last_sentence_of_a_span_ends(text: str, start: int, end: int, last: int) -> None:
    assert last_sentence_end(text, start, end) == last


@pytest.mark.parametrize("unit", [". ", "a. ", ".", '."', "\n", "\n ", "Dr. ", "。", "( ", "a.b"])
def test_time_is_linear(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    began = time.process_time()
    split_sentences(text)
    assert time.process_time() - began < 5
