"""Requests that waited for a thread too long are refused, those of programs alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.test import Client

from ragd_site.access import middleware
from ragd_site.access.middleware import stamp, take_wait_s


def test_a_task_knows_how_long_it_waited() -> None:
    with ThreadPoolExecutor(1) as pool:
        stamp(pool)
        first = pool.submit(time.sleep, 0.2)
        second = pool.submit(lambda: (take_wait_s(), take_wait_s()))
        third = pool.submit(lambda number, *, more: number + more, 1, more=2)
    waited, again = second.result()
    assert first.result() is None and 0.15 < waited < 30 and again == 0.0 and third.result() == 3
    assert take_wait_s() == 0.0, "this thread is of no pool"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "waited_s", "limit_s", "is_refused"),
    [
        ("/v1/collections", 1.6, 1.0, True), ("/v1/collections", 0.9, 1.0, False),
        ("/v1/collections", 60.0, 0.0, False),
        ("/v1/health", 60.0, 1.0, False), ("/accounts/login/", 60.0, 1.0, False), ("/a/guide/", 60.0, 1.0, True),
    ],
)  # fmt: skip
def test_what_waited_too_long_is_told_when_to_ask_again(
    client: Client, settings: Any, path: str, waited_s: float, limit_s: float, is_refused: bool
) -> None:
    settings.RAGD_QUEUE_MAX_S = limit_s
    middleware._waited.seconds = waited_s
    answer = client.get(path)
    assert (answer.status_code == 503) is is_refused
    if is_refused:
        assert answer.json()["error"]["type"] == "overloaded" and int(answer["Retry-After"]) > waited_s
        assert client.get("/v1/health").status_code == 200, "only this one"
