"""How right a judge's estimates were on labelled rows that it was not fitted on, as a benchmark measured and stored it.

`python -m benchmarks.bench_judge --write` writes the file; nothing in it is set by hand.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_name("accuracy.json")
SUPPORT = ("adherence", "faithfulness")
AUROC_MIN = 0.75
EXPLAINED_MIN = 0.5

Statistic = Literal["auroc", "rmse"]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """value: the mean over the sets, each judged by what was fitted on the others; low, high: its 95 % bootstrap
    interval; rows: labelled rows that it rests on. beside: what comes without a judge, for "auroc" the overlap of words
    (higher is better, 0.5 is chance), for "rmse" always saying the other sets' mean (lower is better)."""

    statistic: Statistic
    value: float
    low: float
    high: float
    rows: int
    beside: float

    @property
    def is_weak(self) -> bool:
        """Whether no verdict on a single question should rest on it: an AUROC below AUROC_MIN, or less than
        EXPLAINED_MIN of the variance between questions explained."""
        if self.statistic == "auroc":
            return self.value < AUROC_MIN
        return 1 - (self.value / self.beside) ** 2 < EXPLAINED_MIN

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def accuracy_of(judge: str, measure: str) -> Accuracy | None:
    """judge: its name ("embedded", ...), with its version behind where that is known ("embedded 3-tokens").

    None for what nobody measured: another judge, another measure, and support where the version names a model from a
    folder (RAGD_JUDGE_PATH), which tells what is supported then.
    """
    name, _, version = judge.partition(" ")
    return None if " " in version and measure in SUPPORT else _stored().get((name, measure))


def is_weak(judge: str, measure: str) -> bool:
    """Whether the judge was measured to say little of one answer by this measure, though its mean over many does."""
    accuracy = accuracy_of(judge, measure)
    return accuracy is not None and accuracy.is_weak


@cache
def _stored() -> dict[tuple[str, str], Accuracy]:
    """FILE, read once per process: {judge: {"data": text, "measures": {measure: fields of Accuracy}}}."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        (judge, measure): Accuracy(**figures)
        for judge, entry in stored.items()
        for measure, figures in entry["measures"].items()
    }
