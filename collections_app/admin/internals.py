"""The switch that shows the tables of the machinery in the admin's lists, for the session of who asked for it."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

SHOWN = "admin_internals"


def are_shown(request: HttpRequest) -> bool:
    """Whether this session lists them."""
    return bool(request.session.get(SHOWN))


@require_POST
def switch(request: HttpRequest) -> HttpResponse:
    """Show them, or hide them again; back to the admin's start."""
    if not admin.site.has_permission(request):
        return redirect("admin:login")
    request.session[SHOWN] = not are_shown(request)
    return redirect("admin:index")
