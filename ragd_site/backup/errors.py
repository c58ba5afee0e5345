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


class MissingError(BackupError):
    """There is no file of that name."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(f"{name} is not in {place}", type="backup_missing", status=404)
