"""The list "codes" of a hybrid search: chunks that hold a number or a code of the query that hardly any other holds.

A key such as "AK-0201234" decides by itself which row of a sheet is asked for. The lexical list puts its chunk first;
the vector list, to which the rows of a sheet are all alike, holds it or does not by chance, and chunks in the middle of
both lists would pass it. So a chunk with a code of the query stands in one list more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ragd.types import CODES, HOP_LISTS, LISTS, Candidate, ListRank, RetrievePlan

CHARS_MIN = 3  # of a code
CHUNKS_MAX = 3  # of the lexical list that hold it: more, and it says little
CODES_MAX = 20  # of one question
HOP_WEIGHT = 0.97

# Letters of scripts that set blanks between words, and digits; parts that a sign joins are one code.
_SIGN = "0-9A-Za-z\u00c0-\u024f\u0370-\u052f"
_DIGITS = re.compile("[0-9]+")
_CODE = re.compile(rf"[{_SIGN}]+(?:[-./_:][{_SIGN}]+)*")


def add_codes(
    text: str, lists: Mapping[str, Sequence[Candidate]], plan: RetrievePlan
) -> dict[str, Sequence[Candidate]]:
    """The lists of a hybrid search, and as "codes" those of the lexical list that hold a code of the query.

    A code has a digit and three characters or more; one that more than three chunks of the list hold does not count.
    The order and the scores are those of the lexical list. No such list where none does, or where the plan gives it or
    the lexical list no weight. It counts 1 in the fusion where the plan says nothing.
    """
    if len(lists) < 2 or not plan.weights["lexical"] or not plan.weights.get(CODES, 1.0):
        return dict(lists)
    codes = codes_of(text)
    if not codes:
        return dict(lists)
    found = _holding(codes, lists["lexical"])
    holders = [candidate for candidate in lists["lexical"] if candidate.key in found]
    listed = [replace(each, ranks={CODES: ListRank(rank, each.score)}) for rank, each in enumerate(holders, 1)]
    return {**lists, CODES: listed} if listed else dict(lists)


def weights_of(lists: Iterable[str], plan: RetrievePlan) -> dict[str, float]:
    """What each of the lists counts in the fusion of the plan."""
    return list_weights(lists, plan.weights)


def list_weights(lists: Iterable[str], stated: Mapping[str, float]) -> dict[str, float]:
    """1 where nothing is stated. A list of a hop counts as the lists of the first retrieval do together, and a little
    less: its first chunk comes behind their first two."""
    names = list(lists)
    weights = {name: float(stated.get(name, 1.0)) for name in names if name not in HOP_LISTS}
    first = math.fsum(weights[name] for name in LISTS if name in weights) or 1.0
    return weights | {name: first * HOP_WEIGHT for name in names if name in HOP_LISTS}


def codes_of(text: str) -> list[str]:
    """The words of a text that hold a digit, in order, each once."""
    codes = dict.fromkeys(match[0] for match in _CODE.finditer(text))
    return [code for code in codes if len(code) >= CHARS_MIN and any(map(str.isdigit, code))][:CODES_MAX]


def _holding(codes: Sequence[str], candidates: Sequence[Candidate]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for code in codes:
        digits = max(_DIGITS.findall(code), key=len)  # they have no case, so that they are soon looked for
        whole = re.compile(rf"(?<![{_SIGN}]){re.escape(code)}(?![{_SIGN}])", re.IGNORECASE)
        near = [candidate for candidate in candidates if digits in candidate.content]
        holders = [candidate.key for candidate in near if whole.search(candidate.content)]
        if len(holders) <= CHUNKS_MAX:
            found.update(holders)
    return found
