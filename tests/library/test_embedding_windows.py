"""Input checks, cutting of long texts, averages of windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.errors import EmptyContent, InvalidInput
from ragd.text.windows import accept_texts, average_windows, halve_text, unit_vector


def test_lone_surrogates_become_replacement_characters() -> None:
    assert accept_texts(["a\ud800b", "\udfff", "😀"]) == ["a\ufffdb", "\ufffd", "😀"]


def test_no_texts_are_accepted_as_none() -> None:
    assert accept_texts([]) == []


@pytest.mark.parametrize("blank", ["", " ", "\n\t\u3000"])
def test_a_blank_text_is_refused_with_its_place(blank: str) -> None:
    with pytest.raises(EmptyContent, match="text 2 of 3: it is empty or blank"):
        accept_texts(["a", blank, "b"])


def test_one_str_is_not_a_sequence_of_texts() -> None:
    with pytest.raises(InvalidInput, match="wrap it in a list"):
        accept_texts("abc")


def test_a_text_that_is_no_str_is_refused_by_its_type() -> None:
    with pytest.raises(InvalidInput, match="text 2 of 2 is NoneType"):
        accept_texts(["a", None])  # type: ignore[list-item]


def test_unit_vector_scales_and_keeps_zero() -> None:
    assert unit_vector([3.0, 4.0]).tolist() == [np.float32(0.6), np.float32(0.8)]
    assert unit_vector([0.0, 0.0]).tolist() == [0.0, 0.0]


def test_windows_are_averaged_by_their_token_counts() -> None:
    assert np.array_equal(average_windows([[1.0, 0.0], [0.0, 1.0]], [3, 4]), unit_vector([3.0, 4.0]))


def test_one_window_is_only_scaled() -> None:
    assert np.array_equal(average_windows([[0.0, 5.0]], [0]), [0.0, 1.0])


def test_a_text_that_fits_stays_whole() -> None:
    assert halve_text(" as it is ", lambda piece: True) == [" as it is "]


def test_halves_are_cut_at_white_space() -> None:
    assert halve_text("one two three four", lambda piece: len(piece) <= 9) == ["one two", " three", " four"]


def test_a_single_character_that_does_not_fit_is_kept() -> None:
    assert halve_text("ab", lambda piece: False) == ["a", "b"]


@given(st.text(max_size=300), st.integers(1, 20))
def test_halving_loses_nothing_but_blank_pieces(text: str, limit: int) -> None:
    pieces = halve_text(text, lambda piece: len(piece) <= limit)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= limit and piece.strip() for piece in pieces)
