"""How much keys and people may ask: requests in a minute and tokens in a day, counted exactly over all processes.

A minute and a day are those of the clock (UTC), so that twice a minute's requests may come around its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection

from collections_app.access.context import Access, Limit, current_access, system_access
from collections_app.errors import ServiceError
from ragd.store.store import execute, fetch_all

KEPT = timedelta(days=2)
# One row per holder, in the order of their names, so that no two requests wait for each other in a circle.
COUNT_REQUEST = """
INSERT INTO usage_counts AS c (holder, minute, requests, day, tokens)
SELECT holder, date_trunc('minute', clock_timestamp()), 1, (clock_timestamp() AT TIME ZONE 'UTC')::date, 0
FROM unnest(%(holders)s::text[]) AS holder ORDER BY holder
ON CONFLICT (holder) DO UPDATE SET
    requests = CASE WHEN c.minute >= excluded.minute THEN c.requests ELSE 0 END + 1,
    minute = greatest(c.minute, excluded.minute),
    tokens = CASE WHEN c.day >= excluded.day THEN c.tokens ELSE 0 END,
    day = greatest(c.day, excluded.day)
RETURNING holder, requests, tokens, extract(epoch FROM minute + interval '1 minute' - clock_timestamp())::float,
    extract(epoch FROM ((day + 1)::timestamp AT TIME ZONE 'UTC') - clock_timestamp())::float
"""
COUNT_TOKENS = """
INSERT INTO usage_counts AS c (holder, minute, requests, day, tokens)
SELECT holder, date_trunc('minute', clock_timestamp()), 0, (clock_timestamp() AT TIME ZONE 'UTC')::date, %(tokens)s
FROM unnest(%(holders)s::text[]) AS holder ORDER BY holder
ON CONFLICT (holder) DO UPDATE SET
    tokens = CASE WHEN c.day >= excluded.day THEN c.tokens ELSE 0 END + excluded.tokens,
    day = greatest(c.day, excluded.day)
"""
FORGET = "DELETE FROM usage_counts WHERE minute < %(before)s AND day < (%(before)s AT TIME ZONE 'UTC')::date"


@dataclass(frozen=True, slots=True)
class Usage:
    """What is left of the limit that is nearest to its end. reset_s: until it is whole again."""

    limit: int
    remaining: int
    reset_s: float

    def headers(self) -> dict[str, str]:
        reset = str(int(self.reset_s) + 1)
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": reset,
        }


class LimitReached(ServiceError):
    """429: asked again after `usage.reset_s`, it may be answered."""

    def __init__(self, message: str, usage: Usage, *, type: str) -> None:
        super().__init__(message, type=type, status=429, retry_after_s=usage.reset_s)
        self.usage = usage


def count_request(access: Access) -> Usage | None:
    """Count one request of a key and the person behind it; None where nothing limits them.

    Raises LimitReached for one too many, and for any request once the tokens of the day are used up.
    """
    limits = {limit.holder: limit for limit in access.limits if limit.requests_per_minute or limit.tokens_per_day}
    if not limits:
        return None
    with system_access():
        rows = fetch_all(connection, COUNT_REQUEST, {"holders": sorted(limits)})
    usages = []
    for holder, requests, tokens, minute_s, day_s in rows:
        limit = limits[holder]
        if limit.tokens_per_day and tokens >= limit.tokens_per_day:
            raise LimitReached(
                f"{_name(limit)} may use {limit.tokens_per_day} tokens of models in a day (UTC), and has used {tokens};"
                " ask again tomorrow, or have the limit raised",
                Usage(limit.tokens_per_day, 0, day_s),
                type="too_many_tokens",
            )
        if limit.requests_per_minute:
            usages.append(Usage(limit.requests_per_minute, limit.requests_per_minute - requests, minute_s))
    nearest = min(usages, key=lambda usage: usage.remaining, default=None)
    if nearest is None or nearest.remaining >= 0:
        return nearest
    raise LimitReached(
        f"at most {nearest.limit} requests in a minute are answered; ask again when Retry-After has passed, or have the"
        " limit raised",
        Usage(nearest.limit, 0, nearest.reset_s),
        type="too_many_requests",
    )


def count_tokens(tokens: int) -> None:
    """Count tokens of model calls for who asks now, where their number is limited."""
    limits = current_access().limits
    if tokens > 0:
        _add([limit.holder for limit in limits if limit.tokens_per_day], tokens)


def _add(holders: Sequence[str], tokens: int) -> None:
    if holders:
        with system_access():
            execute(connection, COUNT_TOKENS, {"holders": sorted(holders), "tokens": tokens})


def count_wrong_key(address: str) -> None:
    """Count a request with an unknown key. Raises LimitReached where too many came from the address in this minute."""
    allowed = settings.RAGD_WRONG_KEYS_PER_MINUTE
    if not allowed:
        return
    with system_access():
        ((_, requests, _, minute_s, _),) = fetch_all(connection, COUNT_REQUEST, {"holders": [f"address:{address}"]})
    if requests > allowed:
        raise LimitReached(
            f"more than {allowed} requests with unknown keys came from this address within a minute; use a live key, "
            "or try again when Retry-After has passed",
            Usage(allowed, 0, minute_s),
            type="too_many_wrong_keys",
        )


def forget_counts(now: datetime) -> int:
    """Remove what was counted days ago; returns how many holders."""
    return execute(connection, FORGET, {"before": now - KEPT})


def _name(limit: Limit) -> str:
    return "this key" if limit.holder.startswith("key:") else "the person behind this request"
