"""Settings of a reader: how pages look to them, and what other programs are given to reach the server."""

from __future__ import annotations

import json
from zoneinfo import available_timezones

from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.http.page_requests import PageRequest, render_page

ZONE_COOKIE = "timezone"  # static/js/ragd.js shows times by it; without it in the zone of the browser
YEAR_S = 365 * 24 * 3600
CURL = """\
curl {base}/v1/chat/completions \\
  -H "Authorization: Bearer YOUR_KEY" -H "Content-Type: application/json" \\
  -d '{question}'"""


@require_http_methods(["GET", "POST"])
def appearance(request: PageRequest) -> HttpResponse:
    """Theme and language have forms of their own; a POST chooses the time zone, "" that of the browser."""
    zones = sorted(available_timezones())
    if request.method == "POST":
        zone = request.POST.get("zone", "")
        response = redirect("collections:appearance")
        if zone in zones:
            response.set_cookie(ZONE_COOKIE, zone, max_age=YEAR_S, samesite="Lax")
        else:
            response.delete_cookie(ZONE_COOKIE, samesite="Lax")
        return response
    context = {"zones": zones, "zone": request.COOKIES.get(ZONE_COOKIE, "")}
    return render_page(request, "shell/appearance.html", context)


@require_GET
def connections(request: PageRequest) -> HttpResponse:
    """snippets: (id, title, what it is for, text to paste, page of the documentation)."""
    base = request.build_absolute_uri("/").rstrip("/")
    mcp = {"mcpServers": {"ragd": {"url": f"{base}/mcp", "headers": {"Authorization": "Bearer YOUR_KEY"}}}}
    question = {"model": "ragd/YOUR_COLLECTION", "messages": [{"role": "user", "content": "Your question"}]}
    snippets = [
        (
            "mcp",
            gettext("MCP"),
            gettext("For Cursor, Claude and other clients of the Model Context Protocol."),
            json.dumps(mcp, indent=2),
            "mcp",
        ),
        (
            "openai",
            gettext("OpenAI base URL"),
            gettext("For programs that speak OpenAI's API: the API key is the password, each collection a model."),
            f"{base}/v1",
            "api",
        ),
        (
            "curl",
            gettext("A question from the shell"),
            gettext("The same API with curl."),
            CURL.format(base=base, question=json.dumps(question)),
            "api",
        ),
        (
            "otlp",
            gettext("OTLP endpoint"),
            gettext(
                "A collector gets the spans of this server: an administrator sets it here, or "
                "an environment variable names it."
            ),
            "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318",
            "exports",
        ),
    ]
    administers = current_access().may(Permission.ADMINISTER)
    return render_page(request, "shell/connections.html", {"snippets": snippets, "administers": administers})
