"""System checks: is the database one that ragd can use?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import NotSupportedError, OperationalError, connections

from ragd.store.schema import is_supported_pgvector

UNREACHABLE = "ragd.E001"
VARIABLES = {"default": "DATABASE_URL", "replica": "DATABASE_REPLICA_URL"}
OLDEST_POSTGRES = 17
SELECT_EXTENSION = """
SELECT coalesce(installed.extversion, available.default_version), installed.extversion IS NOT NULL
FROM pg_available_extensions AS available
LEFT JOIN pg_extension AS installed ON installed.extname = available.name
WHERE available.name = 'vector'
"""
SELECT_MAY_CREATE = """
SELECT rolsuper OR (SELECT bool_or(trusted) FROM pg_available_extension_versions WHERE name = 'vector')
       AND has_database_privilege(current_database(), 'CREATE')
FROM pg_roles WHERE rolname = current_user
"""


@register(Tags.database)
def check_databases(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """One error per configured database that cannot serve; run by `migrate` and by the supervisor before it."""
    return [error for alias in databases or () for error in check_database(alias)]


def stop_unless_supported() -> None:
    """End the process with a sentence when a database is too old or lacks pgvector; one that is away may come back."""
    errors = [error for alias in connections for error in check_database(alias) if error.id != UNREACHABLE]
    for alias in connections:
        connections[alias].close()
        connections[alias].close_pool()  # type: ignore[attr-defined]  # a pool does not survive a fork
    if errors:
        sys.exit("ragd does not start.\n" + "\n".join(error.msg for error in errors))


def check_database(alias: str) -> list[CheckMessage]:
    """PostgreSQL 17 or newer, pgvector 0.8.4 or newer, installed or installable."""
    try:
        with connections[alias].cursor() as cursor:
            version = connections[alias].pg_version  # type: ignore[attr-defined]
            cursor.execute(SELECT_EXTENSION)
            extension = cursor.fetchone()
            cursor.execute(SELECT_MAY_CREATE)
            may_create = bool((cursor.fetchone() or [False])[0])
    except NotSupportedError as error:  # older than Django itself accepts
        return [refuse("ragd.E002", f"DATABASE_URL: {error} ragd needs PostgreSQL {OLDEST_POSTGRES} or newer.")]
    except OperationalError as error:
        return [refuse(UNREACHABLE, f"The database '{alias}' cannot be reached: {error}. Check {VARIABLES[alias]}.")]
    return [
        refuse(f"ragd.E00{2 + number}", problem)
        for number, problem in enumerate(list_problems(version, extension, may_create))
    ]


def list_problems(version: int, extension: tuple[str, bool] | None, may_create: bool) -> list[str]:
    """Sentences, each with what was found and what is needed. `version` is PostgreSQL's number, 180004 for 18.4."""
    problems = []
    if version // 10000 < OLDEST_POSTGRES:
        result = f"{version // 10000}.{version % 10000}"
        problems.append(
            f"DATABASE_URL points to PostgreSQL {result}; ragd needs PostgreSQL {OLDEST_POSTGRES} or newer."
        )
    needed = "pgvector 0.8.4 or newer"
    if extension is None:
        problems.append(
            f"The PostgreSQL of DATABASE_URL has no pgvector; ragd needs {needed} installed on that server."
        )
    else:
        result, is_installed = extension
        if not is_supported_pgvector(result):
            remedy = " Run ALTER EXTENSION vector UPDATE after upgrading it." if is_installed else ""
            problems.append(f"The PostgreSQL of DATABASE_URL has pgvector {result}; ragd needs {needed}.{remedy}")
        if not is_installed and not may_create:
            problems.append(
                "pgvector is not created in this database and the user of DATABASE_URL may not create it; "
                "run CREATE EXTENSION vector there as a superuser."
            )
    return problems


def refuse(code: str, message: str) -> CheckMessage:
    return Error(message, id=code)
