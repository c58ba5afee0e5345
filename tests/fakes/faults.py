"""What a scripted request meets in place of a good answer. `OpenAIServer.script` takes them in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"


@dataclass(frozen=True)
class Fault:
    """Wait `delay_s`; then reset the connection, or answer `status` with `body`, or `alter` the good answer's JSON.

    Nothing set but the delay: the good answer, late. `drip_s` sends the body one byte at a time with that pause;
    `cut_after` closes the connection after that many bytes of it (or server-sent events of a stream).
    """

    status: int | None = None
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = JSON
    delay_s: float = 0.0
    drip_s: float = 0.0
    cut_after: int | None = None
    reset: bool = False
    alter: Callable[[dict[str, Any]], object] | None = None


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


def rate_limited(retry_after: str | None = None) -> Fault:
    """429; retry_after is the header's text: seconds or an HTTP date."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Fault(429, error_body("Rate limit reached for requests", "requests", "rate_limit_exceeded"), headers)


def out_of_quota() -> Fault:
    return Fault(429, error_body("You exceeded your current quota", "insufficient_quota", "insufficient_quota"))


def failing(status: int = 500, **headers: str) -> Fault:
    said = {401: "Incorrect API key provided", 400: "Invalid input", 404: "The model does not exist"}
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return Fault(status, error_body(said.get(status, "The server had an error"), kind), headers)


def slow(seconds: float) -> Fault:
    return Fault(delay_s=seconds)


def dripping(pause_s: float) -> Fault:
    return Fault(drip_s=pause_s)


def bad_json() -> Fault:
    return Fault(200, b'{"object": "list", "data": [{"emb')


def not_json() -> Fault:
    return Fault(200, b"<html><body>Gateway</body></html>", content_type="text/html")


def connection_reset() -> Fault:
    return Fault(reset=True)


def cut_short(after: int) -> Fault:
    return Fault(cut_after=after)


def fewer_vectors() -> Fault:
    return Fault(alter=lambda answer: answer | {"data": answer["data"][:-1]})


def repeated_index() -> Fault:
    return Fault(alter=lambda answer: answer | {"data": [row | {"index": 0} for row in answer["data"]]})


def reversed_rows() -> Fault:
    """A good answer whose rows come last first, each with its right index."""
    return Fault(alter=lambda answer: answer | {"data": answer["data"][::-1]})


def without(*names: str) -> Fault:
    """A good answer without these top-level names."""
    return Fault(alter=lambda answer: {name: value for name, value in answer.items() if name not in names})


def with_vectors(vector: object) -> Fault:
    """Every row carries this vector."""
    return Fault(alter=lambda answer: answer | {"data": [row | {"embedding": vector} for row in answer["data"]]})
