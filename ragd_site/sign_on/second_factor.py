"""Whoever must have a second factor is led to its pages until there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext

from ragd_site.sign_on.proxies import is_by_proxy

FACTORS = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]
OPEN_PAGES = {
    "account_reauthenticate",
    "collections:theme",
    "login",
    "logout",
    "mfa_activate_totp",
    "mfa_add_webauthn",
    "mfa_index",
    "mfa_reauthenticate",
    "mfa_reauthenticate_webauthn",
}


class SecondFactorMiddleware:
    """Pages that need no log-in stay open, and the API, which takes keys. A proxy's people are the proxy's to check."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
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
