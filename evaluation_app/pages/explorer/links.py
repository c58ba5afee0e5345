"""Addresses of the span explorer: what a number is made of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.urls import reverse

Condition = str | float | datetime | Sequence[str] | None


def explorer_address(**conditions: Condition) -> str:
    """The explorer with these conditions, named as `span_filters.parse_filter` reads them.

    A sequence stands for any of its values; None and "" leave a condition out.
    """
    pairs = [(name, text) for name, value in conditions.items() for text in _texts(value) if text]
    return f"{reverse('evaluation:spans')}?{urlencode(pairs)}" if pairs else reverse("evaluation:spans")


def step_conditions(begin: datetime, step: timedelta, until: datetime) -> dict[str, Condition]:
    """since and until of one step of a period; the last one ends with the period."""
    return {"since": begin, "until": min(begin + step, until)}


def _texts(value: Condition) -> list[str]:
    if value is None:
        return []
    if isinstance(value, datetime):
        return [value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")]
    if isinstance(value, float | int):
        return [f"{value:g}"]
    return [value] if isinstance(value, str) else list(value)
