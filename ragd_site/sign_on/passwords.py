"""The length of passwords, and the first password's file, which goes when the password is another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.password_validation import MinimumLengthValidator


def first_password_file() -> Path:
    return Path(settings.RAGD_VAR) / "admin_password"


class PasswordLengthValidator(MinimumLengthValidator):
    """Django tells validators of every new password, wherever it was set: page, admin or shell."""

    def password_changed(self, password: str, user: Any = None) -> None:
        if user is not None and user.get_username() == settings.RAGD_ADMIN_USER:
            first_password_file().unlink(missing_ok=True)
