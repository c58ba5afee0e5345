"""Log-in links, which the shell makes: they work once, for 15 minutes (PASSWORD_RESET_TIMEOUT)."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.urls import reverse
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode


class LinkTokens(PasswordResetTokenGenerator):
    """Signed over the last log-in and the password: a log-in ends every link made before."""

    key_salt = "ragd_site.sign_on.links"


tokens = LinkTokens()


def link_path(user: User) -> str:
    code = urlsafe_base64_encode(str(user.pk).encode())
    return reverse("login_link", args=[code, tokens.make_token(user)])


def user_of_link(code: str, token: str) -> Any:
    """The user, or None when the link is wrong, used or too old."""
    try:
        pk = int(urlsafe_base64_decode(code).decode())
        user = User.objects.get(pk=pk, is_active=True)
    except (ValueError, OverflowError, User.DoesNotExist):
        return None
    return user if tokens.check_token(user, token) else None
