"""Settings of the server and of a reader (appearance, connections, mail, saved views of lists), and the documentation.

The documentation is that of docs/*.md and README.md, as pages of the product.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from zoneinfo import available_timezones

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_lazy
from markdown_it import MarkdownIt
from markdown_it.token import Token

from collections_app.access.context import current_access
from collections_app.access.mail import can_mail, link_base, send_test
from collections_app.access.permissions import Permission
from collections_app.access.rules import ADMINISTER, needs
from collections_app.http.lists import EXPERT_SETTINGS, delete_view, keep_setting, save_view
from collections_app.http.page_requests import PageRequest, RefusalMessages, next_address, render_page, submit_form

REPOSITORY = Path(__file__).resolve().parents[2]
AT_THE_TOP = {"readme": "README.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
SERVED = re.compile(r"https?:|mailto:|[#/]")  # other links lead to files of the repository, which no page shows
LOCAL = re.compile(r"^(?:\.\./|docs/)?([A-Za-z0-9-]+)\.md(#.*)?$")


@needs(None, methods="GET")
def show_help(request: PageRequest, page: str = "index") -> HttpResponse:
    path = REPOSITORY / AT_THE_TOP.get(page, f"docs/{page}.md")
    if not path.is_file():
        raise Http404(f"there is no page {page!r} of the documentation")
    title, headings, html = render_document(path, path.stat().st_mtime_ns)
    return render_page(request, "shell/help.html", {"title": title, "headings": headings, "html": html, "page": page})


@lru_cache(maxsize=128)
def render_document(path: Path, changed_ns: int) -> tuple[str, tuple[tuple[str, str], ...], SafeString]:
    """(title, (anchor, text) of each heading of the second level, HTML behind the title) of a Markdown file.

    HTML in the file is shown as text. changed_ns: when it was written, for the cache alone.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(path.read_text(encoding="utf-8"))
    title, headings = path.stem, []
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            text = _text_of(tokens[at + 1])
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            token.attrSet("id", anchor)
            if token.tag == "h2":
                headings.append((anchor, text))
        tags: list[str] = []
        for child in token.children or ():
            if child.type == "link_open":
                href = _address(str(child.attrGet("href") or ""))
                child.attrs = {"href": href} if SERVED.match(href) else {"title": href.lstrip("./")}
                child.tag = "a" if SERVED.match(href) else "span"
                tags.append(child.tag)
            elif child.type == "link_close":
                child.tag = tags.pop()
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        title, tokens = _text_of(tokens[1]), tokens[3:]
    # the files are the product's own, and what is HTML in them was escaped
    return title, tuple(headings), mark_safe(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S308


def _text_of(inline: Token) -> str:
    return "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))


def _address(href: str) -> str:
    """A link to another file of the documentation leads to its page here."""
    found = LOCAL.match(href)
    if not found:
        return href
    return reverse("collections:help-page", args=[found[1].lower()]) + (found[2] or "")


ZONE_COOKIE = "timezone"  # static/js/ragd.js shows times by it; without it in the zone of the browser
YEAR_S = 365 * 24 * 3600
CURL = """\
curl {base}/v1/chat/completions \\
  -H "Authorization: Bearer YOUR_KEY" -H "Content-Type: application/json" \\
  -d '{question}'"""
PARTS = {"mail": "shell/parts/mail.html"}


@needs(None, methods="GET POST")
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


@needs(None, methods="GET")
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
            "telemetry",
        ),
    ]
    administers = current_access().may(Permission.ADMINISTER)
    return render_page(request, "shell/connections.html", {"snippets": snippets, "administers": administers})


class RecipientForm(forms.Form):
    to = forms.EmailField(label=gettext_lazy("To"))


@needs(ADMINISTER, everywhere=True, methods="GET POST")
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


@needs(None, methods="POST")
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
    return HttpResponseRedirect(next_address(request, "operations:home"))
