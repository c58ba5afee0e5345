"""What is shown of a source: the part that holds most words of the question, without marks of Markdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from retrieval_app.runs.presenters import EXCERPT_CHARS, LEFT_OUT, mark_words

FILLER = "The committee met on a Tuesday and spoke of other things for a while. " * 5


def shown(text: str, question: str) -> tuple[str, list[str]]:
    """(the text, the words that are marked)."""
    tree = LexborHTMLParser(f"<div>{mark_words(text, question)}</div>")
    return tree.css_first("div").text(), [node.text() for node in tree.css("mark")]


def test_it_begins_with_the_sentence_that_holds_most_words_of_the_question() -> None:
    text, marked = shown(f"{FILLER}The pump costs 900 euros. {FILLER}", "What does the pump cost?")
    assert text.startswith(f"{LEFT_OUT}The pump costs 900 euros.") and marked == ["pump", "costs"]
    assert len(text) <= EXCERPT_CHARS + len(LEFT_OUT)


def test_it_begins_at_the_beginning_where_no_part_is_better() -> None:
    assert shown(f"The pump is old. {FILLER}", "pump")[0].startswith("The pump is old.")
    assert shown(FILLER, "whale")[0].startswith("The committee")


def test_a_row_of_a_table_is_read_as_cells() -> None:
    rows = "".join(f"| {year} | Winner {year} | Loser {year} |\n" for year in range(1900, 1960))
    text, marked = shown(
        f"# Cups\n\n| Year | Champion | Beaten |\n|---|:-:|---|\n{rows}", "Who was the winner of 1942?"
    )
    assert text.startswith(f"{LEFT_OUT}1941 · Winner 1941 · Loser 1941 1942 · Winner 1942")
    assert "1942" in marked and "|" not in text and "---" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("`DAYS` | 30 | Days that | are kept", "DAYS · 30 · Days that · are kept"), ("cat a | sort", "cat a | sort"),
     ("# A heading\n\nText.", "Text."), ("- **Bold** and [a link](x.md)", "Bold and a link"), ("", ""),
     ("<b>raw</b>", "<b>raw</b>")],
)  # fmt: skip
def test_marks_of_markdown_are_left_out_and_html_is_text(text: str, expected: str) -> None:
    assert shown(text, "whale") == (expected, [])


@given(st.text(max_size=300), st.text(max_size=40))
def test_any_text_can_be_shown(text: str, question: str) -> None:
    assert len(shown(text, question)[0]) <= EXCERPT_CHARS + len(LEFT_OUT)
