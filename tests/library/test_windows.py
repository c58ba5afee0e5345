"""Input checks, cutting of long texts, averages of windows."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.errors import DimensionMismatch, EmptyContent, InvalidInput
from ragd.normalization import normalize
from ragd.text import windows
from ragd.text.windows import Words, accept_texts, average_windows, halve_text, unit_vector


def test_lone_surrogates_become_replacement_characters() -> None:
    assert accept_texts(["a\ud800b", "\udfff", "😀"]) == ["a\ufffdb", "\ufffd", "😀"] and accept_texts([]) == []


@pytest.mark.parametrize("blank", ["", " ", "\n\t\u3000"])
def test_a_blank_text_is_refused_with_its_place(blank: str) -> None:
    with pytest.raises(EmptyContent, match="text 2 of 3") as caught:
        accept_texts(["a", blank, "b"])
    assert caught.value.field == "texts"


@pytest.mark.parametrize(("texts", "said"), [("abc", "sequence of str"), (["a", 3], "text 2 of 2 is int")])
def test_what_is_no_sequence_of_str_is_refused(texts: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        accept_texts(texts)
    assert caught.value.field == "texts"


def test_unit_vector_scales_and_keeps_zero() -> None:
    assert unit_vector([3.0, 4.0]).tolist() == [np.float32(0.6), np.float32(0.8)]
    assert unit_vector([0.0, 0.0]).tolist() == [0.0, 0.0]
    unit = unit_vector(np.array([3e30, 4e30], np.float32))  # summed in double precision
    assert unit.dtype == np.float32
    assert unit.tolist() == pytest.approx([0.6, 0.8])


def test_windows_are_averaged_by_their_token_counts() -> None:
    assert np.array_equal(average_windows([[1.0, 0.0], [0.0, 1.0]], [3, 4]), unit_vector([3.0, 4.0]))
    assert average_windows([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]], [3, 1]).tolist() == pytest.approx([0.6, 0.8, 0.0])
    assert np.array_equal(average_windows([[0.0, 5.0]], [0]), [0.0, 1.0])


def test_a_text_that_fits_stays_whole_and_halves_are_cut_at_white_space() -> None:
    assert halve_text(" as it is ", lambda piece: True) == [" as it is "]
    assert halve_text("one two three four", lambda piece: len(piece) <= 9) == ["one two", " three", " four"]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("aaaaa bbbbbbbbbbbbbb", ["aaaaa", " bbbbbbbbbbbbbb"]),  # a quarter from the middle is near
        ("aaaa bbbbbbbbbbbbbbb", ["aaaa bbbbb", "bbbbbbbbbb"]),  # what is further off is not
        ("aaaaaaaaaaaaaaa bbbb", ["aaaaaaaaaaaaaaa", " bbbb"]),
        ("aaaaaaaa bb ccccccccc", ["aaaaaaaa bb", " ccccccccc"]),  # the nearer one
        ("aaaaaaaaa b ccccccccc", ["aaaaaaaaa", " b ccccccccc"]),  # as near: the first
    ],
)
def test_where_a_text_is_halved(text: str, pieces: list[str]) -> None:
    assert halve_text(text, lambda piece: len(piece) <= 15) == pieces


def test_the_shortest_texts() -> None:
    assert halve_text("a bc", lambda piece: len(piece) <= 3) == ["a", " bc"]  # near the middle of four
    assert halve_text("ab", lambda piece: False) == ["a", "b"]


@given(st.text(max_size=300), st.integers(1, 20))
def test_halving_loses_nothing_but_blank_pieces(text: str, limit: int) -> None:
    pieces = halve_text(text, lambda piece: len(piece) <= limit)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= limit and piece.strip() for piece in pieces)


TEXT = st.text(st.sampled_from("ab .\n\t\xa0\u2003\u3000é汉😀"), min_size=1, max_size=60).map(normalize)


def test_white_space_is_what_split_takes_for_it() -> None:
    others = [char for char in map(chr, range(0x80, sys.maxunicode + 1)) if char.isspace()]
    assert all(windows._OTHER_SPACE.fullmatch(char) for char in others)
    assert not [
        char for char in "".join(map(chr, range(0x80, 0x3100))) if windows._OTHER_SPACE.match(char) and char.split()
    ]


def test_questions_far_from_the_beginning() -> None:
    """Each span begins a stretch of its own; one that lies in the stretch before is read anew."""
    text = "one two! ! three " * 6
    words = Words(text)
    for start in (68, 51, 17, 85):
        end = start + 16
        assert words.count(start, end) == 4
        assert words.limit(start, end, 2) == (start + 9, 2)
        assert words.limit(start, end, 4) == (end, 4)
        assert words.last(start, end, 3) == start + 4
        assert words.last(start, end, 4) is None


@pytest.mark.parametrize("stretch", [1, 7, 1 << 16])
@given(text=TEXT, data=st.data())
def test_spans_from_left_to_right(stretch: int, text: str, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "STRETCH_CHARS", stretch)
        found = Words(text)
        for start in sorted(data.draw(st.lists(st.integers(0, len(text) - 1), max_size=6))):
            if text[start].isspace():
                continue
            end = data.draw(st.integers(start + 1, len(text)))
            most = data.draw(st.integers(1, 8))
            span, parts = text[start:end], text[start:end].split(None, most)
            assert found.count(start, end) == len(span.split())
            beyond = (end - len(parts[-1]), most) if len(parts) > most else (end, len(parts))
            assert found.limit(start, end, most) == beyond
            tail = span.rsplit(None, most)
            first = found.last(start, end, most)
            assert (first is None) == (len(tail) <= most)
            if first is not None:
                assert text[start:first].rstrip() == tail[0]
                assert len(text[first:end].split()) == most and not text[first].isspace()


REFUSED = [[3.0], [[3.0, 4.0]], 3.0, [0.0, 0.0], [9e-16, 0.0], [0.0, 1.1e15], [np.nan, 1.0], [np.inf, 1.0], ["x", 1.0]]


@pytest.mark.parametrize(("place", "vector"), enumerate(REFUSED))
def test_a_vector_without_a_cosine_is_refused(place: int, vector: Any) -> None:
    for usable in ([3.0, -4.0], [1.1e-15, 0.0], [0.0, 0.99e15]):
        windows.check_vector(usable, 2, "the vector")
    with pytest.raises(DimensionMismatch if place < 3 else InvalidInput, match="the vector must") as caught:
        windows.check_vector(vector, 2, "the vector")
    assert caught.value.field == "embedding"


@given(st.text(st.sampled_from("aé. \n汉語かไทยั한"), max_size=80))
def test_text_without_spaces_is_counted_by_its_characters(text: str) -> None:
    def words(run: str) -> int:
        quarters = sum(2 if char in "汉語か한" else 1 if char in "ไทย" else 0 for char in run)
        return max(1, -(-quarters // 4)) if sum(char not in "aé." for char in run) > windows.UNSPACED_MAX else 1

    assert windows.count_words(text) == sum(map(words, text.split()))
    long = text + "汉" * (windows.SHORT_TEXT_MAX + 1) + "b"
    assert Words(long.strip()).count(0, len(long.strip())) == sum(map(words, long.split()))
    assert [windows.count_words("a " + "汉" * each) for each in (12, 13)] == [2, 8]


def test_a_place_inside_text_without_spaces() -> None:
    run = "a " + "汉" * 13 + " b"
    assert [place for place in range(len(run) + 1) if windows.is_inside_run(run, place)] == list(range(3, 15))
    assert not any(windows.is_inside_run("汉" * 12, place) for place in range(13))
    assert windows.is_inside_run("a" + "汉" * 13, 1) and not windows.is_inside_run("ab" + "汉" * 13, 1)
