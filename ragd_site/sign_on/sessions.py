"""Sessions of people: when they were last used, from where, and their end.

Whoever must have a second factor is led to its pages until there is one.

Log-in links, which the shell makes: they work once, for 15 minutes (PASSWORD_RESET_TIMEOUT).

Wrong passwords: 10 in 15 minutes by one name from one address, or 50 by any names from one address, lock it out.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from allauth.usersessions.models import UserSession
from axes.attempts import get_cool_off_threshold
from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode
from django.utils.translation import gettext

from ragd_site.sign_on.adapters import is_by_proxy

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
    ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("macOS", "Mac OS X"),
    ("Linux", "Linux"),
]  # fmt: skip


def note_use(request: HttpRequest) -> None:
    """Keep when and from where a session was used, and move its end on."""
    if request.user.is_authenticated and not is_fresh(request):
        request.session[SEEN_KEY] = int(time.time())
        UserSession.objects.create_from_request(request)


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


FACTORS = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]
OPEN_PAGES = {
    "account_reauthenticate", "collections:theme", "login", "logout", "mfa_activate_totp", "mfa_add_webauthn",
    "mfa_index", "mfa_reauthenticate", "mfa_reauthenticate_webauthn",
}  # fmt: skip


def lead_to_factor(request: HttpRequest, view: Any) -> HttpResponse | None:
    """To its page, where one is required and missing. Pages without a log-in stay open.

    People whom a proxy names are the proxy's to check.
    """
    match = request.resolver_match
    if not getattr(view, "login_required", True) or (match and match.view_name in OPEN_PAGES):
        return None
    if not must_have_factor(request) or is_mfa_enabled(request.user, FACTORS):
        return None
    messages.warning(request, gettext("Set up a second factor first: ragd requires one of you."))
    return redirect("mfa_index")


def must_have_factor(request: HttpRequest) -> bool:
    """Whether RAGD_REQUIRE_MFA means who is logged in."""
    user = request.user
    if not settings.RAGD_REQUIRE_MFA or not user.is_authenticated or is_by_proxy(request):
        return False
    return settings.RAGD_REQUIRE_MFA == "everyone" or user.is_staff or user.is_superuser


class LinkTokens(PasswordResetTokenGenerator):
    """Signed over the last log-in and the password: a log-in ends every link made before."""

    key_salt = "ragd_site.sign_on.sessions"


tokens = LinkTokens()


def link_path(user: User) -> str:
    code = urlsafe_base64_encode(str(user.pk).encode())
    return reverse("login_link", args=[code, tokens.make_token(user)])


def user_of_link(code: str, token: str) -> Any:
    """The user, or None when the link is wrong, used or too old."""
    try:
        pk = int(urlsafe_base64_decode(code).decode())
        user = User.objects.get(pk=pk, is_active=True)
    except (ValueError, OverflowError, User.DoesNotExist):
        return None
    return user if tokens.check_token(user, token) else None


ADDRESS_SHARE = 5  # an address alone may fail this many times as often as a name from it


class AttemptsHandler(AxesDatabaseHandler):  # type: ignore[misc]
    """Counts an address beside the name. A log-in that succeeds forgives its own name only: else somebody with an
    account could try passwords of others without end."""

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        by_name: int = super().get_failures(request, credentials)
        found = AccessAttempt.objects.filter(
            ip_address=request.axes_ip_address, attempt_time__gte=get_cool_off_threshold(request)
        ).aggregate(total=Sum("failures_since_start"))
        return max(by_name, (found["total"] or 0) // ADDRESS_SHARE)  # axes compares it with its one limit
