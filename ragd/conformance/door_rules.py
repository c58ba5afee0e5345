"""Section 6: whoever serves the library answers as the library does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ragd
from ragd.conformance import corpus
from ragd.conformance.bench import Bench, Rule, result_of
from ragd.conformance.report import Cases
from ragd.types import RetrievePlan, canonical_json

Door = Callable[[str, RetrievePlan], Sequence[Mapping[str, Any]]]
Doors = Mapping[str, Door]
EVERY = 5  # every fifth query, through each plan: doors are slower than the library


def make_rules(doors: Doors) -> list[Rule]:
    """One rule per door, the library's own function first."""
    return [
        Rule("6", "retrieve() and retrieve_detailed() do not drift apart", _check_library, needs_corpus=True),
        *(
            Rule("6", f"{name} answers as the library does, byte for byte", _checker(door), needs_corpus=True)
            for name, door in doors.items()
        ),
    ]


def library_results(bench: Bench, query: str, plan: RetrievePlan) -> str:
    """The library's answer in the canonical JSON form."""
    return canonical_json([result_of(item) for item in ragd.retrieve(query, plan, bench.open_golden())])


def _check_library(bench: Bench, cases: Cases) -> None:
    def door(query: str, plan: RetrievePlan) -> list[dict[str, Any]]:
        return [result_of(item) for item in ragd.retrieve_detailed(query, plan, bench.open_golden()).candidates]

    _checker(door)(bench, cases)


def _checker(door: Door) -> Callable[[Bench, Cases], None]:
    def check(bench: Bench, cases: Cases) -> None:
        for name, plan in corpus.PLANS.items():
            for query in corpus.queries()[::EVERY]:
                got = canonical_json(list(door(query.text, plan)))
                cases.equal(f"{name}: {query.text!r}", got, library_results(bench, query.text, plan))

    return check
