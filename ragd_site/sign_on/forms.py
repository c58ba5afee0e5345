"""The form of the log-in page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from collections_app.services.governance.audit_sessions import note_failed_login


class LoginForm(AuthenticationForm):
    """Refuses a user name that no account can have, before django-axes stores it in a column of 255 characters."""

    username = UsernameField(
        max_length=User._meta.get_field("username").max_length, widget=forms.TextInput(attrs={"autofocus": True})
    )

    def clean(self) -> dict[str, Any]:
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            note_failed_login(str(self.cleaned_data.get("username") or ""))
            if "username" in self.cleaned_data:  # the name stays as it was typed: the password is to be typed again
                self.fields["username"].widget.attrs.pop("autofocus", None)
                self.fields["password"].widget.attrs["autofocus"] = True
            raise
        return cleaned
