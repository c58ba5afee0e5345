"""The language of a text: decided by its script where one language writes it, else by a kept library.

The same text gives the same language on every machine: the library is py3langid, whose model is part of the package.

Whether a model can read a text, by the share of the letters that its tokenizer breaks into fragments.

A tokenizer keeps words of the languages that its model was trained on in a few long pieces. Words of other languages
fall apart into pieces of one or two letters, and those of other scripts into unknown pieces. The tokenizer of
all-MiniLM-L6-v2 breaks 1 to 6 % of the letters of English documents, 18 to 34 % of French, Spanish, Italian,
Portuguese, German and Dutch ones, 41 to 53 % of Turkish and Polish ones, and 75 to 100 % of texts in Cyrillic, Greek,
Arabic, Hebrew, Devanagari, Thai, Chinese, Japanese and Korean.

Text without spaces between words: which characters it is written in, and the character pairs that stand for words.

Chinese, Japanese, Thai, Lao, Khmer and Burmese. Korean has spaces, but its particles are written to the word before
them, so that pairs find what whole words miss: it is paired too.
"""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import regex
import unicodedata2

from ragd.errors import InvalidInput

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier
    from tokenizers import Encoding, Tokenizer


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


def detect_language(text: str, likely: str | Callable[[], str] = "") -> str:
    """The ISO 639-1 code of the language that most of the text is in; "" where nothing says it surely enough.

    Looks at four places of 500 characters, spread over the text. likely: the language of what stands beside it, which a
    text in a script of many languages is in where another one is not clearly more probable; a function is called only
    where it can decide. Raises nothing of its own.
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


def _classify(sample: str, likely: str | Callable[[], str]) -> str:
    words = " ".join(sample.split())
    with _lock:
        ranked = _identifier().rank(words)
    (language, confidence), gap = ranked[0], LIKELY_GAP + LIKELY_GAP_PER_CHAR * len(words)
    close = {name for name, probability in ranked if probability and math.log(confidence / probability) <= gap}
    if len(close) > 1 and (expected := likely() if callable(likely) else likely) in close:
        return expected
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


SCRIPT_MAX = 0.5  # of the letters of a text in unknown pieces or alone: its script is unknown to the model
FRAGMENT_LETTERS = 2
CHARS_MAX = 1000  # of a text that are looked at
LEANING_LETTERS = 200  # a text of so many letters is judged half by itself, half by the texts beside it
UNKNOWN = ("[UNK]", "<unk>")

# a Chinese character is a word by itself
_WORDS = regex.compile(r"\p{Han}|[\p{L}\p{M}--\p{Han}]+", regex.VERSION1)


@dataclass(frozen=True, slots=True)
class Letters:
    """lost: letters in unknown pieces, or alone in pieces of longer words. broken: those and others in fragments."""

    lost: int
    broken: int
    count: int

    @property
    def is_of_known_script(self) -> bool:
        return self.lost <= SCRIPT_MAX * self.count


def find_readable(tokenizer: Tokenizer, query: str, texts: Sequence[str], *, broken_max: float = 1.0) -> list[bool]:
    """For each text, whether the model of this tokenizer can read it beside this query (`judge_readable`)."""
    of_query, *of_texts = count_letters(tokenizer, [query, *texts])
    return judge_readable(of_query, of_texts, broken_max=broken_max)


def count_letters(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Letters]:
    """Of the first CHARS_MAX characters of each text, what the model of this tokenizer does not know."""
    samples = [text[:CHARS_MAX] for text in texts]
    unknown = {tokenizer.token_to_id(token) for token in UNKNOWN}
    encodings = tokenizer.encode_batch(samples, add_special_tokens=False)
    return [_count_letters(text, encoding, unknown) for text, encoding in zip(samples, encodings, strict=True)]


def judge_readable(of_query: Letters, of_texts: Sequence[Letters], *, broken_max: float = 1.0) -> list[bool]:
    """For each text, whether a model can read it beside a query.

    Nothing can be read beside a query in a script that the model does not know, and no text in such a script. Of a text
    in a language of the model at most broken_max of the letters are in fragments; a short text leans on the texts
    beside it. A text without letters can be read.
    """
    if not of_query.is_of_known_script:
        return [False] * len(of_texts)
    known = [letters for letters in of_texts if letters.is_of_known_script]
    around = sum(letters.broken for letters in known) / (sum(letters.count for letters in known) or 1)
    return [
        letters.is_of_known_script
        and letters.broken + LEANING_LETTERS * around <= broken_max * (letters.count + LEANING_LETTERS)
        for letters in of_texts
    ]


def _count_letters(text: str, encoding: Encoding, unknown: set[int | None]) -> Letters:
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
    return Letters(len(lost), len(broken), sum(map(bool, word_length)))


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
