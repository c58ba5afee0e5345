"""The text form in which Prometheus reads metrics, version 0.0.4."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evaluation_app.metrics.registry import Data

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


def render(metrics: Sequence[Data]) -> str:
    """HELP, TYPE and samples of each metric that has any, one after the other. Nothing: "".

    A point becomes an underscore, a counter's name ends in _total, and no unit is put into a name: dashboards for
    these conventions ask for gen_ai_client_operation_duration_bucket and aitf_cost_total.
    """
    return "".join(f"{line}\n" for data in metrics if data["points"] for line in _lines(data))


def prometheus_name(name: str, kind: str) -> str:
    plain = NOT_IN_NAMES.sub("_", name)
    return f"{plain}_total" if kind == "counter" and not plain.endswith("_total") else plain


def _lines(data: Data) -> Iterator[str]:
    name = prometheus_name(data["name"], data["kind"])
    yield f"# HELP {name} {_escaped_help(data['description'])}"
    yield f"# TYPE {name} {data['kind']}"
    for point in data["points"]:
        if data["kind"] == "histogram":
            yield from _histogram(name, data["buckets"], point)
        else:
            yield f"{name}{_labels(point['labels'].items())} {_number(point['value'])}"


def _histogram(name: str, buckets: Sequence[float], point: Mapping[str, Any]) -> Iterator[str]:
    """Prometheus counts a bucket with all those below it."""
    total = 0
    labels = list(point["labels"].items())
    for bound, count in zip([*buckets, float("inf")], point["counts"], strict=True):
        total += count
        yield f"{name}_bucket{_labels([*labels, ('le', _number(bound))])} {total}"
    yield f"{name}_sum{_labels(labels)} {_number(point['sum'])}"
    yield f"{name}_count{_labels(labels)} {total}"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{NOT_IN_NAMES.sub("_", name)}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
