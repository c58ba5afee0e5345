"""How often work is tried, and how long it waits in between."""

from __future__ import annotations

import random
from dataclasses import dataclass

from django.conf import settings


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off: first_delay_s after the first try, doubled after each further one up to max_delay_s.

    jitter: the greatest share of the delay that is added by chance, so that many do not come back at one moment.
    """

    max_attempts: int
    first_delay_s: float = 5.0
    max_delay_s: float = 60.0
    jitter: float = 0.25

    def allows(self, tries: int) -> bool:
        """Whether there may be another try after so many."""
        return tries < self.max_attempts

    def delay_s(self, tries: int, requested_s: float | None = None) -> float:
        """Seconds to wait after so many tries, 1 or more.

        requested_s: the least that the other side asked for; it counts up to twice max_delay_s.
        """
        delay_s: float = max(min(self.first_delay_s * 2 ** (tries - 1), self.max_delay_s), requested_s or 0)
        return min(delay_s, 2 * self.max_delay_s) * (1 + random.uniform(0, self.jitter))  # noqa: S311


def job_retry_policy() -> RetryPolicy:
    """The one of RAGD_JOB_MAX_ATTEMPTS."""
    return RetryPolicy(settings.RAGD_JOB_MAX_ATTEMPTS)
