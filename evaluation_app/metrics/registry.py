"""Counts and histograms of one process, and the sums of many."""

from __future__ import annotations

import os
import threading
import time
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ragd.telemetry.metrics import OVERFLOW, Metric

SERIES_MAX = 2000  # of one metric; callers name models and so could make any number of series

Labels = Mapping[str, str | int | float | bool | None]
Key = tuple[tuple[str, str], ...]
# {"name", "kind", "unit", "description", "buckets"?, "points": [{"labels", "value"} or {"labels", "counts", "sum"}]}
Data = dict[str, Any]
OVERFLOW_KEY: Key = ((OVERFLOW, "true"),)


class Registry:
    """What one process has counted since it began. Threads may share it; a forked child begins at nothing.

    A metric has SERIES_MAX series at most: what comes after them is counted in one series that says so.
    """

    def __init__(self) -> None:
        self._begin()
        begin = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (anew := begin()) and anew())
        self._watched: list[tuple[Metric, Callable[[], float]]] = []
        self._before: list[Callable[[], None]] = []

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._series: dict[Metric, dict[Key, list[float]]] = {}
        self._highest: dict[Metric, float] = {}
        self.started_ns = time.time_ns()

    def add(self, metric: Metric, value: float = 1.0, labels: Labels | None = None) -> None:
        """Count. A negative value is left out: counters only grow."""
        if value >= 0:
            key = label_key(labels)
            with self._lock:
                self._find(metric, key, 1)[0] += value

    def observe(self, metric: Metric, value: float, labels: Labels | None = None) -> None:
        """One measurement of a histogram."""
        key = label_key(labels)
        with self._lock:
            cells = self._find(metric, key, len(metric.buckets) + 2)
            cells[bisect_left(metric.buckets, value)] += 1
            cells[-1] += value

    def watch(self, metric: Metric, read: Callable[[], float]) -> None:
        """A counter without labels that somebody else keeps for this process: asked at every snapshot."""
        self._watched.append((metric, read))

    def before_snapshot(self, call: Callable[[], None]) -> None:
        """Have something done before every snapshot, such as counting what waits to be counted."""
        self._before.append(call)

    def count_waiting(self) -> None:
        """Do now what is done before a snapshot."""
        for call in self._before:
            call()

    def snapshot(self) -> list[Data]:
        """All metrics by name, series by label."""
        self.count_waiting()
        with self._lock:
            copy = {
                metric: {key: list(cells) for key, cells in series.items()} for metric, series in self._series.items()
            }
            for metric, read in self._watched:  # such a count may look smaller for a moment, and must not fall
                self._highest[metric] = max(self._highest.get(metric, 0.0), float(read()))
                copy[metric] = {(): [self._highest[metric]]}
        return [metric_data(metric, copy[metric]) for metric in sorted(copy, key=lambda metric: metric.name)]

    def _find(self, metric: Metric, key: Key, size: int) -> list[float]:
        series = self._series.setdefault(metric, {})
        cells = series.get(key)
        if cells is None:
            if len(series) >= SERIES_MAX:
                key = OVERFLOW_KEY
            cells = series.setdefault(key, [0.0] * size)
        return cells


registry = Registry()  # of this process


def label_key(labels: Labels | None) -> Key:
    """Labels in one order, as texts; those without a value left out."""
    if not labels:
        return ()
    return tuple(sorted((name, _text(value)) for name, value in labels.items() if value is not None))


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def metric_data(metric: Metric, series: Mapping[Key, Sequence[float]]) -> Data:
    """cells of a histogram: a count per bucket, one for what is above them, the sum. Of others: the value."""
    data: Data = {
        "name": metric.name,
        "kind": metric.kind,
        "unit": metric.unit,
        "description": metric.description,
        "points": [_point(key, series[key], is_histogram=bool(metric.buckets)) for key in sorted(series)],
    }
    return data | {"buckets": list(metric.buckets)} if metric.buckets else data


def _point(key: Key, cells: Sequence[float], *, is_histogram: bool) -> dict[str, Any]:
    if not is_histogram:
        return {"labels": dict(key), "value": cells[0]}
    return {"labels": dict(key), "counts": [int(count) for count in cells[:-1]], "sum": cells[-1]}


def add_up(snapshots: Iterable[Sequence[Data]]) -> list[Data]:
    """The sum of snapshots, by name and label. A histogram whose buckets are others than the first one's is left out.

    Such a one was counted by another version of the software.
    """
    return _combine(snapshots, sign=1)


def take_away(whole: Sequence[Data], part: Sequence[Data]) -> list[Data]:
    """What has been added to `part` since; nothing becomes negative."""
    return _combine([whole, part], sign=-1)


def _combine(snapshots: Iterable[Sequence[Data]], *, sign: int) -> list[Data]:
    heads: dict[str, Data] = {}
    series: dict[str, dict[Key, list[float]]] = {}
    for number, snapshot in enumerate(snapshots):
        factor = sign if number else 1
        for data in snapshot:
            head = heads.setdefault(data["name"], {key: value for key, value in data.items() if key != "points"})
            if (head["kind"], head.get("buckets")) != (data["kind"], data.get("buckets")):
                continue
            found = series.setdefault(data["name"], {})
            for point in data["points"]:
                _put(found, label_key(point["labels"]), _cells(point), factor)
    return [
        heads[name]
        | {"points": [_point(key, found[key], is_histogram="buckets" in heads[name]) for key in sorted(found)]}
        for name, found in sorted(series.items())
    ]


def _put(series: dict[Key, list[float]], key: Key, cells: Sequence[float], factor: int) -> None:
    if key not in series and len(series) >= SERIES_MAX:
        key = OVERFLOW_KEY
    before = series.get(key, [0.0] * len(cells))
    series[key] = [max(0.0, old + factor * new) for old, new in zip(before, cells, strict=True)]


def _cells(point: Mapping[str, Any]) -> list[float]:
    return [*point["counts"], point["sum"]] if "counts" in point else [point["value"]]
