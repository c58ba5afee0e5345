"""The last evaluation of collections beside the baseline of their sets: what Home and the lists show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluation_app.measures.catalogue import find, order_of
from evaluation_app.models import EvaluationRun
from ragd.errors import InvalidInput

SIDE_PURPOSES = (EvaluationRun.Purpose.SWEEP, EvaluationRun.Purpose.FIX, EvaluationRun.Purpose.GATE)
SHOWN = ("recall", "hit", "adherence", "f1")
SHOWN_MOST = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """One measure of a run. moved: against the baseline, None where there is none to be held against."""

    name: str
    title: str
    value: float
    scored: int
    total: int
    moved: float | None

    @property
    def tone(self) -> str:
        if self.moved is None or abs(self.moved) < 0.0005:
            return "neutral"
        return "good" if self.moved > 0 else "bad"


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest run of one set. against: the baseline it is held against, None without one or where it is itself.

    why: why it is not compared, "" where it is.
    """

    run: EvaluationRun
    readings: Sequence[Reading]
    against: EvaluationRun | None
    why: str


def latest_of(collection_names: Sequence[str] | None = None, *, most: int = 6) -> list[Latest]:
    """The newest finished run per set, newest first; of these collections, None for all. [] without any run.

    Runs of sweeps, of tried fixes and of gates are left out.
    """
    rows = EvaluationRun.objects.filter(state=EvaluationRun.State.SUCCEEDED).exclude(purpose__in=SIDE_PURPOSES)
    if collection_names is not None:
        rows = rows.filter(collection_name__in=list(collection_names))
    newest = rows.order_by("collection_name", "set_name", "-created_at", "-id").distinct("collection_name", "set_name")
    runs = EvaluationRun.objects.filter(pk__in=newest.values("pk")).select_related("golden_set__baseline")
    return [_read(run) for run in runs.order_by("-created_at", "-id")[:most]]


def _read(run: EvaluationRun) -> Latest:
    baseline = run.golden_set.baseline if run.golden_set else None
    why = ""
    if baseline is None:
        why = "no baseline"
    elif baseline.pk == run.pk:
        baseline, why = None, "this is the baseline"
    elif baseline.set_digest != run.set_digest:
        why = "baseline used another version"
    before = {} if baseline is None or why else _measures(baseline)
    return Latest(run, _readings(_measures(run), before), None if why else baseline, why)


def _measures(run: EvaluationRun) -> dict[str, Any]:
    value = run.summary.get("measures")
    return value if isinstance(value, dict) else {}


def _readings(measures: dict[str, Any], before: dict[str, Any]) -> list[Reading]:
    names = sorted((name for name in measures if name.partition("@")[0] in SHOWN), key=_place)
    readings = []
    for name in names:
        details = measures[name]
        if details.get("value") is None:
            continue
        earlier = before.get(name, {}).get("value")
        moved = None if earlier is None else details["value"] - earlier
        readings.append(Reading(name, _title(name), details["value"], details["scored"], details["total"], moved))
    return readings[:SHOWN_MOST]


def _place(name: str) -> tuple[int, tuple[int, str]]:
    return SHOWN.index(name.partition("@")[0]), order_of(name)


def _title(name: str) -> str:
    try:
        return find(name).title
    except InvalidInput:
        return name
