"""What a question asks for: its language, its words, the kind of answer, names, and the questions that it is made of.

The words of each language stand in `quoting.toml`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import regex
import unicodedata2

from ragd.text.languages import detect_language, is_unspaced, pairs_of, split_runs

MODEL: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("quoting.toml").read_text(encoding="utf-8"))
PREFIX = 5  # letters that two forms of a longer word share
FORM_SHARE = 0.8  # what another form of a word counts
TAIL = 5  # letters of a word that a compound may end with
TAIL_SHARE = 0.8  # what the compound counts
QUESTION_CHARS_MAX = 400  # a longer one names its topic
LEANING_WORDS_MAX = 3  # "Why?", "Seit wann?": too short to name a topic, unless a name or a figure is among them
WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*+(?:['\u2019-][\p{L}\p{N}][\p{L}\p{N}\p{M}]*+)*+")
SUFFIX = regex.compile(r"(?:'s|\u2019s|ies|ing|ed|es|s|ly)$")
_ACCENTS = regex.compile(r"(?<=[\p{Latin}\p{Greek}\p{Cyrillic}]\p{Mn}*)\p{Mn}|[\u064b-\u065f\u0670\u0640\u0591-\u05c7]")
_LETTERS = str.maketrans({"ı": "i", "đ": "d", "أ": "ا", "إ": "ا", "آ": "ا", "ة": "ه", "ى": "ي"})
# what Arabic writes to the word behind it: "and", "so", "by", "as", "for", the article
_ARTICLE = regex.compile(r"^[وف]?(?:(?:[بك]?ال|لل)(?=\p{L}{2})|[بلك]?(?=\p{Arabic}{4}))")
NUMBER = regex.compile(r"\p{N}[\p{N}.,]*")
_STARTS = r"(?<!(?:^|[.!?:;…|\n¿¡])\P{L}{0,3})"  # what a sentence begins with is a capital in any case
_NAME = regex.compile(_STARTS + r"\b\p{Lu}[\p{L}\p{M}]+")
# of German, whose nouns are all capitals
_RUN = regex.compile(r"\b\p{Lu}[\p{L}-]+(?:\s(?:(?:von|van|de|der|ibn)\s)?\p{Lu}[\p{L}-]+)+")


def fold(text: str) -> str:
    """Without case, accents and the signs that Arabic and Hebrew put on letters."""
    text = text.casefold()
    if text.isascii():
        return text
    bare = _ACCENTS.sub("", unicodedata2.normalize("NFD", text))
    return str(unicodedata2.normalize("NFC", bare)).translate(_LETTERS)


@cache
def find_expression(name: str, language: str) -> Any | None:
    """Compiled at its first use: all of all languages take a start longer than a question."""
    text = MODEL[name].get(language)
    return None if text is None else regex.compile(fold(text))


def _first(names: Sequence[str], language: str, asked: str) -> str:
    return next((name for name in names if (each := find_expression(name, language)) and each.search(asked)), "")


YES, NO, NOT = (frozenset(MODEL["whether"][name].split()) for name in ("yes", "no", "not"))
_FUNCTION = {language: frozenset(map(fold, words.split())) for language, words in MODEL["function"].items()}
_ANY_FUNCTION = frozenset[str]().union(*_FUNCTION.values())
EXACT = {  # of these kinds nothing else is an answer
    # a long number, or a short one, such as an extension, behind the word for it
    "phone": regex.compile(
        r"\+?\(?\d[\d ()/.\u2011-]{4,}\d|\b(?:tel(?:e(?:phone|fono?|fone))?|phone|mobile|cell|fax|hotline"
        r"|ext(?:ension)?|durchwahl|(?:telefon|ruf|handy|mobil|fax)?-?nummer|call|dial|телефон\w*)\b"
        r"[^\d;\n]{0,20}\d{3,5}\b"
    ),
    "mail": regex.compile(r"\w@\w[\w-]*\.\w"),
    "price": regex.compile(MODEL["money"]["words"]),
    "weight": regex.compile(MODEL["mass"]["words"]),
    **{kind: regex.compile(MODEL[kind]["words"]) for kind in ("birth", "death", "age", "purpose")},
}
_KINDS = (*EXACT, "frequency", "date", "number", "person", "reason", "way", "formula")
_ALSO = {language: regex.compile(text, regex.IGNORECASE) for language, text in MODEL["also"].items()}
DEFINITION = {language: tuple(map(regex.compile, each)) for language, each in MODEL["definition"].items()}
_DIFFERENCE = {language: (regex.compile(text), each) for language, (text, each) in MODEL["difference"].items()}
_SAME = {language: [regex.compile(each, regex.IGNORECASE) for each in pair] for language, pair in MODEL["same"].items()}
OPENER, CONDITION, EXPLETIVE, POINTING = (
    regex.compile(MODEL["follow_up"][name], regex.IGNORECASE)
    for name in ("opener", "condition", "expletive", "pointing")
)
_THOSE_OF = regex.compile(r"\b(?:those|that|the ones?|di?e) (?=(?:of|for|in|on|at|from|with|von|für|in|bei|mit)\b)")
_PREPOSITION = regex.compile(r"(?:of|for|in|on|at|to|from|with|by|von|vom|für|im|am|bei|mit|nach|zu[mr]?|aus)\b")
_ASKED = regex.compile(r"(?<=[?？؟])\s+(?=[^\s?])")
_CLAUSE = regex.compile(r"[;,:]\s|\s[–—]\s|[；，：、]")
_UNSPACED = regex.compile(MODEL["function_unspaced"]["words"])


@dataclass(frozen=True, slots=True)
class Question:
    """words: its content words, folded, each once, in order. kind: one of _KINDS, "definition" or "".
    names: its capitalized words but the first, and its numbers. either: the words of which one is enough, as in
    "Is it open or closed?". asks: "list" for all there are, "count" for how many, or "". focus: of its words, that
    which the answer is one of: acid in "What acid cleans it?"; "" without one. about: the words of the document or
    section that it asks an overview of. own: behind a topic, the words that are not of the topic."""

    text: str
    language: str
    words: tuple[str, ...]
    kind: str
    names: tuple[str, ...]
    either: frozenset[str] = frozenset()
    asks: str = ""
    focus: str = ""
    about: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()

    def count(self, number: int) -> str:
        """The words for how many things a list has, where the question asks for that; else ""."""
        words: Mapping[str, str] = MODEL["listed"]
        return words.get(self.language, words["en"]).format(number) if self.asks == "count" else ""


@lru_cache(maxsize=256)
def read_question(text: str, likely: str = "", topic: str = "") -> Question:
    """likely: the language of the passages, which the question is in where nothing speaks against it. topic: the
    question before it, that says what it is about."""
    asked, text = fold(text), f"{topic} {text}".strip()
    language = detect_language(text, likely)
    kind = _first(_KINDS, language, asked)
    if not kind and language in DEFINITION and DEFINITION[language][0].search(asked):
        kind = "definition"
    names = (*find_names(text, ""), *NUMBER.findall(text))
    words = tuple(dict.fromkeys(content_words(text, language)))
    either = _read_either(asked, language)
    expression = find_expression("focus", language)
    before = expression.search(asked) if expression else None
    focus = next(iter(content_words(asked[before.end() :].split()[0], language)), "") if before else ""
    asks = _first(("list", "count"), language, asked)
    overviews = (each.search(asked) for name in MODEL["overview"] if (each := find_expression("overview", name)))
    named = next((found[found.lastindex or 0] for found in overviews if found), "")
    about = frozenset(content_words(named, language))
    own = frozenset(content_words(asked, language)) if topic else frozenset[str]()
    return Question(text, language, words, kind, names, either, asks, focus, about, own)


def _read_either(asked: str, language: str) -> frozenset[str]:
    """The last word before "or" and the first behind it."""
    expression = find_expression("either", language)
    sign = expression.search(asked) if expression else None
    before = content_words(asked[: sign.start()], language) if sign else []
    behind = content_words(asked[sign.end() :], language) if sign else []
    return frozenset((before[-1], behind[0])) if before and behind else frozenset()


def find_names(text: str, language: str) -> list[str]:
    """The capitals inside of sentences; of German two or more that follow each other."""
    if language != "de":
        return [found[0] for found in _NAME.finditer(text)]
    runs = [[word for word in run[0].split() if fold(word) not in _FUNCTION["de"]] for run in _RUN.finditer(text)]
    return [word for run in runs if len(run) > 1 for word in run]


def content_words(text: str, language: str) -> list[str]:
    """The words that say something, folded, in order; text without spaces as pairs of characters, last."""
    rest, runs = split_runs(fold(text))
    function = _FUNCTION.get(language, _ANY_FUNCTION)
    words = [_stem(word) for word in WORD.findall(rest) if word not in function]
    for run in runs:
        for part in _UNSPACED.split(run):
            words += pairs_of(part) if part else []
    return words


def without(text: str, words: set[str], language: str) -> str:
    """The text without some of its content words: "How should be stored?" of "How should Ontrel be stored?"."""

    def keep(word: regex.Match[str]) -> str:
        own = content_words(word[0], language)
        return "" if own and words.issuperset(own) else word[0]

    return " ".join(WORD.sub(keep, text).split())


def _stem(word: str) -> str:
    if word.isascii():
        cut = SUFFIX.sub("", word)
        return cut if len(cut) > 2 else word
    return str(_ARTICLE.sub("", word))


def leans(question: str) -> bool:
    """Return True if the question needs the one before it to be understood; told of English and German questions, and
    of those with three words at most."""
    if OPENER.match(question):
        return True
    words = WORD.findall(question)
    if len(words) <= LEANING_WORDS_MAX and not any(word[0].isupper() or word[0].isdigit() for word in words[1:]):
        return True
    return not CONDITION.match(question) and bool(POINTING.search(EXPLETIVE.sub("", question)))


def rewrite(question: str, earlier: Sequence[str]) -> str:
    """The text that is searched for and asked: where the question leans on the one before it, that in a line above it,
    or what that leans on itself, unless it names a thing of its own ("And the deposit?").

    earlier: the questions as this gave them, in order. The same input gives the same text. Unchanged without an earlier
    question, and where the question names its own topic.
    """
    text = question.strip()
    if not text or not earlier or len(text) > QUESTION_CHARS_MAX or not leans(text):
        return text
    last, topic = read_follow_up(earlier[-1].strip())
    if not topic or _names_another(last) or _names_another(text):
        topic = _ask_same(last, topic) or last
    return f"{topic[-QUESTION_CHARS_MAX:]}\n{text}"


def _names_another(question: str) -> bool:
    """Whether it asks for another thing what was asked before: "And the deposit?", "And those of Ada?"."""
    is_other = OPENER.match(question) and not POINTING.search(_THOSE_OF.sub("", question))
    return bool(is_other and read_question(question).words)


def read_follow_up(text: str) -> tuple[str, str]:
    """(the question, what it leans on) of a text by `rewrite`; (text, "") of another."""
    topic, _, question = text.strip().rpartition("\n")
    return (question, topic) if topic and leans(question) else (text, "")


def split_questions(text: str) -> list[tuple[str, str]]:
    """[(question, topic)] of the questions in one, in order, where their words say where each begins; else the text
    alone. topic: the question before one that has no words of its own, or points back; else "". One that only names
    another thing ("And the deposit?") is asked as the one before it. The last one comes first where it follows another
    in this way; of a text by `rewrite` it stands alone."""
    question, before = read_follow_up(text)
    if before:
        same = _ask_same(question, before)
        return [(same or question, "" if same else before)]
    parts: list[tuple[str, str]] = []
    is_same = False
    for whole in _ASKED.split(text):
        for part in map(str.strip, _also(whole)):
            before = parts[-1][0] if parts else ""
            same = _ask_same(part, before)
            is_same = bool(same)
            is_leaning = _leans(part, before) if before and not same else False
            if same or is_leaning or len(part.split()) > 1:
                parts.append((same or part, before if is_leaning else ""))
    is_follow_up = len(parts) > 1 and (is_same or parts[-1][1]) and len(_ASKED.split(text)) > 1
    return [parts[-1], *parts[:-1]] if is_follow_up else parts or [(text, "")]


def _ask_same(part: str, before: str) -> str:
    """ "How much is the deposit?" of "And the deposit?" behind "How much is the rent?", "What is the fee for adults?"
    of "And for adults?" behind "What is the fee for pupils?"; "" for another part."""
    for language, (opener, asked) in _SAME.items():
        opening, question = opener.match(part), asked.match(before)
        rest = _THOSE_OF.sub("", part[opening.end() :].lstrip()) if opening else ""
        preposition = _PREPOSITION.match(rest)
        head, between, _ = before.rpartition(f" {preposition[0]} ") if preposition else ("", "", "")
        if between:
            return f"{head} {rest}"
        is_other = question and not preposition and (question["how"] or len(content_words(before, language)) == 1)
        if is_other and question and rest:
            return f"{question[0]} {rest}"
    return ""


def _leans(part: str, before: str) -> bool:
    """Whether it has no word of its own but asks for a kind of answer, or one at most and a pronoun."""
    question = read_question(part, detect_language(before))
    pronoun = find_expression("leans", question.language)
    is_pointing = bool(pronoun and pronoun.search(fold(part)))
    return bool(question.kind) if not question.words else is_pointing and len(question.words) == 1


def _also(text: str) -> list[str]:
    language = detect_language(text)
    difference, each = _DIFFERENCE.get(language, (None, ""))
    if difference and (found := difference.search(text)):
        return [each.format(thing) for thing in found.groups()]
    between = _ALSO.get(language)
    return between.split(text) if between else [text]


def are_contrasted(text: str, things: Sequence[Question]) -> bool:
    """Whether each of the things opens a clause that says something of it: "A plan decides, a run records"."""
    clauses = [content_words(clause, things[0].language) for clause in _CLAUSE.split(text)]
    return all(
        any(len(clause) > len(words) and (Matcher(words).match(clause[: len(words)]) > 0).all() for clause in clauses)
        for words in (thing.words for thing in things)
    )


MEASURES = {
    language: {_stem(fold(word)): frozenset(map(_stem, fold(nouns).split())) for word, nouns in each.items()}
    for language, each in MODEL["measures"].items()
}
_FORMS = [frozenset(map(_stem, fold(forms).split())) for forms in MODEL["irregular"]["forms"]]
_IRREGULAR = {form: forms - {form} for forms in _FORMS for form in forms}


def _overlap(pair: str, other: str) -> bool:
    """Whether two pairs of characters may follow each other in a text without spaces."""
    ends = any(pair.endswith(other[:length]) for length in range(1, len(other)))
    return ends and is_unspaced(pair) and is_unspaced(other)


class Matcher:
    """Which of a question's words a text holds: 1.0, or FORM_SHARE for another form that begins alike."""

    def __init__(
        self, words: Sequence[str], either: frozenset[str] = frozenset(), measures: str = "", compounds: bool = False
    ) -> None:
        """either: of these words one stands for all. measures: the language whose nouns stand for measures, "weight"
        for "heavy". compounds: a word counts too where a longer one ends with it, as "Gehalt" in "Bruttogehalt". Of an
        irregular verb every form stands for the others."""
        self.places = {word: place for place, word in enumerate(words)}
        self.tails = [word for word in words if compounds and len(word) >= TAIL]
        same = MEASURES.get(measures, {})
        self.others = {
            other: place
            for word, place in self.places.items()
            for other in (*same.get(word, ()), *_IRREGULAR.get(word, ()))
        }
        self.either = [self.places[word] for word in sorted(either)]
        self.beginnings: dict[str, list[int]] = {}
        for word, place in self.places.items():
            if len(word) > 2 and not any(map(str.isnumeric, word)):  # a number or a key has no other form
                least = max(4 if len(word) > 4 else 3, math.ceil(0.6 * len(word)))
                self.beginnings.setdefault(word[: min(least, max(PREFIX, 3))], []).append(place)
        self.lengths = sorted({len(beginning) for beginning in self.beginnings})
        self.linked = np.array([False, *(_overlap(*each) for each in pairwise(words))], dtype=bool)  # to the one before

    def match(self, words: Sequence[str]) -> np.ndarray:
        row = np.zeros(len(self.places))
        for word in words:
            place = self.places.get(word)
            if place is not None:
                row[place] = 1.0
            if (place := self.others.get(word)) is not None:
                row[place] = max(row[place], FORM_SHARE)
            for tail in self.tails:
                if word.endswith(tail) and word != tail:
                    row[self.places[tail]] = max(row[self.places[tail]], TAIL_SHARE)
            for length in self.lengths:
                for other in self.beginnings.get(word[:length], ()):
                    row[other] = max(row[other], FORM_SHARE)
        if self.either:
            row[self.either] = row[self.either].max()
        if self.linked[1:].any():  # a pair between two that are held: the end of one word and the start of the next
            held = row > 0
            row[1:-1] = np.maximum(row[1:-1], FORM_SHARE * (self.linked[1:-1] & self.linked[2:] & held[:-2] & held[2:]))
        return row

    def share(self, held: np.ndarray) -> np.ndarray:
        """For each word how much of its rarity counts: pairs of characters that are always held together, as those of
        a long name, are few words. held: a row per sentence."""
        joined = self.linked & held.any(axis=0)
        joined[1:] &= (held[:, 1:] == held[:, :-1]).all(axis=0)
        group = np.cumsum(~joined)
        return np.asarray(np.bincount(group)[group] ** -0.5)
