"""Characters of 600 texts in 25 encodings: read without a declaration, with a true one, and with a false one.

`python -m tests.benchmarks.bench_charsets` draws sentences from the translations that Django ships (`LC_MESSAGES` of
its own pages, its administration and its accounts), two to eight for a text, writes them in each encoding and reads
the bytes back with `charsets.decode`. Right is only the same text, character by character. The false declaration is
Latin 1 for every encoding but those of Western Europe and Unicode. A last row has English with typographic marks,
which a few bytes outside ASCII could turn into another script. The draw is seeded: the same cases every time.
"""

from __future__ import annotations

import gettext
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import django

from collections_app.parsing.text.charsets import decode

CATALOGS = ("conf", "contrib/admin", "contrib/auth")
CASES = 24
SENTENCES = (2, 3, 5, 8)
SENTENCE_CHARS = 25
TARGET_PERCENT = 99
SEED = 7
ENCODINGS: dict[str, str] = {
    "utf-8": "de el ru ar ja th",
    "utf-16-le": "de ru el zh_Hans",
    "utf-16-be": "fr ru ar ja",
    "cp1250": "pl cs hu sk",
    "cp1251": "ru uk bg",
    "cp1252": "de fr es pt",
    "cp1253": "el",
    "cp1254": "tr",
    "cp1255": "he",
    "cp1256": "ar",
    "cp1257": "lt lv et",
    "iso8859-2": "pl cs hu",
    "iso8859-5": "ru bg",
    "iso8859-7": "el",
    "iso8859-9": "tr",
    "koi8-r": "ru",
    "koi8-u": "uk",
    "cp866": "ru",
    "cp874": "th",
    "cp932": "ja",
    "euc_jp": "ja",
    "iso2022_jp": "ja",
    "gb18030": "zh_Hans",
    "big5": "zh_Hant",
    "euc_kr": "ko",
}
# Latin 1 as a false declaration is no lie for these, or is not believed at all.
NOT_DECLARED_FALSELY = ("utf-8", "utf-16-le", "utf-16-be", "cp1252", "iso2022_jp")
ENGLISH = (
    "It\u2019s 5\u00a0\u00b0C today.",
    "\u201cYes\u201d \u2013 she said.",
    "A caf\u00e9 at 3 \u20ac.",
    "\u00a9 2024 Acme.",
)


@dataclass(frozen=True, slots=True)
class Case:
    encoding: str
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode(self.encoding)


@cache
def sentences(language: str) -> list[str]:
    """Translated messages without placeholders and markup that are not plain ASCII, in the catalogs' order."""
    found = []
    for catalog in CATALOGS:
        path = Path(django.__file__).parent / catalog / "locale" / language / "LC_MESSAGES" / "django.mo"
        with path.open("rb") as file:
            messages = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        found += [text for key, text in messages.items() if key and _is_sentence(text)]
    return found


def _is_sentence(text: object) -> bool:
    return isinstance(text, str) and len(text) > SENTENCE_CHARS and not text.isascii() and not set(text) & set("%<{")


def cases() -> Iterator[Case]:
    draw = random.Random(SEED)
    for encoding, names in ENCODINGS.items():
        languages = names.split()
        made = turn = 0
        while made < CASES:
            text = " ".join(draw.sample(sentences(languages[turn % len(languages)]), draw.choice(SENTENCES)))
            turn += 1
            if _is_encodable(text, encoding):
                made += 1
                yield Case(encoding, text)


def english_cases() -> Iterator[Case]:
    draw = random.Random(SEED)
    plain = ["The parser reads every document in a process of its own", "What it finds is normalized text."]
    for _ in range(CASES):
        pieces = [draw.choice(ENGLISH), draw.choice(plain), draw.choice(ENGLISH)]
        yield Case("cp1252", " ".join(pieces))


def _is_encodable(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def main() -> None:
    drawn = list(cases())
    started = time.perf_counter()
    plain = [case for case in drawn if decode(case.data).text == case.text]
    took_s = time.perf_counter() - started
    true = [case for case in drawn if decode(case.data, case.encoding).text == case.text]
    lied = [case for case in drawn if case.encoding not in NOT_DECLARED_FALSELY]
    false = [case for case in lied if decode(case.data, "iso-8859-1").text == case.text]
    print(f"{'encoding':12} {'languages':18} {'cases':>5} {'undeclared':>10} {'declared':>8} {'declared falsely':>16}")
    for encoding, names in ENCODINGS.items():
        counts = [sum(case.encoding == encoding for case in right) for right in (plain, true, false)]
        shown = f"{counts[2]:>16}" if encoding not in NOT_DECLARED_FALSELY else f"{'-':>16}"
        print(f"{encoding:12} {names:18} {CASES:>5} {counts[0]:>10} {counts[1]:>8} {shown}")
    typographic = list(english_cases())
    english = sum(decode(case.data).text == case.text for case in typographic)
    print(f"{'cp1252':12} {'en, typographic':18} {len(typographic):>5} {english:>10}")
    for label, right in (("undeclared", plain), ("declared", true)):
        share = 100 * len(right) / len(drawn)
        print(f"Right, {label}: {len(right)} of {len(drawn)}, {share:.1f} % (target: {TARGET_PERCENT} %).")
    print(f"Right, declared falsely: {len(false)} of {len(lied)}, {100 * len(false) / len(lied):.1f} %.")
    print(f"{1000 * took_s / len(drawn):.2f} ms for a text.")


if __name__ == "__main__":
    main()
