"""The labelled texts of this folder, and what the rules make of them.

A set is JSON Lines: {"id", "place": "query", "chunk" or "answer", "text", "labels": families that it holds, [] for a
harmless text, "note", "system_prompt" of some answers}. labelled.jsonl is what the rules are written with;
held_out.jsonl was written by somebody who did not know the rules, and is only ever counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragd.security import find_leak, scan

FOLDER = Path(__file__).parent
PLACES = ("query", "chunk", "answer")

Item = Mapping[str, Any]


def read_set(name: str) -> list[Item]:
    """The items of "labelled" or "held_out", in the order of the file."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines() if line.strip()]


def families_in(item: Item) -> set[str]:
    """What the rules find in an item, as a run would look at it."""
    found = {finding.family for finding in scan(item["text"], item["place"])}
    if prompt := item.get("system_prompt"):
        found |= {finding.family for finding in find_leak(item["text"], prompt)}
    return found


@dataclass
class Tally:
    """Decisions about one family, or about all: right and wrong findings, what was missed."""

    hits: int = 0
    false_alarms: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        """1.0 where nothing was found."""
        return self.hits / (self.hits + self.false_alarms) if self.hits + self.false_alarms else 1.0

    @property
    def recall(self) -> float:
        """1.0 where there was nothing to find."""
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else 1.0


@dataclass
class Result:
    """overall and families count pairs of item and family. harmful and harmless count items, alarmed those found."""

    overall: Tally = field(default_factory=Tally)
    families: dict[str, Tally] = field(default_factory=dict)
    places: dict[str, Tally] = field(default_factory=dict)
    harmless: Counter[str] = field(default_factory=Counter)
    alarmed: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[str, list[str], list[str]]] = field(default_factory=list)


def judge(items: Iterable[Item]) -> Result:
    """What the rules find against what is labelled. wrong: (id, found too much, missed) of every item that differs."""
    result = Result()
    for item in items:
        wanted, found = set(item["labels"]), families_in(item)
        for family in sorted(wanted | found):
            for tally in (
                result.overall,
                result.families.setdefault(family, Tally()),
                result.places.setdefault(item["place"], Tally()),
            ):
                tally.hits += family in wanted and family in found
                tally.false_alarms += family not in wanted
                tally.missed += family not in found
        if not wanted:
            result.harmless[item["place"]] += 1
            result.alarmed[item["place"]] += bool(found)
        if wanted != found:
            result.wrong.append((item["id"], sorted(found - wanted), sorted(wanted - found)))
    return result


def table(result: Result) -> list[str]:
    """Lines to print: a row per family and per place, and the false alarms among the harmless."""
    rows: Sequence[tuple[str, Tally]] = [
        ("all", result.overall),
        *sorted(result.families.items()),
        *((f"place {place}", result.places[place]) for place in PLACES if place in result.places),
    ]
    lines = [f"{'':24}{'precision':>10}{'recall':>8}{'right':>7}{'false':>7}{'missed':>8}"]
    lines += [
        f"{name:24}{tally.precision:10.3f}{tally.recall:8.3f}{tally.hits:7}{tally.false_alarms:7}{tally.missed:8}"
        for name, tally in rows
    ]
    total, wrong = sum(result.harmless.values()), sum(result.alarmed.values())
    lines.append(f"harmless texts with a finding: {wrong} of {total} ({100 * wrong / max(total, 1):.1f} %)")
    return lines
