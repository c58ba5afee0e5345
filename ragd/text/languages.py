"""The language of a text: decided by its script where one language writes it, else by a kept library.

The same text gives the same language on every machine: the library is py3langid, whose model is part of the package.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import regex

from ragd.errors import InvalidInput

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

SAMPLES = 4
SAMPLE_CHARS = 500
CONFIDENCE_MIN = 0.5
# How far the log-probability of a found language is above that of the likely one to be believed: of a doubtful term it
# is 3 above, of a sentence of six words in another language 6 and more, of 250 characters 20, of 2,000 characters 45.
LIKELY_GAP, LIKELY_GAP_PER_CHAR = 4.6, 0.005
OWN_SHARE_MIN = 0.5
OWN_MIN = 3  # chunks
KANA_SHARE_MIN = 0.05  # of kana among Han and kana: Japanese has far more, Chinese that quotes it far less
LETTERS_MIN = 2

# Scripts that one language writes, as far as a text of everyday use goes.
_SCRIPT_LANGUAGES = {
    "Thai": "th", "Lao": "lo", "Khmer": "km", "Myanmar": "my", "Hangul": "ko", "Greek": "el", "Armenian": "hy",
    "Georgian": "ka", "Tamil": "ta", "Telugu": "te", "Kannada": "kn", "Malayalam": "ml", "Gujarati": "gu",
    "Gurmukhi": "pa", "Oriya": "or", "Sinhala": "si", "Tibetan": "bo", "Ethiopic": "am", "Thaana": "dv",
}  # fmt: skip
_MODEL_SCRIPTS = ("Latin", "Cyrillic", "Arabic", "Devanagari", "Bengali", "Hebrew")
_SCRIPTS = (*_SCRIPT_LANGUAGES, *_MODEL_SCRIPTS, "Han", "Hiragana", "Katakana")
_LETTERS = regex.compile("|".join(rf"(?P<{script}>\p{{Script={script}}}+)" for script in _SCRIPTS))
# nothing of these says what language a text is in
_NOISE = re.compile(r"https?://\S+|\S+@\S+|`[^`\n]*`|[\d_#*|<>{}\[\]()=+/\\~^-]+")
_CODE = re.compile(r"[a-z]{2}")

# PostgreSQL's stemmers by the language's ISO 639-1 code. What has none is indexed as it is written ("simple"); where
# words are not separated, the words in Latin letters among them are mostly English.
CONFIGURATIONS = {
    "ar": "arabic", "hy": "armenian", "eu": "basque", "ca": "catalan", "da": "danish", "nl": "dutch", "en": "english",
    "fi": "finnish", "fr": "french", "de": "german", "el": "greek", "hi": "hindi", "hu": "hungarian",
    "id": "indonesian", "ga": "irish", "it": "italian", "lt": "lithuanian", "ne": "nepali", "nb": "norwegian",
    "nn": "norwegian", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "es": "spanish", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
    "zh": "english", "ja": "english", "ko": "english", "th": "english", "lo": "english", "km": "english",
    "my": "english", "": "english",
}  # fmt: skip
OTHER_CONFIGURATION = "simple"
ALL_CONFIGURATIONS = (*sorted(set(CONFIGURATIONS.values())), OTHER_CONFIGURATION)
AUTO = "auto"

_lock = threading.Lock()


def configuration_of(language: str) -> str:
    """The text search configuration that stems the language; English for a text whose language is not known ("")."""
    return CONFIGURATIONS.get(language, OTHER_CONFIGURATION)


def own_language(counts: Mapping[str, int]) -> str:
    """The language that most of a collection's chunks are in, by how many each configuration has; "" where there are
    too few to say it, or the configuration is that of many languages."""
    name = max(sorted(counts), key=lambda each: counts[each], default=OTHER_CONFIGURATION)
    if counts.get(name, 0) < max(OWN_MIN, OWN_SHARE_MIN * sum(counts.values())):
        return ""
    return next((code for code, configuration in CONFIGURATIONS.items() if configuration == name), "")


def detect_language(text: str, likely: str = "") -> str:
    """The ISO 639-1 code of the language that most of the text is in; "" where nothing says it surely enough.

    Looks at four places of 500 characters, spread over the text. likely: the language of what stands beside it, which a
    text in a script of many languages is in where another one is not clearly more probable. Never raises.
    """
    sample = _NOISE.sub(" ", _sample(text))
    letters: Counter[str] = Counter()
    for match in _LETTERS.finditer(sample):
        letters[str(match.lastgroup)] += match.end() - match.start()
    if letters.total() < LETTERS_MIN and not letters.keys() - set(_MODEL_SCRIPTS):
        return ""
    kana = letters["Hiragana"] + letters["Katakana"]
    east_asian = letters["Han"] + kana
    script, most = max(
        ((name, letters[name]) for name in (*_SCRIPT_LANGUAGES, *_MODEL_SCRIPTS)), key=lambda each: each[1]
    )
    # one character of Han or kana is a syllable or a word, as much as two or three letters
    if east_asian and 2 * east_asian >= most:
        return "ja" if kana >= KANA_SHARE_MIN * east_asian else "zh"
    if not most:
        return ""
    return _SCRIPT_LANGUAGES.get(script) or _classify(sample, likely)


def _sample(text: str) -> str:
    if len(text) <= SAMPLES * SAMPLE_CHARS:
        return text
    step = (len(text) - SAMPLE_CHARS) // (SAMPLES - 1)
    return "\n".join(text[place * step : place * step + SAMPLE_CHARS] for place in range(SAMPLES))


def _classify(sample: str, likely: str) -> str:
    words = " ".join(sample.split())
    with _lock:
        ranked = _identifier().rank(words)
    language, confidence = ranked[0]
    probability = float(dict(ranked).get(likely, 0.0))
    if probability and math.log(confidence / probability) <= LIKELY_GAP + LIKELY_GAP_PER_CHAR * len(words):
        return likely
    return str(language) if confidence >= CONFIDENCE_MIN and _CODE.fullmatch(language) else ""


@cache
def _identifier() -> LanguageIdentifier:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            "to tell the language of a text needs the package py3langid, which is not installed; "
            "run `pip install 'ragd[languages]'`, or state the collection's language",
            field="language",
        ) from missing
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
