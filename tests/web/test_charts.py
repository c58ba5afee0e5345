"""Where lines, bands and bars stand, and that the numbers under a picture are the ones that it draws."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

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
