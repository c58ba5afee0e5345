"""Text without spaces between words: which characters it is written in, and the character pairs that stand for words.

Chinese, Japanese, Thai, Lao, Khmer and Burmese. Korean has spaces, but its particles are written to the word before
them, so that pairs find what whole words miss: it is paired too.
"""

from __future__ import annotations

import itertools
import re

import regex
import unicodedata2

HAN = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
KANA = "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
THAI = "\u0e01-\u0e3a\u0e40-\u0e4e"
LAO = "\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf"
KHMER = "\u1780-\u17d3\u17d7\u17dc\u17dd"
BURMESE = "\u1000-\u103f\u1050-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"
SOUTH_EAST_ASIAN = THAI + LAO + KHMER + BURMESE
# invisible: some writers mark words with them and most do not, so that pairs must not depend on them
_JOINERS = "\u200b-\u200d\u2060"

_RUN = re.compile(
    "|".join(f"[{script}][{script}{_JOINERS}]*" for script in (HAN + KANA, HANGUL, THAI, LAO, KHMER, BURMESE))
)
UNSPACED = HAN + KANA + HANGUL + SOUTH_EAST_ASIAN  # for a character class
_IDEOGRAPHS = re.compile(f"[{HAN}{KANA}]")
_ANY = re.compile(f"[{UNSPACED}]")
_INVISIBLE = re.compile(f"[{_JOINERS}]")
_CLUSTERED = re.compile(f"[{SOUTH_EAST_ASIAN}\u3099\u309a]")


def split_runs(text: str) -> tuple[str, list[str]]:
    """(the text with a space for each run of characters without spaces, those runs in order)."""
    runs = [] if text.isascii() else _RUN.findall(text)
    return _RUN.sub(" ", text) if runs else text, runs


def is_unspaced(word: str) -> bool:
    """Whether the word, which is not empty, begins with a character of a script without spaces."""
    return _ANY.match(word) is not None


def count_ideographs(text: str) -> int:
    """How many characters of Chinese or Japanese the text has."""
    return 0 if text.isascii() else len(_IDEOGRAPHS.findall(text))


def run_units(run: str) -> list[str]:
    """What a reader takes for the characters of a run, in compatibility form: half-width kana are the wide ones."""
    run = unicodedata2.normalize("NFKC", _INVISIBLE.sub("", run))
    return list(map(str, regex.findall(r"\X", run))) if _CLUSTERED.search(run) else list(run)


def pairs_of(run: str) -> list[str]:
    """The pairs of neighbouring characters, in order; of a run of one character that one."""
    units = run_units(run)
    return [first + second for first, second in itertools.pairwise(units)] or units


def indexed_pairs(run: str) -> list[str]:
    """The pairs, and each single character, which is what a query of one character looks for."""
    units = run_units(run)
    return units + [first + second for first, second in itertools.pairwise(units)]
