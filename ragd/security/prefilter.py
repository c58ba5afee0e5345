"""Which rules a text may concern at all: a rule is tried only where the words are that each of its matches has.

The words of a text are gone through once; what is asked for each rule is then whether two sets meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

WORD = re.compile(r"[^\W_]+")
ASCII_WORD = re.compile(r"[a-z0-9]+")
STARTS = (3, 4, 6)  # how many signs of a word are looked up


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """Lower-case texts of which one must be there, at the beginning of a word where it begins with a letter.

    starts: how the longest word of each text begins. others: the texts that begin with no ASCII word.
    """

    texts: tuple[str, ...]
    starts: frozenset[str]
    others: tuple[str, ...]


def needs_of(texts: Iterable[str]) -> Needs:
    """A text whose longest word has one or two signs needs that very word."""
    stored = tuple(texts)
    starts, others = set(), []
    for text in stored:
        words = ASCII_WORD.findall(text) if text.isascii() and ASCII_WORD.match(text.lstrip()) else []
        if words:
            longest = max(words, key=len)
            starts.add(longest[: max([size for size in STARTS if size <= len(longest)], default=len(longest))])
        else:
            others.append(text)
    return Needs(stored, frozenset(starts), tuple(others))


class Words:
    """The words of one text, for asking which needs it meets."""

    def __init__(self, text: str) -> None:
        self.lowered = text.lower()
        words = set(WORD.findall(self.lowered))
        self.starts = frozenset(word[:size] for size in STARTS for word in words)
        self._known: dict[Needs, bool] = {}

    def meet(self, needs: Needs) -> bool:
        known = self._known.get(needs)
        if known is None:
            known = self._known[needs] = self._look(needs)
        return known

    def _look(self, needs: Needs) -> bool:
        if self.starts.isdisjoint(needs.starts):
            return any(text in self.lowered for text in needs.others)
        return any(text in self.lowered for text in needs.texts)


class Index:
    """Which of many needs the words of a text may meet, as bits: a first look that is much quicker than asking each."""

    def __init__(self, needs: Iterable[Needs]) -> None:
        self._bits: dict[Needs, int] = {}
        self._by_start: dict[str, int] = {}
        self._open = 0  # needs that words alone do not decide
        for each in needs:
            if each in self._bits:
                continue
            bit = self._bits[each] = 1 << len(self._bits)
            if each.others:
                self._open |= bit
            for start in each.starts:
                self._by_start[start] = self._by_start.get(start, 0) | bit

    def bits(self, needs: Iterable[Needs]) -> int:
        return sum({self._bits[each] for each in needs})

    def look(self, words: Words) -> int:
        """The bits of the needs that may be met; one that is not among them is not met."""
        result = self._open
        known = self._by_start
        for start in words.starts:
            if start in known:
                result |= known[start]
        return result


def shared(lists: Iterable[Iterable[str]], known: dict[tuple[str, ...], Needs]) -> Iterator[Needs]:
    """The needs of each list, one object for equal lists, so that a text is asked once."""
    for texts in lists:
        key = tuple(texts)
        if key not in known:
            known[key] = needs_of(key)
        yield known[key]
