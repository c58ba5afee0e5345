"""Fusion weights by probes: how probes are made, and what is chosen."""

from __future__ import annotations

import math

import pytest

from ragd.insight.list_weights import EVEN, PROBES_MIN, _fused_rank, choose_weights, make_probes
from ragd.search.fusion import fuse
from ragd.types import Candidate, Chunk

OTHERS = [Candidate(f"x{number}", 0, "other", 1.0) for number in range(50)]
OTHERS_BY_WORDS = [Candidate(f"y{number}", 0, "other", 1.0) for number in range(50)]


def ranked(rank: int | None, others: list[Candidate]) -> list[Candidate]:
    """The wanted chunk at this rank; None: it is not found."""
    wanted = Candidate("wanted", 0, "text", 1.0)
    return others if rank is None else [*others[: rank - 1], wanted, *others[rank - 1 :]]


def chosen(vector: list[int | None], lexical: list[int | None]) -> dict[str, float]:
    rankings = [
        {"vector": ranked(first, OTHERS), "lexical": ranked(second, OTHERS_BY_WORDS)}
        for first, second in zip(vector, lexical, strict=True)
    ]
    return dict(choose_weights(rankings, [("wanted", 0)] * len(rankings)).weights)


def test_a_probe_is_a_sentence_and_the_chunk_without_it() -> None:
    text = "The river rises in the hills. It passes three towns. It ends in a lake."
    (probe,) = make_probes([Chunk("a", 4, text, 0, len(text), context="Rivers")])
    assert probe.query in text and probe.query.endswith(".")
    assert probe.query not in probe.chunk.content
    assert len(probe.query) + len(probe.chunk.content) == len(text)
    assert (probe.chunk.chunk_index, probe.chunk.context) == (0, "Rivers")
    assert make_probes([Chunk("b", 0, text, 0, len(text))])[0].query == probe.query


@pytest.mark.parametrize("text", ["The river rises in the hills", "河流发源于山中并流经三个城镇", "นกบินข้ามแม่น้ำและภูเขา"])
def test_a_chunk_of_one_sentence_is_parted(text: str) -> None:
    (probe,) = make_probes([Chunk("a", 0, text, 0, len(text))])
    assert probe.query + probe.chunk.content in (text, text.replace(" ", "", 1), text)
    assert len(probe.query) >= len(text) // 4


def test_what_cannot_be_parted_makes_no_probe() -> None:
    assert make_probes([Chunk("a", 0, "x", 0, 1), Chunk("b", 0, "  ", 0, 2)]) == []


def test_lists_that_are_alike_count_the_same() -> None:
    assert chosen([1, 3, 2, 5] * PROBES_MIN, [3, 1, 5, 2] * PROBES_MIN) == EVEN


def test_a_list_that_finds_nothing_counts_less() -> None:
    weights = chosen([None] * 200, [5, 7, 6, 8] * 50)
    assert weights["lexical"] == 1.0 > weights["vector"]
    weights = chosen([5, 7, 6, 8] * 50, [None] * 200)
    assert weights["vector"] == 1.0 > weights["lexical"]


def test_a_list_that_takes_places_away_counts_next_to_nothing() -> None:
    """Wrong chunks that both lists hold pass the right one as soon as the vector list counts."""
    wrong = [Candidate(f"y{number}", 0, "other", 1.0) for number in range(3, 50)]
    rankings = [{"vector": wrong, "lexical": ranked(3, OTHERS_BY_WORDS)}] * 60
    measured = choose_weights(rankings, [("wanted", 0)] * 60)
    assert measured.weights["lexical"] == 1.0 and measured.weights["vector"] <= 0.02
    assert measured.fused == measured.alone["lexical"] > measured.even


def test_the_figures_are_those_of_the_lists() -> None:
    rankings = [{"vector": ranked(None, OTHERS), "lexical": ranked(1, OTHERS_BY_WORDS)}] * 40
    measured = choose_weights(rankings, [("wanted", 0)] * 40)
    assert measured.alone == {"vector": 0.0, "lexical": 1.0}
    assert (measured.fused, measured.probes) == (1.0, 40)
    assert measured.even == 1.0


def test_places_are_those_of_fuse() -> None:
    lists = {"vector": ranked(4, OTHERS), "lexical": ranked(9, OTHERS_BY_WORDS)}
    for weights in (EVEN, {"vector": 0.35, "lexical": 1.0}, {"vector": 1.0, "lexical": 0.0}):
        measured = choose_weights([lists], [("wanted", 0)])
        order = [candidate.key for candidate in fuse(lists, "rrf", {"weights": weights})]
        assert _fused_rank(lists, weights, ("wanted", 0)) == order.index(("wanted", 0)) + 1
        assert measured.alone["vector"] == pytest.approx(1 / math.log2(5))
