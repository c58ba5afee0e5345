"""Requests without a session, and pages that are not there: what each is told."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.csrf import csrf_failure

from ragd_site.access.missing import spell_missing

LOGIN_HEADER = "Ragd-Login"  # with 401: where a script leads to, and back from with what was typed


def is_of_script(request: HttpRequest) -> bool:
    """Whether a script waits for the answer: htmx, a fetch of the pages, an event stream."""
    return "HX-Request" in request.headers or "text/event-stream" in request.headers.get("Accept", "")


class PageLoginMiddleware(LoginRequiredMiddleware):
    """A page leads to the log-in and back. A script is told with 401, as it would take the log-in for its part.

    What was sent by a form leads back to the page of the form: its address may be one that is only sent to.
    """

    def process_view(
        self, request: HttpRequest, view_func: Any, view_args: tuple[Any, ...], view_kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        refused: HttpResponseBase | None = super().process_view(request, view_func, view_args, view_kwargs)
        if refused is None:
            return None
        if is_of_script(request):
            return HttpResponse(status=401, headers={LOGIN_HEADER: resolve_url(settings.LOGIN_URL)})
        referer = request.headers.get("Referer", "")
        if request.method == "POST" and url_has_allowed_host_and_scheme(referer, {request.get_host()}):
            parts = urlsplit(referer)
            return redirect_to_login(f"{parts.path}?{parts.query}" if parts.query else parts.path)
        return refused


def refuse_forgery(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """A form without the token of its session. For who has no session at all it has ended."""
    if is_of_script(request) and not request.user.is_authenticated:
        return HttpResponse(status=401, headers={LOGIN_HEADER: resolve_url(settings.LOGIN_URL)})
    return csrf_failure(request, reason)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 with what is missing where, as far as the reader may know it."""
    return render(request, "404.html", {"missing": spell_missing(request)}, status=404)
