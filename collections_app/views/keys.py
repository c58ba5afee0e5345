"""API keys as a page: those of everybody for administrators of all collections, else one's own."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_safe

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404, page_of, refuse, render_page
from collections_app.models import ApiKey
from collections_app.services.governance.access import limit_of
from collections_app.services.governance.api_keys import create_key, revoke_key, rotate_key
from collections_app.views.forms.keys import ApiKeyForm, RotationForm
from ragd.errors import RagdError

PER_PAGE = 50
PYTHON = """\
import json, urllib.request

request = urllib.request.Request({url!r}, headers={{"Authorization": "Bearer {secret}"}})
with urllib.request.urlopen(request) as answer:
    print(json.load(answer))
"""


@require_safe
def list_keys(request: PageRequest) -> HttpResponse:
    page = page_of(request, visible_keys(request).newest(), PER_PAGE)
    keys = list(page.object_list)
    users = dict(User.objects.filter(pk__in={key.user_id for key in keys}).values_list("pk", "username"))
    groups = dict(Group.objects.filter(pk__in={pk for key in keys for pk in key.group_ids}).values_list("pk", "name"))
    rows = [
        {
            "key": key,
            "limit": limit_of(key),
            "acts_as": users.get(key.user_id or 0, gettext("a user who is gone")) if key.user_id else "",
            "groups": [groups.get(pk, "?") for pk in key.group_ids],
        }
        for key in keys
    ]
    return render_page(request, "keys/list.html", {"page": page, "rows": rows, "sees_all": sees_all()})


@require_http_methods(["GET", "POST"])
def create(request: PageRequest) -> HttpResponse:
    """The form; after it the secret, in this answer and nowhere else."""
    form = ApiKeyForm(request.POST or None, own=None if sees_all() else request.user)
    if request.method == "POST" and form.is_valid():
        try:
            key, secret = create_key(**form.values(), actor=request.user)
            return show_secret(request, key, secret)
        except (ServiceError, RagdError) as error:
            return render_page(request, "keys/create.html", {"form": form}, status=refuse(form, error))
    return render_page(request, "keys/create.html", {"form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "POST"])
def rotate(request: PageRequest, pk: int) -> HttpResponse:
    key = find_or_404(visible_keys(request), pk=pk)
    form = RotationForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            rotated, secret = rotate_key(key, **form.cleaned_data, actor=request.user)
            return show_secret(request, rotated, secret)
        except ServiceError as error:
            return render_page(request, "keys/rotate.html", {"key": key, "form": form}, status=refuse(form, error))
    return render_page(request, "keys/rotate.html", {"key": key, "form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "POST"])
def revoke(request: PageRequest, pk: int) -> HttpResponse:
    key = find_or_404(visible_keys(request), pk=pk)
    if request.method != "POST":
        return render_page(request, "keys/revoke.html", {"key": key})
    revoke_key(key, actor=request.user)
    messages.success(request, gettext("The key %(label)s is revoked.") % {"label": key.label})
    return redirect("collections:keys")


def sees_all() -> bool:
    """Whether who asks administers all collections."""
    return current_access().may(Permission.ADMINISTER)


def visible_keys(request: PageRequest) -> Any:
    return ApiKey.objects.all() if sees_all() else ApiKey.objects.filter(user=request.user)


def show_secret(request: PageRequest, key: ApiKey, secret: str) -> HttpResponse:
    base = request.build_absolute_uri("/").rstrip("/")
    server = {"mcpServers": {"ragd": {"url": f"{base}/mcp", "headers": {"Authorization": f"Bearer {secret}"}}}}
    snippets = [
        ("curl", "curl", f'curl -s {base}/v1/collections -H "Authorization: Bearer {secret}"'),
        ("python", "Python", PYTHON.format(url=f"{base}/v1/collections", secret=secret)),
        ("mcp", "MCP", json.dumps(server, indent=2)),
    ]
    return render_page(request, "keys/made.html", {"key": key, "secret": secret, "snippets": snippets})
