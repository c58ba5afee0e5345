"""Wrong passwords: 10 in 15 minutes by one name from one address, or 50 by any names from one address, lock it out."""

from __future__ import annotations

from typing import Any

from axes.attempts import get_cool_off_threshold
from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt
from django.db.models import Sum

ADDRESS_SHARE = 5  # an address alone may fail this many times as often as a name from it


class AttemptsHandler(AxesDatabaseHandler):  # type: ignore[misc]
    """Counts an address beside the name. A log-in that succeeds forgives its own name only: else somebody with an
    account could try passwords of others without end."""

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        by_name: int = super().get_failures(request, credentials)
        found = AccessAttempt.objects.filter(
            ip_address=request.axes_ip_address, attempt_time__gte=get_cool_off_threshold(request)
        ).aggregate(total=Sum("failures_since_start"))
        return max(by_name, (found["total"] or 0) // ADDRESS_SHARE)  # axes compares it with its one limit
