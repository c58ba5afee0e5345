"""What the controls are that the rows of the span tables name: four frameworks, each control in a sentence, and the
fields of CoSAI that the rows map to."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from ragd.conventions import TABLES
from ragd.conventions.tables import Field


@dataclass(frozen=True, slots=True)
class Control:
    """One control. title: as its framework calls it. meaning: what it asks for or names, in our words."""

    framework: str
    number: str
    title: str
    meaning: str

    @property
    def anchor(self) -> str:
        """An id for a page: "eu-ai-act-art-13"."""
        return "-".join(f"{self.framework} {self.number}".lower().replace(".", " ").split())


TABLE = tomllib.loads(Path(__file__).with_name("controls.toml").read_text(encoding="utf-8"))
FRAMEWORKS: dict[str, str] = TABLE["frameworks"]
COSAI = "CoSAI WS2"
COSAI_FIELDS: dict[str, tuple[str, ...]] = {}  # attribute -> fields
for _, _field, _attribute in TABLES.mapping:
    COSAI_FIELDS[_attribute] = (*COSAI_FIELDS.get(_attribute, ()), _field)
COSAI_CLASSES = {name: (class_name, attribute) for class_name, name, attribute in TABLES.mapping}
KNOWN: dict[str, dict[str, list[str]]] = TABLE["controls"]  # framework -> number -> [title, meaning]


def control_of(framework: str, number: str) -> Control:
    """The control that a table row names; one that is not known has its number for a title and no meaning."""
    if framework == COSAI and number in COSAI_CLASSES:
        class_name, attribute = COSAI_CLASSES[number]
        return Control(framework, number, class_name, f"Recorded as {attribute}.")
    title, meaning = KNOWN.get(framework, {}).get(number, (number, ""))
    return Control(framework, number, title, meaning)


def controls_of_row(row: Field) -> tuple[tuple[str, str], ...]:
    """(framework, control) of a row of the tables, with the fields of CoSAI that its attribute fills."""
    return (*row.controls, *((COSAI, name) for name in COSAI_FIELDS.get(row.name, ())))


def controls_of_tables() -> list[Control]:
    """Every control that a row of the tables names, each once, by framework and number."""
    rows = [row for span in TABLES.spans for row in span.fields] + [
        row for each in TABLES.events for row in each.fields
    ]
    named = {pair for row in rows for pair in controls_of_row(row)}
    order = list(FRAMEWORKS)
    return [control_of(*pair) for pair in sorted(named, key=lambda pair: (order.index(pair[0]), pair[1]))]
