"""One sentence on two runs: what decides, the correction for looks, what is not compared, what is kept."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evaluation_app.measures.statistics import (
    Draws,
    holm,
    judge_difference,
    paired_difference,
    paired_quantile,
    sign_flip_p,
)
from evaluation_app.runs.comparison.pages import show_usage
from evaluation_app.runs.comparison.stored_comparisons import Comparison, RunDifference, compare_runs
from ragd.types import RetrievePlan
from tests.evaluation.made_runs import SETTINGS, make_run

if TYPE_CHECKING:
    from evaluation_app.models import GoldenSet

RNG = np.random.default_rng(11)
COUNT = 40
SAME: dict[str, float | None] = {"hit@10": 0.0, "recall@10": 0.5, "right_outcome": 1.0}


@pytest.mark.parametrize("count", [1, 3, 8, 11])
def test_the_p_value_counts_every_way_to_give_signs(count: int) -> None:
    values = RNG.normal(0.3, 1, count)
    ways = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((-1, 1), repeat=count)]
    found = sum(way >= abs(values.sum()) - 1e-9 for way in ways) / len(ways)
    assert sign_flip_p([*values, 0.0, 0.0]) == pytest.approx(found)


def test_the_p_value_of_equal_steps_is_the_exact_one_of_mcnemar() -> None:
    assert sign_flip_p([1.0] * 6) == 2 / 2**6
    assert sign_flip_p([0.5] * 9 + [-0.5]) == pytest.approx(2 * 11 / 2**10)
    assert (sign_flip_p([]), sign_flip_p([0.0, 0.0]), sign_flip_p([1.0, -1.0])) == (1.0, 1.0, 1.0)


def test_the_p_value_of_many_differences_is_drawn_and_repeats() -> None:
    values = RNG.normal(0.4, 1, 60)
    assert sign_flip_p(values) == sign_flip_p(values) < 0.05 < sign_flip_p(RNG.normal(0, 1, 60))
    with pytest.raises(ValueError, match="finite"):
        sign_flip_p([float("nan")])


def test_p_values_of_a_family_are_adjusted_as_holm_says() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert (holm([]), holm([0.04]), holm([0.9, 0.8])) == ([], [0.04], [1.0, 1.0])


def test_the_difference_of_a_quantile_is_paired() -> None:
    before = [float(each) for each in range(50)]
    found = paired_quantile(before, [each + 5 for each in before], 0.95, Draws())
    assert found is not None and (found.mean, found.low, found.high, found.count) == (5.0, 5.0, 5.0, 50)
    assert paired_quantile([], [], 0.5, Draws()) is None


def test_a_difference_below_the_relevant_effect_is_neither_improved_nor_regressed() -> None:
    tiny = paired_difference([0.0] * 20, [0.001] * 20)
    assert judge_difference(tiny, 20) == "improved"
    assert judge_difference(tiny, 20, relevant=0.02) == "small"


def other_of(changed: int, after: dict[str, float | None], **values: Any) -> Any:
    """A run in which the first questions have other scores."""
    return make_run([{**SAME, **(after if place < changed else {})} for place in range(COUNT)], **values)


def against(base: Any, *others: Any) -> RunDifference:
    return compare_runs(base, list(others)).others[0]


@pytest.fixture
def base(db: None) -> Any:
    return make_run([SAME] * COUNT)


@pytest.mark.parametrize(
    ("changed", "after", "kind"),
    [
        (0, {}, "not_better"),
        (12, {"hit@10": 1.0}, "better"),
        (4, {"hit@10": 1.0}, "inconclusive"),
        (12, {"hit@10": 1.0, "recall@10": 0.0}, "not_better"),
        (5, {"recall@10": 0.0}, "not_better"),
        (12, {"recall@10": 0.0}, "worse"),
        (12, {"right_outcome": 0.0}, "worse"),
    ],
)
def test_the_primary_measure_and_the_guardrails_decide(
    base: Any, changed: int, after: dict[str, float | None], kind: str
) -> None:
    verdict = against(base, other_of(changed, after)).verdict
    assert (verdict.kind, verdict.decisive.primary.measure) == (kind, "hit@10")  # type: ignore[union-attr]


def test_the_other_way_round_what_was_better_is_worse(base: Any) -> None:
    assert against(other_of(12, {"hit@10": 1.0}), base).verdict.kind == "worse"


def test_a_gain_that_may_cost_a_guardrail_is_not_called_better(base: Any) -> None:
    run = make_run(
        [
            {**SAME, "hit@10": float(place < 20), "recall@10": 0.0 if place in (30, 31, 32, 33, 34) else 0.5}
            for place in range(COUNT)
        ]
    )
    verdict = against(base, run).verdict
    assert (verdict.kind, [item.measure for item in verdict.doubtful], verdict.broken) == (
        "inconclusive", ["recall@10"], ()
    )  # fmt: skip


def test_a_gain_below_the_smallest_relevant_effect_is_not_better(db: None, golden_set: GoldenSet) -> None:
    golden_set.primary_measure, golden_set.relevant_effect = "correctness", 0.02
    golden_set.save()
    base = make_run([{"correctness": 0.5}] * COUNT, golden_set=golden_set)
    tiny = make_run([{"correctness": 0.501}] * COUNT, golden_set=golden_set)
    found = against(base, tiny)
    assert found.verdict.decisive.primary.p < 0.001  # type: ignore[union-attr]
    assert (found.verdict.kind, found.changes[0].verdict) == ("not_better", "small")


@pytest.mark.parametrize(("before", "after", "kind"), [(1.0, 0.95, "not_better"), (1.0, 0.94, "worse")])
def test_a_guardrail_may_fall_by_exactly_what_is_allowed(db: None, before: float, after: float, kind: str) -> None:
    base = make_run([{**SAME, "recall@10": before}] * COUNT)
    assert against(base, make_run([{**SAME, "recall@10": after}] * COUNT)).verdict.kind == kind


@pytest.mark.parametrize(("before", "after", "kind"), [(0.8, 0.82, "better"), (0.82, 0.8, "worse")])
def test_a_gain_of_exactly_the_relevant_effect_is_relevant(db: None, before: float, after: float, kind: str) -> None:
    found = against(make_run([{"correctness": before}] * COUNT), make_run([{"correctness": after}] * COUNT))
    assert (found.verdict.kind, found.changes[0].verdict) == (
        kind, "improved" if kind == "better" else "regressed"
    )  # fmt: skip


@pytest.fixture
def golden_set(db: None) -> GoldenSet:
    from evaluation_app.models import GoldenSet

    return GoldenSet.objects.create(name="birds", collection_name="nature")


def test_the_criteria_of_the_set_decide(golden_set: GoldenSet) -> None:
    base = make_run([SAME] * COUNT, golden_set=golden_set)
    run = other_of(12, {"hit@10": 1.0, "recall@10": 0.0}, golden_set=golden_set)
    assert against(base, run).verdict.kind == "not_better"
    golden_set.guardrails = {"recall": 0.9}
    golden_set.save()
    assert against(base, run).verdict.kind == "better", "computed anew by other guardrails"
    golden_set.primary_measure = "recall"
    golden_set.save()
    assert against(base, run).verdict.kind == "worse"


def test_without_a_common_primary_measure_nothing_is_claimed(base: Any) -> None:
    other = make_run([{"hit@5": 1.0, "recall@5": 1.0}] * COUNT, settings={**SETTINGS, "cut": 5})
    verdict = against(base, other).verdict
    assert (verdict.kind, verdict.decisive.primary, verdict.p) == ("inconclusive", None, None)
    assert verdict.decisive.reason


def test_the_more_runs_are_compared_with_a_base_the_less_counts_as_better(base: Any) -> None:
    run = other_of(7, {"hit@10": 1.0})  # seven of seven: p = 2 / 2**7
    alone = against(base, run).verdict
    assert (alone.kind, alone.looks, alone.p) == ("better", 1, pytest.approx(2 / 2**7))
    lost = other_of(7, {"hit@10": -1.0})
    looked = compare_runs(base, [run, lost, *(other_of(2, {"hit@10": 1.0}) for _ in range(4))])
    verdict = looked.others[0].verdict
    assert (verdict.kind, verdict.looks, verdict.p) == ("inconclusive", 6, pytest.approx(6 * 2 / 2**7))
    assert looked.others[1].verdict.kind == "worse", "a loss is said without a correction"
    assert against(base, run).verdict.looks == 6, "earlier looks count"


def test_a_comparison_that_is_not_kept_is_one_look(base: Any) -> None:
    from evaluation_app.models import RunComparison

    run = other_of(12, {"hit@10": 1.0})
    assert compare_runs(base, [run], keep=False).others[0].verdict.looks == 1
    assert not RunComparison.objects.exists()


# What is not compared


CONTEXT = {"context_relevance": 0.2, "context_utilization": 0.2, "completeness": 0.2, "erag_precision": 0.2}


@pytest.mark.parametrize("fields", [{"k": 5}, {"compress": "sentences"}, {"compress": "window", "token_budget": 90}])
def test_shares_of_the_context_are_not_compared_between_contexts_of_other_sizes(
    db: None, fields: dict[str, Any]
) -> None:
    base = make_run([{**SAME, **CONTEXT}] * COUNT)
    other = make_run([{**SAME, **dict.fromkeys(CONTEXT, 0.9)}] * COUNT, plan=RetrievePlan(**fields))
    found = {change.name: change for change in against(base, other).changes}
    assert {found[name].verdict for name in CONTEXT} == {"incomparable"}
    assert all(found[name].reason and found[name].difference is None for name in CONTEXT)
    assert found["hit@10"].verdict == "same"
    assert against(base, other).verdict.kind == "not_better"
    alike = make_run([{**SAME, **dict.fromkeys(CONTEXT, 0.9)}] * COUNT)
    assert {change.verdict for change in against(base, alike).changes if change.name in CONTEXT} == {"improved"}


def test_chunks_of_another_policy_are_not_compared(db: None) -> None:
    from collections_app.collections.services import create_collection
    from collections_app.models import IndexVersion

    collection = create_collection(name="nature")
    for number, size in ((7, 100), (8, 100), (9, 200)):
        IndexVersion.objects.create(
            collection=collection,
            number=number,
            state="retired",
            embed_dims=3,
            hybrid_enabled=True,
            policy={"target_tokens": size},
        )
    scores: list[dict[str, float | None]] = [{"chunk_recall@10": 0.5, "recall@10": 0.5, "completeness": 0.5}] * 3
    base, same, other = (make_run(scores, index_version=number) for number in (7, 8, 9))

    def refused(run: Any) -> set[str]:
        return {change.name for change in against(base, run).changes if change.verdict == "incomparable"}

    assert (refused(same), refused(other)) == (set(), {"chunk_recall@10", "completeness"})


def test_correctness_that_a_model_judged_is_compared_under_the_same_model_alone(db: None) -> None:
    scores: list[dict[str, float | None]] = [{"correctness": 0.5, "f1": 0.5}] * 3
    base, model = make_run(scores), make_run(scores, judge="llm", judge_version="gpt")
    newer = make_run(scores, judge_version="2")

    def refused(run: Any) -> set[str]:
        return {change.name for change in against(base, run).changes if change.verdict == "incomparable"}

    assert (refused(model), refused(newer)) == ({"correctness"}, set())


def test_a_longer_list_alone_is_no_win(db: None) -> None:
    base = make_run([SAME] * COUNT, plan=RetrievePlan(k=5))
    longer = other_of(20, {"hit@10": 1.0}, plan=RetrievePlan(k=10))
    verdict = against(base, longer).verdict
    assert (verdict.kind, bool(verdict.decisive.primary.by_construction)) == ("not_better", True)  # type: ignore[union-attr]
    assert against(longer, base).verdict.kind == "worse", "what a shorter list loses is lost"


def test_other_pass_criteria_are_among_what_differs(db: None) -> None:
    scores: list[dict[str, float | None]] = [{"recall@10": 0.5}] * 3
    base = make_run(scores, items={0: {"modes": ["retrieval_miss"]}})
    other = make_run(scores, thresholds={"recall@10": 0.4}, items={0: {"modes": ["retrieval_miss"]}})
    comparison = compare_runs(base, [other])
    assert [row.name for row in comparison.headers] == ["thresholds"]
    assert comparison.others[0].won == [], "by the base's criteria the two are alike"


# What an answer takes


def test_time_tokens_and_cost_are_compared_by_question(db: None) -> None:
    from retrieval_app.models import QueryRun

    def asked(latency: float, tokens: int, cost: float) -> Any:
        rows = [
            QueryRun.objects.create(
                kind="ask", collection_name="nature", query="?", channel="worker",
                timings_ms={"total": latency + place}, token_usage={"total_tokens": tokens},
            )
            for place in range(8)
        ]  # fmt: skip
        items = {place: {"query_run": row.pk, "cost_usd": cost, "took_ms": 9_000} for place, row in enumerate(rows)}
        return make_run([{"hit@10": 1.0}] * 9, items=items)

    found = {row.name: row for row in against(asked(500, 100, 0.5), asked(300, 80, 0.25)).usage}
    assert {name: (row.base, row.other) for name, row in found.items()} == {
        "latency_p50": (503.5, 303.5), "latency_p95": (pytest.approx(506.65), pytest.approx(306.65)),
        "tokens": (100.0, 80.0), "cost": (0.5, 0.25),
    }  # fmt: skip
    assert all(row.difference is not None and row.difference.count == 8 for row in found.values())
    assert found["latency_p50"].difference.mean == -200  # type: ignore[union-attr]
    alike = show_usage(against(asked(300, 80, 0.25), asked(300, 80, 0.25)).usage)
    assert {row.difference[:1] for row in alike}.isdisjoint("+\N{MINUS SIGN}"), "nothing has no sign"
    QueryRun.objects.all().delete()
    gone = {row.name: row.difference for row in against(make_run([SAME]), make_run([SAME])).usage}
    assert gone == dict.fromkeys(found, None)


# What is kept


def readings(base: Any, *others: Any) -> tuple[Comparison, list[str]]:
    """The comparison, and the tables that it reads items or runs of questions from."""
    with CaptureQueriesContext(connection) as captured:
        found = compare_runs(base, list(others))
    return found, [query["sql"] for query in captured if "evaluation_items" in query["sql"]]


def test_a_pair_is_computed_once_and_read_as_it_was(base: Any) -> None:
    from evaluation_app.models import RunComparison

    run = other_of(12, {"hit@10": 1.0, "recall@10": 0.0})
    first, computed = readings(base, run)
    again, read = readings(base, run)
    assert computed and not read
    assert again == first
    assert again.others[0].questions[0].moves == first.others[0].questions[0].moves
    assert RunComparison.objects.count() == 1


def test_every_run_is_read_once(base: Any) -> None:
    computed = readings(base, *(other_of(place, {"hit@10": 1.0}) for place in (1, 2, 3)))[1]
    assert len(computed) == 2 * 4, "its items, and what the collection held"


def test_a_run_that_changes_is_computed_anew(base: Any) -> None:
    from evaluation_app.models import RunComparison
    from evaluation_app.runs.comparison.stored_comparisons import forget_comparisons

    run = other_of(12, {"hit@10": 1.0})
    assert readings(base, run)[1]
    run.summary, run.retries = run.summary | {"failed_questions": 3}, 1
    run.save()
    assert readings(base, run)[1] and not readings(base, run)[1]
    forget_comparisons(run)
    assert readings(base, run)[1] and not readings(base, run)[1]
    assert RunComparison.objects.count() == 1
    run.delete()
    assert not RunComparison.objects.exists()


def test_a_run_that_goes_on_is_not_kept(base: Any) -> None:
    from evaluation_app.models import RunComparison

    going = make_run([SAME] * 3, state="running", total=COUNT)
    assert against(base, going).unpaired == COUNT - 3
    assert not RunComparison.objects.exists()
