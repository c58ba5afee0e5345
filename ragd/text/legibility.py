"""Whether a model can read a text, by the share of the letters that its tokenizer breaks into fragments.

A tokenizer keeps words of the languages that its model was trained on in a few long pieces. Words of other languages
fall apart into pieces of one or two letters, and those of other scripts into unknown pieces. The tokenizer of
all-MiniLM-L6-v2 breaks 1 to 6 % of the letters of English documents, 18 to 34 % of French, Spanish, Italian,
Portuguese, German and Dutch ones, 41 to 53 % of Turkish and Polish ones, and 75 to 100 % of texts in Cyrillic, Greek,
Arabic, Hebrew, Devanagari, Thai, Chinese, Japanese and Korean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

SCRIPT_MAX = 0.5  # of the letters of a text in unknown pieces or alone: its script is unknown to the model
FRAGMENT_LETTERS = 2
CHARS_MAX = 1000  # of a text that are looked at
LEANING_LETTERS = 200  # a text of so many letters is judged half by itself, half by the texts beside it
UNKNOWN = ("[UNK]", "<unk>")

# a Chinese character is a word by itself
_WORDS = regex.compile(r"\p{Han}|[\p{L}\p{M}--\p{Han}]+", regex.VERSION1)


@dataclass(frozen=True, slots=True)
class _Letters:
    """lost: letters in unknown pieces, or alone in pieces of longer words. broken: those and others in fragments."""

    lost: int
    broken: int
    count: int

    @property
    def is_of_known_script(self) -> bool:
        return self.lost <= SCRIPT_MAX * self.count


def find_readable(tokenizer: Tokenizer, query: str, texts: Sequence[str], *, broken_max: float = 1.0) -> list[bool]:
    """For each text, whether the model of this tokenizer can read it beside this query.

    Nothing can be read beside a query in a script that the model does not know, and no text in such a script. Of a text
    in a language of the model at most broken_max of the letters are in fragments; a short text leans on the texts
    beside it. A text without letters can be read. The first CHARS_MAX characters count.
    """
    samples = [text[:CHARS_MAX] for text in (query, *texts)]
    unknown = {tokenizer.token_to_id(token) for token in UNKNOWN}
    encodings = tokenizer.encode_batch(samples, add_special_tokens=False)
    of_query, *of_texts = (
        _count_letters(text, encoding, unknown) for text, encoding in zip(samples, encodings, strict=True)
    )
    if not of_query.is_of_known_script:
        return [False] * len(texts)
    known = [letters for letters in of_texts if letters.is_of_known_script]
    around = sum(letters.broken for letters in known) / (sum(letters.count for letters in known) or 1)
    return [
        letters.is_of_known_script
        and letters.broken + LEANING_LETTERS * around <= broken_max * (letters.count + LEANING_LETTERS)
        for letters in of_texts
    ]


def _count_letters(text: str, encoding: Encoding, unknown: set[int | None]) -> _Letters:
    word_length = [0] * len(text)
    for match in _WORDS.finditer(text):
        start, end = match.span()
        word_length[start:end] = [end - start] * (end - start)
    lost: set[int] = set()
    broken: set[int] = set()
    for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        letters = [place for place in range(start, end) if word_length[place]]
        if letters and (token in unknown or len(letters) < min(word_length[letters[0]], FRAGMENT_LETTERS + 1)):
            broken.update(letters)
            if token in unknown or len(letters) == 1:
                lost.update(letters)
    return _Letters(len(lost), len(broken), sum(map(bool, word_length)))
