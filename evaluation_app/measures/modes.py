"""The table of failure modes, read from modes.toml (detection, band, likely cause, mitigation, fixes to try).

A mode is a failure (the answer is wrong, unsupported or made of nothing relevant) or a diagnostic: it says what an
answer was like, and alone it fails no question."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from django.utils.translation import gettext

from ragd.errors import InvalidInput

Part = Literal["retrieval", "generation", "system"]
Kind = Literal["failure", "diagnostic"]

TABLE = Path(__file__).with_name("modes.toml")


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one field: `value`, or, with `times`, the old value multiplied and held within least and most."""

    value: Any = None
    times: float | None = None
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ModeFix:
    """A change to try. needs: what the server or the collection must have: "lexical", "llm", "calibration", or ""."""

    key: str
    english_title: str
    why: str
    plan: Mapping[str, Change] = field(default_factory=dict)
    settings: Mapping[str, Change] = field(default_factory=dict)
    needs: str = ""

    @property
    def title(self) -> str:
        """In the language of the page."""
        return gettext(self.english_title)


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to fail, or to look suspicious. rule: the function that detects it, with the measures that it looks at.
    band: when it applies, in words; {poor} stands for the poor bound of the first measure, {measure} for that of
    another one."""

    key: str
    english_title: str
    kind: Kind
    part: Part
    rule: str
    measures: tuple[str, ...]
    band: str
    cause: str
    mitigations: tuple[str, ...]
    fixes: tuple[ModeFix, ...]

    @property
    def title(self) -> str:
        """In the language of the page."""
        return gettext(self.english_title)

    def describe_band(self, bands: Mapping[str, tuple[float, float]]) -> str:
        """The band with its numbers, in the language of the page."""
        bounds = {name: f"{bands[name][1]:g}" for name in self.measures if name in bands}
        text = gettext(self.band).replace("{poor}", next(iter(bounds.values()), ""))
        for name, bound in bounds.items():
            text = text.replace(f"{{{name}}}", bound)
        return text


@dataclass(frozen=True, slots=True)
class Table:
    """modes: by key, in the order of the board's columns. bands: measure -> (good, poor) that the catalogue lacks.
    lowers: "more_context" or "less_context" -> measures that it lowers by their formula."""

    modes: Mapping[str, Mode]
    bands: Mapping[str, tuple[float, float]]
    lowers: Mapping[str, tuple[str, ...]]


@cache
def stored_table() -> Table:
    values = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    modes = {item["key"]: _mode(item) for item in values["mode"]}
    bands = {name: (float(good), float(poor)) for name, (good, poor) in values["bands"].items()}
    lowers = {change: tuple(measures) for change, measures in values["lowers"].items()}
    return Table(MappingProxyType(modes), MappingProxyType(bands), MappingProxyType(lowers))


def find_mode(key: str) -> Mode:
    """Raises InvalidInput (field mode) that lists the known ones."""
    modes = stored_table().modes
    if key not in modes:
        raise InvalidInput(f"there is no failure mode {key!r}; known are {', '.join(modes)}", field="mode")
    return modes[key]


def failures(modes: Iterable[str]) -> tuple[str, ...]:
    """Those of the modes that fail a question, in their order; one that the table does not have (any more) does not."""
    table = stored_table().modes
    return tuple(key for key in modes if key in table and table[key].kind == "failure")


def mode_title(key: str) -> str:
    """The key itself for one that the table does not have any more."""
    table = stored_table().modes.get(key)
    return table.title if table else key.replace("_", " ")


def _mode(item: Mapping[str, Any]) -> Mode:
    return Mode(
        key=item["key"],
        english_title=item["title"],
        kind=item["kind"],
        part=item["part"],
        rule=item["rule"],
        measures=tuple(item["measures"]),
        band=item["band"],
        cause=item["cause"],
        mitigations=tuple(item["mitigations"]),
        fixes=tuple(_fix(fix) for fix in item.get("fix", ())),
    )


def _fix(item: Mapping[str, Any]) -> ModeFix:
    return ModeFix(
        key=item["key"],
        english_title=item["title"],
        why=item["why"],
        plan={name: _change(change) for name, change in item.get("plan", {}).items()},
        settings={name: _change(change) for name, change in item.get("settings", {}).items()},
        needs=item.get("needs", ""),
    )


def _change(item: Mapping[str, Any]) -> Change:
    return Change(item.get("set"), item.get("times"), item.get("least"), item.get("most"))
