"""Model endpoints as all workers share them: a breaker and a bucket per endpoint, in PostgreSQL.

After a few failures in a row, or when the endpoint asks for a pause, the breaker opens: nobody asks it until the pause
is over, and then one request at a time tries it until one succeeds. Work that meets an open breaker waits; it has not
failed. The bucket fills at the limit per minute, and who takes more than there is sleeps for its share.

Calls that wait for endpoints, a few at a time in threads.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

from django.conf import settings
from django.db import connection, connections
from django.utils import timezone

from collections_app.endpoints.endpoints import embedding_endpoint
from collections_app.endpoints.model_folders import is_folder_model
from collections_app.index.stores import LOCAL_MODELS, embedder_for
from collections_app.jobs.leases import interruptible
from collections_app.models import Collection, Provider
from ragd import telemetry
from ragd.errors import DimensionMismatch, EmbedderError
from ragd.models.embedding import answers
from ragd.models.openai_client import OPENAI_URL, asked_once, public_address
from ragd.text.windows import average_windows, halve_text
from ragd.types import Embedder, Vector

OPEN_AFTER = 3  # failures in a row
OPEN_S = 15.0
OPEN_MAX_S = 300.0
ASKED_MAX_S = 3600.0  # of Retry-After that is believed
SHORT_S = 2.0  # a pause that is not worth telling the others
PROBE_S = 120.0
SLEEP_MAX_S = 30.0  # for the bucket; longer than that the job waits instead of its worker
SPREAD_S = 3.0
WRONG = ("rejected", "count", "invalid_vector", "dimensions")  # of an answer that a text may be to blame for
PIECE_MIN_CHARS = 50
BEGINNING_CHARS = 80
CALLS_AT_ONCE = 4

Argument = TypeVar("Argument")
Result = TypeVar("Result")

TRY = """
UPDATE providers SET probe_until = %(probe_until)s
WHERE name = %(name)s AND open_until <= %(now)s AND (probe_until IS NULL OR probe_until <= %(now)s)
"""

# The pause doubles with each failure beyond those that opened the breaker.
FAIL = """
INSERT INTO providers AS p (name, failures, error, failed_at, open_until, opened_at)
VALUES (%(name)s, 1, %(error)s, %(now)s, %(asked_until)s, CASE WHEN %(asked_until)s IS NOT NULL THEN %(now)s END)
ON CONFLICT (name) DO UPDATE SET
    failures = p.failures + 1, error = %(error)s, failed_at = %(now)s, probe_until = NULL,
    open_until = CASE
        WHEN p.failures + 1 >= %(open_after)s THEN greatest(
            %(asked_until)s,
            %(now)s + make_interval(
                secs => least(%(open_s)s * power(2, least(p.failures + 1 - %(open_after)s, 10)), %(open_max_s)s)))
        ELSE greatest(p.open_until, %(asked_until)s) END,
    opened_at = CASE
        WHEN p.failures + 1 >= %(open_after)s OR %(asked_until)s IS NOT NULL THEN coalesce(p.opened_at, %(now)s)
        ELSE p.opened_at END
RETURNING open_until
"""

# What is taken may leave less than nothing: that is the share which the taker waits for.
TAKE = """
INSERT INTO providers AS p (name, failures, error, requests_left, tokens_left, filled_at)
VALUES (%(name)s, 0, '', %(requests_cap)s::float - 1, %(tokens_cap)s::float - %(tokens)s, %(now)s)
ON CONFLICT (name) DO UPDATE SET
    requests_left = least(%(requests_cap)s::float, coalesce(p.requests_left, %(requests_cap)s::float)
        + %(requests_rate)s * extract(epoch FROM %(now)s - coalesce(p.filled_at, %(now)s))) - 1,
    tokens_left = least(%(tokens_cap)s::float, coalesce(p.tokens_left, %(tokens_cap)s::float)
        + %(tokens_rate)s * extract(epoch FROM %(now)s - coalesce(p.filled_at, %(now)s))) - %(tokens)s,
    filled_at = %(now)s
RETURNING requests_left, tokens_left
"""

GIVE_BACK = """
UPDATE providers SET requests_left = requests_left + 1, tokens_left = tokens_left + %(tokens)s WHERE name = %(name)s
"""


class EndpointWaitsError(EmbedderError):
    """The endpoint is not to be asked before `until`; what needed it can wait."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message, kind="unavailable", retryable=True)
        self.until = until
        self.retry_after_s = max(1.0, (until - timezone.now()).total_seconds())


class TextRefusedError(EmbedderError):
    """The endpoint embeds a harmless text and refuses these. vectors: of the texts before the refused one."""

    def __init__(self, message: str, *, kind: str, vectors: Sequence[Vector] = ()) -> None:
        super().__init__(message, kind=kind, retryable=kind != "rejected")  # a refusal in so many words stays
        self.vectors = list(vectors)

    def naming(self, text: str) -> TextRefusedError:
        """The same error with the beginning of the refused text."""
        beginning = " ".join(text.split())[:BEGINNING_CHARS]
        message = f"{self.message}; the text that it refuses begins with {beginning!r}"
        return TextRefusedError(message, kind=self.kind)


@dataclass(frozen=True, slots=True)
class ProviderState:
    """An endpoint for people. state: "closed" (all is well), "open" (nobody asks it), "half-open" (it may be tried)."""

    name: str
    state: str
    failures: int
    error: str
    failed_at: datetime | None
    opened_at: datetime | None
    open_until: datetime | None


def provider_name(model: str) -> str:
    """The key of the endpoint that serves a model; "" for one of this process."""
    if model in LOCAL_MODELS or is_folder_model(model):
        return ""
    endpoint = embedding_endpoint(model)
    return f"{public_address(endpoint.address if endpoint else OPENAI_URL)} {model}"[:300]


def provider_states(now: datetime) -> list[ProviderState]:
    """Every endpoint that was ever in trouble or limited, by name."""
    return [
        ProviderState(row.name, _state(row, now), row.failures, row.error, row.failed_at, row.opened_at, row.open_until)
        for row in Provider.objects.all()
    ]


def _state(row: Provider, now: datetime) -> str:
    if row.open_until is None:
        return "closed"
    return "open" if row.open_until > now else "half-open"


def open_providers() -> set[str]:
    """Names of those whose breaker is not closed."""
    return set(Provider.objects.filter(open_until__isnull=False).values_list("name", flat=True))


def require_endpoint(collection: Collection) -> None:
    """Before work that will need the collection's endpoint. EndpointWaitsError when it is not to be asked now.

    It takes no try of a half-open breaker. For the local model nothing is looked up.
    """
    name = provider_name(collection.embed_model)
    if name:
        row = Provider.objects.filter(name=name, open_until__gt=timezone.now()).first()
        if row is not None:
            raise _waits(row)


def ingest_embedder(model: str, dims: int, with_tokens: bool = False) -> Embedder:
    """The embedder for work that can wait: guarded by the breaker and the bucket, interrupted when its job is lost.

    with_tokens: as for `embedder_for`.
    """
    inner = embedder_for(model, dims, with_tokens)
    name = provider_name(model)
    return GuardedEmbedder(inner, name) if name else inner


class GuardedEmbedder:
    """An endpoint's embedder behind its breaker and bucket.

    A request that fails is told from an endpoint that is away by a harmless text (`answers`): only when that fails too
    does the breaker count it. Else a batch is halved until the refused text is alone, and that one is embedded in
    pieces.
    """

    def __init__(self, inner: Embedder, name: str) -> None:
        self.inner, self.name = inner, name
        self.model, self.dims, self.window, self.system = inner.model, inner.dims, inner.window, inner.system
        self.server_address = getattr(inner, "server_address", None)
        self.server_port = getattr(inner, "server_port", None)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """As the inner one. Raises EndpointWaitsError, TextRefusedError, and LeaseLostError when the job was cancelled.

        After a refusal no request is repeated, so that one text holds nobody up.
        """
        if not texts:
            return []
        try:
            return self._ask(texts)
        except TextRefusedError as refusal:
            with asked_once():
                return self._embed_apart(texts, refusal)

    def embed_query(self, text: str) -> Vector:
        return self._ask([text], is_query=True)[0]

    def count_tokens(self, text: str) -> int:
        return self.inner.count_tokens(text)

    def _embed_apart(self, texts: Sequence[str], refusal: TextRefusedError) -> list[Vector]:
        """The vectors of texts that the endpoint refuses together: of halves, and of each refused text by its pieces.

        Raises TextRefusedError with the vectors of the texts before the refused one.
        """
        if len(texts) == 1:
            return [self._embed_in_pieces(texts[0], refusal)]
        middle = len(texts) // 2
        vectors: list[Vector] = []
        for half in (texts[:middle], texts[middle:]):
            try:
                vectors += self._ask(half)
            except TextRefusedError as error:
                try:
                    vectors += self._embed_apart(half, error)
                except TextRefusedError as found:
                    found.vectors = vectors + found.vectors
                    raise
        return vectors

    def _embed_in_pieces(self, text: str, refusal: TextRefusedError) -> Vector:
        """The mean of pieces, each halved until it passes. TextRefusedError once one is too short to be halved."""
        vectors: list[Vector] = []
        sizes: list[int] = []
        refused = [(text, refusal)]
        while refused:
            piece, error = refused.pop()
            if len(piece) < 2 * PIECE_MIN_CHARS:
                raise error.naming(piece) from error
            for half in halve_text(piece, partial(_is_short, len(piece) // 2 + 1)):
                try:
                    vectors += self._ask([half])
                    sizes.append(len(half))
                except TextRefusedError as further:
                    refused.append((half, further))
        return cast(Vector, average_windows(vectors, sizes))

    def _ask(self, texts: Sequence[str], *, is_query: bool = False) -> list[Vector]:
        row = self._enter()
        tokens = sum(self.inner.count_tokens(text) for text in texts) if settings.RAGD_EMBED_TOKENS_PER_MINUTE else 0
        wait_s = self._take(tokens)
        try:
            with interruptible(), telemetry.waited(wait_s * 1000):
                vectors = [self.inner.embed_query(texts[0])] if is_query else self.inner.embed(texts)
        except (EmbedderError, DimensionMismatch) as error:
            raise self._judge(error, row) from error
        self._succeed(row)
        return vectors

    def _judge(self, error: EmbedderError | DimensionMismatch, row: Provider | None) -> Exception:
        """What a failed request means: these texts are refused, every text would be, or the endpoint is away."""
        kind = error.kind if isinstance(error, EmbedderError) else "dimensions"
        may_wait = isinstance(error, EmbedderError) and error.retryable
        if kind in WRONG or (may_wait and kind != "rate_limited"):
            with interruptible():
                is_refusal = answers(self.inner)
            if is_refusal:
                self._succeed(row)
                return TextRefusedError(error.message, kind=kind)
        if may_wait:
            until = self._fail(cast(EmbedderError, error))
            return (
                error
                if until is None
                else EndpointWaitsError(
                    f"waiting for the embedding endpoint until {until:%H:%M:%S} UTC: {error.message}", until
                )
            )
        self._succeed(row)
        if kind in ("count", "invalid_vector"):  # a wrong answer may be a right one later
            return EmbedderError(error.message, kind=kind, retryable=True)
        return error

    def _enter(self) -> Provider | None:
        """What is known of the endpoint; None: nothing bad. Takes the try when the breaker is half open."""
        row = Provider.objects.filter(name=self.name).first()
        if row is None or row.open_until is None:
            return row
        now = timezone.now()
        with connection.cursor() as cursor:
            cursor.execute(TRY, {"name": self.name, "now": now, "probe_until": now + timedelta(seconds=PROBE_S)})
            if cursor.rowcount:
                return row
        raise _waits(row)

    def _succeed(self, row: Provider | None) -> None:
        if row is not None and (row.failures or row.open_until is not None):
            Provider.objects.filter(name=self.name).update(
                failures=0, open_until=None, opened_at=None, probe_until=None, error=""
            )

    def _fail(self, error: EmbedderError) -> datetime | None:
        """Until when nobody is to ask; None: the breaker is closed."""
        now = timezone.now()
        asked_s = error.retry_after_s or 0.0
        asked = now + timedelta(seconds=min(asked_s, ASKED_MAX_S)) if asked_s > SHORT_S else None
        values: dict[str, Any] = {
            "name": self.name, "error": error.message[:2000], "now": now, "asked_until": asked,
            "open_after": OPEN_AFTER, "open_s": OPEN_S, "open_max_s": OPEN_MAX_S,
        }  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute(FAIL, values)
            (until,) = cursor.fetchone()
        return until if until is not None and until > now else None

    def _take(self, tokens: int) -> float:
        """A request and so many tokens out of the bucket, after the wait that this means; returns its seconds."""
        requests_rate = settings.RAGD_EMBED_REQUESTS_PER_MINUTE / 60
        tokens_rate = settings.RAGD_EMBED_TOKENS_PER_MINUTE / 60
        if not requests_rate and not tokens_rate:
            return 0.0
        values: dict[str, Any] = {
            "name": self.name, "now": timezone.now(), "tokens": tokens,
            "requests_cap": max(1.0, requests_rate * 10), "requests_rate": requests_rate,
            "tokens_cap": max(1.0, tokens_rate * 10), "tokens_rate": tokens_rate,
        }  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute(TAKE, values)
            requests_left, tokens_left = cursor.fetchone()
        waits = [-left / rate for left, rate in ((requests_left, requests_rate), (tokens_left, tokens_rate)) if rate]
        wait_s = max(waits)
        if wait_s > SLEEP_MAX_S:
            with connection.cursor() as cursor:
                cursor.execute(GIVE_BACK, values)
            until = timezone.now() + timedelta(seconds=wait_s)
            raise EndpointWaitsError("waiting for the embedding endpoint: its limit per minute is used up", until)
        if wait_s > 0:
            with interruptible():
                time.sleep(wait_s)
        return max(0.0, float(wait_s))


def _is_short(most: int, piece: str) -> bool:
    return len(piece) <= most


def _waits(row: Provider) -> EndpointWaitsError:
    """Of a breaker that is open, or that another one is trying now."""
    now = timezone.now()
    until = max(row.open_until or now, now) + timedelta(seconds=random.uniform(0.5, SPREAD_S))  # noqa: S311
    return EndpointWaitsError(f"waiting for the embedding endpoint: {row.error}", until)


def at_once(
    act: Callable[[Argument], Result], arguments: Iterable[Argument], calls: int = CALLS_AT_ONCE
) -> Generator[Result]:
    """What act() makes of each, in order; `calls` of them are under way while the first is waited for.

    Each runs in the caller's context and with a connection of its own, which does not see what the caller has not
    committed. One call: each is made in this thread, when it is asked for. What act() raises comes in its place and
    ends the iteration; closing it leaves out what has not begun and waits for the rest.
    """
    if calls == 1:
        yield from map(act, arguments)
        return
    with ThreadPoolExecutor(calls, thread_name_prefix="ragd-call") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for each in arguments:
                waiting.append(pool.submit(copy_context().run, _closing, act, each))
                if len(waiting) == calls:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _closing(act: Callable[[Argument], Result], argument: Argument) -> Result:
    """In a thread of its own, whose connections nobody else would close."""
    try:
        return act(argument)
    finally:
        connections.close_all()
