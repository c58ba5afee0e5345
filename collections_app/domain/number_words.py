"""Number words of English and German, and what they are worth."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

TEXTS = tomllib.loads(Path(__file__).with_name("quantities.toml").read_text(encoding="utf-8"))
ONES, _TENS, EINS, _ZIGS, _ORDINALS, _ORDNUNG = (
    TEXTS[name].split() for name in ("ones", "tens", "eins", "zigs", "ordinals", "ordnung")
)
SCALES = {"hundred": 100, "hundert": 100, "thousand": 1000, "tausend": 1000, "million": 10**6, "millionen": 10**6,
          "billion": 10**9, "milliarden": 10**9, "mio": 10**6, "mrd": 10**9, "k": 1000}  # fmt: skip
_DOZENS = {"dozen": 12, "dutzend": 12}


def _number_words() -> dict[str, int]:
    words = dict(zip(ONES, range(20), strict=True)) | dict(zip(EINS, range(20), strict=True))
    for index, (ten, zig) in enumerate(zip(_TENS, _ZIGS, strict=True), 2):
        words |= {ten: 10 * index, zig: 10 * index}
        words |= {f"{ten}{mark}{one}": 10 * index + digit for digit, one in enumerate(ONES[1:10], 1) for mark in "- "}
        words |= {f"{one}und{zig}": 10 * index + digit for digit, one in enumerate(EINS[1:10], 1)}
    words |= {name: SCALES[name] for name in ("hundred", "hundert", "thousand", "tausend", "million")} | _DOZENS
    words |= {"once": 1, "twice": 2, "thrice": 3}
    return words | {f"{one}mal": digit for digit, one in enumerate(EINS[1:13], 1)}


_WORDS = _number_words()
WORDS_OF_ORDER = {word: value for value, word in enumerate(_ORDINALS, 1)} | {
    f"{word}{ending}": value for value, word in enumerate(_ORDNUNG, 1) for ending in ("e", "en", "er", "es", "em")
}
ORDER = "|".join(sorted(WORDS_OF_ORDER, key=len, reverse=True))
NAMED = "|".join(sorted(_WORDS, key=len, reverse=True))
SMALL = "|".join(
    sorted(
        (
            word
            for word, value in _WORDS.items()
            if word.isalpha() and value < 60 and not word.endswith(("mal", "ice", "once", "tzend", "dozen"))
        ),
        key=len,
        reverse=True,
    )
)
WORD_NUMBER = re.compile(
    rf"(?<![\w-])(?P<word>{ORDER}|(?:(?:hundert|tausend)(?:und)?)?(?:{NAMED})"
    rf"(?:[\s-]?(?:hundred|thousand|million|hundert|tausend|dozen|dutzend)(?:(?:\sand\s|[\s-]|und)?(?:{NAMED}))?)*)(?!\w)",
    re.IGNORECASE,
)


def value_of_words(words: str) -> float:
    """Of a number word with its scales: 3400 for "three thousand four hundred"."""
    low = words.lower()
    if low in WORDS_OF_ORDER:
        return WORDS_OF_ORDER[low]
    total = part = 0
    for word in re.findall(NAMED, low):
        value = _WORDS[word]
        if word in _DOZENS or value == 100:
            part = max(part, 1) * value
        elif value < 100:
            part += value
        else:
            total, part = total + max(part, 1) * value, 0
    return total + part


def value_of(written: str) -> int:
    """Of a small number in digits or in one word."""
    return int(written) if written.isdecimal() else _WORDS[written.lower()]
