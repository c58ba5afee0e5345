"""The first password's file, which goes when the password is another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings


def first_password_file() -> Path:
    return Path(settings.RAGD_VAR) / "admin_password"


class FirstPasswordValidator:
    """Refuses nothing. Django tells every validator of a new password, wherever it was set: page, admin or shell."""

    def validate(self, password: str, user: Any = None) -> None:
        return None

    def password_changed(self, password: str, user: Any = None) -> None:
        if user is not None and user.get_username() == settings.RAGD_ADMIN_USER:
            first_password_file().unlink(missing_ok=True)

    def get_help_text(self) -> str:
        return ""
