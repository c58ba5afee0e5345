"""Whether a text says what a claim says, as far as rules and vectors can decide it without a language model.

One mechanism for all that asks it: the components of an expected answer in an answer, the sentences of an answer in the
expected one, a claim in the sentences of a chunk. What differs is how near a text has to be (`Limits`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from evaluation_app.judges.answer_features import NAME, NEGATION
from evaluation_app.judges.protocol import Vectors, share_in, stems_in

UNITS = "%|ms|s|min|h|days?|weeks?|months?|years?|[kKMGT]i?B|bytes|mg|kg|g|mm|cm|km|m|°C|°F"
QUANTITY = re.compile(rf"(?<![\w.,])(\d+(?:[.,]\d+)*)(?:\s?({UNITS})(?!\w)|(?!\w))")
NUMBER_WORDS = {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10",
}  # fmt: skip
# names with an underscore, files, assignments: RAGD_VAR, pg_dump, manage.py, PORT=8001
IDENTIFIER = re.compile(r"\w*[^\W_]_[^\W_]\w*|\b\w{2,}\.[a-z]{2,4}\b|\b[A-Za-z]\w+=\w+")


@dataclass(frozen=True, slots=True)
class Limits:
    """cosine, words: a text says what a claim says from this cosine on, or when it holds this share of the claim's
    content words. near: from this share on a text is the claim but for single words, and those decide. lenient: a
    quantity or identifier of the claim may be left out, but not be another one."""

    cosine: float
    words: float
    near: float = 0.7
    lenient: bool = False


STATES = Limits(0.85, 0.5)  # chosen by bench_noise
SUPPORTS = Limits(0.55, 0.5)  # of a sentence by its context: chosen by bench_correctness
HOLDS = Limits(0.4, 0.35, lenient=True)  # chosen by bench_correctness, so that few right answers are called wrong


def place_of(
    texts: Sequence[str], claim: str, vectors: Vectors, limits: Limits = STATES, given: str = ""
) -> int | None:
    """The index of the first text that says what the claim says; None for none.

    Its quantities (numbers with their units) and identifiers must stand in the texts, unless they are `given`, as by
    the question. A text that does not negate does not say what a claim with a negation says. Where a text differs from
    the claim in single words alone (`Limits.near`), it must also hold the claim's own quantities and negate as the
    claim does, and the texts must hold its names. Else its cosine or the share of the claim's content words decides; a
    claim without any needs the cosine. vectors: a unit vector per text and for the claim.
    """
    subject, readings = _read(claim), [_read(text) for text in texts]
    lowered = " ".join([given, *texts]).lower()
    missing = _lacks(subject.quantities, _read(given).quantities.union(*(each.quantities for each in readings)))
    if not limits.lenient and (missing or any(name.lower() not in lowered for name in subject.identifiers)):
        return None
    has_names = all(name.lower() in lowered for name in subject.names)
    for index, text in enumerate(readings):
        if missing and text.quantities - subject.quantities:
            continue  # it says another quantity
        if _says(text, subject, float(vectors[text.text] @ vectors[claim]), limits, has_names=has_names):
            return index
    return None


def states(texts: Sequence[str], claim: str, vectors: Vectors, limits: Limits = STATES, given: str = "") -> bool:
    """Whether `place_of` finds a text that says what the claim says."""
    return place_of(texts, claim, vectors, limits, given) is not None


@dataclass(frozen=True, slots=True)
class _Read:
    text: str
    words: tuple[str, ...]
    quantities: frozenset[tuple[str, str]]
    identifiers: frozenset[str]
    names: frozenset[str]
    negates: bool


@lru_cache(maxsize=4096)
def _read(text: str) -> _Read:
    return _Read(
        text=text,
        words=stems_in(text),
        quantities=frozenset(_quantities(text)),
        identifiers=frozenset(IDENTIFIER.findall(text)),
        names=frozenset(NAME.findall(text)),
        negates=bool(NEGATION.search(text)),
    )


def _quantities(text: str) -> Iterator[tuple[str, str]]:
    """(number without thousands commas, unit or ""); of number words too."""
    yield from ((number.replace(",", ""), unit) for number, unit in QUANTITY.findall(text))
    yield from ((NUMBER_WORDS[word], "") for word in re.findall(r"[a-z]+", text) if word in NUMBER_WORDS)


def _says(text: _Read, claim: _Read, cosine: float, limits: Limits, *, has_names: bool) -> bool:
    share = share_in(claim.words, set(text.words))
    if claim.negates and not text.negates:
        return False
    if share >= limits.near:
        differs = _lacks(claim.quantities, text.quantities) or text.negates != claim.negates or not has_names
        return not differs
    return cosine >= limits.cosine or (bool(claim.words) and share >= limits.words)


def _lacks(wanted: Iterable[tuple[str, str]], held: Set[tuple[str, str]]) -> bool:
    """Whether a quantity is missing. A number without a unit stands for the same one with any unit."""
    bare = {number for number, _ in held}
    return any(
        (number not in bare) if not unit else ((number, unit) not in held and (number, "") not in held)
        for number, unit in wanted
    )
