"""How far labels of rows that a model was not fitted on lay from what it expected of them.

How right a judge's estimates were on labelled rows that it was not fitted on, as a benchmark measured and stored it.

`python -m benchmarks.bench_judge --write` writes the file; nothing in it is set by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.protocol import Estimate

BINS = 5
LEVEL = 0.95
DECIMALS = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """Of held-out rows in BINS bins of equal size by their estimate. up_to: the bin's highest estimate, rising; lows,
    highs: the quantiles of label - estimate that LEVEL of the bin's rows lie between."""

    up_to: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def around(self, value: float) -> Estimate:
        """The interval of the value's bin, within 0 to 1 and around the value."""
        place = min(int(np.searchsorted(self.up_to, value)), len(self.up_to) - 1)
        low, high = value + min(0.0, self.lows[place]), value + max(0.0, self.highs[place])
        return Estimate(value, max(0.0, low), min(1.0, high))

    def as_dict(self) -> list[dict[str, float]]:
        return [
            {"up_to": up_to, "low": low, "high": high}
            for up_to, low, high in zip(self.up_to, self.lows, self.highs, strict=True)
        ]

    @classmethod
    def from_dict(cls, bins: list[Mapping[str, Any]]) -> Spread:
        """Raises KeyError for a missing entry, ValueError for no bin or bins that do not rise."""
        up_to, lows, highs = (tuple(float(entry[name]) for entry in bins) for name in ("up_to", "low", "high"))
        if not up_to or list(up_to) != sorted(up_to):
            raise ValueError("at least one bin is needed, in the order of up_to")
        return cls(up_to, lows, highs)


def fit_spread(estimates: npt.ArrayLike, labels: npt.ArrayLike) -> Spread:
    """estimates: by a model that was not fitted on these rows. Raises ValueError for fewer rows than bins."""
    values, truth = np.asarray(estimates, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(values) < BINS:
        raise ValueError(f"at least {BINS} rows are needed, not {len(values)}")
    parts = np.array_split(np.argsort(values, kind="stable"), BINS)
    tail = (1 - LEVEL) / 2
    edges = [np.quantile((truth - values)[part], [tail, 1 - tail]) for part in parts]
    return Spread(
        tuple(round(float(values[part].max()), DECIMALS) for part in parts),
        tuple(round(float(low), DECIMALS) for low, _ in edges),
        tuple(round(float(high), DECIMALS) for _, high in edges),
    )


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
