"""Settings of the server and of a reader: appearance, connections, mail, saved views of lists."""

from __future__ import annotations

import json
from itertools import groupby
from zoneinfo import available_timezones

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.http.list_views import EXPERT_SETTINGS, delete_view, keep_setting, save_view
from collections_app.http.page_requests import PageRequest, RefusalMessages, next_address, render_page, submit_form
from collections_app.http.places import SETTINGS
from collections_app.services.governance.mail import can_mail, link_base, send_test

ZONE_COOKIE = "timezone"  # static/js/ragd.js shows times by it; without it in the zone of the browser
YEAR_S = 365 * 24 * 3600
CURL = """\
curl {base}/v1/chat/completions \\
  -H "Authorization: Bearer YOUR_KEY" -H "Content-Type: application/json" \\
  -d '{question}'"""
PARTS = {"mail": "shell/parts/mail.html"}


@require_GET
def server_settings(request: PageRequest) -> HttpResponse:
    """groups: (heading, the pages that the reader may open), in the order of the list."""
    offered = [page for page in SETTINGS.offered(request.user) if page.group]
    groups = [(gettext(group), list(pages)) for group, pages in groupby(offered, lambda page: page.group)]
    return render_page(request, "shell/settings.html", {"groups": groups})


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


class RecipientForm(forms.Form):
    to = forms.EmailField(label=gettext_lazy("To"))


@require_http_methods(["GET", "POST"])
def mail(request: PageRequest) -> HttpResponse:
    """POST sends the test message; without a mail server the form is not there."""
    form = RecipientForm(request.POST if request.method == "POST" else None, initial={"to": request.user.email})
    context = {
        "form": form,
        "is_set": can_mail(),
        "server": f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}",
        "security": "tls" if settings.EMAIL_USE_SSL else "starttls" if settings.EMAIL_USE_TLS else "off",
        "user": settings.EMAIL_HOST_USER,
        "sender": settings.DEFAULT_FROM_EMAIL,
        "base": link_base(request),
    }

    def save() -> HttpResponse:
        address = form.cleaned_data["to"]
        send_test(address, actor=request.user)
        return render_page(request, "shell/mail.html", context | {"sent_to": address}, parts=PARTS)

    if not can_mail():
        return render_page(
            request, "shell/mail.html", context, parts=PARTS, status=409 if request.method == "POST" else 200
        )
    response, status = submit_form(request, form, save)
    return response or render_page(request, "shell/mail.html", context, parts=PARTS, status=status)


@require_POST
def change_list_view(request: PageRequest) -> HttpResponse:
    """do=save (name, query) or delete (name), of list=; back to `next`.

    do=expert keeps whether the expert settings are open (open=on); nothing is answered.
    """
    given, name = request.POST, request.POST.get("name", "")
    name_of_list, action = given.get("list", ""), given.get("do", "")
    if action == "expert":
        keep_setting(request.user, EXPERT_SETTINGS, bool(given.get("open")) or None)
        return HttpResponse(status=204)
    with RefusalMessages(request):
        if action == "save":
            save_view(request.user, name_of_list, name, given.get("query", ""))
            messages.success(request, gettext("View %(name)s saved.") % {"name": name.strip()})
        elif action == "delete":
            delete_view(request.user, name_of_list, name)
            messages.success(request, gettext("View %(name)s deleted.") % {"name": name})
    return HttpResponseRedirect(next_address(request, "evaluation:home"))
