"""What is known of the last backup, the last drill and the archive of the log; kept in the database for the pages."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from collections_app.models import Report

BACKUP_REPORT = "backup"
DRILL_REPORT = "backup_drill"
ARCHIVE_REPORT = "backup_archive"


def record(name: str, values: dict[str, Any]) -> None:
    """In place of the one before."""
    Report.objects.update_or_create(name=name, defaults={"values": values, "made_at": timezone.now()})
