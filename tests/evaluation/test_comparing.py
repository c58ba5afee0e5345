"""Runs against each other: intervals, verdicts, refusals, what moved in each question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collections_app.errors import ServiceError
from evaluation_app.golden.sets import Criteria
from evaluation_app.measures.statistics import Draws, Interval, ResampledMeans, bootstrap_mean, judge_difference
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.comparison.pages import choose_questions, compare_question, reach_of, show_matrix
from evaluation_app.runs.comparison.stored_comparisons import Comparison, compare_runs
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from tests.evaluation.made_runs import SETTINGS, make_run
from tests.refusals import raises_with

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("count", [1, 2, 9, 250])
def test_the_interval_is_the_bootstraps_whatever_the_equal_weight(count: int) -> None:
    values = list(RNG.normal(size=count))
    assert bootstrap_mean(values, weights=[3.0] * count, draws=Draws()) == bootstrap_mean(values)


def test_a_weight_moves_the_mean_and_weight_0_counts_for_nothing() -> None:
    found = bootstrap_mean([1.0, 0.0, 5.0], weights=[3.0, 1.0, 0.0], draws=Draws())
    assert found is not None and found.mean == 0.75 and found.count == 2
    assert (found.low, found.high) == (0.0, 1.0)
    assert (
        bootstrap_mean([], weights=[], draws=Draws()) is None
        and bootstrap_mean([1.0], weights=[0.0], draws=Draws()) is None
    )


def test_many_questions_are_drawn_in_pieces_with_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(RNG.normal(size=50))
    whole = bootstrap_mean(values, weights=[1.0] * 50, draws=Draws())
    monkeypatch.setattr("evaluation_app.measures.statistics.INDEXES_MAX", 130)
    assert bootstrap_mean(values, weights=[1.0] * 50, draws=Draws()) == whole


@pytest.mark.parametrize(
    ("low", "high", "moved", "better", "verdict"),
    [
        (0.1, 0.3, 9, True, "improved"), (0.1, 0.3, 9, False, "regressed"), (-0.3, -0.1, 6, True, "regressed"),
        (-0.3, -0.1, 5, True, "few"), (-0.1, 0.3, 9, True, "noise"), (0.0, 0.3, 9, True, "noise"),
        (0.0, 0.0, 0, True, "same"),
    ],
)  # fmt: skip
def test_the_word_follows_the_interval_and_how_many_moved(
    low: float, high: float, moved: int, better: bool, verdict: str
) -> None:
    difference = Interval((low + high) / 2, low, high, 20)
    assert judge_difference(difference, moved, higher_is_better=better) == verdict


def test_without_a_pair_nothing_is_said() -> None:
    assert judge_difference(None, 0) == "unscored"


@pytest.fixture
def runs(db: None) -> tuple[Any, Any]:
    """Ten questions. recall falls in eight, mrr moves both ways, hit stays, noise (less is better) falls in seven."""
    before = [{"recall@10": 1.0, "mrr@10": 0.5, "hit@10": 1.0, "noise_relevant": 0.5, "precision@10": 0.2}] * 10
    after = [
        {
            "recall@10": 0.25 if place < 8 else 1.0,
            "mrr@10": 1.0 if place % 2 else 0.0,
            "hit@10": 1.0,
            "noise_relevant": 0.0 if place < 7 else 0.5,
            "precision@10": 0.3 if place < 4 else None if place == 9 else 0.2,
        }
        for place in range(10)
    ]
    base = make_run(before, name="before")
    other = make_run(after, name="after", plan=RetrievePlan(k=3), index_version=2)
    return base, other


def change(comparison: Comparison, name: str) -> Any:
    return next(change for change in comparison.others[0].changes if change.name == name)


def test_each_measure_gets_its_verdict_over_the_same_questions(runs: tuple[Any, Any]) -> None:
    comparison = compare_runs(runs[0], [runs[1]])
    recall = change(comparison, "recall@10")
    assert recall.verdict == "regressed" and (recall.better, recall.worse, recall.same) == (0, 8, 2)
    assert recall.difference.mean == pytest.approx(-0.6) and recall.difference.high < 0
    assert change(comparison, "mrr@10").verdict == "noise"
    assert change(comparison, "hit@10").verdict == "same" and change(comparison, "hit@10").difference.mean == 0
    noise = change(comparison, "noise_relevant")
    assert noise.verdict == "improved" and noise.difference.mean < 0 and noise.better == 7
    precision = change(comparison, "precision@10")
    assert precision.verdict == "few" and precision.difference.count == 9
    assert (precision.base.scored, precision.other.scored, precision.other.unscorable) == (10, 9, 1)
    assert comparison.others[0].counts["regressed"] == 1


def test_the_other_way_round_the_differences_have_the_other_sign(runs: tuple[Any, Any]) -> None:
    there, back = compare_runs(runs[0], [runs[1]]), compare_runs(runs[1], [runs[0]])
    for name in there.measures:
        one, other = change(there, name), change(back, name)
        assert one.difference.mean == pytest.approx(-other.difference.mean)
        assert (one.better, one.worse) == (other.worse, other.better)


def test_the_header_tells_what_was_changed_and_nothing_else(runs: tuple[Any, Any]) -> None:
    rows = compare_runs(runs[0], [runs[1]]).headers
    assert {row.name: row.values for row in rows} == {"plan.k": ("12", "3"), "index_version": ("1", "2")}
    same = compare_runs(runs[0], [make_run([{}] * 10)])
    assert same.headers == ()


def test_runs_of_other_questions_are_refused_with_the_reason(runs: tuple[Any, Any]) -> None:
    newer = make_run([{}], name="newer", set_version=2, set_digest="e" * 64)
    with raises_with(ServiceError, type="not_comparable", status=409) as refusal:
        compare_runs(runs[0], [runs[1], newer])
    assert "version 1" in refusal.value.message and "version 2" in refusal.value.message
    foreign = make_run([{}], set_name="fish", set_digest="f" * 64)
    with pytest.raises(ServiceError, match=r"set 'birds' and .* the set 'fish'"):
        compare_runs(runs[0], [foreign])
    renamed = make_run([{}] * 10, set_name="birds, kept", set_version=5)
    assert compare_runs(runs[0], [renamed]).others[0].run == renamed


@pytest.mark.parametrize("others", [[], ["base"], ["other", "other"]])
def test_a_comparison_needs_other_runs_each_once(runs: tuple[Any, Any], others: list[str]) -> None:
    named = dict(zip(("base", "other"), runs, strict=True))
    with raises_with(ServiceError, status=422):
        compare_runs(runs[0], [named[name] for name in others])


def test_scores_of_two_judges_are_not_held_against_each_other(db: None) -> None:
    scores = [{"adherence": 1.0, "recall@10": 1.0, "erag_success": 0.5}] * 7
    lower = [{"adherence": 0.0, "recall@10": 0.0, "erag_success": 0.1}] * 7
    base = make_run(scores)
    other = make_run(lower, judge="llm", judge_version="gpt", settings={**SETTINGS, "downstream": "rouge_l"})
    comparison = compare_runs(base, [other])
    adherence, erag = change(comparison, "adherence"), change(comparison, "erag_success")
    assert adherence.verdict == erag.verdict == "incomparable" and adherence.difference is None
    assert adherence.reason == "judged by embedded (1) and by llm (gpt)" and "rouge_l" in erag.reason
    assert change(comparison, "recall@10").verdict == "regressed"
    assert all("adherence" not in item.deltas for item in comparison.others[0].questions)
    units = make_run(lower, settings={**SETTINGS, "unit": "sentences"})
    assert "sentences" in change(compare_runs(base, [units]), "adherence").reason


def test_questions_stand_by_their_largest_loss_and_failures_first(db: None) -> None:
    base = make_run([{"recall@10": 1.0, "mrr@10": 1.0}] * 4, thresholds={"recall@10": 0.5})
    after = [
        {"recall@10": 1.0, "mrr@10": 1.0}, {"recall@10": 0.75, "mrr@10": 1.0}, {"recall@10": 0.0, "mrr@10": 0.9}, {}
    ]  # fmt: skip
    other = make_run(after, thresholds={"recall@10": 0.5}, items={3: {"outcome": "error", "error": "down"}})
    against = compare_runs(base, [other]).others[0]
    assert [item.position for item in against.questions] == [3, 2, 1, 0]
    assert [item.position for item in against.lost] == [3, 2] and against.won == []
    rows, filters = choose_questions(against, shown="lost")
    assert [item.position for item in rows] == [3, 2]
    assert filters == {"moved": 3, "worse": 3, "better": 0, "lost": 2, "won": 0, "all": 4}
    rows, _ = choose_questions(against, shown="worse", measure="mrr@10")
    assert [item.position for item in rows] == [2, 3]


def test_without_thresholds_a_failure_mode_decides_who_passes(db: None) -> None:
    base = make_run([{"recall@10": 1.0}] * 2)
    other = make_run([{"recall@10": 0.0}] * 2, items={1: {"modes": ["retrieval_miss"]}})
    assert [item.position for item in compare_runs(base, [other]).others[0].lost] == [1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"recall@10": 0.9}),
        ({"recall@10": 0.9}, {}),
        ({"recall@10": 0.9}, {"recall@10": 0.1}),
        ({"recall@5": 0.9}, {"recall@10": 0.1}),
    ],
)
def test_equal_questions_neither_win_nor_lose_by_other_thresholds(
    db: None, before: dict[str, float], after: dict[str, float]
) -> None:
    """Two runs with the same scores and failure modes; one has thresholds that the other has not."""
    scores = [{"recall@10": 0.5}] * 3 + [{"recall@10": 1.0}] * 3
    items = {place: {"modes": ["retrieval_miss"]} for place in (0, 4)}
    against = compare_runs(
        make_run(scores, thresholds=before, items=items), [make_run(scores, thresholds=after, items=items)]
    ).others[0]
    assert (against.won, against.lost) == ([], [])


def test_a_threshold_that_only_one_run_measured_decides_nothing(db: None) -> None:
    base = make_run([{"recall@10": 0.0, "hit@10": 1.0}] * 2, thresholds={"recall@10": 0.5})
    other = make_run([{"recall@5": 1.0, "hit@10": 1.0}] * 2, thresholds={"recall@5": 0.5})
    against = compare_runs(base, [other]).others[0]
    assert (against.won, against.lost) == ([], [])


def test_a_run_that_goes_on_is_compared_as_far_as_both_are(db: None) -> None:
    base = make_run([{"recall@10": 1.0}] * 9)
    other = make_run([{"recall@10": 0.0}] * 7, state="running", total=9)
    against = compare_runs(base, [other]).others[0]
    assert against.unpaired == 2 and against.changes[0].difference.count == 7  # type: ignore[union-attr]
    empty = compare_runs(base, [make_run([])]).others[0]
    assert empty.changes[0].verdict == "unscored" and empty.questions == ()


def test_the_matrix_marks_the_best_only_beyond_noise(runs: tuple[Any, Any]) -> None:
    third = make_run([{"recall@10": 0.25 if place < 7 else 1.0, "hit@10": 1.0} for place in range(10)])
    rows = {row.name: row for row in show_matrix(compare_runs(runs[0], [runs[1], third]))}
    assert [cell.best for cell in rows["recall@10"].cells] == [True, False, False]
    assert [cell.best for cell in rows["hit@10"].cells] == [False, False, False]
    assert rows["noise_relevant"].cells[1].best and rows["noise_relevant"].cells[2].mean is None


def test_the_axis_holds_every_interval(runs: tuple[Any, Any]) -> None:
    changes = compare_runs(runs[0], [runs[1]]).others[0].changes
    reach = reach_of(changes)
    known = [each.difference for each in changes if each.difference]
    assert all(-reach <= each.low and each.high <= reach for each in known) and reach == 1.0
    assert reach_of([]) == 0.05


def test_one_question_side_by_side(db: None) -> None:
    golden = {"question": "Which?", "category": "factual", "expected_doc_ids": ["b"], "expected_answer": "blue"}
    first = {"golden": golden, "answer": "The **whale** is `blue`.", "retrieved_ids": ["a#0", "b#1", "c#2"]}
    second = {"golden": golden, "answer": "The **whale** is grey. [1]", "retrieved_ids": ["b#1", "d#0", "a#0"]}
    base = make_run([{"recall@10": 1.0}], items={0: first})
    other = make_run([{"recall@10": 0.5}], items={0: second})
    seen = compare_question(base, other, 0)
    left, right = seen.sides
    assert "".join(part.text for part in left.answer) == "The whale is blue."
    assert "".join(part.text for part in right.answer) == "The whale is grey. [1]"
    assert [part.text for part in right.answer if part.kind == "added"] == ["grey. [1]"]
    assert [(row.doc_id, row.gain, row.mark, row.expected) for row in right.ranks] == [
        ("b", 1, "", True), ("d", None, "new", False), ("a", -2, "", False)
    ]  # fmt: skip
    assert [(row.doc_id, row.mark) for row in left.ranks] == [("a", ""), ("b", ""), ("c", "gone")]
    assert [line.tone for line in seen.lines] == ["up", "down"] and not seen.same_answer
    assert [(row.delta, row.tone) for row in seen.scores] == [(-0.5, "bad")] and not seen.other_scores
    assert [side.query_ms for side in seen.sides] == [None, None]


def test_a_question_shows_headline_scores_what_moved_and_the_time_of_its_query(db: None) -> None:
    names = ["correctness", "hit@10", "mrr@10", "recall@10", "precision@10", "map@10", "ndcg@10", "f1", "rouge_l"]
    query_run = QueryRun.objects.create(
        collection_name="nature", query="q", status="ok", timings_ms={"total": 12.0}
    ).pk  # fmt: skip
    own: dict[int, Any] = {0: {"query_run": query_run, "took_ms": 500.0}}
    base = make_run([dict.fromkeys(names, 0.5)], items=own)
    other = make_run([dict.fromkeys(names, 0.5) | {"rouge_l": 0.9}])
    seen = compare_question(base, other, 0)
    shown, rest = ([row.measure.name for row in rows] for rows in (seen.scores, seen.other_scores))
    assert {"correctness", "hit@10", "mrr@10", "rouge_l"} <= set(shown) and len(shown) <= 6
    assert set(shown) | set(rest) == set(names) and not set(shown) & set(rest)
    assert [side.query_ms for side in seen.sides] == [12.0, None]


def test_other_contents_of_the_collection_are_a_cause_too(db: None) -> None:
    def held(chunks: int) -> dict[str, Any]:
        return {"details": {"store_state": {"chunks": chunks, "documents_changed_at": "2026-01-31T10:00:00.5+00:00"}}}

    base = make_run([{}] * 2, items={0: held(10), 1: held(10)})
    same = make_run([{}] * 2, items={0: held(10), 1: held(10)})
    assert compare_runs(base, [same]).headers == ()
    moved = make_run([{}] * 2, items={0: held(10), 1: held(11)})
    other = make_run([{}] * 2, items={0: held(1200), 1: held(1200)})
    (row,) = compare_runs(base, [moved, other]).headers
    assert row.name == "contents" and row.values[0].startswith("10 chunks, documents of 2026-01-31 10:00:00")
    assert row.values[1] == "changed while the run went on" and row.values[2].startswith("1,200 chunks")


def test_a_mean_that_is_best_by_chance_alone_is_not_marked(db: None) -> None:
    base = make_run([{"mrr@10": 0.5}] * 8)
    lucky = make_run([{"mrr@10": 1.0 if place < 6 else 0.0} for place in range(8)])
    steady = make_run([{"mrr@10": 0.6}] * 8)
    (row,) = show_matrix(compare_runs(base, [lucky, steady]))
    assert [cell.row.change.verdict for cell in row.cells if cell.row] == ["noise", "improved"]
    assert [cell.best for cell in row.cells] == [False, False, False]


@pytest.mark.parametrize("weights", [[1.0] * 30, [0.0, 2.0, 0.5] * 10])
def test_many_columns_at_once_have_the_intervals_of_each_alone(weights: list[float]) -> None:
    values = RNG.integers(0, 3, (30, 4)) / 2
    drawn = ResampledMeans(values, weights, Draws())
    for column in range(4):
        alone = bootstrap_mean(list(values[:, column]), weights=weights, draws=Draws())
        found = drawn.interval(column)
        assert alone is not None and found.count == alone.count
        assert (found.mean, found.low, found.high) == pytest.approx((alone.mean, alone.low, alone.high))
    moved = bootstrap_mean(list(values[:, 2] - values[:, 1]), weights=weights, draws=Draws())
    between = drawn.difference(1, 2)
    assert moved is not None and (between.low, between.high) == pytest.approx((moved.low, moved.high))
    assert drawn.difference(3, 3).low == 0.0 and sum(drawn.share_best()) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="above 0"):
        ResampledMeans(values, [0.0] * 30, Draws())


def run_of(cut: int = 10, **scored: int) -> EvaluationRun:
    """Not saved. scored: measure, "_at_" for "@", with how many questions have it."""
    measures = {name.replace("_at_", "@"): {"scored": count} for name, count in scored.items()}
    return EvaluationRun(settings={"cut": cut}, summary={"measures": measures})


@pytest.mark.parametrize(
    ("stated", "runs", "primary"),
    [
        ("", [run_of(correctness=3, hit_at_10=3)] * 2, "correctness"),
        ("", [run_of(correctness=3, hit_at_10=3), run_of(hit_at_10=3)], "hit@10"),
        ("", [run_of(correctness=0, hit_at_10=3)], "hit@10"),
        ("", [run_of(5, hit_at_5=3), run_of(hit_at_10=3)], ""),
        ("recall", [run_of(5, recall_at_5=3)], "recall@5"),
        ("recall@5", [run_of(recall_at_5=1)], "recall@5"),
        ("f1", [run_of(correctness=3, hit_at_10=3)], ""),
        ("", [], ""),
    ],
)
def test_the_primary_measure_is_one_that_all_runs_scored(stated: str, runs: list[Any], primary: str) -> None:
    assert Criteria(stated).primary_for(runs) == primary


def test_guardrails_are_those_that_were_scored_without_the_primary_measure() -> None:
    runs = [run_of(hit_at_10=3, recall_at_10=3, right_outcome=3)] * 2
    assert Criteria().guardrails_for(runs) == {"recall@10": 0.05, "right_outcome": 0.05}
    own = Criteria("recall", {"recall": 0.1, "hit@10": 0.2, "f1": 0.3})
    assert own.guardrails_for(runs) == {"hit@10": 0.2}
    assert Criteria.of(None) == Criteria()
