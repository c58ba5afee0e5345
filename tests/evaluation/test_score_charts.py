"""Pictures of scores: bars, bands and dots stand where their numbers are, and RAGBench's shares add up."""

from __future__ import annotations

import pytest

from evaluation_app.charts.score_charts import (
    BINS,
    DISTRIBUTION_HEIGHT,
    HEAD,
    TREND_HEIGHT,
    TrendPoint,
    draw_distribution,
    draw_trend,
    format_value,
)
from evaluation_app.measures.catalogue import find
from evaluation_app.runs.summaries import percentile_of, shares_of, stored_counts

BANDS = {"context_relevance": (0.69, 0.5), "adherence": (1.0, 1.0)}
RELEVANCE, ADHERENCE = find("context_relevance", BANDS), find("adherence", BANDS)


def points(*values: float | None, groups: str = "") -> list[TrendPoint]:
    names = groups or "a" * len(values)
    return [
        TrendPoint(f"run {place}", f"day {place}", f"/{place}/", value, group=names[place])
        for place, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.614, "0.61"), (1.0, "1.00"), (0.0, "0.00"), (0.996, "0.996"), (0.9999, "0.999"), (0.004, "0.004"),
        (0.00001, "under 0.001"), (-0.25, "-0.25"), (-0.004, "-0.004"), (None, "–"),
    ],
)  # fmt: skip
def test_no_score_reads_as_0_or_1_that_is_neither(value: float | None, told: str) -> None:
    assert format_value(value) == told


def test_scores_stand_in_the_bar_that_they_belong_to_and_in_its_band() -> None:
    picture = draw_distribution(RELEVANCE, [0.0, 0.04, 0.15, 0.5, 0.5, 0.7, 1.0, 0.99], mean=0.485)
    counts = {round(bar.low, 2): bar.count for bar in picture.bars if bar.count}
    assert counts == {0.0: 2, 0.15: 1, 0.5: 2, 0.7: 1, 0.95: 2}
    bands = {round(bar.low, 2): bar.band for bar in picture.bars if bar.count}
    assert bands == {0.0: "fail", 0.15: "fail", 0.5: "watch", 0.7: "pass", 0.95: "pass"}
    highest = next(bar for bar in picture.bars if bar.count == 2)
    assert (highest.y, highest.height) == (HEAD, DISTRIBUTION_HEIGHT - HEAD)
    assert [(bound.name, bound.at) for bound in picture.bounds] == [("pass", 69.0), ("fail", 50.0)]
    assert picture.mean_at == 48.5 and picture.scored == 8


def test_a_trend_is_broken_by_gaps_and_by_other_questions() -> None:
    assert draw_trend(RELEVANCE, points(0.4, 0.5, 0.6)).path.count("M") == 1
    assert draw_trend(RELEVANCE, points(0.4, 0.5, None, 0.6, 0.6)).path.count("M") == 2
    cut = draw_trend(RELEVANCE, points(0.4, 0.5, 0.6, 0.7, groups="aabb"))
    assert cut.path.count("M") == 2 and cut.cuts == (50.0,)
    assert draw_trend(RELEVANCE, points(0.4, 0.5, groups="ab")).path == ""


def test_a_trend_has_a_scale_that_holds_intervals_and_the_baseline() -> None:
    runs = [TrendPoint("one", "1", "/1/", 0.62, 0.55, 0.7), TrendPoint("two", "2", "/2/", 0.64, 0.6, 0.93)]
    picture = draw_trend(RELEVANCE, runs, baseline=0.42)
    ticks = [float(tick.text) for tick in picture.ticks]
    assert ticks[0] <= 0.42 and ticks[-1] >= 0.93 and ticks == sorted(ticks)
    assert picture.ticks[0].at == TREND_HEIGHT - HEAD and picture.ticks[-1].at == HEAD
    low, high = picture.dots[1].low_y, picture.dots[1].high_y
    assert low is not None and high is not None and HEAD <= high < picture.dots[1].y < low <= TREND_HEIGHT - HEAD
    assert picture.dots[1].is_last and not picture.dots[0].is_last
    assert [row[0] for row in picture.rows] == ["two", "one"], "newest first"


def test_percentiles_of_ragbench_grow_with_the_value_and_are_of_all_rows() -> None:
    assert sum(sum(counts) for counts in stored_counts()["adherence"].values()) == 1927
    for name in ("context_relevance", "context_utilization", "completeness", "adherence"):
        shares = [percentile_of(name, value / 100) for value in range(101)]
        known = [share for share in shares if share is not None]
        assert len(known) == 101 and known == sorted(known) and 0 <= known[0] <= known[-1] <= 1
        bins = shares_of(name, BINS)
        assert bins is not None and sum(bins) == pytest.approx(1.0)
    assert percentile_of("f1", 0.5) is None and shares_of("f1", BINS) is None


def test_a_percentile_counts_half_of_those_that_score_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [0] * 101
    counts[10], counts[50] = 2, 2
    stored = {"m": {"one": counts, "two": [0] * 100 + [7]}}
    monkeypatch.setattr("evaluation_app.runs.summaries.stored_counts", lambda: stored)
    assert percentile_of("m", 0.5) == pytest.approx((0.75 + 0.0) / 2)
    assert percentile_of("m", 1.0) == pytest.approx((1.0 + 0.5) / 2)
