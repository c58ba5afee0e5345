"""Find where a text contradicts another one about the same thing: by small typed checks, no model.

    number    an amount, share or code that the source does not state, where it states another one of the kind
    date      the same of dates, weekdays and times of day
    period    "per hour" where the source says "per minute"
    name      a name that the source does not hold, where it has another one
    opposite  what the source denies, forbids or excepts is affirmed, or the other way round: negations and words of
              opposite meaning ("at least", "at most") are counted together, clause by clause

Every check says what the source has instead, and where the claim goes wrong. English and German.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from collections_app.domain.dates import Date
from collections_app.domain.quantities import PERIODS, Quantity, Stated, is_german
from retrieval_app.answers.readings import (
    AHEAD,
    BOUND_BEHIND,
    NEGATION,
    WORDS,
    Clause,
    Reading,
    are_equal,
    bound_before,
    content_words,
    holds_word,
    read,
    same_word,
    share_held,
)

Kind = Literal["number", "date", "period", "name", "opposite"]
_OPPOSITES = [
    (re.compile(rf"\b(?:{one})\b", re.IGNORECASE), re.compile(rf"\b(?:{other})\b", re.IGNORECASE))
    for one, other in WORDS["opposites"]
]
_INCLUDE, _EVEN, _CONDITION, _ALL, _PART, _OPEN, _WITHOUT, _NEED, _ABSENT = (
    re.compile(WORDS[name], re.IGNORECASE)
    for name in ("include", "even", "condition", "all", "part", "open", "without", "need", "absent")
)
_SINGLE = re.compile(r"\b(?:an?|one|eine?[nmr]?|single|einzige\w?)\s(?P<what>[^\W\d_]+)", re.IGNORECASE)
_JOINED = re.compile(
    r"\b(?:and|or|und|oder|sowie)\b(?!\s(?:more|longer|older|later|less|mehr|länger|älter|später))", re.IGNORECASE
)
_COMPARES = re.compile(r"\b(?:than|als)\b", re.IGNORECASE)
_HAVE = frozenset(WORDS["have"].split())
PERMITS = frozenset(WORDS["permits"].split())
_ASKS_ACTOR, _PASSIVE, _ADVERBIAL = (
    re.compile(WORDS[name], re.IGNORECASE) for name in ("asks_actor", "passive", "adverbial")
)
_ASKS_OBJECT = re.compile(r"(?:whom|wem|wen|who (?:did|does|do))\b", re.IGNORECASE)
_FROM, _TO = re.compile(r"\bfrom\b", re.IGNORECASE), re.compile(r"\bto\b", re.IGNORECASE)
_TOKEN = re.compile(r"\w+")
_PREFIXES = ("un", "in", "im", "ir", "il", "non", "non-", "dis", "de", "miss", "nicht")
_IN_TIME = re.compile(r"later|earlier|sooner|später|früher|eher", re.IGNORECASE)
_UP_TO = re.compile(r"\b(?:up to|until|till|bis)\b", re.IGNORECASE)
BOUND_BEHIND_CHARS = 40
MOST_PARTS = 48  # amounts, dates, codes, names and clauses: each is compared with each, and that many in no sentence
REPEATED = 0.5  # the share of a question's words from which an answer is a whole sentence


@dataclass(frozen=True, slots=True)
class Contradiction:
    """claim[start:end] is `said`; source: what the other text has instead, "" where it only denies."""

    kind: Kind
    start: int
    end: int
    said: str
    source: str


def share_side(one: str, claim: str, other: str, text: str) -> bool:
    """Whether a word of each text belongs to one side of a pair of opposite meaning: "disabled", "switched off"."""

    def stands(word: str, side: re.Pattern[str], whole: str) -> bool:
        return any(word in found[0].lower() for found in side.finditer(whole))

    return any(stands(one, side, claim) and stands(other, side, text) for words in _OPPOSITES for side in words)


def are_opposite(one: str, other: str) -> bool:
    """Whether two words, or few, are a pair of opposite meaning: "older", "younger"."""
    return any(
        side + other_side == 0
        for side, other_side in zip(_sides(one), _sides(other), strict=True)
        if side and other_side
    )


def changed_words(found: Contradiction, claim: Reading) -> tuple[str, ...]:
    """The words in which a claim contradicts another text, and which that text therefore cannot hold."""
    if found.kind == "opposite" and len(claim.clauses) == 1 and not _COMPARES.search(claim.text):
        patterns = (NEGATION, _ALL, *(side for sides in _OPPOSITES for side in sides))
        changed = content_words(" ".join(it[0] for pattern in patterns for it in pattern.finditer(claim.text)))
        return (*changed, *PERMITS.intersection(claim.words))
    return content_words(found.said) if found.kind in ("name", "period") else ()


def find_contradictions(claim: str, source: str, given: str = "") -> list[Contradiction]:
    """What of the claim the source contradicts. Both must be about the same thing: see the callers.

    given: a text whose quantities and names need not stand in the source, such as the question. Nothing is found where
    a text has more than MOST_PARTS of a kind, as rows of numbers do.
    """
    language = is_german(f"{claim} {source} {given}")
    said, reply, query = (read(text, language) for text in (claim, source, given))
    if any(_count_parts(each) > MOST_PARTS for each in (said, reply, query)):
        return []
    found = [
        *_numbers(said.stated, reply.stated, query.stated),
        *_exchanged(said, reply),
        *_periods(said, reply, query),
        *_other_names(said, reply, query),
    ]
    found.extend(_other_actors(said, reply, query))
    leads = lead_of(said, query), lead_of(reply, query)
    if (said.lead, reply.lead) != (None, None) and None not in leads and leads[0] != leads[1]:
        found.append(Contradiction("opposite", 0, len(claim), claim, source))
    found.extend(_counted_otherwise(said, reply))
    opposite = (
        _opposites(said, reply, query),
        _wrong_side(said, reply),
        _included(said, reply),
        _denied(said, reply, query),
        _narrowed(said, reply, query),
    )
    return [*found, *next((each for each in map(list, opposite) if each), ())]


def _count_parts(reading: Reading) -> int:
    return max(len(reading.facts), len(reading.stated.codes), len(reading.names), len(reading.clauses))


def lead_of(text: Reading, question: Reading) -> bool | None:
    """Yes or no; of a sentence that repeats a question without saying either, by whether it denies it."""
    if text.lead is not None or not question.words or _OPEN.match(question.text):
        return text.lead
    asked = question.clauses[0]
    clauses = [each for each in text.clauses if not each.is_exception and not each.is_only]
    leads = {
        (asked.negations + each.negations + _opposed((each, each), (asked, asked))) % 2 == 0
        for each in clauses
        if share_held(asked.words, each.words) >= REPEATED
    }
    first = clauses[0] if clauses else None
    if (
        not leads
        and first
        and (first.words or first.negations)
        and all(word in PERMITS or holds_word(asked.words, word) for word in first.words)
    ):
        leads = {(asked.negations + first.negations) % 2 == 0}  # "that is forbidden"
    return leads.pop() if len(leads) == 1 and not _WITHOUT.search(text.text) else None


def unstated(claim: Reading, sources: Sequence[Reading], given: Reading) -> list[Quantity | Date | str]:
    """Numbers, dates and codes of the claim that none of the sources states, and `given` does not either."""
    held = [*(each.stated for each in sources), given.stated]
    missing: list[Quantity | Date | str] = [
        one
        for one in claim.stated.quantities
        if not any(one.equals(two) for each in held for two in each.quantities)
        and not (one.interval and any(each.has_interval(one.interval) for each in held))
        and not (one == replace(one, value=1.0, unit="times") and any(claim.stated.periods & it.periods for it in held))
    ]
    missing += [one for one in claim.stated.dates if not any(one.equals(two) for each in held for two in each.dates)]
    missing += [
        code
        for code, _, _ in claim.stated.codes
        if not any(code in each.rest.lower() or code in _codes(each) for each in held)
    ]
    return missing


def _codes(stated: Stated) -> set[str]:
    return {code for code, _, _ in stated.codes}


def _numbers(said: Stated, reply: Stated, query: Stated) -> Iterator[Contradiction]:
    for one in said.quantities:
        if any(one.equals(two) for two in (*reply.quantities, *query.quantities)):
            continue
        others = [
            two for two in reply.quantities if one.is_like(two) and not any(two.equals(it) for it in said.quantities)
        ]
        others = [two for two in others if not any(two.equals(it) for it in query.quantities)]
        if others:
            yield Contradiction("number", one.start, one.end, one.text, others[0].text)
    for date in said.dates:
        if any(date.equals(two) for two in (*reply.dates, *query.dates)):
            continue
        rest = [
            two
            for two in reply.dates
            if date.is_like(two) and not any(two.equals(it) for it in (*said.dates, *query.dates))
        ]
        if rest:
            yield Contradiction("date", date.start, date.end, date.text, rest[0].text)
    yield from _reversed(said, reply)
    own, others_codes = _codes(said), _codes(reply) | _codes(query)
    for code, start, end in said.codes:
        strange = [other for other, _, _ in reply.codes if other not in own]
        if code not in others_codes and strange:
            yield Contradiction("number", start, end, code, strange[0])


def _wrong_side(said: Reading, reply: Reading) -> Iterator[Contradiction]:
    """An amount or date that one text gives as the earliest or least, the other one as the latest or most."""
    if (said.negations + reply.negations) % 2:
        return  # "from 50 %" and "less than 50 % is not enough"
    for one in said.facts:
        if others := _beyond(said, reply, one, reply.facts):
            yield Contradiction("opposite", one.start, one.end, one.text, others[0].text)


def _beyond(
    said: Reading, reply: Reading, one: Quantity | Date, facts: Sequence[Quantity | Date]
) -> list[Quantity | Date]:
    """Those that equal it, where all of them are limits on the other side."""
    side = _bound(said, one)
    others = [two for two in facts if are_equal(one, two)]
    return others if side and all(_bound(reply, two) == -side for two in others) else []


def _bound(reading: Reading, fact: Quantity | Date) -> int:
    """1 for "from 3 March" and "not before 3 March", -1 for "by 3 March", 0 for neither."""
    before = bound_before(reading.text, fact)
    found = before or BOUND_BEHIND.search(reading.text[fact.end : fact.end + BOUND_BEHIND_CHARS])
    if not found:
        return 0
    side = 1 if found["lower"] or found["later"] else -1
    if _is_ahead(reading, fact):
        if _UP_TO.search(found[0]):
            return 0  # "until three days before" and "up to three days before"
        side = -side if found["later"] or found["sooner"] or _IN_TIME.search(found[0]) else side
    return -side if before and before["denied"] else side


def _is_ahead(reading: Reading, fact: Quantity | Date) -> bool:
    is_duration = isinstance(fact, Quantity) and fact.unit in ("time", "months")
    return is_duration and bool(AHEAD.search(reading.text[fact.end :]))


def _exchanged(said: Reading, reply: Reading) -> Iterator[Contradiction]:
    """Two amounts that both texts state, each beside a word that the other text has beside the other amount."""
    ours, theirs = list(_beside(said)), list(_beside(reply))
    for fact, words in ours:
        for other, others in theirs:
            is_known = any(are_equal(fact, it) for it, _ in theirs) and any(are_equal(other, it) for it, _ in ours)
            if are_equal(fact, other) or not is_known:
                continue
            own = frozenset(word for it, held in ours if are_equal(it, other) for word in held)
            right = frozenset(word for it, held in theirs if are_equal(it, fact) for word in held)
            if any(holds_word(others, w) and not holds_word(own, w) and not holds_word(right, w) for w in words):
                yield Contradiction("number", fact.start, fact.end, fact.text, other.text)
                return


def _beside(reading: Reading) -> Iterator[tuple[Quantity | Date, tuple[str, ...]]]:
    """Each amount or date that stands alone in its part of an enumeration, with the words there."""
    start = 0
    starts, ends = {fact.start for fact in reading.facts}, {fact.end for fact in reading.facts}
    parts = _PART.finditer(reading.stated.rest)  # not "7 and 10 am"
    for match in [*(it for it in parts if it.end() + 1 not in starts or it.start() - 1 not in ends), None]:
        end = match.start() if match else len(reading.text)
        inside = [fact for fact in reading.facts if start <= fact.start < end]
        if len(inside) == 1:
            yield inside[0], content_words(reading.stated.rest[start:end])
        start = match.end() if match else end


def are_opposed(said: Reading, reply: Reading) -> bool:
    """Whether two texts of one clause differ by one pair of words of opposite meaning: "older", "younger"."""
    pairs = [(each.clauses[0], each.clauses[0]) for each in (said, reply) if len(each.clauses) == 1]
    return len(pairs) == 2 and _opposed(*pairs) == 1


def find_mixed(said: Reading, reply: Reading) -> tuple[str, str] | None:
    """Two words of one part of an enumeration that stand in different parts of the other text, each beside a word of
    another part: "malt from A and hops from B", "malt from B and hops from A"."""
    ours, theirs = ([content_words(part) for part in _PART.split(each.stated.rest)] for each in (said, reply))
    ours = [words for words in ours if len(words) > 1]
    for part in ours:
        rest = [word for words in ours if words is not part for word in words if not holds_word(part, word)]
        for one in part:
            for two in part:
                near = [words for words in theirs if holds_word(words, one)]
                far = [words for words in theirs if holds_word(words, two)]
                if one != two and near and far and not any(holds_word(words, two) for words in near):
                    if share_held(near[0], rest) and share_held(far[0], rest):
                        return one, two
    return None


def _reversed(said: Stated, reply: Stated) -> Iterator[Contradiction]:
    """Of two dates that both state, one after the other."""
    own, others = ([date for date in stated.dates if date.month or date.year] for stated in (said, reply))
    if len(own) != 2 or len(others) != 2:
        return
    (one, two), (first, last) = own, others
    if one.equals(last) and two.equals(first) and not one.equals(first):
        yield Contradiction("date", one.start, two.end, f"{one.text} - {two.text}", f"{first.text} - {last.text}")


def _periods(said: Reading, reply: Reading, query: Reading) -> Iterator[Contradiction]:
    if any(
        one.stated.has_interval(each) for one, two in ((said, reply), (reply, said)) for each in two.stated.intervals
    ):
        return
    own, others = (reading.stated.periods - query.stated.periods for reading in (said, reply))
    times = own & PERIODS, others & PERIODS
    if own and others and (not own & others or (all(times) and not times[0] & times[1])):
        yield Contradiction("period", 0, len(said.text), ", ".join(sorted(own)), ", ".join(sorted(others)))


def _other_names(said: Reading, reply: Reading, query: Reading) -> Iterator[Contradiction]:
    """A name that the source lacks, where it has one that the claim lacks."""
    low_told, low_known = reply.text.lower(), query.text.lower()
    low_said = said.text.lower()
    strange = [
        (name, start) for name, start in said.names if name.lower() not in low_told and name.lower() not in low_known
    ]
    others = [name for name, _ in reply.names if name.lower() not in low_said and name.lower() not in low_known]
    if strange and others:
        name, start = strange[0]
        yield Contradiction("name", start, start + len(name), name, others[0])


def _other_actors(said: Reading, reply: Reading, query: Reading) -> Iterator[Contradiction]:
    """Where the question asks who did it, and the source names them as the one to whom it was done."""
    if _ASKS_OBJECT.match(query.text) and said.words and not query.negations:
        theirs = _actor(reply, query)
        if reply.text != said.text and len(reply.words) > len(said.words) and share_held(said.words, theirs) == 1:
            if any(_is_asked(found, query, german=is_german(query.text)) for found in _TOKEN.findall(reply.text)):
                yield Contradiction("opposite", 0, len(said.text), said.text, reply.text)
        return
    if not _ASKS_ACTOR.match(query.text):
        return
    ours, theirs = (_actor(reading, query) for reading in (said, reply))
    if not ours or not theirs or not (share_held(ours, reply.words) or share_held(theirs, said.words)):
        return
    is_other = not share_held(ours, theirs)
    is_turned = any(
        _FROM.search(one.text) and _TO.search(two.text) and not (_TO.search(one.text) or _FROM.search(two.text))
        for one, two in ((said, reply), (reply, said))
    )  # A leases from B, B leases to A
    if is_other != is_turned:
        yield Contradiction("opposite", 0, len(said.text), said.text, reply.text)


def _actor(reading: Reading, question: Reading) -> tuple[str, ...]:
    """Content words of the one who acts: behind "by", else before the first word of the question; () for none."""
    german = is_german(f"{reading.text} {question.text}")
    asked = None
    for text in (clause.text.lstrip(" ,;") for clause in reading.clauses):
        asked = next((found for found in _TOKEN.finditer(text) if _is_asked(found[0], question, german=german)), None)
        if asked:
            break
    else:
        text = reading.text if len(reading.clauses) == 1 else ""
    if passive := _PASSIVE.search(text):
        named = text[passive.end() :]
    elif _ADVERBIAL.match(text):
        return ()
    else:
        named = text[: asked.start()] if asked else text
    if german:
        named = " ".join(token for token in _TOKEN.findall(named) if token[0].isupper())  # nouns
    words = content_words(named)
    is_open = text.lower().startswith(("die ", "das ")) and all(holds_word(question.words, word) for word in words)
    is_open = is_open and asked is not None and asked[0] in _TOKEN.findall(question.text)
    return () if is_open else words  # "Die Boote hat die Werft geliefert"


def _is_asked(token: str, question: Reading, *, german: bool | None) -> bool:
    if german:  # a verb
        return token.islower() and (token in _HAVE or _is_asked(token, question, german=False))
    return any(word[:4] == other[:4] for word in content_words(token) for other in question.words)  # "singt", "singen"


def _opposites(said: Reading, reply: Reading, query: Reading) -> Iterator[Contradiction]:
    """Each clause of the claim against the clause of the source that holds most of it; of equals one has to agree."""
    for clause in said.clauses:
        others = _nearest(clause, said, reply, query)
        if others and all(_differs(clause, other, said, reply, query) for other in others):
            start = clause.start + len(clause.text) - len(clause.text.lstrip(" ,;:"))
            end = clause.start + len(clause.text.rstrip())
            source = others[0].text.strip(" ,;:")
            yield Contradiction("opposite", start, end, clause.text.strip(" ,;:"), source)


def _differs(clause: Clause, other: Clause, said: Reading, reply: Reading, query: Reading) -> bool:
    ours, theirs = _complete(clause, said, query), _complete(other, reply, query)
    if clause.is_exception and other.is_exception:
        return False  # what they are excepted from is compared by itself
    if clause.is_exception != other.is_exception and _excepts_same(said, reply, query):
        return False
    if any(_NEED.search(one.text) and _ABSENT.search(two.text) for one, two in ((clause, other), (other, clause))):
        return False
    if clause.is_only != other.is_only:
        return _only_differs(ours, theirs, said, reply, query)
    beyond = sum(bool(_beyond(said, reply, one, _facts_in(reply, other))) for one in _facts_in(said, clause))
    opposed = min(_opposed((clause, ours), (other, theirs)), 1)  # "before it begins" and "after it ends" differ
    return (ours.negations + theirs.negations + beyond + opposed) % 2 == 1


def _excepts_same(said: Reading, reply: Reading, query: Reading) -> bool:
    """Whether both except the same thing: "all but X travel in Y" and "in Y, except X"."""
    ours, theirs = ([clause for clause in each.clauses if clause.is_exception] for each in (said, reply))
    return any(share_held(one.words - frozenset(query.words), two.words) for one in ours for two in theirs)


def _denied(said: Reading, reply: Reading, query: Reading) -> Iterator[Contradiction]:
    """What a clause of the source denies of what the claim says, and nothing else."""
    for clause in reply.clauses:
        new = [word for word in clause.words if not holds_word(query.words, word)]
        if clause.negations % 2 and not clause.is_exception and new and share_held(new, said.words) == 1:
            others = _nearest(clause, reply, said, query)
            if others and all(_differs(clause, other, reply, said, query) for other in others):
                yield Contradiction("opposite", 0, len(said.text), said.text, clause.text.strip(" ,;:"))


def _included(said: Reading, reply: Reading) -> Iterator[Contradiction]:
    """What one text excepts and the other one names as a part: "except X", "also X"."""
    for one, two in ((said, reply), (reply, said)):
        if _EVEN.search(two.text) and _CONDITION.search(one.text) and not _EVEN.search(one.text):
            yield Contradiction("opposite", 0, len(said.text), said.text, reply.text)
            return
        phrases = [content_words(found["what"]) for found in _INCLUDE.finditer(two.text)]
        for clause in one.clauses:
            if clause.is_exception and any(share_held(words, clause.words) > 0.5 for words in phrases):
                yield Contradiction("opposite", 0, len(said.text), said.text, reply.text)
                return


def _narrowed(said: Reading, reply: Reading, query: Reading) -> Iterator[Contradiction]:
    """ "Only X" where the other one says "X and Y"."""
    for one, two in ((said, reply), (reply, said)):
        only = next((clause for clause in one.clauses if clause.is_only and not clause.negations), None)
        if not only or any(clause.is_only or clause.is_exception for clause in two.clauses):
            continue
        held = [content_words(part) for part in _JOINED.split(two.stated.rest)]
        others = (*one.words, *query.words)
        new = [words for words in held if words and len(words) <= 2 and not share_held(words, others)]
        if len(held) > 1 and new and share_held(two.words, sorted(only.words)):
            yield Contradiction("opposite", 0, len(said.text), said.text, reply.text)
            return


def _counted_otherwise(said: Reading, reply: Reading) -> Iterator[Contradiction]:
    """ "One vote" where the other one says "three votes"."""
    for one, two in ((said, reply), (reply, said)):
        for single in _SINGLE.finditer(one.stated.rest):
            stem = content_words(single["what"])
            for each in two.stated.quantities:
                is_other = (
                    each.is_counted
                    and each.value != 1
                    and stem
                    and same_word(stem[0], content_words(each.unit + " ")[0] if content_words(each.unit) else each.unit)
                )
                if is_other and not any(each.equals(it) for it in one.stated.quantities):
                    yield Contradiction("number", 0, len(said.text), said.text, reply.text)
                    return


def _complete(clause: Clause, whole: Reading, question: Reading) -> Clause:
    """An answer that hardly repeats its question, with the question: "What is not covered?" - "Damage"."""
    denied = NEGATION.search(question.text)
    predicate = content_words(question.text[denied.end() :]) if denied else question.words
    if not question.words or share_held(predicate or question.words, clause.words) >= REPEATED:
        return clause
    if clause.is_exception:
        is_whole = share_held(predicate or question.words, whole.words) >= REPEATED
        return clause if is_whole else replace(clause, negations=clause.negations + question.negations)
    text, words = f"{question.text} {clause.text}", clause.words.union(question.words)
    # a denial that the answer repeats is one denial
    return replace(clause, text=text, words=words, negations=clause.negations or question.negations)


def _only_differs(one: Clause, two: Clause, said: Reading, reply: Reading, query: Reading) -> bool:
    """Of two clauses one of which says "only": that is "no other", so nothing else may be affirmed there."""
    only, other, whole = (one, two, reply) if one.is_only else (two, one, said)
    exceptions = [_complete(clause, whole, query) for clause in whole.clauses if clause.is_exception]
    if exceptions:
        return all(clause.negations % 2 for clause in exceptions) != bool(only.negations % 2)
    parts = [content_words(part) for part in _PART.split(one.text)] if two.is_only else []
    if any(words and not share_held(words, two.words) for words in parts):
        return True
    return (other.is_all and not other.negations) or bool((other.negations + only.negations) % 2)


def _nearest(clause: Clause, said: Reading, reply: Reading, query: Reading) -> list[Clause]:
    """The clauses of the source that are as much about the same as any: each holds half of what is new in the claim's,
    or its numbers."""
    likeness = [_likeness(clause, other, said, reply, query) for other in reply.clauses]
    best = max(likeness, default=0.0)
    near = [other for other, value in zip(reply.clauses, likeness, strict=True) if value >= best]
    return [other for other in near if _is_about(clause, other, said, reply, query)]


def _facts_in(reading: Reading, clause: Clause) -> list[Quantity | Date]:
    end = clause.start + len(clause.text)
    return [each for each in reading.facts if clause.start <= each.start < end]


def _count_shared(own: Sequence[Quantity | Date], others: Sequence[Quantity | Date]) -> int:
    """How many of them equal one of the others."""
    return sum(any(are_equal(one, two) for two in others) for one in own)


def _likeness(clause: Clause, other: Clause, said: Reading, reply: Reading, query: Reading) -> float:
    """Shared words, those that are not given counting more, and shared numbers."""
    words = sum(
        (1.0 if not holds_word(query.words, word) else 0.5)
        for word in sorted(clause.words)
        if holds_word(other.words, word)
    )
    own, others = _facts_in(said, clause), _facts_in(reply, other)
    return float(words) + _count_shared(own, others)


def _is_about(clause: Clause, other: Clause, said: Reading, reply: Reading, query: Reading) -> bool:
    new = [word for word in clause.words if not holds_word(query.words, word)]
    own, others = _facts_in(said, clause), _facts_in(reply, other)
    shared = _count_shared(own, others)
    if new or own:
        held = sum(holds_word(other.words, word) for word in new) + shared + _opposed((clause, clause), (other, other))
        return held >= 0.5 * (len(new) + len(own)) and held > 0
    return share_held(clause.words, other.words) >= 0.5


def _opposed(one: tuple[Clause, Clause], two: tuple[Clause, Clause]) -> int:
    """How many pairs of words of opposite meaning stand one on each side, and not both on one side. Each side as it is
    written, and with its question, which counts where the side itself has neither word."""
    count = 0
    for place in range(len(_OPPOSITES)):
        here, there = _side(place, one), _side(place, two)
        count += here + there == 0 and here != 0
    if count:
        return count
    own, others = one[0].words, two[0].words
    pairs = [(word, others) for word in own - others] + [(word, own) for word in others - own]
    return sum(any(f"{prefix}{word}" in words for prefix in _PREFIXES) for word, words in pairs)


def _side(place: int, clauses: tuple[Clause, Clause]) -> int:
    """Of the pair of words at that place: 1 for the first of them, -1 for the other, 0 for none or both."""
    for clause in clauses if place else clauses[:1]:  # "after" of a question is of something else
        if (side := _sides(clause.text)[place]) is not None:
            return side
    return 0


@lru_cache(maxsize=8192)
def _sides(text: str) -> tuple[int | None, ...]:
    """For each pair of words: which of them the text has, as `_side` says it; None for neither."""
    has = [(bool(one.search(text)), bool(other.search(text))) for one, other in _OPPOSITES]
    return tuple(one - other if one or other else None for one, other in has)
