"""The shapes of means and intervals."""

from __future__ import annotations

from ninja import Field, Schema


class IntervalOut(Schema):
    mean: float
    low: float
    high: float
    count: int = Field(description="Questions that were scored; of a difference, in both runs")


class MeanOut(Schema):
    value: float | None
    scored: int
    unscorable: int
    errors: int
    total: int
