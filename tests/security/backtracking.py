"""How many steps a backtracking matcher takes for a pattern and a text: a count that no load of the machine changes.

It tries what `re` tries, in the same order, without its short cuts, so it counts too many steps rather than too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

CATEGORIES = {
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_WORD: lambda character: character.isalnum() or character == "_",
}
OPPOSITES = {
    sre.CATEGORY_NOT_DIGIT: sre.CATEGORY_DIGIT,
    sre.CATEGORY_NOT_SPACE: sre.CATEGORY_SPACE,
    sre.CATEGORY_NOT_WORD: sre.CATEGORY_WORD,
}
SINGLE = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)


class TooManyStepsError(Exception):
    """The search took more than its limit."""


class Matcher:
    """steps: characters that were looked at, since the start."""

    def __init__(self, pattern: str, flags: int, limit: int) -> None:
        self.tree = parser.parse(pattern, flags & ~re.DEBUG)
        self.flags, self.limit, self.steps = self.tree.state.flags | flags, limit, 0

    def find_all(self, text: str) -> int:
        """The number of matches, as `finditer` goes from one to the next."""
        self.text = text.lower() if self.flags & re.IGNORECASE else text
        place = found = 0
        while place <= len(text):
            end = next(self.walk(list(self.tree), place, {}), None)
            found += end is not None
            place = place + 1 if end is None or end == place else end
        return found

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise TooManyStepsError

    def fits(self, op: Any, value: Any, place: int, flags: int) -> bool:
        """Whether one character fits."""
        self.step()
        if place >= len(self.text):
            return False
        character = self.text[place]
        if op is sre.ANY:
            return bool(flags & re.DOTALL) or character != "\n"
        if op is sre.LITERAL or op is sre.NOT_LITERAL:
            wanted = chr(value).lower() if self.flags & re.IGNORECASE else chr(value)
            return (character == wanted) is (op is sre.LITERAL)
        negated = value[0][0] is sre.NEGATE
        return any(self.belongs(item, character) for item in value[negated:]) is not negated

    def belongs(self, item: tuple[Any, Any], character: str) -> bool:
        kind, value = item
        forms = {character, character.upper()} if self.flags & re.IGNORECASE else {character}
        if kind is sre.LITERAL:
            return any(ord(form) == value for form in forms if len(form) == 1)
        if kind is sre.RANGE:
            return any(value[0] <= ord(form) <= value[1] for form in forms if len(form) == 1)
        if value in OPPOSITES:
            return not CATEGORIES[OPPOSITES[value]](character)
        return bool(CATEGORIES[value](character))

    def walk(self, nodes: Sequence[Any], place: int, groups: dict[int, tuple[int, int]]) -> Iterator[int]:
        """The places where the nodes may end, in the order of `re`."""
        if not nodes:
            yield place
            return
        (op, value), rest = nodes[0], nodes[1:]
        if op in SINGLE:
            if self.fits(op, value, place, self.flags):
                yield from self.walk(rest, place + 1, groups)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, most, inner = value
            yield from self.repeat(op, list(inner), least, most, rest, place, groups)
        elif op is sre.BRANCH:
            for branch in value[1]:
                yield from self.walk([*branch, *rest], place, groups)
        elif op is sre.SUBPATTERN:
            number, _, _, inner = value
            for end in self.walk(list(inner), place, groups):
                yield from self.walk(rest, end, groups | ({number: (place, end)} if number else {}))
        elif op is sre.ATOMIC_GROUP:
            if (end := next(self.walk(list(value), place, groups), None)) is not None:
                yield from self.walk(rest, end, groups)
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            if self.looks(value, place, groups) is (op is sre.ASSERT):
                yield from self.walk(rest, place, groups)
        elif op is sre.GROUPREF:
            start, end = groups.get(value, (0, -1))
            self.step()
            if end >= start and self.text.startswith(self.text[start:end], place):
                yield from self.walk(rest, place + end - start, groups)
        elif op is sre.AT:
            self.step()
            if self.stands(value, place):
                yield from self.walk(rest, place, groups)
        else:
            raise NotImplementedError(str(op))

    def repeat(
        self, op: Any, inner: list[Any], least: int, most: Any, rest: Sequence[Any], place: int, groups: Any
    ) -> Iterator[int]:
        most = len(self.text) + 1 if most is sre.MAXREPEAT else most
        if len(inner) == 1 and inner[0][0] in SINGLE:
            yield from self.repeat_single(op, inner[0], least, most, rest, place, groups)
            return

        def again(count: int, where: int) -> Iterator[int]:
            enough = count >= least
            if op is sre.MIN_REPEAT and enough:
                yield from self.walk(rest, where, groups)
            if count < most:
                for end in self.walk(inner, where, groups):
                    if end > where or count < least:
                        yield from again(count + 1, end)
            if op is not sre.MIN_REPEAT and enough:
                yield from self.walk(rest, where, groups)

        yield from again(0, place)

    def repeat_single(
        self, op: Any, node: Any, least: int, most: int, rest: Sequence[Any], place: int, groups: Any
    ) -> Iterator[int]:
        """Without recursion: repeats of one character are as long as the text."""
        count = 0
        if op is sre.MIN_REPEAT:
            while True:
                if count >= least:
                    yield from self.walk(rest, place + count, groups)
                if count >= most or not self.fits(*node, place + count, self.flags):
                    return
                count += 1
        while count < most and self.fits(*node, place + count, self.flags):
            count += 1
        for taken in range(count, least - 1, -1):
            yield from self.walk(rest, place + taken, groups)
            if op is sre.POSSESSIVE_REPEAT:
                return

    def looks(self, value: Any, place: int, groups: Any) -> bool:
        direction, inner = value
        if direction > 0:
            return next(self.walk(list(inner), place, groups), None) is not None
        width = inner.getwidth()[0]
        return place >= width and next(self.walk(list(inner), place - width, groups), None) == place

    def stands(self, where: Any, place: int) -> bool:
        before = self.text[place - 1] if place else ""
        after = self.text[place] if place < len(self.text) else ""
        if where in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY):
            is_word = CATEGORIES[sre.CATEGORY_WORD]
            differs = bool(before and is_word(before)) is not bool(after and is_word(after))
            return differs is (where is sre.AT_BOUNDARY)
        lines = bool(self.flags & re.MULTILINE)
        if where is sre.AT_BEGINNING:
            return not before or (lines and before == "\n")
        if where is sre.AT_END:
            return not after or (place == len(self.text) - 1 and after == "\n") or (lines and after == "\n")
        return not before if where is sre.AT_BEGINNING_STRING else not after


def count_steps(pattern: re.Pattern[str], text: str, limit: int = 10_000_000) -> int:
    """Raises TooManyStepsError above the limit."""
    matcher = Matcher(pattern.pattern, pattern.flags, limit)
    matcher.find_all(text)
    return matcher.steps
