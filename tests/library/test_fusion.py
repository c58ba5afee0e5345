"""fuse(): sums that can be checked by hand, ties, weights, and what a candidate keeps."""

from __future__ import annotations

from typing import Any

import pytest

from ragd.errors import InvalidInput
from ragd.search.candidates import RankedKeys, keys_of
from ragd.search.fusion import fuse
from ragd.types import RRF_K_MAX, Candidate, ListRank


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
    with pytest.raises(InvalidInput) as caught:
        fuse({"vector": [candidate("a")]}, **arguments)
    assert caught.value.field == field
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
    assert fuse({"lexical": made}) == fuse({"lexical": [first, second]})


def ids(candidates: list[Candidate]) -> list[str]:
    return [item.doc_id for item in candidates]


def test_swapped_places_tie_whatever_the_number_of_lists() -> None:
    a, b = candidate("a"), candidate("b")
    fused = fuse([[a, b], [b, a], [a, b], [b, a]])
    assert fused[0].score == fused[1].score
    assert ids(fused) == ["a", "b"]
