"""Citations checked while the answer comes: whatever the pieces, what is told is what the whole answer becomes.
The Markdown of an answer that is still written: nothing raw of its marks is shown, whatever its length."""

from __future__ import annotations

import random
import re

import pytest

from ragd.types import Candidate
from retrieval_app.answers import live_citations
from retrieval_app.answers.answer_html import close_marks, render_answer
from retrieval_app.answers.citations import Citation, check_citations
from retrieval_app.answers.live_citations import AnswerPart, LiveCitations, pieces_of
from retrieval_app.answers.live_citations import decided_length as decided

SOURCES = [
    Candidate(f"doc{number}", number, f"Filter {number} lasts six months. The pump runs.", 1.0, start=100, end=144)
    for number in range(3)
]
PARTS = (
    "[1]", "[2]", "[9]", "[1, 3]", "[1-3]", "[Source 1]", "[source", "\u30101\u3011", "\u30101\u2020source\u3011",
    "\u3010", "[", "]", "(", ")", "`", "``", "```", "\n```py\n", "\n```\n", "~~~", "\n", "\n\n", " ", "  ", "word",
    "Filter lasts", "a", "x_", "->", ".", ",", ":", "!", "12", "\\", "[1](http://x)", "[9](y", "[^1]:", "\n[2]: x",
)  # fmt: skip


def feed(pieces: list[str]) -> tuple[list[AnswerPart], str]:
    """What is told of the pieces, and the whole answer that they make. Each of its citations is told once."""
    whole = check_citations("".join(pieces).strip(), SOURCES)
    live = LiveCitations(SOURCES)
    told = [item for piece in pieces for item in live.feed(piece)]
    told += live.finish(whole.answer, whole.citations)
    placed = [(item.marker, item.answer_start) for item in told if isinstance(item, Citation)]
    assert placed == [(item.marker, item.answer_start) for item in whole.citations] and "" not in told
    return told, whole.answer


def texts(told: list[AnswerPart]) -> list[str]:
    return [item for item in told if isinstance(item, str)]


def test_a_word_is_told_when_it_is_there_and_a_citation_when_its_bracket_is_closed() -> None:
    live = LiveCitations(SOURCES)
    assert [list(live.feed(piece)) for piece in ("\n", " T", "h", "e filter")] == [[], ["T"], ["h"], ["e filter"]]
    assert list(live.feed(" lasts [")) == [" lasts"]
    assert list(live.feed("2]")) == []
    marker, citation, rest = live.feed(". It")
    assert (marker, rest) == (" [2]", ". It")
    assert isinstance(citation, Citation)
    assert (citation.marker, citation.doc_id, citation.answer_start, citation.answer_end) == (2, "doc1", 17, 20)
    (*_, citation, _) = live.feed(" runs [1]:")
    assert isinstance(citation, Citation) and (citation.marker, citation.sentence) == (1, 0)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_any_text_in_any_pieces_becomes_the_whole_answer(size: int) -> None:
    """Random texts of what has a meaning; seeded, so that a failure can be seen again."""
    chance = random.Random(size)
    for _ in range(400):
        text = "".join(chance.choice(PARTS) for _ in range(chance.randint(1, 25)))
        told, answer = feed([text[start : start + size] for start in range(0, len(text), size)])
        assert "".join(texts(told)) == answer, text
        length = 0
        for item in told:
            length += len(item) if isinstance(item, str) else 0
            if isinstance(item, Citation):
                assert item.answer_end == length, text
                assert answer[item.answer_start : item.answer_end] == f"[{item.marker}]", text


def test_a_long_answer_is_cut_between_sentences_and_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(live_citations, "decided_length", lambda text: looked_at.append(len(text)) or decided(text))
    text = "The filter lasts six months [1]. The pump `runs[2]` well [3] and [8] so on.\n\n" * 200
    told, answer = feed([text[start : start + 11] for start in range(0, len(text), 11)])
    assert "".join(texts(told)) == answer
    assert sum(isinstance(item, Citation) for item in told) == 400
    assert 400 < max(looked_at) < 700 and len(looked_at) == len(range(0, len(text), 11))


def test_an_answer_that_goes_on_otherwise_than_told_is_not_told_twice() -> None:
    live = LiveCitations(SOURCES)
    assert texts(list(live.feed("One way."))) == ["One way."]
    assert list(live.finish("Another way.", ())) == []


def test_nothing_is_told_behind_what_turned_out_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = iter(["One way", "Another", "One way on"])
    monkeypatch.setattr(live_citations, "rewrite_markers", lambda text, known: (next(checked), [], 0))
    live = LiveCitations(SOURCES)
    assert [list(live.feed(piece)) for piece in "abc"] == [["One way"], [], []]
    assert list(live.finish("One way on", ())) == []


def test_a_whole_answer_is_told_in_words_with_each_citation_behind_its_marker() -> None:
    checked = check_citations("It lasts [1]. It  runs [2][3].\n", SOURCES)
    told = list(pieces_of(checked.answer, checked.citations))
    assert "".join(texts(told)) == checked.answer
    assert [item.marker if isinstance(item, Citation) else item for item in told] == [
        "It", " lasts", " [1]", 1, ".", " It", "  runs", " [2]", 2, "[3]", 3, ".", "\n",
    ]  # fmt: skip


DECIDED = [
    # text, how much of it nothing that follows can change, the last beginning of a sentence in that
    ("", 0, 0), ("word", 4, 0), ("One. Two", 8, 5), ("One.\nTwo", 8, 5), ("One. 2", 6, 0), ("One. Two. Three", 15, 10),
    ("One. [1", 5, 0), ("One. Two [1", 9, 5), ("(One) two", 9, 6),
    # brackets
    ("See [", 4, 0), ("See [1", 4, 0), ("See [1]", 4, 0), ("See [1].", 8, 0), ("[1] ", 4, 0), ("x [1] ", 6, 0),
    ("word[1]", 4, 0), ("word[1] ", 4, 0), ("word[1] x", 9, 8), ("[] x", 4, 3), ("[a\nb", 4, 3), ("[1,\n2", 0, 0),
    ("[source", 0, 0), ("[see: 1", 0, 0), ("[[9]1", 0, 0), ("[[9][8][7]1", 0, 0), ("[" + "x" * 319, 0, 0),
    ("[" + "x" * 320, 321, 0), ("[`" + "x" * 319, 1, 0), ("[`] x", 1, 0),
    ("[[9]" + "1" * 315, 0, 0), ("[[9]" + "1" * 320, 324, 0),
    # links
    ("[x](", 0, 0), ("[x](y", 0, 0), ("[x](y)", 6, 0), ("[x](y) [", 7, 0), ("[x](y\n[", 6, 0), ("[x]((y", 6, 0),
    ("[[x]](y) a", 10, 9), ("[x](" + "y" * 1999, 0, 0), ("[x](" + "y" * 2000, 2004, 0),
    ("[`](" + "y" * 2000, 1, 0), ("[`](y\n", 1, 0), ("[`[b](y)", 1, 0), ("[x](`) a", 8, 0),
    # wide brackets
    ("【1", 0, 0), ("【1】", 0, 0), ("【1】.", 4, 0), ("【1】(", 0, 0), ("【x\n[", 3, 0), ("【\n[", 0, 0),
    ("【 \n[", 0, 0), ("【x【", 2, 0), ("【" + "x" * 119, 0, 0), ("【" + "x" * 120, 121, 0),
    ("【`" + "x" * 119, 1, 0), ("【`【", 1, 0),
    ("【" + "x" * 119 + "】.", 122, 0),
    # code
    ("`", 0, 0), ("`a", 0, 0), ("`a`", 0, 0), ("`a`.", 4, 0), ("`a\n\nb", 5, 4), ("``a`", 0, 0), ("``a``.", 6, 0),
    ("```py\nx[1", 9, 0), ("```py\nx[1]\n```\n[1", 15, 0), ("```py\nx\n``` \t\n[1", 14, 0),
    ("```py\nx\n~~~\n[1", 14, 0), ("a ```b [1", 7, 0), ("~~", 0, 0), ("~~~", 0, 0), ("a\n~~", 2, 0), ("a\n  ~~", 2, 0),
    ("a\n    ~~", 8, 0), ("a\n~~x", 5, 0), ("a\n", 2, 0), ("a\n   ", 2, 0), ("a\n    ", 6, 0),
    ("~~~x\n[1]\n~~~~\n[1", 14, 0), ("  ```py\nx[1]\n  ```\n[1", 19, 0), ("a\n```py\nx[1", 11, 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "length", "cut"), DECIDED)
def test_how_much_of_a_text_is_decided(text: str, length: int, cut: int) -> None:
    assert decided(text) == (length, cut)


WHOLE = (
    "The **blue whale** is *large* and `deep`.\n\n- **First**, see [the page](https://example.org/a)\n- second\n\n"
    "| animal | mass |\n|---|---|\n| **whale** | 150 t |\n\n```\na ** b | c\n```\n\nDone **now**."
)


def test_every_beginning_of_an_answer_is_drawn_without_raw_marks() -> None:
    for end in range(1, len(WHOLE) + 1):
        html = str(render_answer(close_marks(WHOLE[:end]), [], lambda citation: citation))  # type: ignore[arg-type, return-value]
        outside = re.sub(r"<pre>.*?</pre>", "", html, flags=re.DOTALL)
        assert "**" not in outside and "|" not in outside, (WHOLE[:end], html)
    assert html == str(render_answer(WHOLE, [], lambda citation: citation))  # type: ignore[arg-type, return-value]
    assert all(tag in html for tag in ("<strong>", "<em>", "<code>", "<td>", "<pre>", "<li>", "<a "))


@pytest.mark.parametrize("text", ["", "\n", "*", "a * b", "5 ** 2 is 25. Yes", "| not a table", "`", "```\nx"])
def test_odd_texts_can_be_drawn(text: str) -> None:
    assert isinstance(render_answer(close_marks(text), [], lambda citation: citation), str)  # type: ignore[arg-type, return-value]
