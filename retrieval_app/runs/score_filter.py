"""Query runs by a score of their evaluations, as a higher floor knows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db.models import Q

from ragd.errors import InvalidInput

ScoreFilter = Callable[[str, float | None, float | None], Q]

_FILTERS: dict[str, tuple[tuple[str, ...], ScoreFilter]] = {}


def register_scores(name: str, measures: Sequence[str], condition: ScoreFilter) -> None:
    """measures: what a field offers. condition: see `scored`; it raises InvalidInput for an unknown measure.
    A second of the name replaces it."""
    _FILTERS[name] = (tuple(measures), condition)


def offered_measures() -> list[str]:
    """In the order in which they were registered."""
    return [measure for measures, _ in _FILTERS.values() for measure in measures]


def scored(measure: str, below: float | None = None, above: float | None = None) -> Q:
    """Runs that have a score of the measure, below and above these; None: whatever it is. Raises InvalidInput for an
    unknown measure, and for any where nothing is registered."""
    condition = Q(pk__in=[])
    for _, of_measure in _FILTERS.values():
        condition |= of_measure(measure, below, above)
    if not _FILTERS:
        raise InvalidInput(f"no scores are known here, so none of {measure!r}", field="measure")
    return condition
