"""What is shown of a source: the part that holds most words of the question, without marks of Markdown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from ragd.types import Candidate
from retrieval_app.answers.citations import Place, QuotedAnswer, check_citations, path_of, place_of
from retrieval_app.runs.presenters import EXCERPT_CHARS, LEFT_OUT, mark_words

SOURCES = [
    Candidate("manual", 0, "The pump runs at 40 bar. Switch it off before cleaning.", 1.0, start=100, end=155),
    Candidate(
        "manual", 3, "Filters last six months. Order part 77.", 0.9, start=400, end=439, attributes={"page_label": "12"}
    ),
    Candidate("notes", 1, "Nobody knows the colour.", 0.8, start=0, end=24),
]

# answer, what is left of it, markers in order, removed
FORMS = [
    ("It runs at 40 bar [1].", "It runs at 40 bar [1].", [1], 0), ("Both [1][2].", "Both [1][2].", [1, 2], 0),
    ("Both [1, 2].", "Both [1][2].", [1, 2], 0), ("Both [1; 2].", "Both [1][2].", [1, 2], 0),
    ("All [1-3].", "All [1][2][3].", [1, 2, 3], 0), ("All [1–3].", "All [1][2][3].", [1, 2, 3], 0),
    ("Turned [3-1].", "Turned [1][2][3].", [1, 2, 3], 0), ("Wide 【2】.", "Wide [2].", [2], 0),
    ("Wide 【2†manual】.", "Wide [2].", [2], 0), ("Named [Source 1] and [source: 2].", "Named [1] and [2].", [1, 2], 0),
    ("Attached[1]. Acronym RAM[2].", "Attached[1]. Acronym RAM[2].", [1, 2], 0),
    ("In 2019[1], twice.", "In 2019[1], twice.", [1], 0), ("Unknown [9].", "Unknown.", [], 1),
    ("Unknown [0] here.", "Unknown here.", [], 1), ("Half known [2, 7].", "Half known [2].", [2], 1),
    ("Far too many [1-12].", "Far too many [1][2][3].", [1, 2, 3], 9),
    ("Attached unknown[9].", "Attached unknown.", [], 1),
    ("Attached[1] goes on, attached[3] too, to[2] as well.", "Attached[1] goes on, attached[3] too, to[2] as well.",
     [1, 3, 2], 0),
    ("A line.\n[9] Another.", "A line.\n Another.", [], 1),
    ("A BOX \t[9] [8]. Known [2].", "A BOX. Known [2].", [2], 2), ("Wide 【8】 unknown.", "Wide unknown.", [], 1),
    ("Set apart: v2【1】(yes) and ![x]【2】.", "Set apart: v2 [1] (yes) and ![x] [2].", [1, 2], 0),
    (r"So are \【1】: they!【2】", r"So are \ [1] : they! [2]", [1, 2], 0),
    ("Grows together 【[9]1】", "Grows together [1]", [1], 1), ("天空是蓝色[1]。", "天空是蓝色[1]。", [1], 0),
]  # fmt: skip

UNTOUCHED = [
    "Take a[1] and x_y[2], then rows[i][1].", "Call `list[1]` and ``a `b` [2]`` here.",
    "```python\nprint(items[1], [1], [9])\n```", "~~~\n[1] and [9]\n~~~\ndone", "```\nnever closed [1] [9]",
    "A [link](https://example.org/1) and [1](https://example.org).", "A ![picture [x]](a.png) and a footnote[^1].",
    "[1]: https://example.org", "[^1]: A footnote.", "See [text][1] for more.", r"Escaped \[1\] and \[9].",
    "a[1] begins it", "][1] too", "x_[1] and ptr->[1] and a snake_case[1] and $value[1]",
    "Attached unknown[9] goes on. Take 7[9] of them.", "matrix.rows[1] and camelCase[1] and v2[1]",
    "[2023] is a year, [x] is a box, [1:3] is a slice, [-1] is the last", "", "No marker at all.",
]  # fmt: skip


@pytest.mark.parametrize(("answer", "expected", "markers", "removed"), FORMS)
def test_every_form_leaves_in_one_form(answer: str, expected: str, markers: list[int], removed: int) -> None:
    checked = check_citations(answer, SOURCES)
    assert (checked.answer, [item.marker for item in checked.citations], checked.removed_count) == (
        expected,
        markers,
        removed,
    )


@pytest.mark.parametrize("answer", UNTOUCHED)
def test_what_is_no_citation_stays_as_it_is(answer: str) -> None:
    checked = check_citations(answer, SOURCES)
    assert (checked.answer, checked.citations, checked.removed_count) == (answer, (), 0)


def test_a_marker_after_code_still_counts() -> None:
    checked = check_citations("Use `a[9]` as said [1].\n\n```\nb[9]\n```\nAnd so on [2].", SOURCES)
    assert [item.marker for item in checked.citations] == [1, 2]
    assert checked.removed_count == 0


def test_a_citation_points_at_the_closest_sentence_of_its_source() -> None:
    checked = check_citations("You switch the pump off before cleaning it [1]. Grass is green [3].", SOURCES)
    first, second = checked.citations
    assert (first.doc_id, first.chunk_index, first.start, first.end, first.match) == ("manual", 0, 125, 155, "closest")
    assert first.quote == "Switch it off before cleaning."
    assert (second.doc_id, second.start, second.end, second.match) == ("notes", 0, 24, "chunk")


@pytest.mark.parametrize(
    ("answer", "span", "match"),
    [
        ("Filters last forever often [2].", (400, 424), "closest"),  # 2 of 4 words
        ("Filters are loud things [2].", (400, 439), "chunk"),  # 1 of 4
        ("Order of filters last [2].", (400, 424), "closest"),  # 2 of 4 in the first sentence, 1 in the second
        ("[2]", (400, 439), "chunk"),
    ],
)
def test_a_citation_points_at_a_sentence_that_has_half_of_the_words(
    answer: str, span: tuple[int, int], match: str
) -> None:
    (citation,) = check_citations(answer, SOURCES).citations
    assert ((citation.start, citation.end), citation.match) == (span, match)


def test_of_sentences_that_share_as_much_the_first_is_cited() -> None:
    source = Candidate("d", 0, "Pumps run. Pumps run. They stop.", 1.0, start=10, end=42)
    (citation,) = check_citations("Pumps run [1].", [source]).citations
    assert (citation.start, citation.end) == (10, 20)


def test_a_citation_of_what_a_person_wrote_is_at_the_place_of_its_chunk() -> None:
    source = Candidate("d", 0, "Pumps run. They stop.", 1.0, start=10, end=90, attributes={"overlay": "edit"})
    (citation,) = check_citations("They stop [1].", [source]).citations
    assert (citation.start, citation.end, citation.quote) == (10, 90, "They stop.")


def test_a_marker_behind_the_full_stop_belongs_to_the_sentence_before() -> None:
    checked = check_citations("Filters last six months. [2] Nobody knows more. [3]", SOURCES)
    assert [(item.text, item.markers) for item in checked.sentences] == [
        ("Filters last six months. [2]", (2,)),
        ("Nobody knows more. [3]", (3,)),
    ]
    assert [(item.sentence, item.page) for item in checked.citations] == [(0, "12"), (1, None)]


def test_sentences_say_how_far_their_sources_share_their_words() -> None:
    checked = check_citations("Filters last six months [2]. Unsaid things stay.", SOURCES)
    assert [(item.overlap, item.supported) for item in checked.sentences] == [(1.0, None), (None, None)]
    assert checked.sentences[0].as_dict() == {
        "text": "Filters last six months [2].", "start": 0, "end": 28, "markers": [2], "supported": None,
        "overlap": 1.0,
    }  # fmt: skip
    (third, both) = check_citations("Filters last x forever [2]. The pump runs [1][2].", SOURCES).sentences
    assert (third.overlap, both.overlap) == (0.6667, 1.0)


PIECES = st.sampled_from(
    ["[1]", "[2]", "[9]", "[1, 4]", "[1-30]", "【1】", "【7†x】", "word", "a", "_", "`", "```", "\n", " ", ".", "[",
     "]", "(", ")", "[x](y)", "!", "\\", "^", ":", "天", "é", "\u2028", "[source 2]", "[1:2]", "~~~", "->", "$", "9",
     "-", ","]
)  # fmt: skip
ANSWERS = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join))


@given(ANSWERS, st.integers(0, 3))
def test_never_raises_and_only_names_known_sources(answer: str, known: int) -> None:
    checked = check_citations(answer, SOURCES[:known])
    assert all(1 <= item.marker <= known for item in checked.citations)
    assert all(checked.answer[item.answer_start : item.answer_end] == f"[{item.marker}]" for item in checked.citations)
    assert all(checked.answer[item.start : item.end] == item.text for item in checked.sentences)
    assert all(SOURCES[item.marker - 1].start <= item.start < item.end for item in checked.citations)


@given(ANSWERS, st.integers(0, 3))
def test_checking_twice_changes_nothing_more(answer: str, known: int) -> None:
    once = check_citations(answer, SOURCES[:known])
    twice = check_citations(once.answer, SOURCES[:known])
    assert (twice.answer, twice.citations, twice.removed_count) == (once.answer, once.citations, 0)


@given(ANSWERS.filter(lambda text: not re.search(r"[\[\u3010]\s*[a-z: ]*[0-9]", text, re.IGNORECASE)))
def test_an_answer_without_markers_is_returned_as_it_is(answer: str) -> None:
    checked = check_citations(answer, SOURCES)
    assert (checked.answer, checked.citations, checked.removed_count) == (answer, (), 0)


@given(st.lists(st.sampled_from(["The pump runs.", "It stops!", "Why?"]), min_size=1, max_size=6), st.data())
def test_removing_unknown_markers_gives_back_the_text(sentences: list[str], data: st.DataObject) -> None:
    """Only markers go: with markers of unknown sources strewn in, the checked answer is the text without them."""
    marked = [f"{text} [{data.draw(st.integers(4, 99))}]" for text in sentences]
    checked = check_citations(" ".join(marked), SOURCES)
    assert (checked.answer, checked.removed_count) == (" ".join(sentences), len(sentences))


CELLS = [[100, 119, "S", "A,B", "4:5"]]
PAGES = {"page_label": 12, "pages": [[105, "13"], [108, "14"]]}


@pytest.mark.parametrize(
    ("attributes", "span", "place"),
    [
        ({}, (), Place()), ({"speaker": "Ada"}, (), Place("speaker Ada")),
        (PAGES, (), Place("12", page="12")), (PAGES, (4,), Place("12", page="12")),
        (PAGES, (5,), Place("13", page="13")), (PAGES, (8, 9), Place("14", page="14")),
        (PAGES | {"overlay": "edit"}, (8,), Place("12", page="12")),
        (PAGES | {"overlay": "add", "speaker": "Ada"}, (8,), Place("12, Ada", page="12")),
        ({"cells": CELLS}, (), Place("sheet S, rows 4 to 5", "S!A4:B5")),
        (PAGES | {"cells": CELLS}, (0, 9), Place("sheet S, row 4", "S!A4:B4", "12")),
        (PAGES | {"cells": CELLS}, (10,), Place("sheet S, row 5", "S!A5:B5", "14")),
        ({"cells": [[100, 119, "", "A,B", "4:5"]]}, (0, 3), Place("row 4", "A4")),
        ({"cells": CELLS}, (9, 10), Place()), ({"cells": CELLS, "overlay": "edit"}, (0, 9), Place()),
    ],
)  # fmt: skip
def test_where_something_stands_in_its_document(
    attributes: dict[str, Any], span: tuple[int, ...], place: Place
) -> None:
    source = Candidate("d", 0, "| a | 1 |\n| b | 2 |", 1.0, start=100, end=119, attributes=attributes)
    assert place_of(source, *span) == place


@pytest.mark.parametrize(("context", "path"), [("A > B\n| x |\n| y |", "A > B"), ("| x |\nA", ""), ("", "")])
def test_the_path_of_a_context_has_no_header_of_a_table(context: str, path: str) -> None:
    assert path_of(context) == path


def test_an_answer_that_quotes_knows_its_sentences_and_citations() -> None:
    answer = QuotedAnswer("In short:")
    known = {"page_label": "12", "pages": [[95, "13"]], "cells": CELLS}
    table = Candidate("t", 4, "Rows:\n| a | 1 |", 1.0, start=94, end=109, attributes=known)
    answer.add("\n", "| a | 1 |", table, 2, 6, 15, ("name", "count"))
    answer.add(" ", "```\nrun\n```", SOURCES[0], 1, 0, 24)
    answer.note("\n\nNo more.")
    checked = answer.checked()
    assert checked.answer == "In short:\n| a | 1 | [2] ```\nrun\n```\n[1]\n\nNo more."
    assert [(each.text, each.start, each.markers, each.supported, each.overlap) for each in checked.sentences] == [
        ("In short:", 0, (), None, None), ("| a | 1 | [2]", 10, (2,), True, 1.0),
        ("```\nrun\n```\n[1]", 24, (1,), None, None), ("No more.", 41, (), None, None),
    ]  # fmt: skip
    assert all(checked.answer[each.start : each.end] == each.text for each in checked.sentences)
    row, run = checked.citations
    assert row.as_dict() == {
        "marker": 2, "doc_id": "t", "chunk_index": 4, "start": 100, "end": 109, "quote": "| a | 1 |", "match": "quote",
        "sentence": 1, "answer_start": 20, "answer_end": 23, "page": "13", "place": "sheet S, row 4",
        "cells": "S!A4:B4", "column_names": ["name", "count"],
    }  # fmt: skip
    assert (run.sentence, run.answer_start, run.answer_end, run.column_names) == (2, 36, 39, None)
    assert (QuotedAnswer().sentences, checked.removed_count) == ([], 0)


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
