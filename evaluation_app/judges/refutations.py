"""Which sentences of an answer their context contradicts, by the typed checks of `contradictions`.

A sentence that cites is compared with what it cites, another one with the sentences of the context that hold most of
its words. It is refuted where the nearest of them contradicts it and no sentence of the context supports it; where only
a sentence that it does not cite supports it, its citation is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from collections_app.domain.quantities import is_german
from evaluation_app.measures.scores import Sentence
from retrieval_app.answers.contradictions import (
    Contradiction,
    Kind,
    are_opposite,
    changed_words,
    find_contradictions,
    unstated,
)
from retrieval_app.answers.readings import NEGATION, Reading, are_equal, read, share_held

CHANGED, FRAME, COPY_MAX = 2, 5, 120  # words; see `changes_in_copy`
BESIDE = 12  # characters
ALIKE = 0.75  # of the letters of two names that are one
TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W_]+(?:['\u2019][^\W_]+)?")
NEAREST = 3  # sentences of the context that one of the answer is compared with
# Share of the sentence's content words that a sentence of the context must hold to be about the same thing.
ABOUT: dict[Kind, float] = {"number": 0.6, "date": 0.6, "period": 0.75, "name": 0.85, "opposite": 0.9}
LEAST = 0.5  # the same with the words in which both differ
BARE = 0.85  # the same where a number has no unit: it may number a list
WORDS_MAX = 12  # content words of a sentence whose negation and names are compared: a longer one joins several claims
ELSEWHERE = 0.4  # the same of one that states the number: below, it speaks of something else


@dataclass(frozen=True, slots=True)
class Refutation:
    """contradictions: of the sentence's text. source_key: of the sentence that contradicts it. is_miscited: another
    sentence of the context supports it, so that only its citation is wrong."""

    contradictions: tuple[Contradiction, ...]
    source_key: str
    is_miscited: bool = False


def refute(
    sentence: Sentence, context: Sequence[Sequence[Sentence]], cited: Sequence[int] = (), question: str = ""
) -> Refutation | None:
    """None for a sentence that nothing contradicts. cited: places in the context of the documents that it cites."""
    claim, given = read(sentence.text), read(question)
    if not claim.words and not claim.stated.quantities and not claim.stated.dates:
        return None
    shares = [
        (share_held(claim.words, read(each.text).words) if claim.words else 1.0, place, each)
        for place, document in enumerate(context)
        for each in document
    ]
    ranked = sorted(shares, key=lambda item: -item[0])
    own = [item for item in ranked if item[1] in cited] if cited else ranked
    refuted = next(filter(None, (_contradict(claim, item, own, given) for item in own[:NEAREST])), None)
    if refuted is None or any(_supports(claim, read(each.text), given, share) for share, _, each in own):
        return None
    supported = any(_supports(claim, read(each.text), given, share) for share, _, each in ranked)
    return Refutation(*refuted, is_miscited=supported)


def _contradict(
    claim: Reading, near: tuple[float, int, Sentence], ranked: Sequence[tuple[float, int, Sentence]], given: Reading
) -> tuple[tuple[Contradiction, ...], str] | None:
    share, _, source = near
    if share < LEAST:
        return None
    other = read(source.text)
    found = [
        each
        for each in find_contradictions(claim.text, source.text, given.text)
        if max(share, _share_beside(each, claim, other)) >= _least(each, claim)
        and not _said_elsewhere(each, share, ranked)
    ]
    for each in changes_in_copy(claim.text, source.text):
        is_told = any(one.start < each.end and each.start < one.end for one in found)
        if not is_told and not _is_copied(each, claim.text, ranked):
            found.append(each)
    return (tuple(found), source.key) if found else None


def _is_copied(found: Contradiction, claim: str, ranked: Sequence[tuple[float, int, Sentence]]) -> bool:
    """Whether another sentence has the words with what stands beside them."""
    tokens = [each[0] for each in _tokens(claim) if found.start - BESIDE <= each[1] and each[2] <= found.end + BESIDE]
    wanted = f" {' '.join(tokens)} "
    return any(wanted in f" {' '.join(each[0] for each in _tokens(item.text))} " for *_, item in ranked)


def _differences(claim: Reading, source: Reading, given: Reading) -> list[Contradiction]:
    return [*find_contradictions(claim.text, source.text, given.text), *changes_in_copy(claim.text, source.text)]


def changes_in_copy(claim: str, source: str) -> Iterator[Contradiction]:
    """Facts that stand in the claim for others of the source, between words that both have in the same order: a number,
    a name, a word of opposite meaning, a negation that one of them lacks. Of at most CHANGED words, with at least
    FRAME equal words around it, so that it may be a part of a long sentence."""
    own, others = _tokens(claim), _tokens(source)
    if max(len(own), len(others)) > COPY_MAX:
        return
    matcher = SequenceMatcher(None, [each[0] for each in own], [each[0] for each in others], autojunk=False)
    steps = matcher.get_opcodes()
    for place, (what, first, last, begin, end) in enumerate(steps):
        frame = sum(each[2] - each[1] for each in steps[place - 1 : place] + steps[place + 1 : place + 2])
        if what == "equal" or max(last - first, end - begin) > CHANGED or frame < FRAME:
            continue
        if kind := _kind_of_change(own[first:last], others[begin:end], opens=first == 0):
            near = own[first:last] or own[first - 1 : last + 1]  # where it lacks a negation: the words beside it
            start, stop = near[0][1], near[-1][2]
            instead = source[others[begin][1] : others[end - 1][2]] if end > begin else ""
            yield Contradiction(kind, start, stop, claim[start:stop], instead)


Token = tuple[str, int, int, str]


@lru_cache(maxsize=8192)
def _tokens(text: str) -> tuple[Token, ...]:
    """(lower case, start, end, as written)."""
    return tuple((it[0].lower(), it.start(), it.end(), it[0]) for it in TOKEN.finditer(text))


def _kind_of_change(own: Sequence[Token], others: Sequence[Token], *, opens: bool) -> Kind | None:
    said, given = ([each[0] for each in tokens] for tokens in (own, others))
    denials = [any(NEGATION.fullmatch(word) for word in words) for words in (said, given)]
    if denials[0] != denials[1]:  # at the beginning it answers: "No, it is"
        return "opposite" if not opens and len(said if denials[0] else given) == 1 else None
    if any(map(_has_digit, said)) and any(map(_has_digit, given)):
        return "number"
    if are_opposite(" ".join(said), " ".join(given)):
        return "opposite"
    if opens or not own or not others or not all(each[3][0].isupper() for each in (*own, *others)):
        return None
    return None if any(are_forms(one[3], two[3]) for one in own for two in others) else "name"


def are_forms(one: str, other: str) -> bool:
    """Whether two names may be one: spelt alike, or short for the other, which begins with its first letter."""
    short, long = sorted((one, other), key=len)
    is_short_form = short.removesuffix("'s").removesuffix("s").isupper() and short[0] == long[0]
    return is_short_form or SequenceMatcher(None, one.lower(), other.lower()).ratio() >= ALIKE


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _share_beside(found: Contradiction, claim: Reading, source: Reading) -> float:
    """The share that the source holds of the claim's words in which they do not differ; 0 where too few are left."""
    changed = changed_words(found, claim)
    rest = [word for word in claim.words if word not in changed]
    shared = sum(any(are_equal(one, two) for two in source.facts) for one in claim.facts)
    return share_held(rest, source.words) if rest and len(rest) + shared > 1 else 0.0


def _least(found: Contradiction, claim: Reading) -> float:
    """The share of the claim's words that a sentence must hold to refute it so; above 1 for never."""
    if found.kind in ("opposite", "name") and len(claim.words) > WORDS_MAX:
        return 2.0
    amounts = read(found.said).stated.quantities if found.kind == "number" else ()
    return BARE if any(not each.unit for each in amounts) else ABOUT[found.kind]


def _said_elsewhere(found: Contradiction, share: float, ranked: Sequence[tuple[float, int, Sentence]]) -> bool:
    """Whether a number or name stands in a sentence of the context that is about the same as well."""
    if found.kind not in ("number", "date", "name"):
        return False
    wanted = read(found.said, is_german(found.said))
    pattern = re.compile(rf"(?<![\w.,\-\u2212]){re.escape(found.said)}(?!\w|[.,]\d)", re.IGNORECASE)
    return any(
        other >= min(ELSEWHERE, share) and (pattern.search(each.text) or _states(wanted, read(each.text)))
        for other, _, each in ranked
    )


def _states(wanted: Reading, source: Reading) -> bool:
    stated = wanted.stated
    return bool(stated.quantities or stated.dates or stated.codes) and not unstated(wanted, [source], read(""))


def _supports(claim: Reading, source: Reading, given: Reading, share: float) -> bool:
    """Whether the sentence says nearly all of the claim, and contradicts none of it."""
    return share >= ABOUT["number"] and not unstated(claim, [source], given) and not _differences(claim, source, given)
