"""Why a backup or a restore was refused or failed."""

from __future__ import annotations

from collections_app.errors import ServiceError


class BackupError(ServiceError):
    """The message says what was expected, what came, and what to do."""

    def __init__(self, message: str, *, type: str = "backup_error", status: int = 409) -> None:
        super().__init__(message, type=type, status=status)


class DamagedError(BackupError):
    """Stored bytes are not those that were written."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type="backup_damaged")
