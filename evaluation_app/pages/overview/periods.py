"""The times that the first page of Traces shows: named periods up to now, and ranges from one time to another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from evaluation_app.pages.overview.rollups import KEEP_DAYS
from ragd.errors import InvalidInput

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """A time in equal steps, which begin at round times. The last step may not be over. name: "" for a range."""

    name: str
    words: str
    step: timedelta
    count: int
    since: datetime
    until: datetime

    def begins(self) -> list[datetime]:
        return [self.since + number * self.step for number in range(self.count)]

    @property
    def is_rolled(self) -> bool:
        """Whether whole hours are enough for its steps."""
        return self.step >= HOUR

    def previous(self) -> Period:
        """As many steps before it, the last one as far as this one's."""
        length = self.count * self.step
        return replace(self, since=self.since - length, until=self.until - length)


PERIODS: dict[str, tuple[str, timedelta, int]] = {
    "1h": (gettext_noop("Last hour"), timedelta(minutes=2), 30),
    "24h": (gettext_noop("24 hours"), HOUR, 24),
    "7d": (gettext_noop("7 days"), timedelta(hours=6), 28),
    "30d": (gettext_noop("30 days"), DAY, 30),
}
USUAL_PERIOD = "24h"
# a range of at most so much has steps of so much, which begin at whole multiples of the third
RANGES = (
    (timedelta(hours=2), timedelta(minutes=2), timedelta(minutes=1)),
    (timedelta(days=2), HOUR, HOUR),
    (timedelta(days=14), timedelta(hours=6), HOUR),
    (timedelta(days=KEEP_DAYS), DAY, DAY),
)


def period_until(name: str, now: datetime | None = None) -> Period:
    """The named period up to now. Raises KeyError for a name that is none."""
    words, step, count = PERIODS[name]
    until = (now or timezone.now()).astimezone(UTC)
    last = floor_to(until, step)
    return Period(name, gettext(words), step, count, last - (count - 1) * step, until)


def period_between(since: datetime | None, until: datetime | None, now: datetime | None = None) -> Period:
    """From since, rounded down to the minute, hour or day that its steps begin at, to until, which is now at most and
    where it is None. Raises InvalidInput (field since or until)."""
    now = (now or timezone.now()).astimezone(UTC)
    if since is None:
        raise InvalidInput("since is needed for a time range that ends at until", field="since")
    since, until = since.astimezone(UTC), min(until or now, now).astimezone(UTC)
    if since >= until:
        raise InvalidInput("since must be before until, and before now", field="since")
    for longest, step, align in RANGES:
        if until - since <= longest:
            begin = floor_to(since, align)
            return Period("", gettext("Time range"), step, -((begin - until) // step), begin, until)
    raise InvalidInput(f"a time range has at most {KEEP_DAYS} days, which figures are kept for", field="since")


def floor_to(moment: datetime, step: timedelta) -> datetime:
    """The last whole multiple of the step, counted in UTC, that is not after the moment."""
    return EPOCH + (moment.astimezone(UTC) - EPOCH) // step * step
