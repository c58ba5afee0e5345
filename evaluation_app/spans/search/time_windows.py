"""A search through time in stretches, so that one that finds little ends in time and says how far it came."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from django.db import OperationalError, connection, transaction
from django.utils import timezone
from psycopg.errors import QueryCanceled

from evaluation_app.models.spans import SpanQuerySet

FIRST_AND_LAST = "SELECT min(started_at), max(started_at) FROM spans"
READ_TIMEOUT = "SELECT current_setting('statement_timeout')"
SET_TIMEOUT = "SELECT set_config('statement_timeout', %(limit)s, true)"
BUDGET_S = 3.0  # of one search
FIRST_STEP = timedelta(days=1)
SHORTEST_STEP = timedelta(minutes=1)
QUICK_S, SLOW_S = 0.1, 0.5  # a stretch that takes less is followed by a longer one, one that takes more by a shorter
LARGER, SMALLER = 4, 16  # how much; and by how much a stretch is cut that took too long
STATEMENT_MIN_S = 0.25  # which a statement has in any case, so that a busy machine finds something
TRIES = 4  # so many stretches may take too long in one search

Found = TypeVar("Found")


class SlowSearch(OperationalError):
    """Not even a short stretch of time could be searched within the time that a search has."""


@dataclass(slots=True)
class TimeWindows:
    """A walk through `rows` from `start` (None: the newest span) back in time, or forward.

    reached: None when the walk came to the end or found enough; else how far it came when its time was over.
    """

    rows: SpanQuerySet
    start: datetime | None = None
    forward: bool = False
    budget_s: float = BUDGET_S
    reached: datetime | None = None

    def walk(self, requested: int, read: Callable[[SpanQuerySet, int], list[Found]]) -> list[Found]:
        """At most `wanted` items of what `read(rows of a stretch, how many are wanted still)` gives, in its order.

        Raises SlowSearch when the time was over before the first stretch was read.
        """
        founds: list[Found] = []
        until = time.monotonic() + self.budget_s
        first, last = first_and_last()
        at, near, step = self.start or last, None, FIRST_STEP
        while True:
            try:
                far = at + step if self.forward else at - step
                is_last = far >= last if self.forward else far <= first
            except OverflowError:  # the calendar ends there
                far, is_last = at, True
            began = time.monotonic()
            left_s = until - began
            try:
                if left_s <= 0:
                    raise TimeoutError
                rows = self._between(near, None if is_last else far)
                limit_s = max(STATEMENT_MIN_S, min(left_s, self.budget_s / TRIES))
                founds += in_time(partial(read, rows, requested - len(founds)), limit_s)
            except TimeoutError:
                if left_s > 0 and step > SHORTEST_STEP:
                    step /= SMALLER
                    continue
                if near is None:
                    raise SlowSearch(f"no results within {self.budget_s:g} s") from None
                self.reached = near
                return founds
            if is_last or len(founds) >= requested:
                return founds
            took = time.monotonic() - began
            step = step * LARGER if took < QUICK_S else step / LARGER if took > SLOW_S else step
            at = near = far

    def _between(self, near: datetime | None, far: datetime | None) -> SpanQuerySet:
        """From near (not included) to far (included); None: no bound."""
        after, before = ("gt", "lte") if self.forward else ("lt", "gte")
        bounds = {f"started_at__{after}": near, f"started_at__{before}": far}
        return self.rows.filter(**{name: value for name, value in bounds.items() if value is not None})


def first_and_last() -> tuple[datetime, datetime]:
    """When the oldest and the newest span began; now, where there is none."""
    with connection.cursor() as cursor:
        cursor.execute(FIRST_AND_LAST)
        ((first, last),) = cursor.fetchall()
    now = timezone.now()
    return first or now, last or now


def in_time(action: Callable[[], Found], limit_s: float) -> Found:
    """What the action returns. Raises TimeoutError when one of its statements takes longer than that."""
    limit = str(max(1, int(limit_s * 1000)))
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(READ_TIMEOUT)
            ((before,),) = cursor.fetchall()
            cursor.execute(SET_TIMEOUT, {"limit": limit})
            result = action()
            cursor.execute(SET_TIMEOUT, {"limit": before})  # a transaction around this one goes on with its own
            return result
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TimeoutError(f"no answer within {limit_s:.1f} s") from None
        raise
