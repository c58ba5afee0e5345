"""Bands as people write them: measure -> [good, poor]."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from evaluation_app.measures.catalogue import MEASURES
from ragd.errors import InvalidInput

Bands = Mapping[str, tuple[float, float]]


def read_bands(value: object) -> dict[str, tuple[float, float]]:
    """From {"measure": [good, poor]} or its JSON text; "" is none.

    Raises InvalidInput (field bands) for an unknown measure, for what is no pair of finite numbers from 0 to 1, and for
    a pair on the wrong side: good is at least poor, or at most where lower is better.
    """
    values = _parse(value)
    return {name: _pair(name, pair) for name, pair in values.items()}


def _parse(values: object) -> Mapping[str, Any]:
    if isinstance(values, str):
        try:
            values = json.loads(values) if values.strip() else {}
        except ValueError:
            values = None
    if not isinstance(values, Mapping):
        raise InvalidInput(
            'thresholds must be an object such as {"completeness": [0.8, 0.6]}, the good threshold first', field="bands"
        )
    return values


def _pair(name: str, pair: object) -> tuple[float, float]:
    measure = MEASURES.get(name)
    if measure is None:
        raise InvalidInput(f"there is no measure {name!r}; known are {', '.join(MEASURES)}", field="bands")
    numbers = list(pair) if isinstance(pair, list | tuple) else []
    if len(numbers) != 2 or not all(_is_share(number) for number in numbers):
        raise InvalidInput(f"the thresholds of {name} must be two numbers from 0 to 1, not {pair!r}", field="bands")
    good, poor = float(numbers[0]), float(numbers[1])
    if good != poor and (good > poor) != measure.higher_is_better:
        side = "at least" if measure.higher_is_better else "at most"
        raise InvalidInput(
            f"the good threshold of {name} must be {side} its poor one, not {good} and {poor}", field="bands"
        )
    return good, poor


def _is_share(number: object) -> bool:
    return (
        isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number) and 0 <= number <= 1
    )
