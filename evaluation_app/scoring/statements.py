"""Whether a text says what a claim says, as far as rules and vectors can decide it without a language model.

One mechanism for all that asks it: the components of an expected answer in an answer, the sentences of an answer in the
expected one, a claim in the sentences of a chunk. What differs is how near a text has to be (`Limits`). What a text
contradicts (`contradictions`) it never says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from collections_app.domain.quantities import is_german
from evaluation_app.judges.protocol import Vectors
from retrieval_app.answerers.contradictions import (
    Reading,
    find_contradictions,
    find_substitutions,
    holds_word,
    lead_of,
    read,
    share_held,
    unstated,
)

# names with an underscore, files, assignments: RAGD_VAR, pg_dump, manage.py, PORT=8001
IDENTIFIER = re.compile(r"\w*[^\W_]_[^\W_]\w*|\b\w{2,}\.[a-z]{2,4}\b|\b[A-Za-z]\w+=\w+")
TOKEN = re.compile(r"\w+")
ASKS_QUANTITY = re.compile(
    r"\b(?:how (?!do|does|did|is|are|can|to|come)\w+|when|wann|was kostet|an welchem|(?:bis|ab|seit) wie|welcher frist"
    r"|(?:what|which) (?:time|date|year|day|percentage|share|price|amount|number|temperature|size|speed|delay|age)"
    r"|wie (?:viele?|lange|oft|hoch|groß|schwer|teuer|weit|breit|tief|schnell|alt|früh|spät|warm|häufig)"
    r"|welche[rsnm]? (?:temperatur|datum|tag|jahr|frist|anzahl|zahl|preis|summe|grenze|gleis|dauer))\b",
    re.IGNORECASE,
)
SURE_COSINE = 0.75  # of a short claim none of whose words the text holds
SYNONYMS, SURE_SYNONYMS = 0.5, 0.7  # cosine of two words that may stand for each other
LIKE_FACTS = 0.5  # cosine of a text that states all numbers and dates of a claim
LIKE_WORDS = 0.5  # the same of each word of a short claim and one of the text, in texts that are alike (`Limits.short`)
SHORT_WORDS = 4  # content words of a claim of which a cosine alone says little


@dataclass(frozen=True, slots=True)
class Limits:
    """cosine, words: a text says what a claim says from this cosine on, or when it holds this share of the claim's
    content words. short: the cosine of a claim of few words. about: the least share of its words in a text that can
    contradict it. lenient: a quantity or identifier of the claim may be left out."""

    cosine: float
    words: float
    short: float = 0.85
    about: float = 0.0
    lenient: bool = False


STATES = Limits(0.85, 0.5, about=0.6)  # chosen by bench_noise
SUPPORTS = Limits(0.55, 0.5, short=0.75, about=0.6)  # of a sentence by its context: chosen by bench_correctness
SAYS = Limits(0.85, 0.5)  # of an expected answer by an answer
HOLDS = Limits(0.4, 0.35, short=0.6, lenient=True)  # chosen by bench_correctness, so that few right answers are wrong


class Found(NamedTuple):
    """place: of the first text that says what the claim says, None for none; of a text that contradicts it."""

    place: int | None
    contradicted_by: int | None


def find_claim(
    texts: Sequence[str],
    claim: str,
    vectors: Vectors,
    limits: Limits = STATES,
    given: str = "",
    *,
    likeness: Callable[[str, str], float] | None = None,
) -> Found:
    """Look for a claim in texts.

    Its quantities, dates and identifiers must stand in the texts, unless they are `given`, as by the question. A text
    that contradicts the claim does not say it. One that holds the words of the claim in a row says it. Else the share
    of its content words that are not given decides, or its cosine; a claim all of whose words are given, or that is a
    quantity that was asked for, needs its quantities alone. vectors: a unit vector per text and for the claim.
    likeness: cosine of two words; with it a text that has another word in the place of one of the claim's contradicts
    it.
    """
    language = is_german(" ".join((given, claim, *texts)))
    subject, question = read(claim, language), read(given, language)
    readings = [read(text, language) for text in texts]
    lowered = " ".join([given, *texts]).lower()
    missing = bool(unstated(subject, readings, question))
    identifiers = all(name.lower() in lowered for name in IDENTIFIER.findall(claim))
    contradicted = None
    for index, text in enumerate(readings):
        is_about = not limits.about or share_held(subject.words, text.words) >= limits.about
        if (is_about and find_contradictions(claim, text.text, given)) or (
            likeness and _is_swapped(subject, text, question, likeness)
        ):
            contradicted = index if contradicted is None else contradicted
            continue
        if not limits.lenient and (missing or not identifiers):
            continue
        cosine = float(vectors[text.text] @ vectors[claim])
        if _says(text, subject, question, cosine, limits, missing=missing):
            return Found(index, None)
        if limits.lenient and likeness and not missing and cosine >= limits.short:
            if _is_worded_alike(subject, text, question, likeness):
                return Found(index, None)
    return Found(None, contradicted)


def place_of(
    texts: Sequence[str], claim: str, vectors: Vectors, limits: Limits = STATES, given: str = ""
) -> int | None:
    """The index of the first text that says what the claim says; None for none."""
    return find_claim(texts, claim, vectors, limits, given).place


def states(texts: Sequence[str], claim: str, vectors: Vectors, limits: Limits = STATES, given: str = "") -> bool:
    """Whether `place_of` finds a text that says what the claim says."""
    return place_of(texts, claim, vectors, limits, given) is not None


@lru_cache(maxsize=8192)
def _tokens(text: str) -> str:
    return f" {' '.join(TOKEN.findall(text.lower()))} "


def _is_swapped(claim: Reading, text: Reading, question: Reading, likeness: Callable[[str, str], float]) -> bool:
    """Whether a short claim, each word of which counts, has another word in the text."""
    new = [word for word in claim.words if not holds_word(question.words, word)]
    if len(new) > SHORT_WORDS or claim.lead is not None or len(claim.facts) > 1:
        return False
    least = SYNONYMS if len(new) == SHORT_WORDS or is_german(claim.text) else SURE_SYNONYMS
    pairs = find_substitutions(claim, text, question)
    return any(likeness(_written(one, claim), _written(other, text)) < least for one, other in pairs)


def _is_worded_alike(claim: Reading, text: Reading, question: Reading, likeness: Callable[[str, str], float]) -> bool:
    """Whether each new word of a short claim stands in the text, or one of nearly its meaning."""
    new = [word for word in claim.words if not holds_word(question.words, word)]
    return 0 < len(new) <= SHORT_WORDS and all(
        holds_word(text.words, word)
        or any(likeness(_written(word, claim), _written(other, text)) >= LIKE_WORDS for other in text.words)
        for word in new
    )


def _written(word: str, reading: Reading) -> str:
    """A stem as the text has it."""
    return next((token for token in TOKEN.findall(reading.text.lower()) if token.startswith(word)), word)


def _says(text: Reading, claim: Reading, question: Reading, cosine: float, limits: Limits, *, missing: bool) -> bool:
    if _tokens(claim.text) in _tokens(text.text):
        return True
    new = [word for word in claim.words if not holds_word(question.words, word)]
    adds = [word for word in text.words if not holds_word(question.words, word)]
    if claim.lead is not None and claim.lead == lead_of(text, question) and not (new and adds):
        return True
    if missing and len(new) < 2:
        return False
    if any(
        clause.is_exception and (words := clause.words.intersection(new)) and not share_held(words, text.words)
        for clause in claim.clauses
    ):
        return False
    facts = claim.stated.quantities or claim.stated.dates or claim.stated.codes
    has_facts = bool(facts or claim.stated.periods & text.stated.periods) and not missing
    if has_facts and (not new or ASKS_QUANTITY.search(question.text) or (limits.lenient and cosine >= LIKE_FACTS)):
        return True
    share = share_held(new or claim.words, text.words)
    if not share and (missing or len(claim.words) <= SHORT_WORDS):
        return cosine >= limits.cosine and cosine >= SURE_COSINE
    least = limits.cosine if len(claim.words) > SHORT_WORDS else max(limits.short, limits.cosine)
    if len(claim.words) < 3:
        least = STATES.cosine
    return cosine >= least or (bool(claim.words) and share >= limits.words)
