"""Calls that wait for others, a few at a time in threads: of models at endpoints."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from django.db import connections

CALLS_AT_ONCE = 4
Argument = TypeVar("Argument")
Result = TypeVar("Result")


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
