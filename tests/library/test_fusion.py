"""fuse(): sums that can be checked by hand, ties, weights, and what a candidate keeps.
Two rankings side by side: overlap, Kendall's tau-b over the union, moves; by hand and against a plain count.
Fusion weights by probes: how probes are made, and what is chosen."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.errors import InvalidInput
from ragd.insight.list_weights import CHUNKS_MIN, EVEN, _fused_rank, choose_weights, make_probes
from ragd.insight.ranking_comparison import Move, kendall_tau, overlap_at, rank_moves, recall_of
from ragd.search.candidates import RankedKeys, keys_of
from ragd.search.fusion import fuse
from ragd.types import RRF_K_MAX, Candidate, Chunk, ListRank
from tests.refusals import raises_with


def candidate(doc_id: str, score: float = 0.5, **values: Any) -> Candidate:
    return Candidate(doc_id, 0, f"text of {doc_id}", score, **values)


def test_the_sum_of_reciprocal_ranks() -> None:
    a, b, c = candidate("a", 0.9), candidate("b", 0.8), candidate("c", 7.0)
    fused = fuse({"vector": [a, b], "lexical": [c, a]})
    assert [(item.doc_id, item.score) for item in fused] == [("a", 1 / 61 + 1 / 62), ("c", 1 / 61), ("b", 1 / 62)]
    assert {item.score_kind for item in fused} == {"rrf"}
    assert fused[0].unit_score == pytest.approx((1 / 61 + 1 / 62) / (2 / 61))
    assert fused[0].ranks == {
        "vector": ListRank(1, 0.9),
        "lexical": ListRank(2, 0.9),
        "fused": ListRank(1, fused[0].score),
    }


def test_weights_and_rrf_k() -> None:
    a, b = candidate("a"), candidate("b")
    fused = fuse({"vector": [a], "lexical": [b]}, params={"rrf_k": 7, "weights": {"lexical": 3}})
    assert [(item.doc_id, item.score, item.unit_score) for item in fused] == [("b", 0.375, 0.75), ("a", 0.125, 0.25)]


def test_a_sequence_of_lists_is_named_by_number() -> None:
    (only,) = fuse([[], [candidate("a", 0.25)]])
    assert only.ranks == {"1": ListRank(1, 0.25), "fused": ListRank(1, 1 / 61)}


def test_of_a_candidate_repeated_in_a_list_the_first_place_counts() -> None:
    a, again, b = candidate("a", 0.9), candidate("a", 0.1), candidate("b", 0.05)
    fused = fuse({"vector": [a, again, b]})
    assert [(item.doc_id, item.score) for item in fused] == [("a", 1 / 61), ("b", 1 / 63)]
    assert fused[0].ranks["vector"] == ListRank(1, 0.9)


def test_earlier_ranks_and_the_first_lists_fields_are_kept() -> None:
    a = candidate("a", 0.9, tags=("x",), chunk_id=7, ranks={"sparse": ListRank(4, 2.0)})
    other = candidate("a", 0.8, tags=("y",), ranks={"dense": ListRank(2, 1.0)})
    (fused,) = fuse({"one": [a], "two": [other]})
    assert (fused.tags, fused.chunk_id) == (("x",), 7)
    assert fused.ranks == {
        "sparse": ListRank(4, 2.0), "dense": ListRank(2, 1.0),
        "one": ListRank(1, 0.9), "two": ListRank(1, 0.8), "fused": ListRank(1, 2 / 61),
    }  # fmt: skip
    assert a.ranks == {"sparse": ListRank(4, 2.0)}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"method": "borda"}, "method"),
        ({"params": {"k": 60}}, "params"),
        ({"params": {"rrf_k": 0}}, "rrf_k"),
        ({"params": {"rrf_k": True}}, "rrf_k"),
        ({"params": {"rrf_k": 60.5}}, "rrf_k"),
        ({"params": {"weights": [1, 2]}}, "weights"),
        ({"params": {"weights": {"sparse": 1}}}, "weights"),
        ({"params": {"weights": {2: 1, "sparse": 1}}}, "weights"),
        ({"params": {"weights": {"vector": -1}}}, "weights"),
        ({"params": {"weights": {"vector": float("nan")}}}, "weights"),
        ({"params": {"weights": {"vector": float("inf")}}}, "weights"),
        ({"params": {"weights": {"vector": "1"}}}, "weights"),
        ({"params": {"weights": {"vector": 1e308}}}, "weights"),
        ({"params": {"weights": {"vector": 5e-324}}}, "weights"),
        ({"params": {"rrf_k": 10**400}}, "rrf_k"),
        ({"params": {"weights": {"vector": 0}}}, "weights"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], field: str) -> None:
    with raises_with(InvalidInput, field=field) as caught:
        fuse({"vector": [candidate("a")]}, **arguments)
    assert str(caught.value).startswith(field)


def test_the_bounds_of_rrf_k_are_allowed() -> None:
    for rrf_k in (1, RRF_K_MAX):
        (fused,) = fuse([[candidate("a")]], params={"rrf_k": rrf_k})
        assert fused.score == 1 / (rrf_k + 1)


def test_a_unit_score_never_rounds_above_one() -> None:
    (fused,) = fuse([[candidate("a")]] * 3, params={"rrf_k": 4})  # 3 * (1 / 5) > 3 / 5 in floating point
    assert fused.unit_score == 1.0


def test_keys_of_rows_are_candidates_without_content() -> None:
    made = RankedKeys([(7, "a", 0, 0.5), (9, "b", 2, 0.25)], "lexical", "bm25", 2.0)
    first, second = made
    assert (len(made), made[-1], made[0:1], made[:5]) == (2, second, [first], [first, second])
    assert (second.key, second.chunk_id, second.score_kind, second.unit_score) == (("b", 2), 9, "bm25", 0.125)
    assert second.ranks == {"lexical": ListRank(2, 0.25)}
    assert made.keys() == keys_of([first, second]) == [("a", 0), ("b", 2)]
    with pytest.raises(IndexError):
        made[2]
    assert list(fuse({"lexical": made})) == fuse({"lexical": [first, second]})


def ids(candidates: list[Candidate]) -> list[str]:
    return [item.doc_id for item in candidates]


def test_swapped_places_tie_whatever_the_number_of_lists() -> None:
    a, b = candidate("a"), candidate("b")
    fused = fuse([[a, b], [b, a], [a, b], [b, a]])
    assert fused[0].score == fused[1].score
    assert ids(fused) == ["a", "b"]


OTHERS = [Candidate(f"x{number}", 0, "other", 1.0) for number in range(50)]
OTHERS_BY_WORDS = [Candidate(f"y{number}", 0, "other", 1.0) for number in range(50)]


def ranked(rank: int | None, others: list[Candidate]) -> list[Candidate]:
    """The wanted chunk at this rank; None: it is not found."""
    wanted = Candidate("wanted", 0, "text", 1.0)
    return others if rank is None else [*others[: rank - 1], wanted, *others[rank - 1 :]]


def chosen(vector: list[int | None], lexical: list[int | None], *, reads: bool | None = None) -> dict[str, float]:
    rankings = [
        {"vector": ranked(first, OTHERS), "lexical": ranked(second, OTHERS_BY_WORDS)}
        for first, second in zip(vector, lexical, strict=True)
    ]
    return dict(choose_weights({"apart": [(lists, ("wanted", 0)) for lists in rankings]}, reads=reads).weights)


def test_probes_ask_by_a_sentence_apart_from_the_chunk_and_by_half_of_its_words() -> None:
    text = "The river rises in the hills. It passes three towns on its way. It ends in a lake."
    apart, shared = make_probes([Chunk("a", 4, text, 0, len(text), context="Rivers")])
    assert (apart.kind, shared.kind) == ("apart", "shared")
    assert apart.query in text and apart.query.endswith(".")
    assert apart.query not in apart.chunk.content
    assert len(apart.query) + len(apart.chunk.content) == len(text)
    asked, words = shared.query.split(), apart.query.split()
    assert 0 < len(asked) < len(words) and set(asked) < set(words)
    assert apart.query not in shared.chunk.content
    assert {(probe.chunk.chunk_index, probe.chunk.context) for probe in (apart, shared)} == {(0, "Rivers")}
    again = make_probes([Chunk("b", 0, text, 0, len(text))])
    assert [probe.query for probe in again] == [apart.query, shared.query]


@pytest.mark.parametrize("text", ["The river rises in the hills", "河流发源于山中并流经三个城镇", "นกบินข้ามแม่น้ำและภูเขา"])
def test_a_chunk_of_one_sentence_is_parted(text: str) -> None:
    apart, shared = make_probes([Chunk("a", 0, text, 0, len(text))])
    assert text.startswith(apart.query) and text.endswith(apart.chunk.content)
    assert len(apart.query) >= len(text) // 4
    assert 0 < len(shared.query) < len(text)


def test_what_cannot_be_parted_makes_no_probe() -> None:
    assert make_probes([Chunk("a", 0, "x", 0, 1), Chunk("b", 0, "  ", 0, 2)]) == []


def test_lists_that_are_alike_count_the_same() -> None:
    assert chosen([1, 3, 2, 5] * CHUNKS_MIN, [3, 1, 5, 2] * CHUNKS_MIN) == EVEN


def test_a_list_that_finds_nothing_counts_nothing() -> None:
    assert chosen([None] * 40, [5, 7, 6, 8] * 10) == {"vector": 0.0, "lexical": 1.0}
    assert chosen([5, 7, 6, 8] * 10, [None] * 40) == {"vector": 1.0, "lexical": 0.0}


def test_a_list_that_takes_places_away_counts_nothing() -> None:
    wrong = [Candidate(f"y{number}", 0, "other", 1.0) for number in range(3, 50)]
    rankings = [{"vector": wrong, "lexical": ranked(3, OTHERS_BY_WORDS)}] * 60
    measured = choose_weights({"apart": [(lists, ("wanted", 0)) for lists in rankings]})
    assert measured.weights == {"vector": 0.0, "lexical": 1.0}
    assert measured.fused == measured.alone["lexical"] > measured.even


@pytest.mark.fault("A2")
def test_a_list_that_does_worse_in_the_probes_still_counts() -> None:
    """Sentences of one text share more words than a question and its answer do."""
    worse, better = [2, 5, None, 1] * CHUNKS_MIN, [1, 1, 2, 1] * CHUNKS_MIN
    assert chosen(worse, better, reads=True) == EVEN
    assert chosen([1, 1, 3, 1] * CHUNKS_MIN, [1, 1, 1, 1] * CHUNKS_MIN) == EVEN
    for reads in (True, False, None):
        assert chosen(better, worse, reads=reads) == EVEN


@pytest.mark.fault("A2")
def test_where_nothing_is_known_of_the_model_the_vectors_count_less_the_worse_they_do() -> None:
    better = [1] * 4 * CHUNKS_MIN
    shares = [chosen(each * CHUNKS_MIN, better)["vector"] for each in ([1, 2, 1, 2], [1, 3, 1, 4], [5, 5, 5, 5])]
    assert 1.0 > shares[0] > shares[1] > shares[2] == 0.0


@pytest.mark.fault("A2")
def test_vectors_of_a_language_that_the_model_does_not_know_count_nothing_where_words_do_better() -> None:
    worse, better = [2, 5, None, 1] * CHUNKS_MIN, [1, 1, 2, 1] * CHUNKS_MIN
    assert chosen(worse, better, reads=False) == {"vector": 0.0, "lexical": 1.0}
    assert chosen(better, worse, reads=False) == EVEN
    assert chosen(better, better, reads=False) == EVEN
    assert chosen([2, *better[1:]], better, reads=False) == {"vector": 0.0, "lexical": 1.0}
    assert chosen([*worse[:4], *better[4:]], better) == EVEN, "elsewhere chance alone shows nothing"


def test_the_figures_are_those_of_the_lists() -> None:
    rankings = [{"vector": ranked(None, OTHERS), "lexical": ranked(1, OTHERS_BY_WORDS)}] * 40
    measured = choose_weights({"shared": [(lists, ("wanted", 0)) for lists in rankings]})
    assert measured.alone == {"vector": 0.0, "lexical": 1.0}
    assert (measured.fused, measured.probes) == (1.0, 40)
    assert dict(measured.weights) == {"vector": 0.0, "lexical": 1.0}


def test_places_are_those_of_fuse() -> None:
    lists = {"vector": ranked(4, OTHERS), "lexical": ranked(9, OTHERS_BY_WORDS)}
    for weights in (EVEN, {"vector": 0.35, "lexical": 1.0}, {"vector": 1.0, "lexical": 0.0}):
        measured = choose_weights({"apart": [(lists, ("wanted", 0))]})
        order = [candidate.key for candidate in fuse(lists, "rrf", {"weights": weights})]
        assert _fused_rank(lists, weights, ("wanted", 0)) == order.index(("wanted", 0)) + 1
        assert measured.alone["vector"] == pytest.approx(1 / math.log2(5))


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
