"""split_sentences(): golden cases by kind, and what must hold for any text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.text.chunking import split_sentences
from ragd.text.sentences import last_sentence_end, sentence_ends

# Each case is the list of its sentences; the text is their join with one space, or as CJK needs it with none.
SPACED = [
    ["One sentence."],
    ["No mark at the end"],
    ["First one.", "Second one."],
    ["Is it?", "Yes!", "Good."],
    ["What?!", "Really…", "Yes."],
    ["Dr. Smith met Mrs. Jones.", "They talked."],
    ["Prof. Miller et al. 2019 disagree.", "We do not."],
    ["J. R. R. Tolkien wrote it.", "He took years."],
    ["Written by A. B. Clark in May.", "It sold well."],
    ["Take vitamin C.", "It helps."],
    ["So do I.", "Then we agree."],
    ["Pi is 3.14 or so.", "Tau is 6.28."],
    ["It costs $4.50.", "That is cheap."],
    ["Use e.g. Python or C.", "The rest follows."],
    ["Some, i.e. Two, came.", "Nobody else."],
    ["Apples, pears, etc. are fruit.", "So are plums."],
    ["Apples, pears, etc.", "Carrots are not."],
    ["See Fig. 3 and Eq. 4 for it.", "Both are plain."],
    ["See No. 5 on p. 12 of vol. 2.", "It is there."],
    ["I said no.", "Then I left."],
    ["Acme Inc. Chairman Bo Li spoke.", "He was brief."],
    ["He works for Acme Inc.", "They make anvils."],
    ["The U.S. Senate voted.", "It passed."],
    ["She moved to the U.S.", "In 1990 she left."],
    ["We met at 5 p.m. Monday.", "It rained."],
    ["We met at 5 p.m.", "The rain had stopped."],
    ["It began on Jan. 5 and ended.", "Snow fell."],
    ["Go to https://example.com/a.b?c=d.e!f now.", "Then read index.html there."],
    ["Version 1.2.3 is out.", "2.0 follows."],
    ["Open setup.py first.", "Run it."],
    ['He said "Stop."', "Then he left."],
    ['"Really?" she asked.', '"Yes!" he said.'],
    ["(This is an aside.)", "This is not."],
    ["He left (in May.) and came back.", "Good."],
    ["“Curly quotes end.”", "‘So do these.’", "Fine."],
    ["Wait... what?", "Nothing."],
    ["Wait...", "What was that?"],
    ["**Bold ends.**", "Plain starts."],
    ["Das ist z.B. Unsinn.", "Es endet am 3. Oktober nicht."],
    ["¿Qué hora es?", "¡Las tres!", "Bien."],
    ["Il arrive.", "À demain."],
    ["Он пришёл.", "Она ушла."],
    ["यह एक वाक्य है।", "यह दूसरा है।"],
    ["هل هذا سؤال؟", "نعم."],
    ["A line break\nis no end.", "This is."],
]
UNSPACED = [
    ["今天天气很好。", "我们去公园吧！", "好吗？"],
    ["これは文です。", "「次の文です。」", "終わり"],
    ["数値は３．１４です。", "以上。"],
    ["他说：“好。”", "然后走了。"],
]
BY_LINES = [
    ["A title", "The text below it."],
    ["1. Introduction", "2. Methods"],
    ["- first item", "- second item", "+ third"],
    ["| a | b |", "| 1. | 2 |"],
    ["## Heading", "Text."],
]


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


@pytest.mark.parametrize("sentences", SPACED, ids=lambda case: case[0][:30])
def test_golden_spaced(sentences: list[str]) -> None:
    assert cut(" ".join(sentences)) == sentences


@pytest.mark.parametrize("sentences", UNSPACED, ids=lambda case: case[0])
def test_golden_without_spaces(sentences: list[str]) -> None:
    assert cut("".join(sentences)) == sentences


@pytest.mark.parametrize("lines", BY_LINES, ids=lambda case: case[0])
def test_golden_lines(lines: list[str]) -> None:
    assert cut("\n\n".join(lines)) == lines


@pytest.mark.parametrize("lines", BY_LINES[1:4], ids=lambda case: case[0])
def test_list_items_and_table_rows_need_no_blank_line(lines: list[str]) -> None:
    assert cut("\n".join(lines)) == lines


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


@pytest.mark.parametrize(
    "sentences", [["1. Introduction"], ["It is\nX 1.", "Next one."], ["Part 1.", "Next."]], ids=lambda case: case[0]
)
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
    began = time.perf_counter()
    split_sentences(text)
    assert time.perf_counter() - began < 5
