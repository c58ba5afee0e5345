"""Why something could not be fetched."""

from __future__ import annotations

from collections_app.domain.formats import MEGABYTE


class FetchError(Exception):
    """What a server, the net or a rule stood in the way of. kind: a stable word; message: what to do about it.

    retryable: another try may help. postpone_s: not before so many seconds, and that try is not counted; None: at once.
    """

    def __init__(self, kind: str, message: str, *, retryable: bool = False, postpone_s: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = retryable
        self.postpone_s = postpone_s


def too_large(limit: int) -> FetchError:
    """limit: in bytes."""
    return FetchError(
        "too_large",
        f"it has more than {limit / MEGABYTE:g} MB; at most that is taken. Raise RAGD_MAX_DOCUMENT_MB, or take a part",
    )
