"""A file that is made while it is read, few at once: what every streamed download is made of."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

from django.http import HttpRequest

from collections_app.errors import ServiceError

RETRY_AFTER_S = 5
SEND_TIMEOUT_S = 60.0


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

    Its slot is released at the end, at a failure and by `close`. Raises ServiceError 429 when none is free.
    """

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


def limit_sending(request: HttpRequest) -> None:
    """Give a reader up who takes nothing for SEND_TIMEOUT_S: the thread of the server belongs to others too."""
    if connection := request.META.get("gunicorn.socket"):
        connection.settimeout(SEND_TIMEOUT_S)
