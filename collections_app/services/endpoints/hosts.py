"""Politeness for all workers together: one request per host at a time, a pause between two, and robots.txt."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from collections_app.advisory_locks import LockKey, LockSpace, named, release_session_lock, try_session_lock
from collections_app.fetching import Address, Answer, FetchError, Robots
from collections_app.fetching.robots import KEPT_FOR_S, read_rules, robots_address
from collections_app.models import FetchHost

WAIT_MAX_S = 5.0  # a worker waits so long for its turn; then it does something else first
LOOK_EVERY_S = 0.1
BUSY_S = (2.0, 10.0)  # when a job whose host is busy comes back, at random in between
ROBOTS_REDIRECTS = 5
FORGET_AFTER = timedelta(days=7)

Ask = Callable[[Address], Answer]


@contextmanager
def turn(host: str, on_wait: Callable[[], None]) -> Iterator[FetchHost]:
    """Be the only one who asks this host, once its pause is over.

    on_wait: called while waiting; it may raise to stop. Raises FetchError with postpone_s when the turn does not come
    within five seconds: the job is to come back then.
    """
    key = named(LockSpace.HOST, host)
    _take(key, host, on_wait)
    try:
        state, _ = FetchHost.objects.get_or_create(host=host)
        _wait_until(state.next_at, on_wait)
        yield state
    finally:
        release_session_lock(key)


def rest(state: FetchHost, seconds: float) -> None:
    """Nobody asks this host for so long. The caller has its turn."""
    state.asked_at = timezone.now()
    state.next_at = state.asked_at + timedelta(seconds=seconds)
    state.save(update_fields=["next_at", "asked_at", "robots"])


def robots_of(state: FetchHost, address: Address, ask: Ask) -> Robots:
    """What the site lets us read, asked for at most once a day. The caller has the host's turn.

    No robots.txt, or any other answer of 400 to 499, allows everything. Raises FetchError, retryable, while the site
    cannot tell: then nothing is read.
    """
    now = timezone.now()
    known = state.robots.get(address.origin)
    if known and known["until"] > now.isoformat():
        return Robots(known["rules"])
    rules = _ask_for_rules(address, ask)
    state.robots[address.origin] = {"rules": rules, "until": (now + timedelta(seconds=KEPT_FOR_S)).isoformat()}
    return Robots(rules)


def _ask_for_rules(address: Address, ask: Ask) -> str:
    at = robots_address(address)
    for _ in range(ROBOTS_REDIRECTS + 1):
        answer = ask(at)
        if answer.status == 200:
            return read_rules(answer.body)
        if answer.location:
            at = at.join(answer.location)
        elif answer.status >= 500 or answer.status == 429:
            raise _cannot_tell(address, f"it answers {answer.status}", answer.retry_after_s)
        else:
            return ""
    return ""


def _cannot_tell(address: Address, why: str, wait_s: float | None = None) -> FetchError:
    return FetchError(
        "robots_unknown",
        f"the robots.txt of {address.host} cannot be read ({why}), so it is not known whether the page may be",
        retryable=True,
        postpone_s=wait_s,
    )


def _take(key: LockKey, host: str, on_wait: Callable[[], None]) -> None:
    patience_ends = time.monotonic() + WAIT_MAX_S
    while not try_session_lock(key):  # of the session: a worker that is killed gives it back
        if time.monotonic() >= patience_ends:
            raise FetchError(
                "waiting_for_host",
                f"{host} is asked by another job at the moment; this one comes after it",
                postpone_s=random.uniform(*BUSY_S),  # noqa: S311
            )
        on_wait()
        time.sleep(LOOK_EVERY_S)


def _wait_until(moment: datetime, on_wait: Callable[[], None]) -> None:
    wait_s = (moment - timezone.now()).total_seconds()
    if wait_s > WAIT_MAX_S:
        raise FetchError(
            "waiting_for_host",
            f"the site wants to be left alone for {wait_s:.0f} s more; the job comes back then",
            postpone_s=wait_s + random.uniform(0, settings.RAGD_FETCH_PAUSE_S),  # noqa: S311
        )
    while (left_s := (moment - timezone.now()).total_seconds()) > 0:
        on_wait()
        time.sleep(min(left_s, LOOK_EVERY_S))


def forget_hosts(now: datetime) -> int:
    """Remove hosts that nobody asked for a week; returns how many."""
    gone, _ = FetchHost.objects.filter(asked_at__lt=now - FORGET_AFTER).delete()
    return gone
