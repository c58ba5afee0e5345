"""The forms of the log-in page, and of a password that is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordResetForm, UsernameField
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import get_language

from collections_app.access.mail import SEND_RESET, link_base
from collections_app.audit.services import note_failed_login
from collections_app.jobs.delivery import enqueue


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


class ForgottenPasswordForm(PasswordResetForm):
    """Whether there is an account is looked up by a worker, after the answer."""

    def get_users(self, email: str) -> Iterator[User]:
        """Active people of this address who have a password and do not come by single sign-on."""
        by_sign_on = set(SocialAccount.objects.values_list("user_id", flat=True).filter(user__email__iexact=email))
        return (user for user in super().get_users(email) if user.pk not in by_sign_on)

    def send_later(self, request: HttpRequest) -> None:
        enqueue(SEND_RESET, self.cleaned_data["email"], link_base(request), get_language() or "en")


def people_to_reset(address: str) -> list[User]:
    """Who gets a link for a new password."""
    return list(ForgottenPasswordForm().get_users(address))
