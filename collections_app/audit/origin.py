"""Where a change or a reading comes from: the channel, the address and who asked, carried beside the calls.

A middleware sets it for requests, the command line and the worker for their processes' work, so that services need not
hand it on. It imports no models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Channel(StrEnum):
    WEB = "web"
    API = "api"
    MCP = "mcp"
    CLI = "cli"
    ADMIN = "admin"
    WORKER = "worker"


def nobody() -> Any:
    """For what no request asked for."""
    return None


@dataclass(frozen=True, slots=True)
class Origin:
    """address: the client's, "" where there is none. request_id: of the request or of its trace, "" without one.

    find_actor: who asked, as far as it is known when it is called: a user, an API key or None.
    """

    channel: str = Channel.CLI
    address: str = ""
    request_id: str = ""
    find_actor: Callable[[], Any] = nobody


_current: ContextVar[Origin] = ContextVar("audit_origin")
_process = Origin()


def current_origin() -> Origin:
    """That of the block, else that of the process."""
    return _current.get(_process)


@contextmanager
def using_origin(origin: Origin) -> Iterator[Origin]:
    token = _current.set(origin)
    try:
        yield origin
    finally:
        _current.reset(token)


def set_process_channel(channel: Channel) -> None:
    """What this process does without a request comes by this channel."""
    global _process
    _process = Origin(channel=channel)
