"""normalize(): what it changes, what it leaves, and that a second time changes nothing."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.normalization import _PLAIN, PIECE_CHARS, normalize

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
