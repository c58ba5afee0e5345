"""Where the requests come from, for the audit log; and an event for every request that is refused."""

from __future__ import annotations

import logging
import re
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest

from collections_app.access.auth import LOCAL_KEY
from collections_app.audit.origin import Channel, Origin
from collections_app.audit.services import Anonymous, Subject, record_event
from collections_app.models import AuditEvent

log = logging.getLogger(__name__)

REFUSED = 403
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CHANNELS = (("/v1/", Channel.API), ("/mcp", Channel.MCP), ("/admin/", Channel.ADMIN))


def origin_of(request: HttpRequest) -> Origin:
    channel = next((channel for path, channel in CHANNELS if request.path.startswith(path)), Channel.WEB)
    if LOCAL_KEY in request.META:
        channel = Channel.CLI
    requested = request.headers.get("X-Request-Id", "")
    return Origin(
        channel=channel,
        address=request.META.get("REMOTE_ADDR", ""),
        request_id=requested if REQUEST_ID.fullmatch(requested) else "",
        find_actor=lambda: caller_of(request),
    )


def caller_of(request: HttpRequest) -> Any:
    """The key or the user of the request; None for neither."""
    key = getattr(request, "api_key", None)
    if key is not None:
        return key
    user = getattr(request, "user", None)
    return user if user is not None and user.is_authenticated else None


def note_refusal(request: HttpRequest, tool: str = "") -> None:
    """The refusal is answered also where it cannot be written down. tool: that of MCP which was called."""
    path = f"{request.path} {tool}".rstrip()
    try:
        record_event(
            Anonymous("somebody without a log-in or a live key"),
            "access.refuse",
            f"refused {request.method} {path[:300]}",
            subject=Subject("address", request.path),
            outcome=AuditEvent.Outcome.REFUSED,
        )
    except DatabaseError:
        log.exception("the audit log does not take that %s was refused", request.path[:300])
