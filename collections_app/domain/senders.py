"""Where a request comes from: from a program on this machine, as far as the request tells, or from elsewhere."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the supervisor wants `is_loopback` alone
    from django.http import HttpRequest

PROXY_HEADERS = {"Forwarded", "Via", "X-Real-Ip"}  # and X-Forwarded-*


def foreign_sender(request: HttpRequest) -> str:
    """Why the sender may be on another machine; empty when it is here and nothing tells of a proxy between."""
    if not is_loopback(request.META.get("REMOTE_ADDR", "")):
        return "this request came from another"
    proxied = [name for name in request.headers if name in PROXY_HEADERS or name.startswith("X-Forwarded-")]
    return f"this request came through a proxy ({proxied[0]})" if proxied else ""


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine's own."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
