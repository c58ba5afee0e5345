"""The patterns and words of the rules, which stand in TOML files beside this module.

Which rules a text may concern at all: a rule is tried only where the words are that each of its matches has.

The words of a text are gone through once; what is asked for each rule is then whether two sets meet.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

FRAGMENT = re.compile(r"<<([A-Z_]+)>>")


@dataclass(frozen=True, slots=True)
class RuleFile:
    """tables: all of the file. patterns: those of its table `patterns`, compiled, by name. words: its table `words`.

    A pattern is a text, or a list of pieces that are joined; <<NAME>> in it stands for an entry of `fragments`.
    """

    tables: Mapping[str, Any]
    patterns: Mapping[str, re.Pattern[str]]
    words: Mapping[str, tuple[str, ...]]

    def compile(self, pattern: str | list[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
        return _compile(self.tables, pattern, flags)


def read_rule_file(name: str) -> RuleFile:
    tables = tomllib.loads(files("ragd.security").joinpath(name).read_text("utf-8"))
    patterns = {key: _compile(tables, pattern) for key, pattern in tables["patterns"].items()}
    return RuleFile(tables, patterns, {key: tuple(words) for key, words in tables.get("words", {}).items()})


def _compile(tables: Mapping[str, Any], pattern: str | list[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    text = "".join(pattern)
    while FRAGMENT.search(text):
        text = FRAGMENT.sub(lambda match: "".join(tables["fragments"][match[1]]), text)
    return re.compile(text, flags)


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
