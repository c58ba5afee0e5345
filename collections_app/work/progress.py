"""What one attempt tells of itself in the columns of its row."""

from __future__ import annotations

import time
from typing import Any, Generic, TypeVar

from collections_app.work.leased_work import LeasedWork
from collections_app.work.leases import Lease

W = TypeVar("W", bound=LeasedWork)

WRITE_EVERY_S = 0.5


class Progress(Generic[W]):
    """Writes through the lease: every write says which attempt it belongs to, and extends the lease."""

    def __init__(self, lease: Lease[W]) -> None:
        self.lease = lease
        self.written_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last write is half a second ago. What changes quickly is written only then."""
        return time.monotonic() - self.written_at >= WRITE_EVERY_S

    def write(self, **values: Any) -> None:
        """Set these columns of the row and of `lease.work`. Raises LeaseLostError; the row is then as it was."""
        self.lease.heartbeat(**values)
        self.written_at = time.monotonic()
        for name, value in values.items():
            setattr(self.lease.work, name, value)
