"""Refuses requests of programs that have waited for a thread too long, so that the others are not slow as well.

A request that has waited longer than RAGD_QUEUE_MAX_S is answered at once with 503 and Retry-After: answering it would
let those behind it wait as long. Pages for people are always answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from collections_app.errors import error_body

REFUSED = ("/v1/", "/mcp", "/a/")
NEVER_REFUSED = ("/v1/health",)

_waited = threading.local()


def stamp(pool: Executor) -> None:
    """Let each task of the pool know how long it waited for a thread."""
    submit = pool.submit

    def stamped(task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        began = time.monotonic()

        def run() -> Any:
            _waited.seconds = time.monotonic() - began
            return task(*args, **kwargs)

        return submit(run)

    pool.submit = stamped  # type: ignore[method-assign]


def take_wait_s() -> float:
    """For how long the task of this thread waited; 0 when it is asked again, and where no pool is stamped."""
    seconds: float = getattr(_waited, "seconds", 0.0)
    _waited.seconds = 0.0
    return seconds


class BackPressureMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        wait_s, limit_s = take_wait_s(), settings.RAGD_QUEUE_MAX_S
        if limit_s and wait_s > limit_s and request.path.startswith(REFUSED) and request.path not in NEVER_REFUSED:
            message = (
                f"this server has more requests than it can answer: this one waited {wait_s:.1f} s, and at most"
                f" {limit_s:g} s is allowed (RAGD_QUEUE_MAX_S). Ask again after the seconds of Retry-After"
            )
            retry_after = {"Retry-After": str(int(wait_s) + 1)}
            return JsonResponse(error_body("overloaded", message), status=503, headers=retry_after)
        return self.get_response(request)
