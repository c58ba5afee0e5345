"""Two rankings side by side: overlap, Kendall's tau-b over the union, moves; by hand and against a plain count."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.insight.ranking_comparison import Move, kendall_tau, overlap_at, rank_moves, recall_of

rankings = st.lists(st.integers(0, 12), unique=True, max_size=9)


def tau_by_counting(before: list[int], after: list[int]) -> float | None:
    """The definition, pair by pair."""

    def place(ranking: list[int], item: int) -> int:
        return ranking.index(item) if item in ranking else len(ranking)

    agree = disagree = tied_before = tied_after = 0
    for one, other in combinations(set(before) | set(after), 2):
        x, y = place(before, one) - place(before, other), place(after, one) - place(after, other)
        if x == 0 and y == 0:
            continue
        if x == 0:
            tied_before += 1
        elif y == 0:
            tied_after += 1
        elif (x < 0) == (y < 0):
            agree += 1
        else:
            disagree += 1
    product = (agree + disagree + tied_before) * (agree + disagree + tied_after)
    return (agree - disagree) / math.sqrt(product) if product else None


@given(rankings, rankings)
def test_tau_is_what_counting_the_pairs_gives(before: list[int], after: list[int]) -> None:
    found, counted = kendall_tau(before, after), tau_by_counting(before, after)
    assert found == (None if counted is None else pytest.approx(counted, abs=1e-12))


@given(rankings, rankings)
def test_tau_is_symmetric_and_bounded(before: list[int], after: list[int]) -> None:
    found = kendall_tau(before, after)
    assert found == kendall_tau(after, before)
    assert found is None or -1 - 1e-12 <= found <= 1 + 1e-12


@given(st.lists(st.integers(), unique=True, min_size=2, max_size=30))
def test_equal_rankings_agree_and_reversed_ones_disagree(ranking: list[int]) -> None:
    assert kendall_tau(ranking, ranking) == pytest.approx(1)
    assert kendall_tau(ranking, ranking[::-1]) == pytest.approx(-1)


def test_tau_by_hand() -> None:
    # ab, ac and bc in order against a c b: two pairs agree, one does not
    assert kendall_tau("abc", "acb") == pytest.approx(1 / 3)
    # union a b c; "ab" puts c last, "ac" puts b last: ab agrees, ac agrees, bc is opposite
    assert kendall_tau("ab", "ac") == pytest.approx(1 / 3)
    # nothing shared: four pairs are opposite, each ranking orders one more that the other ties
    assert kendall_tau("ab", "cd") == pytest.approx(-4 / 5)


def test_tau_is_not_defined_without_an_order() -> None:
    assert kendall_tau("", "") is None
    assert kendall_tau("abc", "") is None
    assert kendall_tau("a", "a") is None
    assert kendall_tau("a", "b") == -1


@given(rankings, rankings, st.integers(0, 12))
def test_overlap_counts_shared_items(before: list[int], after: list[int], k: int) -> None:
    found = overlap_at(before, after, k)
    assert found == overlap_at(after, before, k)
    assert found.count == len(set(before[:k]) & set(after[:k]))
    if found.share is None:
        assert not before[:k] and not after[:k]
    else:
        assert 0 <= found.share <= 1
        assert (found.share == 1) == (set(before[:k]) == set(after[:k]))


def test_overlap_by_hand() -> None:
    assert overlap_at("abcd", "abxy", 4).as_dict() == {"count": 2, "longest": 4, "share": 0.5}
    assert overlap_at("ab", "abcd", 4).share == 0.5
    assert overlap_at("", "", 4).share is None


@given(rankings, rankings)
def test_moves_name_every_item_once_with_its_ranks(before: list[int], after: list[int]) -> None:
    moves = rank_moves(before, after)
    assert [move.key for move in moves if move.after is not None] == after
    assert {move.key for move in moves} == {*before, *after}
    assert len(moves) == len({*before, *after})
    for move in moves:
        assert move.before == (before.index(move.key) + 1 if move.key in before else None)
        assert move.after == (after.index(move.key) + 1 if move.key in after else None)
        assert move.gain == (None if None in (move.before, move.after) else move.before - move.after)


def test_moves_by_hand() -> None:
    assert rank_moves("abc", "cad") == [Move("c", 3, 1), Move("a", 1, 2), Move("d", None, 3), Move("b", 2, None)]
    assert [move.gain for move in rank_moves("abc", "cad")] == [2, -1, None, None]


def test_recall() -> None:
    assert recall_of("abx", "abcd") == 0.5
    assert recall_of("ab", "") is None
