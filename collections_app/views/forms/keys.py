"""Forms of the pages of API keys."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import Group, User
from django.utils.translation import gettext_lazy

from collections_app.domain.permissions import Permission
from collections_app.models import Collection
from collections_app.models.library import collection_choices
from collections_app.services.governance.api_keys import LIMIT_MAX, OVERLAP_HOURS, OVERLAP_HOURS_MAX

SCOPES = [
    (Permission.READ.value, gettext_lazy("Read: documents, chunks, evaluations")),
    (Permission.ASK.value, gettext_lazy("Ask: search and answers")),
    (Permission.WRITE.value, gettext_lazy("Write: documents, settings, jobs")),
    (Permission.EVALUATE.value, gettext_lazy("Evaluate: test sets and evaluation runs")),
    (Permission.ADMINISTER.value, gettext_lazy("Administer: keys, deletion of collections")),
]


class ApiKeyForm(forms.Form):
    """own: the person who may make keys that act as themselves alone; None: an administrator, who chooses."""

    label = forms.CharField(label=gettext_lazy("Label"), help_text=gettext_lazy("What the key is for."))
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"), choices=SCOPES, initial=["read", "ask"], widget=forms.CheckboxSelectMultiple
    )
    collections = forms.MultipleChoiceField(
        label=gettext_lazy("Collections"),
        required=False,
        choices=lambda: collection_choices(Collection.objects.live().by_name()),
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None: the key opens all of them."),
    )
    acts_as = forms.ModelChoiceField(
        label=gettext_lazy("Acts as"),
        required=False,
        queryset=User.objects.filter(is_active=True).order_by("username"),
        to_field_name="username",
        empty_label=gettext_lazy("Nobody: a program of its own"),
        help_text=gettext_lazy("The roles and documents of this user hold for the key."),
    )
    groups = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Groups"),
        required=False,
        queryset=Group.objects.order_by("name"),
        to_field_name="name",
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("A program with groups has their roles. With neither user nor group it opens all."),
    )
    expires_at = forms.DateTimeField(
        required=False,
        label=gettext_lazy("Expires at (UTC)"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text=gettext_lazy("Empty: the longest life that the server allows, or never."),
    )
    requests_per_minute = forms.IntegerField(
        label=gettext_lazy("Requests per minute"), required=False, min_value=0, max_value=LIMIT_MAX,
        help_text=gettext_lazy("Empty: the server's default. 0: any number."),
    )  # fmt: skip
    tokens_per_day = forms.IntegerField(
        label=gettext_lazy("Tokens per day"), required=False, min_value=0, max_value=LIMIT_MAX,
        help_text=gettext_lazy("Of model calls. Empty: the server's default. 0: any number."),
    )  # fmt: skip

    def __init__(self, *args: Any, own: User | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.own = own
        if own is not None:
            del self.fields["acts_as"], self.fields["groups"]

    def values(self) -> dict[str, Any]:
        """What `create_key` takes."""
        data = dict(self.cleaned_data)
        user = self.own or data.pop("acts_as", None)
        groups = data.pop("groups", ())
        return data | {"acts_as": user.get_username() if user else None, "groups": [group.name for group in groups]}


class RotationForm(forms.Form):
    overlap_hours = forms.IntegerField(
        label=gettext_lazy("Overlap (hours)"),
        initial=OVERLAP_HOURS,
        min_value=0,
        max_value=OVERLAP_HOURS_MAX,
        help_text=gettext_lazy("How long the earlier secret is still taken."),
    )
