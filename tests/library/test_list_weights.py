"""Fusion weights by probes: how probes are made, and what is chosen."""

from __future__ import annotations

import math

import pytest

from ragd.insight.list_weights import CHUNKS_MIN, EVEN, _fused_rank, choose_weights, make_probes
from ragd.search.fusion import fuse
from ragd.types import Candidate, Chunk

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
