"""API keys as a page: those of everybody for administrators of all collections, else one's own.

Forms of the pages of API keys.
"""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib.auth.models import Group, User
from django.db.models import Max
from django.http import HttpResponse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access import api_keys
from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.access.rules import needs
from collections_app.access.services import limit_of
from collections_app.collections.models import collection_choices, name_actor
from collections_app.http.page_requests import (
    PageRequest,
    find_or_404,
    page_of,
    render_page,
    submit_form,
    tell,
    whole_number,
)
from collections_app.models import ApiKey, Collection

SCOPES = [
    (Permission.READ.value, gettext_lazy("Read: documents, chunks, evaluations")),
    (Permission.ASK.value, gettext_lazy("Ask: search and answers")),
    (Permission.WRITE.value, gettext_lazy("Write: documents, settings, jobs")),
    (Permission.EVALUATE.value, gettext_lazy("Evaluate: test sets and evaluation runs")),
    (Permission.ADMINISTER.value, gettext_lazy("Administer: keys, deletion of collections")),
]


ALL = ""


def _collection_choices() -> list[tuple[str, Any]]:
    return [(ALL, gettext_lazy("All collections")), *collection_choices(Collection.objects.live().by_name())]


class ApiKeyForm(forms.Form):
    """own: the person who may make keys that act as themselves alone; None: an administrator, who chooses."""

    label = forms.CharField(label=gettext_lazy("Label"), help_text=gettext_lazy("What the key is for."))
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"), choices=SCOPES, initial=["read", "ask"], widget=forms.CheckboxSelectMultiple
    )
    collections = forms.MultipleChoiceField(
        label=gettext_lazy("Collections"),
        choices=_collection_choices,
        initial=[ALL],
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Later ones too, where all are chosen."),
    )
    acts_as = forms.ModelChoiceField(
        label=gettext_lazy("Acts as"),
        required=False,
        queryset=User.objects.filter(is_active=True).order_by("username"),
        to_field_name="username",
        empty_label=gettext_lazy("Service account"),
        help_text=gettext_lazy("The roles and documents of this user hold for the key."),
    )
    groups = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Groups"),
        required=False,
        queryset=Group.objects.order_by("name"),
        to_field_name="name",
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy(
            "A program with groups has their roles. Without a user and a group it may read all documents."
        ),
    )
    expires_at = forms.DateTimeField(
        required=False,
        label=gettext_lazy("Expires at (UTC)"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text=gettext_lazy("Leave empty for the longest time that the server allows."),
    )
    requests_per_minute = forms.IntegerField(
        label=gettext_lazy("Requests per minute"), required=False, min_value=0, max_value=api_keys.LIMIT_MAX,
        help_text=gettext_lazy("Leave empty for the server's default. 0 means no limit."),
    )  # fmt: skip
    tokens_per_day = forms.IntegerField(
        label=gettext_lazy("Tokens per day"), required=False, min_value=0, max_value=api_keys.LIMIT_MAX,
        help_text=gettext_lazy("Of model calls. Leave empty for the server's default. 0 means no limit."),
    )  # fmt: skip

    def __init__(self, *args: Any, own: User | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.own = own
        if own is not None:
            del self.fields["acts_as"], self.fields["groups"]
        elif not Group.objects.exists():
            del self.fields["groups"]

    def values(self) -> dict[str, Any]:
        """What `create_key` takes."""
        data = dict(self.cleaned_data)
        user = self.own or data.pop("acts_as", None)
        groups = data.pop("groups", ())
        data["collections"] = [] if ALL in data["collections"] else data["collections"]
        return data | {"acts_as": user.get_username() if user else None, "groups": [group.name for group in groups]}


class RotationForm(forms.Form):
    overlap_hours = forms.IntegerField(
        label=gettext_lazy("Overlap (hours)"),
        initial=api_keys.OVERLAP_HOURS,
        min_value=0,
        max_value=api_keys.OVERLAP_HOURS_MAX,
        help_text=gettext_lazy("How long the earlier secret is still taken."),
    )


PER_PAGE = 50
PYTHON = """\
import json, urllib.request

request = urllib.request.Request({url!r}, headers={{"Authorization": "Bearer {secret}"}})
with urllib.request.urlopen(request) as answer:
    print(json.load(answer))
"""


@needs(None, methods="GET HEAD")
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


@needs(None, methods="GET POST")
def create(request: PageRequest) -> HttpResponse:
    """The form; after it the secret, in this answer and nowhere else. newest: the last key when the form was shown, so
    that a form that is sent again makes no second key."""
    if _was_sent(request):
        return _say_made(request)
    form = ApiKeyForm(request.POST or None, own=None if sees_all() else request.user)

    def save() -> HttpResponse:
        return show_secret(request, *api_keys.create_key(api_keys.NewKey(**form.values()), actor=request.user))

    response, status = submit_form(request, form, save)
    newest = request.POST.get("newest") or ApiKey.objects.aggregate(last=Max("pk", default=0))["last"]
    return response or render_page(request, "keys/create.html", {"form": form, "newest": newest}, status=status)


@needs(None, methods="GET POST")
def rotate(request: PageRequest, pk: int) -> HttpResponse:
    """prefix: of the secret when the form was shown, so that a form that is sent again rotates once."""
    key = find_or_404(visible_keys(request), pk=pk)
    if request.POST.get("prefix", key.prefix) != key.prefix:
        return _say_made(request)
    form = RotationForm(request.POST or None)

    def save() -> HttpResponse:
        return show_secret(request, *api_keys.rotate_key(key, **form.cleaned_data, actor=request.user))

    response, status = submit_form(request, form, save)
    return response or render_page(request, "keys/rotate.html", {"key": key, "form": form}, status=status)


def _was_sent(request: PageRequest) -> bool:
    newest = whole_number(request.POST.get("newest"))
    own = ApiKey.objects.filter(label=request.POST.get("label", "").strip(), created_by=name_actor(request.user))
    return newest is not None and own.filter(pk__gt=newest).exists()


def _say_made(request: PageRequest) -> HttpResponse:
    return tell(request, gettext("The key was made already. Its secret was shown once."), "collections:keys")


@needs(None, methods="POST")
def revoke(request: PageRequest, pk: int) -> HttpResponse:
    key = find_or_404(visible_keys(request), pk=pk)
    api_keys.revoke_key(key, actor=request.user)
    return tell(request, gettext("The key %(label)s is revoked.") % {"label": key.label}, "collections:keys")


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
