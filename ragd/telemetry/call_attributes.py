"""What the spans of model calls have in common: times, parameters, costs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Span

from ragd.telemetry import names
from ragd.telemetry.pricing import CURRENCY, Cost
from ragd.telemetry.spans import set_attributes
from ragd.types import canonical_json


def write_cost(span: Span, cost: Cost | None) -> None:
    """A call without a known price has no cost attribute at all."""
    if cost is None:
        return
    set_attributes(
        span,
        {
            names.COST_INPUT: cost.input, names.COST_OUTPUT: cost.output, names.COST_TOTAL: cost.total,
            names.OI_COST_PROMPT: cost.input, names.OI_COST_COMPLETION: cost.output, names.OI_COST_TOTAL: cost.total,
            names.COST_CURRENCY: CURRENCY, names.COST_INPUT_PRICE: cost.input_per_million,
            names.COST_OUTPUT_PRICE: cost.output_per_million, names.COST_SOURCE: cost.source,
            names.COST_TABLE_VERSION: cost.version or None,
        },
    )  # fmt: skip


def parameters(values: Mapping[str, Any]) -> str:
    return canonical_json({key: value for key, value in values.items() if value is not None})


def add_up(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def double(value: float | None) -> float | None:
    return None if value is None else float(value)


def since_ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000
