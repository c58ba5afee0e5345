"""Answers as HTML, and texts cut where chunks begin and end."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from hypothesis import given
from hypothesis import strategies as st

from collections_app.chunks.preview import ChunkSpan, cut_pieces
from evaluation_app.templatetags.scores import without_marks
from retrieval_app.answers.answer_html import cut_answer, render_answer, render_sentence


def draw(citation: Any) -> SafeString:
    return format_html("<a>{}</a>", citation["marker"])


def cite(answer: str, *markers: int) -> list[dict[str, Any]]:
    found = []
    for marker in markers:
        start = answer.index(f"[{marker}]")
        found.append({"marker": marker, "answer_start": start, "answer_end": start + 3})
    return found


def test_citations_stand_where_they_stood() -> None:
    answer = "Whales sing [2]. They eat krill [1][3]."
    assert (
        render_answer(answer, cite(answer, 2, 1, 3), draw)
        == "<p>Whales sing <a>2</a>. They eat krill <a>1</a><a>3</a>.</p>\n"
    )


def test_markdown_is_rendered_and_html_is_not() -> None:
    answer = "- **Bold** [1]\n- <b>not bold</b> & ![x](http://x/y.png)\n\n# no heading"
    html = render_answer(answer, cite(answer, 1), draw)
    assert "<strong>Bold</strong> <a>1</a>" in html
    assert "&lt;b&gt;not bold&lt;/b&gt; &amp; !" in html
    assert "<img" not in html
    assert "<h1" not in html


def test_a_link_with_a_script_stays_text() -> None:
    assert "href" not in render_answer("[click](javascript:alert(1))", [], draw)


def test_a_link_with_a_relative_address_is_its_text() -> None:
    answer = "[Spans](span-store.md), [API](/v1/docs) and [home](https://example.org/x)"
    html = render_answer(answer, [], draw)
    assert html == '<p>Spans, API and <a href="https://example.org/x">home</a></p>\n'


def test_a_sentence_is_rendered_without_a_paragraph() -> None:
    text = "- **Set** `k` in [the plan](plan.md) <b>\ue0000\ue001"
    assert render_sentence(text) == "- <strong>Set</strong> <code>k</code> in the plan &lt;b&gt;0"


def test_a_list_shows_the_words_of_an_answer_alone() -> None:
    answer = "## Plan\n[The **plan**](plan.md) sets `k`, *not* A* or 2*3. [1][2]"
    assert without_marks(answer) == "Plan The plan sets k, not A* or 2*3."


def test_what_stands_for_a_citation_inside_is_dropped_from_foreign_text() -> None:
    answer = "\ue0000\ue001 evil [1]"
    assert render_answer(answer, cite(answer, 1), draw) == "<p>0 evil <a>1</a></p>\n"


@pytest.mark.parametrize("forged", ["0", "7", "9" * 5000])
def test_a_character_entity_forges_no_citation(forged: str) -> None:
    entity = f"&#xE000;{forged}&#xE001;"
    answer = f'{entity} a [1] [x](/y "{entity}") `{entity}`\n\n```{entity}\n{entity}\n```\n'
    html = render_answer(answer, cite(answer, 1), draw)
    assert html.count("<a>1</a>") == html.count("<a>") == 1
    assert html.startswith(f"<p>{forged} a <a>1</a>")


def test_a_citation_in_code_or_a_link_is_drawn_once() -> None:
    answer = "    code [1]\n\n`x [2]` and [see [3]](/y)\n\n```\nz [4]\n```\n"
    html = render_answer(answer, cite(answer, 1, 2, 3, 4), draw)
    assert [html.count(f"<a>{marker}</a>") for marker in (1, 2, 3, 4)] == [1, 1, 1, 1]


@given(st.text(max_size=60), st.lists(st.tuples(st.integers(-5, 70), st.integers(-5, 70)), max_size=6))
def test_pieces_of_an_answer_are_the_answer(answer: str, places: list[tuple[int, int]]) -> None:
    citations = [{"marker": 1, "answer_start": start, "answer_end": end} for start, end in places]
    assert "".join(piece.text for piece in cut_answer(answer, citations)) == answer


spans = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 40)), max_size=6).map(
    lambda pairs: [ChunkSpan(index, start, start + length) for index, (start, length) in enumerate(sorted(pairs))]
)


@given(st.text(max_size=80), st.integers(0, 30), spans, st.none() | st.tuples(st.integers(0, 90), st.integers(1, 40)))
def test_pieces_of_a_text_are_the_text(
    text: str, offset: int, spans: list[ChunkSpan], place: tuple[int, int] | None
) -> None:
    cited = (place[0], place[0] + place[1]) if place else None
    pieces = cut_pieces(text, offset, spans, cited)
    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.text for piece in pieces)
    for piece in pieces:
        first, last = piece.start, piece.start + len(piece.text) - 1
        holders = tuple(span.index for span in spans if span.start <= first < span.end)
        assert piece.chunks == holders == tuple(span.index for span in spans if span.start <= last < span.end)
        assert piece.cited == (cited is not None and cited[0] <= first and last < cited[1])
    assert sum(piece.anchor for piece in pieces) == min(1, sum(piece.cited for piece in pieces))


def test_overlap_and_gap_are_told_apart() -> None:
    pieces = cut_pieces("aaabbbcccddd", 0, [ChunkSpan(0, 0, 6), ChunkSpan(1, 3, 9)])
    assert [(piece.text, piece.chunks, piece.begins, piece.overlap) for piece in pieces] == [
        ("aaa", (0,), (0,), False),
        ("bbb", (0, 1), (1,), True),
        ("ccc", (1,), (), False),
        ("ddd", (), (), False),
    ]
    assert [piece.crowded for piece in pieces] == [False, True, False, False]
    assert cut_pieces("", 0, []) == []


def test_quoted_rows_are_a_table_with_their_citations() -> None:
    answer = "The pump has parts. [1]\nfilter | 2 <b> [2]\nseal [3]\nA seal lasts. [4]"
    columns = {"filter | 2 <b>": ["part", "interval"], "seal": ["part", "interval"]}
    citations = [
        {**citation, "quote": quote, "column_names": columns.get(quote)}
        for citation, quote in zip(
            cite(answer, 1, 2, 3, 4), ["The pump has parts.", *columns, "A seal lasts."], strict=True
        )
    ]
    html = render_answer(answer, citations, draw)
    assert html.count("<table>") == 1 and html.count("<tr>") == 3
    assert "<td>filter</td>\n<td>2 &lt;b&gt; <a>2</a></td>" in html and "<td>seal</td>\n<td><a>3</a></td>" in html
    assert html.count("<p>") == 2 and "A seal lasts. <a>4</a></p>" in html and "|" not in html
    assert render_answer(answer, citations[:2], draw).count("<tr>") == 2
