"""What answers of two runs needed: latency of the query without judging, tokens, cost, each as paired difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import numpy as np
from django.utils.translation import gettext

from evaluation_app.measures.statistics import Draws, Interval, bootstrap_mean, paired_quantile
from retrieval_app.models import QueryRun

Unit = Literal["ms", "tokens", "usd"]
Pair = tuple[UUID | None, UUID | None]
MEDIAN, TAIL = 0.5, 0.95


@dataclass(frozen=True, slots=True)
class UsageChange:
    """One figure of both runs, over the questions that have it in both: so many are `difference.count`.

    difference: other - base, with its 95 % interval; None, as base and other, where no question has it in both.
    """

    name: str
    title: str
    unit: Unit
    base: float | None
    other: float | None
    difference: Interval | None


def compare_usage(
    pairs: Sequence[Pair], costs: Sequence[tuple[float | None, float | None]], draws: Draws
) -> tuple[UsageChange, ...]:
    """p50 and p95 of the latency, mean tokens and mean cost per question. One query.

    pairs: the query runs of each question in the base and in the other run. Those that are gone by retention leave
    their question out; so does an unknown cost.
    """
    known = _read([pk for pair in pairs for pk in pair if pk is not None])
    latencies = _both([(_latency(known.get(old)), _latency(known.get(new))) for old, new in pairs])
    tokens = _both([(_tokens(known.get(old)), _tokens(known.get(new))) for old, new in pairs])
    return (
        _quantile("latency_p50", gettext("Latency p50"), MEDIAN, latencies, draws),
        _quantile("latency_p95", gettext("Latency p95"), TAIL, latencies, draws),
        _mean("tokens", gettext("Tokens per question"), "tokens", tokens, draws),
        _mean("cost", gettext("Cost per question"), "usd", _both(costs), draws),
    )


def query_times(ids: Any) -> dict[UUID, float]:
    """Milliseconds of these stored query runs, without judging, of those that are there. One query.

    ids: values, or a query of them.
    """
    rows = QueryRun.objects.filter(pk__in=ids).order_by().values_list("pk", "timings_ms__total")
    return {pk: float(total) for pk, total in rows if isinstance(total, int | float)}


Stored = tuple[Mapping[str, float], Mapping[str, float]]  # timings_ms, token_usage


def _read(keys: Sequence[UUID]) -> Mapping[UUID | None, Stored]:
    rows = QueryRun.objects.filter(pk__in=keys).order_by().values_list("pk", "timings_ms", "token_usage")
    return {pk: (timings, usage) for pk, timings, usage in rows}


def _latency(stored: Stored | None) -> float | None:
    return stored[0].get("total") if stored else None


def _tokens(stored: Stored | None) -> float | None:
    return stored[1].get("total_tokens") if stored else None


def _both(pairs: Sequence[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    return [(float(old), float(new)) for old, new in pairs if old is not None and new is not None]


def _quantile(name: str, title: str, share: float, pairs: Sequence[tuple[float, float]], draws: Draws) -> UsageChange:
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    difference = paired_quantile(before, after, share, draws)
    return _row(name, title, "ms", before, after, lambda values: float(np.quantile(values, share)), difference)


def _mean(name: str, title: str, unit: Unit, pairs: Sequence[tuple[float, float]], draws: Draws) -> UsageChange:
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    difference = bootstrap_mean([new - old for old, new in pairs], draws=draws)
    return _row(name, title, unit, before, after, lambda values: float(np.mean(values)), difference)


def _row(
    name: str,
    title: str,
    unit: Unit,
    before: Sequence[float],
    after: Sequence[float],
    figure: Callable[[Sequence[float]], float],
    difference: Interval | None,
) -> UsageChange:
    if difference is None:
        return UsageChange(name, title, unit, None, None, None)
    return UsageChange(name, title, unit, figure(before), figure(after), difference)
