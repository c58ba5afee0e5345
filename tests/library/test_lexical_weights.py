"""BM25 without a database: weights of words in a query and in chunks, worked out by hand with k1 = 1.2 and b = 0.75."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from ragd.search.lexical_search import LexicalQuery, inverse_document_frequency
from ragd.search.pruned_search import group_terms
from ragd.store.chunk_writer import LEARNED_MAX, LEXICAL_DIMS, Words, lexical_weights


def read_vector(packed: bytes) -> dict[int, float]:
    """place, from 0 -> weight, of a sparse vector in binary form. The places must grow."""
    dims, entries, reserved = struct.unpack_from("!iii", packed)
    assert (dims, reserved, len(packed)) == (LEXICAL_DIMS, 0, 12 + 8 * entries)
    places = struct.unpack_from(f"!{entries}i", packed, 12)
    assert list(places) == sorted(set(places))
    return dict(zip(places, struct.unpack_from(f"!{entries}f", packed, 12 + 4 * entries), strict=True))


def weights_of(
    chunks: list[list[tuple[int, int]]], mean: float, learned: list[float] | None = None
) -> list[dict[int, float]]:
    """chunks: of each, (term, how often it is there)."""
    pairs = [pair for chunk in chunks for pair in chunk]
    words = Words(
        [b""] * len(chunks),
        np.array([len(chunk) for chunk in chunks], np.int64),
        np.array([term for term, _ in pairs], np.int64),
        np.array([count for _, count in pairs], np.int64),
        [None] * len(chunks),
        None if learned is None else np.array(learned, np.float64),
    )
    return [read_vector(packed) for packed in lexical_weights(words, mean)]


@pytest.mark.parametrize(
    ("chunks", "total", "expected"),
    [
        (1, 3, math.log(1 + 2.5 / 1.5)),
        (3, 3, math.log(1 + 0.5 / 3.5)),
        (1, 1_000_000, math.log(1 + 999_999.5 / 1.5)),
        (5, 3, math.log(1 + 0.5 / 5.5)),  # the count of chunks lags behind that of the word
    ],
)
def test_rare_words_weigh_more_and_common_ones_never_nothing(chunks: int, total: int, expected: float) -> None:
    assert inverse_document_frequency(chunks, total) == pytest.approx(expected, rel=1e-12)
    assert inverse_document_frequency(chunks, total) > 0


def test_a_chunk_of_mean_length() -> None:
    (weights,) = weights_of([[(9, 2), (7, 0), (4, 1)]], 3.0)
    assert weights == {3: pytest.approx(2.2 / 2.2), 8: pytest.approx(4.4 / 3.2)}


def test_short_chunks_weigh_more_than_long_ones() -> None:
    short, long = weights_of([[(1, 1)], [(1, 1), (2, 7)]], 4.0)
    assert short == {0: pytest.approx(2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / 4)), rel=1e-6)}
    assert long == {
        0: pytest.approx(2.2 / (1 + 1.2 * (0.25 + 0.75 * 8 / 4)), rel=1e-6),
        1: pytest.approx(15.4 / (7 + 1.2 * (0.25 + 0.75 * 8 / 4)), rel=1e-6),
    }


def test_words_of_one_number_are_one_word() -> None:
    first, second = weights_of([[(5, 1), (2, 1), (5, 2)], [(5, 4)]], 4.0)
    assert first == {1: pytest.approx(2.2 / (1 + 1.2), rel=1e-6), 4: pytest.approx(6.6 / (3 + 1.2), rel=1e-6)}
    assert second == {4: pytest.approx(8.8 / (4 + 1.2), rel=1e-6)}


def test_a_chunk_without_words_has_an_empty_vector() -> None:
    assert weights_of([[], [(1, 1)], []], 1.0) == [{}, {0: pytest.approx(1.0)}, {}]
    assert weights_of([[], []], 1.0) == [{}, {}]
    assert weights_of([], 1.0) == []


def test_learned_weights_are_halved_and_stay_below_what_counts_in_full() -> None:
    first, second = weights_of([[(5, 0), (2, 1), (5, 2)], [(2, 0)]], 4.0, [1.0, 9.0, 0.5, 0.25])
    assert (first, second) == ({1: pytest.approx(LEARNED_MAX), 4: 0.75}, {1: 0.125})
    assert weights_of([[]], 1.0, []) == [{}]


def test_a_query_as_the_database_reads_it() -> None:
    query = LexicalQuery(["o'clock", "back\\slash"], {12: 0.5, 3: 1.25}, {12: 4, 3: 1}, 1.75 * 2.2)
    assert query.vector == "{3:1.25,12:0.5}/1000000000"
    assert query.words == r"'o''clock' | 'back\\slash'"
    assert query.highest == pytest.approx(1.75 * 2.2)


@pytest.mark.parametrize(
    ("most", "groups"),
    [
        (0, [[2], [3], [1], [4]]),
        (9.5, [[2], [3], [1], [4]]),
        (10, [[2], [3], [1, 4]]),
        (15, [[2, 3], [1, 4]]),
        (14, [[2], [3, 1], [4]]),
        (24, [[2, 3, 1], [4]]),
        (25, [[2, 3, 1, 4]]),
    ],
)
def test_terms_are_read_by_falling_weight_in_groups_of_so_many_chunks(most: float, groups: list[list[int]]) -> None:
    weights = {4: 0.1, 1: 0.5, 3: 0.9, 2: 0.9}
    assert group_terms(weights, {1: 9, 2: 10, 3: 5, 4: 1}, most) == groups


def test_no_terms_make_no_group() -> None:
    assert group_terms({}, {}, 10) == []
