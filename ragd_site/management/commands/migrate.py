"""Django's migrate, and after it the policies of row-level security for the tables that there are now."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connections, transaction
from django.db.migrations.exceptions import InconsistentMigrationHistory
from django.db.migrations.executor import MigrationExecutor

from collections_app.errors import REMOTE_NODE
from ragd_site.postgresql.row_security import protect


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        is_current = not _is_behind(alias)
        try:
            super().handle(*args, **options)
        except InconsistentMigrationHistory as error:
            raise CommandError(
                "This database was made by another line of migrations, such as that of a development version of ragd"
                f" ({error}), and was left as it is. Set DATABASE_URL to an empty database or RAGD_VAR to a new folder,"
                " and upload the documents again."
            ) from None
        if options.get("plan") or options.get("check_unapplied"):
            return
        try:
            with transaction.atomic(using=alias):
                protect(connections[alias])
        except OperationalError as error:
            # With nothing to migrate the policies are those of before, so a server starts while a node is away.
            if not is_current or not (node := REMOTE_NODE.search(str(error))):
                raise
            self.stderr.write(
                f"The cluster node {node['address']} does not answer. Nothing was to be migrated, and the policies are"
                " as they were; `ragd status --cluster` shows the nodes."
            )


def _is_behind(alias: str) -> bool:
    executor = MigrationExecutor(connections[alias])
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
