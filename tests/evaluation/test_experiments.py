"""Grids of plans, their runs over a small collection, their ranking, the plan that is saved.
Pictures of scores: bars, bands and dots stand where their numbers are, and RAGBench's shares add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from evaluation_app.charts.score_charts import (
    BINS,
    DISTRIBUTION_HEIGHT,
    HEAD,
    TREND_HEIGHT,
    TrendPoint,
    draw_distribution,
    draw_trend,
    find_optimal,
    format_value,
)
from evaluation_app.experiments.plan_grid import PLANS_MAX, build_plans, check_measure, label_of, read_grid, varied
from evaluation_app.experiments.ranking import draw_trade_off, other_experiments, rank_plans
from evaluation_app.measures.catalogue import find
from evaluation_app.models import EvaluationItem, EvaluationRun, Experiment
from evaluation_app.runs.summaries import percentile_of, shares_of, stored_counts
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from tests.evaluation.made_runs import make_run
from tests.refusals import raises_with

SEARCH = RunSettings(answers=False, judge="none")
BASE = RetrievePlan()


def plans_of(grid: Mapping[str, Any], base: RetrievePlan = BASE, settings: RunSettings = SEARCH) -> list[RetrievePlan]:
    return build_plans(base, read_grid(grid), settings)


def test_a_grid_gives_every_combination_with_the_last_field_changing_fastest() -> None:
    plans = plans_of({"rrf_k": [10, 60], "k": [5, 20]})
    assert [(plan.k, plan.rrf_k) for plan in plans] == [(5, 10), (5, 60), (20, 10), (20, 60)]
    assert all(plan.candidate_pool == BASE.candidate_pool for plan in plans)


def test_combinations_that_rank_alike_are_one_plan() -> None:
    plans = plans_of({"mode": ["hybrid", "vector", "lexical"], "rrf_k": [10, 60]})
    assert [(plan.mode, plan.rrf_k) for plan in plans] == [
        ("hybrid", 10), ("hybrid", 60), ("vector", 60), ("lexical", 60)
    ]  # fmt: skip
    scanned = plans_of({"exact": ["always", "never"], "ef_search": [50, 100]})
    assert [(plan.exact, plan.ef_search) for plan in scanned] == [("always", None), ("never", 50), ("never", 100)]
    budgets = plans_of({"compress": ["none", "sentences"], "token_budget": [100, 200]}, settings=RunSettings())
    assert [(plan.compress, plan.token_budget) for plan in budgets] == [
        (None, None), ("sentences", 100), ("sentences", 200)
    ]  # fmt: skip


def test_a_weight_that_the_grid_leaves_out_is_the_bases() -> None:
    base = RetrievePlan(weights={"vector": 2.0, "lexical": 1.0})
    plans = plans_of({"weights": [{"lexical": 0.5}, {"lexical": 3}]}, base)
    assert [dict(plan.weights) for plan in plans] == [{"vector": 2.0, "lexical": 0.5}, {"vector": 2.0, "lexical": 3.0}]


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({}, "at least one field"),
        ({"k": [5]}, "one plan alone"),
        ({"rrf_k": [10, 60], "mode": ["vector"]}, "one plan alone"),
        ({"chunk_policy": ["a", "b"]}, "another index version"),
        ({"k": "5"}, "a list of values"),
        ({"k": [5, 0]}, "k must be a whole number"),
        ({"k": [5, "many"]}, "k must be a whole number"),
        ({"weights": [{"fuzzy": 1}, {"vector": 1}]}, "fuzzy"),
        ({"compress": ["none", "window"]}, "only searches"),
        ({"k": list(range(1, PLANS_MAX + 2))}, f"{PLANS_MAX + 1} plans"),
        ({"k": list(range(1, 101)), "rrf_k": list(range(1, 101))}, "10,000 plans"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(grid: dict[str, Any], words: str) -> None:
    with raises_with(InvalidInput, match=words, field="grid"):
        plans_of(grid)


def test_plans_are_told_by_what_they_differ_in() -> None:
    plans = [plan.as_dict() for plan in plans_of({"rerank": ["none", "builtin"], "weights": [{"lexical": 0.5}, {}]})]
    assert varied(plans) == ["weights", "rerank"]
    assert label_of(plans[1], varied(plans)) == "Weights 1 : 0.5, Rerank builtin"


@pytest.mark.parametrize(
    ("measure", "settings", "words"),
    [
        ("recall@5", SEARCH, "recall@10"),
        ("adherence", SEARCH, "a judge"),
        ("f1", SEARCH, "answers"),
        ("erag_success", RunSettings(), "contributions"),
        ("loudness", SEARCH, "no measure"),
    ],
)
def test_a_measure_that_the_runs_lack_is_refused(measure: str, settings: RunSettings, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_measure(measure, settings)
    check_measure("recall@10", settings)


@pytest.fixture
def ranked(db: None) -> Any:
    """ranked([[scores of plan 0], [of plan 1], ...]): an experiment whose runs have these values of recall@10."""

    def make(rows: Sequence[Sequence[float | None]], **values: Any) -> Experiment:
        plans = [RetrievePlan(k=place + 1) for place in range(len(rows))]
        experiment = Experiment.objects.create(kind="plans",
            set_name="birds", set_version=1, set_digest="d" * 64, collection_name="nature", measure="recall@10",
            variants=[plan.as_dict() for plan in plans], **values,
        )  # fmt: skip
        for place, (row, plan) in enumerate(zip(rows, plans, strict=True)):
            scores: list[dict[str, float | None]] = [{"recall@10": value, "noise_relevant": value} for value in row]
            make_run(
                scores, plan=plan, experiment=experiment, place=place, purpose="experiment", took_ms=100.0 * (9 - place)
            )
        return experiment

    return make


def test_the_best_stands_first_and_what_noise_hides_is_level_with_it(ranked: Any) -> None:
    good, near, bad = [1.0] * 20, [1.0] * 17 + [0.0] * 3, [0.0] * 20
    found = rank_plans(ranked([bad, near, good]))
    assert [(row.place, row.standing) for row in found.rows] == [(2, "best"), (1, "level"), (0, "worse")]
    best, level, worse = found.rows
    assert best.behind is None and level.behind is not None and worse.behind is not None
    assert level.behind.mean == pytest.approx(0.15) and worse.behind.low == 1.0
    assert best.label == "k 3" and found.fields == ("k",) and found.shared == 20
    assert best.won is not None and level.won is not None and worse.won == 0.0
    assert best.won + level.won == pytest.approx(1.0) and best.won > 0.9
    assert found.quickest is not None and found.quickest.place == 2


def test_equal_plans_share_the_draws_and_stand_by_place(ranked: Any) -> None:
    found = rank_plans(ranked([[0.5, 1.0]] * 4))
    assert [row.place for row in found.rows] == [0, 1, 2, 3]
    assert [row.won for row in found.rows] == [0.25] * 4
    assert [row.standing for row in found.rows] == ["best", "level", "level", "level"]


def test_what_is_not_scored_is_last_and_takes_part_in_nothing(ranked: Any) -> None:
    found = rank_plans(ranked([[None] * 7, [0.2] * 7, [0.9] * 6 + [None]]))
    assert [(row.place, row.standing) for row in found.rows] == [(2, "best"), (1, "worse"), (0, "unscored")]
    assert found.rows[2].won is None and found.rows[2].mean.unscorable == 7
    assert found.shared == 6 and found.rows[1].behind is not None and found.rows[1].behind.count == 6
    empty = rank_plans(ranked([[], []]))
    assert empty.best is None and [row.standing for row in empty.rows] == ["unscored"] * 2


def test_a_measure_where_less_is_better_is_ranked_so(ranked: Any) -> None:
    found = rank_plans(ranked([[0.9] * 8, [0.1] * 8]), "noise_relevant")
    assert [(row.place, row.standing) for row in found.rows] == [(1, "best"), (0, "worse")]
    assert found.rows[0].won == 1.0


@pytest.mark.parametrize(
    ("points", "optimal"),
    [
        ([(1, 1), (2, 2), (3, 1)], [True, True, False]),
        ([(1, 1), (1, 2)], [False, True]),
        ([(1, 2), (3, 2)], [True, False]),
        ([(1, 2), (1, 2)], [True, True]),
        ([], []),
    ],
)
def test_optimal_is_what_nothing_beats_in_both(points: list[tuple[float, float]], optimal: list[bool]) -> None:
    assert find_optimal(points) == optimal


def test_quality_stands_against_latency(ranked: Any) -> None:
    """made: by took_ms 900, 800, 700, 600 for 10 questions each."""
    ranking = rank_plans(ranked([[0.9] * 10, [0.8] * 10, [0.5] * 10, [0.7] * 10]))
    picture = draw_trade_off(ranking)
    assert picture is not None and picture.front.startswith("M")
    assert [(dot.title, dot.mark, dot.is_optimal) for dot in picture.dots] == [
        ("k 4", "3", True), ("k 3", "4", False), ("k 2", "2", True), ("k 1", "1", True),
    ]  # fmt: skip
    across, down = [dot.x for dot in picture.dots], [dot.y for dot in picture.dots]
    assert across == sorted(across) and across[0] > 0 and across[-1] < 100
    assert down[3] < down[2] < down[0] < down[1]
    less = draw_trade_off(rank_plans(ranked([[0.9] * 10, [0.8] * 10]), "noise_relevant"))
    assert less is not None and [dot.is_optimal for dot in less.dots] == [True, False]
    assert draw_trade_off(rank_plans(ranked([[0.9] * 10]))) is None
    assert draw_trade_off(rank_plans(ranked([[], []]))) is None


def test_latency_is_the_median_of_the_queries_without_judging(ranked: Any) -> None:
    experiment = ranked([[0.9] * 3, [0.8] * 3])
    for item, total in zip(EvaluationItem.objects.filter(run__place=0), (10.0, 30.0, 500.0), strict=True):
        item.query_run = QueryRun.objects.create(
            collection_name="nature", query="q", timings_ms={"total": total}, status="ok"
        ).pk
        item.save(update_fields=["query_run"])
    found = {row.place: row.latency_ms for row in rank_plans(experiment).rows}
    assert found == {0: 30.0, 1: pytest.approx(800 / 3)}


def test_a_plan_that_asked_fewer_questions_is_not_ranked(ranked: Any) -> None:
    experiment = ranked([[0.5] * 8, [1.0] * 3, []])
    EvaluationRun.objects.filter(experiment=experiment, place=1).update(state="running", total=8)
    found = rank_plans(experiment)
    assert [(row.place, row.standing) for row in found.rows] == [(0, "best"), (1, "unfinished"), (2, "unscored")]
    assert found.shared == 8 and found.ranked == 1 and found.rows[0].won == 1.0


def test_experiments_of_the_same_questions_stand_beside_each_other_with_their_index(ranked: Any) -> None:
    first, second = ranked([[0.2] * 8, [0.9] * 8], name="small chunks"), ranked([[0.5] * 8, [0.4] * 8])
    EvaluationRun.objects.filter(experiment=first).update(index_version=2)
    ranked([[], []], name="nothing yet")
    Experiment.objects.create(
        kind="plans", set_name="fish", set_version=1, set_digest="f" * 64, collection_name="nature", measure="hit@10"
    )
    found = other_experiments(second, rank_plans(second))
    assert [(each.experiment.name, each.best.mean.value, each.index.number, each.is_other_index) for each in found] == [
        ("small chunks", pytest.approx(0.9), 2, True)
    ]


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
