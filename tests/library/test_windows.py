"""Input checks, cutting of long texts, averages of windows.
normalize(): what it changes, what it leaves, and that a second time changes nothing.
split_sentences(): golden cases by kind, and what must hold for any text."""

from __future__ import annotations

import json
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.errors import DimensionMismatch, EmptyContent, InvalidInput
from ragd.normalization import _PLAIN, PIECE_CHARS, normalize
from ragd.text import windows
from ragd.text.chunking import split_sentences
from ragd.text.sentences import last_sentence_end, sentence_ends
from ragd.text.windows import Words, accept_texts, average_windows, halve_text, unit_vector
from tests.refusals import raises_with


def test_lone_surrogates_become_replacement_characters() -> None:
    assert accept_texts(["a\ud800b", "\udfff", "😀"]) == ["a\ufffdb", "\ufffd", "😀"] and accept_texts([]) == []


@pytest.mark.parametrize("blank", ["", " ", "\n\t\u3000"])
def test_a_blank_text_is_refused_with_its_place(blank: str) -> None:
    with raises_with(EmptyContent, match="text 2 of 3", field="texts"):
        accept_texts(["a", blank, "b"])


@pytest.mark.parametrize(("texts", "said"), [("abc", "sequence of str"), (["a", 3], "text 2 of 2 is int")])
def test_what_is_no_sequence_of_str_is_refused(texts: Any, said: str) -> None:
    with raises_with(InvalidInput, match=said, field="texts"):
        accept_texts(texts)


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
    with raises_with(DimensionMismatch if place < 3 else InvalidInput, match="the vector must", field="embedding"):
        windows.check_vector(vector, 2, "the vector")


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


# Each case is the list of its sentences; the text is their join with one space, or as CJK needs it with none.
CASES: dict[str, list[list[str]]] = json.loads(
    (Path(__file__).parent.parent / "data" / "sentences.json").read_text("utf-8")
)
BY_LINES = [
    ["A title", "The text below it."],
    ["1. Introduction", "2. Methods"],
    ["- first item", "- second item", "+ third"],
    ["| a | b |", "| 1. | 2 |"],
    ["## Heading", "Text."],
]
IN_BRACKETS = [
    ["「行く。」と言った。", "次。"], ["（一。二）三\n四。"], ["（甲）乙（一。", "二"], ["（一。", "二\n三）"],
    ["（一。", "二" * 301 + "）"], ["（甲\n乙。", "丙）丁"],
]  # fmt: skip


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


# list items and rows of tables need no blank line
CLAUSES = [["ก" * 25, "ข" * 15], ["ก" * 10 + " " + "ข" * 15], ["It is by A. I. Smith."], ["ค.ศ. 1990"]]
JOINED = {" ": CASES["spaced"] + CLAUSES, "": CASES["unspaced"] + IN_BRACKETS, "\n\n": BY_LINES, "\n": BY_LINES[1:4]}


@pytest.mark.parametrize(("between", "sentences"), [(key, case) for key, cases in JOINED.items() for case in cases])
def test_golden_sentences(between: str, sentences: list[str]) -> None:
    assert cut(between.join(sentences)) == sentences


@pytest.mark.parametrize("text", ["", " ", "\n\n\t"])
def test_blank_text_has_no_sentence(text: str) -> None:
    assert split_sentences(text) == []


@given(st.text(alphabet="aA.!? \n\"')1。-|#é") | st.text())
def test_spans_are_ordered_trimmed_and_cover_everything(text: str) -> None:
    spans = split_sentences(text)
    at = 0
    for start, end in spans:
        assert not text[at:start].strip()
        assert text[start:end] == text[start:end].strip() != ""
        at = end
    assert not text[at:].strip()


@pytest.mark.parametrize("sentences", [["1. Introduction"], ["It is\nX 1.", "Next one."], ["Part 1.", "Next."]])
def test_a_number_at_the_beginning_of_its_line_ends_nothing(sentences: list[str]) -> None:
    assert cut("\n" + " ".join(sentences)) == sentences


@given(st.text(alphabet="aA.!? \n\"')1。-|#é", min_size=1), st.data())
def test_the_last_end_is_the_last_of_all(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, len(text)))
    assert last_sentence_end(text, start, end) == max(sentence_ends(text, start, end), default=0)


@pytest.mark.parametrize(
    ("text", "start", "end", "last"),
    [
        ("One. Two. Three", 0, 15, 9),
        ("One. Two. Three", 0, 9, 4),  # the end itself is none
        ("One. Two. Three", 4, 15, 9),
        ("One. Two. Three", 9, 15, 0),
        ("Two。 Dr. Who", 0, 12, 4),
        ("Dr. Who", 0, 7, 0),
        ("", 0, 0, 0),
    ],
)
def test_where_the_last_sentence_of_a_span_ends(text: str, start: int, end: int, last: int) -> None:
    assert last_sentence_end(text, start, end) == last


@pytest.mark.parametrize("unit", [". ", "a. ", ".", '."', "\n", "\n ", "Dr. ", "。", "( ", "a.b"])
def test_time_is_linear(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    began = time.process_time()
    split_sentences(text)
    assert time.process_time() - began < 5


ANY_CHARACTER = st.characters(exclude_categories=())  # surrogates too
MARKS = "".join(chr(code) for code in range(0x300, 0x370)) + "\u0344\u0f73\U0001d165\U0001e8d0"


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("", ""),
        (" \t a  b \n\n ", " \t a  b \n\n "),
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        ("a\r\r\nb\n\rc", "a\n\nb\n\nc"),
        ("a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i", "a\nb\nc\nd\ne\nf\ng\nh\ni"),
        ("n\x00u\x01l\x07\x08\x1b\x1f\x7f\x80\x9fs", "nuls"),
        ("\ufeffmark\ufeff", "mark"),
        ("e\u0301 \u212b \u1112\u1161\u11ab", "é Å 한"),
        ("e\x00\u0301", "é"),
        ("\ud800 lone \udc00", "\ufffd lone \ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
        ("ﬁ ½ Ⅳ \xa0 \u200b \xad \u202e", "ﬁ ½ Ⅳ \xa0 \u200b \xad \u202e"),
    ],
)
def test_normalized_form(raw: str, clean: str) -> None:
    assert normalize(raw) == clean
    assert normalize(clean) == clean


def test_plain_characters_change_neither_alone_nor_together() -> None:
    """No unwanted character, no mark, none that composes with one before it."""
    plain = [char for char in map(chr, range(0x80, 0x110000)) if _PLAIN.fullmatch(char)]
    second = {pair[1] for char in map(chr, range(0x110000)) if len(pair := unicodedata.normalize("NFD", char)) == 2}
    assert len(plain) > 40_000
    assert not second & set(plain)
    assert not any(unicodedata.combining(char) or unicodedata.category(char) in ("Cc", "Cs", "Zl") for char in plain)
    assert unicodedata.is_normalized("NFC", "".join(plain))
    assert not set("\u0085\u2028\u2029\ufeff") & set(plain)


def test_a_long_text_is_normalized_like_its_parts() -> None:
    line = "caf\u0065\u0301\x00 \r\n"
    text = line * (3 * PIECE_CHARS // len(line))
    assert normalize(text) == normalize(line) * (len(text) // len(line))


def test_a_carriage_return_at_the_end_of_a_piece() -> None:
    text = "a" * PIECE_CHARS + "\r\n" + "b" * PIECE_CHARS + "\r" + "\u0301"
    assert normalize(text) == "a" * PIECE_CHARS + "\n" + "b" * PIECE_CHARS + "\n\u0301"


@given(st.text(ANY_CHARACTER))
def test_idempotent_composed_and_encodable(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once
    assert unicodedata.is_normalized("NFC", once)
    once.encode()
    assert not set("\r\x00\x0b\x0c\x85\u2028\u2029\ufeff") & set(once)


@given(st.text(st.sampled_from(MARKS + "aé\n한"), min_size=25, max_size=120))
def test_long_runs_of_marks_are_idempotent_too(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert once.replace("\u034f", "") == unicodedata.normalize("NFC", text) or "\u034f" in once


def test_marks_in_hostile_order_take_linear_time() -> None:
    began = time.perf_counter()
    clean = normalize("a" + "\u0301\u0316" * 200_000)
    assert time.perf_counter() - began < 10
    assert len(clean) == pytest.approx(400_001, rel=0.05)
