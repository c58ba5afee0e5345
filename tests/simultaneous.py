"""Calls that begin at the same moment, each in a thread with a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connection

Answer = TypeVar("Answer")


def call_together(*calls: Callable[[], Answer]) -> list[Answer]:
    """Their answers, in the order of the calls. Raises what the first of them raised that failed."""
    gate = threading.Barrier(len(calls))

    def make(call: Callable[[], Answer]) -> Answer:
        gate.wait()
        try:
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(make, calls))
