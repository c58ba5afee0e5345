"""Pages over all spans are read within a bound: who asks for too much, or of a locked store, is told so soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

READ_BRIEFLY = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '8s'"


@contextmanager
def read_briefly() -> Iterator[None]:
    """Statements inside wait for a lock 2 s at most and take 8 s at most; else django.db.OperationalError."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(READ_BRIEFLY)
        yield
