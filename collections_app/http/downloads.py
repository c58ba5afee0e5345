"""A file that is made while it is read, few at once: what every streamed download is made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header

from collections_app.audit.origin import Origin, current_origin, using_origin
from collections_app.audit.services import NOTHING, Subject, record_event
from collections_app.errors import ServiceError

RETRY_AFTER_S = 5
SEND_TIMEOUT_S = 60.0
BATCH = 200


class DownloadSlots:
    """How many downloads of one kind a process reads at once, since each takes a thread until its reader has read it.

    what: their kind in the refusal, such as "runs".
    """

    def __init__(self, at_once: int, what: str) -> None:
        self.at_once, self.what = at_once, what
        self._free = threading.BoundedSemaphore(at_once)

    def acquire(self) -> None:
        """Raises ServiceError 429 when no slot is free."""
        if not self._free.acquire(blocking=False):
            raise ServiceError(
                f"{self.at_once} downloads of {self.what} run already; try again when one of them has ended",
                type="too_many_exports",
                status=429,
                retry_after_s=RETRY_AFTER_S,
            )

    def release(self) -> None:
        self._free.release()


class LimitedDownload:
    """Iterate it for its bytes, once; `close` ends it early and may be called twice.

    Its slot is released at the end, at a failure, by `close`, and with the object where nobody closes it. Raises
    ServiceError 429 when none is free.
    """

    _is_open = False

    def __init__(self, slots: DownloadSlots, pieces: Generator[bytes]) -> None:
        slots.acquire()
        self._slots, self._pieces, self._is_open = slots, pieces, True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._slots.release()
            self._pieces.close()

    def __del__(self) -> None:
        if self._is_open:
            self._is_open = False
            self._slots.release()


def limit_sending(request: HttpRequest) -> None:
    """Give a reader up who takes nothing for SEND_TIMEOUT_S: the thread of the server belongs to others too."""
    if connection := request.META.get("gunicorn.socket"):
        connection.settimeout(SEND_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the audit log keeps of texts that leave in a file. rows: how many, None where nobody knows before; then
    `count` tells it at the end, in a second event."""

    action: str
    message: str
    subject: Model | Subject = NOTHING
    rows: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    count: Callable[[], int] | None = None

    def note(self, sent: Mapping[str, Any] | None = None) -> None:
        known = {} if self.rows is None else {"rows": self.rows}
        action = self.action if sent is None else f"{self.action}.sent"
        record_event(None, action, self.message, subject=self.subject, after={**known, **self.details, **(sent or {})})


def download_response(
    request: HttpRequest,
    pieces: Iterable[bytes] | Iterable[str],
    content_type: str,
    name: str,
    *,
    reading: Reading | None,
    inline: bool = False,
) -> StreamingHttpResponse:
    """The answer that downloads a file, or with `inline` shows it.

    It ends when its reader leaves, or takes nothing for a minute.

    reading: what the audit log keeps of it, before the first byte leaves; None where it was told already.
    """
    limit_sending(request)
    if reading is not None:
        try:
            reading.note()
        except BaseException:
            _close(pieces)
            raise
        if reading.count is not None:
            pieces = _counted(pieces, reading, current_origin())
    disposition = content_disposition_header(not inline, name) or ("inline" if inline else "attachment")
    headers = {"Content-Disposition": disposition, "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(pieces, content_type=content_type, headers=headers)


def _counted(pieces: Iterable[Any], reading: Reading, origin: Origin) -> Generator[Any]:
    """The pieces, and at their end, or when the reader leaves, an event with what was sent."""
    complete = False
    try:
        yield from pieces
        complete = True
    finally:
        _close(pieces)
        with using_origin(origin):
            reading.note({"rows": reading.count() if reading.count else 0, "complete": complete})


def _close(pieces: Any) -> None:
    if hasattr(pieces, "close"):
        pieces.close()


def read_batches(
    rows: QuerySet[Any], time_field: str, *, newest_first: bool = False, limit: int | None = None
) -> Iterator[list[Any]]:
    """The rows by (time_field, id), each batch by a statement of its own that begins after the last row.

    No transaction stays open, however slow the reader. Rows that are stored meanwhile are read if their place is still
    to come. limit: at most so many rows.
    """
    sign, after = ("-", "lt") if newest_first else ("", "gt")
    ordered = rows.order_by(f"{sign}{time_field}", f"{sign}id")
    following = Q()
    while limit is None or limit > 0:
        requested = BATCH if limit is None else min(limit, BATCH)
        batch = list(ordered.filter(following)[:requested])
        if batch:
            yield batch
        if len(batch) < requested:
            return
        last = getattr(batch[-1], time_field)
        following = Q(**{f"{time_field}__{after}": last}) | Q(**{time_field: last, f"id__{after}": batch[-1].pk})
        limit = None if limit is None else limit - len(batch)
