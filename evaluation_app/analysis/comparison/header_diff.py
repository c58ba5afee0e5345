"""What two runs were made with, as far as it differs: the reasons that a difference of figures may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation_app.analysis.comparison.item_reader import read_contents
from evaluation_app.measures.catalogue import Measure
from evaluation_app.models import EvaluationRun
from ragd.types import canonical_json

# field of EvaluationRun -> what it is called; in the order in which they are shown, behind plan and settings
FIELDS: Mapping[str, str] = {
    "collection_name": "Collection",
    "generation": "Index version",
    "embed_model": "Embedding model",
    "answerer": "Model",
    "prompt_hash": "Prompt hash",
    "calibration": "Calibration",
    "judge": "Judge",
    "judge_version": "Judge version",
    "spec_version": "Specification",
    "code_version": "Code version",
}
MADE_ANEW = ("judge", "judge_model")  # of the settings: told by fields of the run itself
HASH_SHOWN = 12


@dataclass(frozen=True, slots=True)
class HeaderRow:
    """One field that is not the same in all runs. values: one per run, the base first, as text; "–" for none."""

    name: str
    title: str
    values: tuple[str, ...]

    @property
    def changed(self) -> tuple[bool, ...]:
        """Per run whether it differs from the base."""
        return tuple(value != self.values[0] for value in self.values)

    @property
    def cells(self) -> list[tuple[str, bool]]:
        """(value, whether it differs from the base) per run."""
        return list(zip(self.values, self.changed, strict=True))


def compare_headers(runs: Sequence[EvaluationRun]) -> list[HeaderRow]:
    """The fields that differ between runs, the base first: those of the plan, of the settings, then of the rest."""
    rows = [*_plan_rows(runs), *_settings_rows(runs)]
    rows += [_row(name, title, [getattr(run, name) for run in runs]) for name, title in FIELDS.items()]
    rows.append(_row("contents", "Contents", [read_contents(run) for run in runs]))
    return [row for row in rows if any(row.changed)]


def yardstick_differs(measure: Measure, base: EvaluationRun, other: EvaluationRun) -> str:
    """Why the two runs' scores of the measure are not of one kind, "" when they are.

    What a judge decides is compared only under the same judge, version and unit; eRAG only under the same downstream
    measure.
    """
    if measure.group in ("trace", "noise"):
        if (base.judge, base.judge_version) != (other.judge, other.judge_version):
            return f"judged by {_judge(base)} and by {_judge(other)}"
        if _setting(base, "unit") != _setting(other, "unit"):
            return f"counted in {_setting(base, 'unit')} and in {_setting(other, 'unit')}"
    if measure.group == "erag" and _setting(base, "downstream") != _setting(other, "downstream"):
        return f"documents labelled by {_setting(base, 'downstream')} and by {_setting(other, 'downstream')}"
    return ""


def _judge(run: EvaluationRun) -> str:
    return f"{run.judge} ({run.judge_version})" if run.judge_version else run.judge


def _setting(run: EvaluationRun, name: str) -> str:
    return str(run.settings.get(name, ""))


def _plan_rows(runs: Sequence[EvaluationRun]) -> Iterator[HeaderRow]:
    flat = [_flatten(run.plan) for run in runs]
    for name in _names(flat):
        yield _row(
            f"plan.{name}",
            f"Settings, {name.replace('_', ' ').replace('.', ' ')}",
            [values.get(name) for values in flat],
        )


def _settings_rows(runs: Sequence[EvaluationRun]) -> Iterator[HeaderRow]:
    flat = [{name: value for name, value in run.settings.items() if name not in MADE_ANEW} for run in runs]
    for name in _names(flat):
        values = [each.get(name) for each in flat]
        yield _row(f"settings.{name}", name.replace("_", " ").capitalize(), values)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Objects within the plan by their own fields: "weights.vector"."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _names(dicts: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for each in dicts for name in each))


def _row(name: str, title: str, values: Sequence[Any]) -> HeaderRow:
    return HeaderRow(name, title, tuple(_spell(name, value) for value in values))


def _spell(name: str, value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | dict):
        return canonical_json(value)
    text = str(value)
    return text[:HASH_SHOWN] if name == "prompt_hash" else text
