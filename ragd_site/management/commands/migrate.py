"""Django's migrate, and after it the policies of row-level security for the tables that there are now."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections, transaction

from ragd_site.postgresql.row_security import protect


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        if not (options.get("plan") or options.get("check_unapplied")):
            alias = options["database"]
            with transaction.atomic(using=alias):
                protect(connections[alias])
