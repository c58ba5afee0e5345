"""Answers as HTML, and texts cut where chunks begin and end.
Where lines, bands and bars stand, and that the numbers under a picture are the ones that it draws.
The words of the pages: times, durations, sizes, counts, trends, bars."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from hypothesis import given
from hypothesis import strategies as st

from collections_app.chunks.preview import ChunkSpan, cut_pieces
from collections_app.domain import formats
from collections_app.templatetags import interface
from evaluation_app.charts.series_charts import (
    HEAD,
    HEIGHT,
    LABEL_GAP,
    Series,
    Step,
    draw_bars,
    draw_lines,
    fold_series,
)
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


NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "just now"), (9, "just now"), (59, "59 s ago"), (60, "1 min ago"), (3599, "59 min ago"), (3600, "1 h ago"),
     (86400, "1 d ago"), (29 * 86400, "29 d ago"), (30 * 86400, "2026-01-30"), (-120, "in 2 min")],
)  # fmt: skip
def test_ago(seconds: int, said: str) -> None:
    assert interface.spell_ago(NOW - timedelta(seconds=seconds), NOW) == said


def test_ago_keeps_the_exact_time_in_the_markup() -> None:
    html = interface.ago(datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC))
    assert 'datetime="2026-03-01T12:00:05+00:00"' in html
    assert 'title="2026-03-01 12:00:05 UTC"' in html
    assert interface.ago(None) == "–"


@pytest.mark.parametrize(
    ("took_ms", "said"),
    [(None, "–"), ("", "–"), (0.1234, "0.12 ms"), (1.55, "1.6 ms"), (12.3, "12 ms"), (999, "999 ms"),
     (1234, "1.23 s"), (10_000, "10.0 s"), (119_900, "119.9 s"), (125_000, "2 min 5 s")],
)  # fmt: skip
def test_duration(took_ms: float | None, said: str) -> None:
    assert formats.duration(took_ms) == said


@pytest.mark.parametrize(
    ("size", "said"),
    [(None, "–"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (65_536, "65.5 kB"), (967_000, "967 kB"),
     (50_000_000, "50.0 MB"), (3 * 10**12, "3.0 TB")],
)  # fmt: skip
def test_size(size: int | None, said: str) -> None:
    assert formats.size(size) == said


def test_counts_agree_with_their_noun() -> None:
    assert formats.counted(0, "document") == "0 documents"
    assert formats.counted(1, "document") == "1 document"
    assert formats.counted(1234, "query,queries") == "1,234 queries"
    assert formats.number(1234567) == "1,234,567"
    assert formats.number(None) == "–"
    assert formats.percent(None) == "–"
    assert formats.percent(0.5) == "50 %"
    assert formats.score(None) == "–"


def test_a_sparkline_needs_something_to_draw() -> None:
    assert interface.sparkline([], "x") == ""
    assert interface.sparkline([1], "x") == ""
    assert interface.sparkline([0, 0, 0], "x") == ""
    assert interface.sparkline([2, None, 3], "x") == ""  # two points are no course
    assert "M0.0,26.0L48.0,14.0L96.0,2.0" in interface.sparkline([0, 1, 2], "x")
    assert "M0.0," in interface.sparkline([1, None, 2, 3], "x")


def test_a_score_bar_stays_within_its_bounds() -> None:
    assert 'width="100.0"' in interface.score_bar(1.7)
    assert 'width="0.0"' in interface.score_bar(-1)
    assert 'data-band="low"' in interface.score_bar(None)


def test_numbers_for_scripts_are_exact() -> None:
    assert formats.exactly(0.1 + 0.2) == "0.30000000000000004"


STEPS = [Step(f"{hour:02}:00", f"{hour} to {hour + 1}", f"?at={hour}") for hour in range(4)]


def spell(value: float) -> str:
    return f"{value:g}"


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", path)]


def test_lines_stand_where_their_values_are() -> None:
    picture = draw_lines("t", STEPS, [Series("p50", (0.0, 10.0, 20.0, 40.0))], spell=spell)
    assert [(tick.text, tick.y) for tick in picture.ticks][::4] == [("0", HEIGHT), ("40", HEAD)]
    assert points(picture.lines[0].path) == [(125, HEIGHT), (375, 128), (625, 88), (875, HEAD)]
    assert picture.band == "" and picture.lines[0].label_y == HEAD
    assert [row.texts for row in picture.rows] == [("10",), ("20",), ("40",)]
    assert picture.columns[1].readout == "1 to 2: p50 10" and picture.columns[1].href == "?at=1"
    assert (picture.words[0].text, picture.words[0].anchor) == ("00:00", "middle")


def test_a_gap_breaks_a_line_and_its_band_and_a_lone_value_spans_its_step() -> None:
    low, high = Series("p50", (1.0, None, 3.0, 4.0)), Series("p99", (10.0, None, 30.0, 40.0))
    picture = draw_lines("t", STEPS, [low, high], spell=spell, log=True)
    assert picture.lines[0].path.count("M") == 2
    assert re.match(r"M0,[\d.]+h250M", picture.lines[0].path)
    assert picture.band.count("M") == 1 and len(points(picture.band)) == 4
    assert [row.title for row in picture.rows] == ["0 to 1", "2 to 3", "3 to 4"]
    assert picture.columns[1].readout == "1 to 2: nothing"


def test_a_logarithmic_scale_has_a_tick_at_each_power() -> None:
    picture = draw_lines("t", STEPS, [Series("p50", (3.0, 30.0, 300.0, 2999.0))], spell=spell, log=True)
    assert [tick.text for tick in picture.ticks] == ["1", "10", "100", "1000"]
    steps = [round(one.y - other.y) for one, other in pairwise(picture.ticks)]
    assert len(set(steps)) == 1 and picture.ticks[0].y == HEIGHT
    few = draw_lines("t", STEPS, [Series("p50", (3.0, 4.0, 4.0, 4.0))], spell=spell, log=True)
    assert [tick.text for tick in few.ticks] == ["1", "2", "5"]


def test_labels_at_the_ends_keep_apart_and_inside() -> None:
    close = [Series(f"p{number}", (None, None, None, 5.0 + number / 100)) for number in range(3)]
    for top in (5.03, 1000.0):  # all at the upper end, all at the lower end
        series = [*close, Series("max", (top, None, None, None))]
        ends = sorted(line.label_y for line in draw_lines("t", STEPS, series, spell=spell).lines if line.label_y)
        assert ends[0] >= HEAD and ends[-1] <= HEIGHT
        assert all(other - one >= LABEL_GAP - 0.01 for one, other in pairwise(ends))


def test_bars_lie_upon_each_other() -> None:
    series = [Series("small", (1.0, 0.0, 1.0, 0.0), "?s"), Series("large", (3.0, 4.0, None, 0.0))]
    picture = draw_bars("t", STEPS, series, spell=spell)
    assert [(key.name, key.text) for key in picture.keys] == [("small", "2"), ("large", "7")]  # as they are stacked
    first = [block for block in picture.blocks if block.x < 25]
    large, small = first
    assert (large.number, large.y + large.height) == (1, HEIGHT)
    assert small.y == HEAD and small.y + small.height == pytest.approx(large.y)
    assert large.height == pytest.approx(3 * small.height, abs=0.05)
    assert len(picture.blocks) == 4 and picture.head == ("large", "small")
    assert [row.texts for row in picture.rows] == [("3", "1"), ("4", "0"), ("–", "1")]


def test_counts_have_no_ticks_between_whole_numbers() -> None:
    picture = draw_bars("t", STEPS, [Series("failed", (0.0, 1.0, 0.0, 2.0))], spell=spell, counts=True)
    assert [tick.text for tick in picture.ticks] == ["0", "1", "2"]


def test_what_is_too_much_for_the_eye_becomes_one() -> None:
    many = [Series(f"m{number}", (float(number), None)) for number in range(9)]
    folded = fold_series(many)
    assert [each.name for each in folded] == ["m8", "m7", "m6", "m5", "m4", "3 others"]
    assert folded[-1].values == (6.0, 0.0)
    assert fold_series(many[:7]) == sorted(many[1:7], key=lambda each: each.name, reverse=True)


@pytest.mark.parametrize("draw", [draw_lines, draw_bars])
def test_without_values_there_is_nothing_to_draw(draw: object) -> None:
    for series in ([], [Series("p50", (None,) * 4)]):
        picture = draw("t", STEPS, series, spell=spell)  # type: ignore[operator]
        assert picture.is_empty and picture.rows == ()
