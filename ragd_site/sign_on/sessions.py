"""Sessions of people: when they were last used, from where, and their end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase

TOUCH_S = 300  # a session is written at most this often
SEEN_KEY = "seen_at"
BROWSERS = [
    ("Edge", r"Edg[A-Z]*/(\d+)"),
    ("Opera", r"OPR/(\d+)"),
    ("Firefox", r"Firefox/(\d+)"),
    ("Chrome", r"Chrom(?:e|ium)/(\d+)"),
    ("Safari", r"Version/(\d+)[\d.]* .*Safari/"),
]
SYSTEMS = [
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("macOS", "Mac OS X"),
    ("Linux", "Linux"),
]


class SessionActivityMiddleware:
    """Keeps when and from where a session was used, and moves its end on. Stands behind the log-in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.user.is_authenticated and not is_fresh(request):
            request.session[SEEN_KEY] = int(time.time())
            UserSession.objects.create_from_request(request)
        return self.get_response(request)


def is_fresh(request: HttpRequest) -> bool:
    seen_at = request.session.get(SEEN_KEY)
    return isinstance(seen_at, int) and 0 <= time.time() - seen_at < TOUCH_S


@dataclass(frozen=True)
class SessionRow:
    """One session as its page shows it."""

    pk: int
    device: str
    address: str
    began_at: datetime
    seen_at: datetime
    is_current: bool


def list_sessions(user: User, current_key: str | None) -> list[SessionRow]:
    """Live sessions, the present one first, then by last use, newest first."""
    rows = [
        SessionRow(
            pk=session.pk,
            device=name_device(session.user_agent),
            address=session.ip,
            began_at=session.created_at,
            seen_at=session.last_seen_at,
            is_current=session.session_key == current_key,
        )
        for session in UserSession.objects.purge_and_list(user)
    ]
    return sorted(rows, key=lambda row: (row.is_current, row.seen_at), reverse=True)


def end_sessions(user: User, *, keep_key: str | None = None, pk: int | None = None) -> int:
    """End one session of a user, or all but the one with `keep_key`; how many ended."""
    found = UserSession.objects.filter(user=user).exclude(session_key=keep_key or "")
    if pk is not None:
        found = found.filter(pk=pk)
    ended = list(found)
    for session in ended:
        session.end()
    return len(ended)


def name_device(user_agent: str) -> str:
    """Mozilla/5.0 (X11; Linux x86_64) ... Firefox/130.0 -> Firefox 130, Linux; else the beginning of what came."""
    browser = next((f"{name} {found[1]}" for name, shape in BROWSERS if (found := re.search(shape, user_agent))), "")
    system = next((name for name, sign in SYSTEMS if sign in user_agent), "")
    return ", ".join(filter(None, [browser, system])) or user_agent[:60]
