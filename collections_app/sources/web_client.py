"""From an address to its content: over redirects, each step checked and polite.

Politeness for all workers together: one request per host at a time, a pause between two, and robots.txt.
"""

from __future__ import annotations

import posixpath
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Protocol
from urllib.parse import unquote

from django.conf import settings
from django.utils import timezone

from collections_app.advisory_locks import LockKey, LockSpace, named, release_session_lock, try_session_lock
from collections_app.domain.formats import MEGABYTE
from collections_app.jobs.leases import interruptible
from collections_app.models import FetchedSource, Status
from ragd.errors import InvalidInput
from ragd.identity import clean_line
from ragd.readers.fetching import (
    Address,
    Answer,
    Deadline,
    FetchError,
    FetchResult,
    Guard,
    Limits,
    Robots,
    read_address,
    request,
)
from ragd.readers.fetching.addresses import KEPT_FOR_S, read_rules, robots_address
from ragd.version import product_version

TURN_WAIT_MAX_S = 5.0  # a worker waits so long for its turn; then it does something else first
LOOK_EVERY_S = 0.1
BUSY_S = (2.0, 10.0)  # when a job whose host is busy comes back, at random in between
ROBOTS_REDIRECTS = 5
FORGET_AFTER = timedelta(days=7)

Ask = Callable[[Address], Answer]


@contextmanager
def turn(host: str, on_wait: Callable[[], None]) -> Iterator[Status]:
    """Be the only one who asks this host, once its pause is over.

    on_wait: called while waiting; it may raise to stop. Raises FetchError with postpone_s when the turn does not come
    within five seconds: the job is to come back then.
    """
    key = named(LockSpace.HOST, host)
    _take(key, host, on_wait)
    try:
        state, _ = Status.objects.get_or_create(kind=Status.Kind.HOST, name=host)
        if at := state.values.get("next_at"):
            _wait_until(datetime.fromisoformat(at), on_wait)
        yield state
    finally:
        release_session_lock(key)


def rest(state: Status, seconds: float) -> None:
    """Nobody asks this host for so long. The caller has its turn."""
    state.made_at = timezone.now()
    state.values["next_at"] = (state.made_at + timedelta(seconds=seconds)).isoformat()
    state.save(update_fields=["values", "made_at"])


def robots_of(state: Status, address: Address, ask: Ask) -> Robots:
    """What the site lets us read, asked for at most once a day. The caller has the host's turn.

    No robots.txt, or any other answer of 400 to 499, allows everything. Raises FetchError, retryable, while the site
    cannot tell: then nothing is read.
    """
    now = timezone.now()
    robots = state.values.setdefault("robots", {})
    known = robots.get(address.origin)
    if known and known["until"] > now.isoformat():
        return Robots(known["rules"])
    rules = _ask_for_rules(address, ask)
    robots[address.origin] = {"rules": rules, "until": (now + timedelta(seconds=KEPT_FOR_S)).isoformat()}
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
    patience_ends = time.monotonic() + TURN_WAIT_MAX_S
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
    if wait_s > TURN_WAIT_MAX_S:
        raise FetchError(
            "waiting_for_host",
            f"the site wants to be left alone for {wait_s:.0f} s more; the job comes back then",
            postpone_s=wait_s + random.uniform(0, settings.RAGD_FETCH_PAUSE_S),  # noqa: S311
        )
    while (left_s := (moment - timezone.now()).total_seconds()) > 0:
        on_wait()
        time.sleep(min(left_s, LOOK_EVERY_S))


def forget_hosts(now: datetime) -> int:
    """Forget hosts that nobody asked for a week; returns how many."""
    return Status.objects.forget(Status.Kind.HOST, now - FORGET_AFTER)


REDIRECTS_MAX = 5
RATE_LIMIT_WAIT_S = 60.0  # when a site that has had enough does not say for how long
RETRY_AFTER_MAX_S = 24 * 3600.0
NAME_MAX_CHARS = 200
HEADER_MAX_CHARS = 500
GONE = (404, 410)
CLOSED = (401, 402, 403, 407, 451)
PASSING = (408, 425, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524)


class Watcher(Protocol):
    """Who is told of the bytes that came; it may raise to stop."""

    def advance(self, done: int, total: int) -> None: ...


class Unwatched:
    """The watcher of what nobody watches."""

    def advance(self, done: int, total: int) -> None:
        return


def make_guard() -> Guard:
    """What may be reached by the settings of this server."""
    return Guard(settings.RAGD_FETCH_ALLOWED_NETWORKS)


def user_agent() -> str:
    """Who asks: name, version, and where its owner can be found."""
    contact = settings.RAGD_FETCH_CONTACT
    return f"ragd/{product_version()}" + (f" (+{contact})" if contact else "")


def read_page(url: str, known: FetchedSource | None, watcher: Watcher) -> FetchResult:
    """What is at an address, or that it is still what `known` says. Raises FetchError, InvalidInput."""
    return _Walk(known, watcher).to(read_address(url))


class _Walk:
    def __init__(self, known: FetchedSource | None, watcher: Watcher) -> None:
        self.known = known
        self.watcher = watcher
        self.guard = make_guard()
        self.max_bytes = settings.RAGD_MAX_DOCUMENT_MB * MEGABYTE
        self.counted = (0, 0)
        self.asked_at: float | None = None  # in the present turn

    def to(self, address: Address) -> FetchResult:
        at = address
        for _ in range(REDIRECTS_MAX + 1):
            answer = self._step(at)
            if not answer.location:
                return self._read(answer)
            try:
                at = at.join(answer.location)
            except InvalidInput as error:
                raise FetchError("bad_redirect", f"{at} leads to where nothing is fetched: {error.message}") from None
        raise FetchError(
            "too_many_redirects", f"{address} led on more than {REDIRECTS_MAX} times; use the address that it ends at"
        )

    def _step(self, address: Address) -> Answer:
        """One request, in the host's turn; the host rests afterwards, for as long as it asks for."""
        with turn(address.host, self._wait) as state:
            self.asked_at = None
            pause_s = settings.RAGD_FETCH_PAUSE_S
            try:
                pause_s = max(pause_s, self._permit(state, address))
                answer = self._ask(address, self._conditions(address))
                wait_s = _wait_asked(answer)
                pause_s = max(pause_s, wait_s or 0)
            except FetchError as error:
                pause_s = max(pause_s, error.postpone_s or 0)
                raise
            finally:
                rest(state, pause_s)
        if wait_s is not None:
            raise FetchError(
                "waiting_for_host",
                f"{address.host} answered {answer.status} and wants to be left alone for {wait_s:.0f} s; the job "
                "comes back then",
                postpone_s=wait_s,
            )
        return answer

    def _permit(self, state: Status, address: Address) -> float:
        """The pause that the site asks programs for, when they may read this at all. Raises FetchError."""
        robots = robots_of(state, address, lambda at: self._ask(at, {}))
        if not robots.allows(address):
            raise FetchError(
                "robots_refused",
                f"the robots.txt of {address.host} asks programs not to read this page; ask its owner for the file, "
                "or upload it yourself",
            )
        return robots.pause_s()

    def _ask(self, address: Address, conditions: dict[str, str]) -> Answer:
        """One request; a second one in the same turn, after robots.txt, waits for the pause too."""
        while self.asked_at and (left_s := self.asked_at + settings.RAGD_FETCH_PAUSE_S - time.monotonic()) > 0:
            self._wait()
            time.sleep(min(left_s, LOOK_EVERY_S))
        self.asked_at = time.monotonic()
        return request(
            address,
            Limits(self.guard, Deadline(settings.RAGD_FETCH_TIMEOUT_S), self.max_bytes, self._count, interruptible),
            headers={"User-Agent": user_agent(), "Accept-Encoding": "gzip", "Connection": "close", **conditions},
        )

    def _conditions(self, address: Address) -> dict[str, str]:
        """Only what is newer than what is kept is to be sent. Another address than then knows nothing of it."""
        if self.known is None or str(address) != self.known.final_address:
            return {}
        asked = {"If-None-Match": self.known.etag, "If-Modified-Since": self.known.last_modified}
        return {name: value for name, value in asked.items() if value}

    def _count(self, done: int, total: int) -> None:
        self.counted = (done, total)
        self.watcher.advance(done, total)

    def _wait(self) -> None:
        """A sign of life while waiting, which also notices that the job was cancelled."""
        self.watcher.advance(*self.counted)

    def _read(self, answer: Answer) -> FetchResult:
        if answer.status == 304 and self.known is not None:
            return FetchResult(
                "",
                None,
                sha256=self.known.sha256,
                etag=self.known.etag,
                last_modified=self.known.last_modified,
                final_address=self.known.final_address,
            )
        if answer.status != 200:
            raise _refusal(answer)
        if not answer.body:
            raise FetchError("empty_content", f"{answer.address} is empty; check the address in a browser")
        return FetchResult(
            _name_of(answer.address),
            answer.body,
            etag=_header(answer, "etag"),
            last_modified=_header(answer, "last-modified"),
            final_address=str(answer.address),
        )


def _wait_asked(answer: Answer) -> float | None:
    """Seconds that the site wants us to wait, at most a day; None when it answered."""
    if answer.status == 429:
        return min(answer.retry_after_s or RATE_LIMIT_WAIT_S, RETRY_AFTER_MAX_S)
    if answer.status == 503 and answer.retry_after_s is not None:
        return min(answer.retry_after_s, RETRY_AFTER_MAX_S)
    return None


def _header(answer: Answer, name: str) -> str:
    """A header's value as it may be kept and sent back; "" for one that no server should send."""
    value = answer.headers.get(name, "")
    return value if len(value) <= HEADER_MAX_CHARS and value.isprintable() and value.isascii() else ""


def _refusal(answer: Answer) -> FetchError:
    message = f"{answer.address.host} answered {answer.status} {answer.reason}".rstrip()
    if answer.status in GONE:
        return FetchError("not_found", f"{message}: there is nothing at {answer.address}; check the address")
    if answer.status in CLOSED:
        return FetchError("not_allowed", f"{message}: it is not shown to a program; download the file and upload it")
    if answer.status in PASSING:
        return FetchError("server_failed", f"{message}; it may work later", retryable=True)
    return FetchError("unexpected_answer", f"{message}, which is no document; check the address in a browser")


def _name_of(address: Address) -> str:
    """A file name for what is at an address."""
    name = clean_line(unquote(posixpath.basename(address.target.partition("?")[0].rstrip("/"))))
    return (name or address.host)[:NAME_MAX_CHARS]
