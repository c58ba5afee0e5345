"""Limits of keys are counted exactly also where many requests come at once."""

from __future__ import annotations

import threading

from django.db import connection

from collections_app.access.context import Access, Limit
from collections_app.access.limits import LimitReached, count_request
from ragd.store.store import fetch_all
from tests.keys.test_limits import still_minute


def test_many_at_once_are_counted_exactly(committed: None) -> None:
    access = Access(limits=(Limit("key:1", 50), Limit("user:1", 1000)))
    count_request(access)
    still_minute()
    answered: list[bool] = []
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait()
        for _ in range(20):
            try:
                count_request(access)
                answered.append(True)
            except LimitReached:
                answered.append(False)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answered), sum(answered)) == (160, 49)
    assert dict(fetch_all(connection, "SELECT holder, requests FROM usage_counts")) == {"key:1": 161, "user:1": 161}
