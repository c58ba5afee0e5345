"""Log-ins, log-outs and passwords in the audit log."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User

from collections_app.models import AuditEvent
from collections_app.services.governance.audit import record_event

LOGIN, LOGOUT, PASSWORD = "session.login", "session.logout", "user.password"
UNKNOWN = "an unknown user name"  # what was typed may be a password in the wrong field


def note_login(user: User, *, how: str = "password") -> None:
    """how: by what the person was recognized."""
    record_event(user, LOGIN, f"logged in by {how}", subject=user)


def note_failed_login(username: str) -> None:
    """Under the name of an account that there is; any other name is not kept."""
    user = get_user_model()._default_manager.filter(username=username).first() if "\x00" not in username else None
    record_event(
        None,
        LOGIN,
        "log-in refused",
        subject=user,
        subject_kind="user",
        outcome=AuditEvent.Outcome.REFUSED,
        anonymous_name=str(user) if user else UNKNOWN,
    )


def note_logout(user: User) -> None:
    record_event(user, LOGOUT, "logged out", subject=user)


def note_password(user: User, *, how: str = "") -> None:
    """how: of one that was set without the old one."""
    record_event(user, PASSWORD, f"changed the own password {how}".strip(), subject=user)
