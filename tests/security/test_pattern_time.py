"""A text that is twice as long costs a rule twice the steps, also where the text was made to cost many."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from ragd.security import instructions
from tests.security.backtracking import TooManyStepsError, count_steps

FIRST = 300  # characters; a pattern that takes few steps for these is fast enough
SHORT, LONG = 600, 1200  # mostly beyond the bounded repeats of the rules
GROWTH_MAX = 2.7  # quadratic: 4
FEW_STEPS = 40 * FIRST
PIECES = (
    "[INST]", "ignore all ", "you are now ", "send the password to ", "the system prompt ", "a ", "a", " ", "\n\n",
    "# ", "#", "-",
)  # fmt: skip


def patterns() -> list[re.Pattern[str]]:
    rules = [rule for rule, _bits in instructions.read_rules()[1]]
    every = [each for rule in rules for each in (rule.pattern, *rule.parts, rule.unless)]
    return list(dict.fromkeys(each for each in every if each is not None))


@pytest.fixture(autouse=True)
def deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


def growth(pattern: re.Pattern[str], piece: str) -> float:
    """Steps of the long text for each of the short one; 1 where the first one costs few."""
    first, short, long = (piece * (length // len(piece)) for length in (FIRST, SHORT, LONG))
    if count_steps(pattern, first, limit=500_000) <= FEW_STEPS:
        return 1.0
    return count_steps(pattern, long) / count_steps(pattern, short)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", PIECES)
def test_steps_of_every_rule_grow_as_the_text_does(piece: str) -> None:
    slow = []
    for pattern in patterns():
        try:
            if growth(pattern, piece) > GROWTH_MAX:
                slow.append(pattern.pattern[:80])
        except TooManyStepsError:
            slow.append(pattern.pattern[:80])
    assert slow == []


@pytest.mark.parametrize(("pattern", "piece"), [(r"\s+$", " x "), (r"(?:^|\n)\s*system", "\n"), (r"(?:a|a)*b", "aa")])
def test_a_slow_pattern_would_be_seen(pattern: str, piece: str) -> None:
    text = piece * (FIRST // len(piece))
    if pattern == r"\s+$":
        text = " " * FIRST + "x"
    try:
        steps = count_steps(re.compile(pattern), text, limit=200_000)
    except TooManyStepsError:
        return
    assert steps > 4 * FEW_STEPS, steps
