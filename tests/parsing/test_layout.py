"""Places of words on pages: packed, moved along by normalization, sent by the child process."""

from __future__ import annotations

import random
import unicodedata

import pytest

from ragd.readers import PageLayout, ParseLimits, Word
from ragd.readers.assembly import Assembly
from ragd.readers.layout import PackedWords, pack_words

SIZE = (595.0, 842.0)


def laid(text: str, words: list[str]) -> PageLayout:
    """The words of the text in order, each with a box that tells it from the others."""
    found, after = [], 0
    for number, word in enumerate(words):
        start = text.index(word, after)
        after = start + len(word)
        found.append(Word(start, after, number, number, number + 10, number + 5, 0.5))
    return PageLayout(1, *SIZE, tuple(found))


def read_words(assembly: Assembly) -> list[list[str]]:
    document = assembly.finish("application/pdf")
    return [[document.text[word.start : word.end] for word in page.words] for page in document.layout]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("plain words here", ["plain", "words", "here"], ["plain", "words", "here"]),
        ("\n\n one\r\ntwo\r\n\r\nthree\n\n", ["one", "two", "three"], ["one", "two", "three"]),
        ("Mu\u0308nchen liegt u\u0308ber\tNN", ["Mu\u0308nchen", "u\u0308ber", "NN"], ["München", "über", "NN"]),
        ("soft\xadware \x07bell gone", ["soft\xadware", "\x07bell", "gone"], ["software", "bell", "gone"]),
        ("a \x01 b", ["a", "\x01", "b"], ["a", "b"]),
        ("\u0958\u0959 \u1e9b\u0323x", ["\u0958\u0959", "\u1e9b\u0323x"], None),
    ],
)
def test_offsets_are_those_of_the_normalized_text(text: str, words: list[str], expected: list[str] | None) -> None:
    assembly = Assembly(ParseLimits())
    assembly.add("before e\u0301")
    assembly.add(text, "page 1", page=laid(text, words))
    assert read_words(assembly) == [expected or [unicodedata.normalize("NFC", word) for word in words]]


def test_offsets_stay_right_over_any_mixture() -> None:
    dice = random.Random(7)
    pieces = ["Aa\u0308", "e\u0301te\u0301", "\xadx\xad", "中文", "かな", "\x00y", "ﬁ", "\ud83d", "한글", "z"]
    for _ in range(200):
        words = [f"{dice.choice(pieces)}{number}" for number in range(dice.randrange(1, 12))]
        text = "".join(dice.choice([" ", "\r\n", "\n\n", "\t", "\x0c"]) + word for word in words)
        assembly = Assembly(ParseLimits())
        assembly.add("first")
        assembly.add(text, "page 1", page=laid(text, words))
        (found,) = read_words(assembly)
        assert [int("".join(filter(str.isdecimal, word))) for word in found] == list(range(len(words)))


def test_packed_words_come_back() -> None:
    words = [Word(3, 9, 10.25, 20.5, 90.125, 31.0, None), Word(10, 12, -4, 0, 9999, 842, 0.25)]
    packed = pack_words(words, *SIZE)
    first, second = PackedWords(packed.data, *SIZE)
    assert (len(packed), len(packed.data)) == (2, 30)
    assert (first.start, first.end, first.confidence) == (3, 9, None)
    assert (first.x0, first.y0, first.x1, first.y1) == pytest.approx((10.25, 20.5, 90.125, 31.0), abs=0.02)
    assert (second.x0, second.x1, second.y1) == pytest.approx((0, 595, 842), abs=0.02)
    assert second.confidence == pytest.approx(0.25, abs=0.003)
    assert packed[-1] == second and packed[:1] == [first] and packed == [first, second]
    with pytest.raises(ValueError):
        PackedWords(packed.data[:-1], *SIZE)
