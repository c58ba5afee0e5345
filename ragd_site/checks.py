"""System checks: is the database one that ragd can use?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import NotSupportedError, OperationalError, connections

from collections_app.access.context import READER, system_access
from ragd.store.tables import is_supported_pgvector
from ragd_site.postgresql.row_security import POLICIES

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


# Whoever may become a role that bypasses it bypasses it too.
SELECT_READER = f"""
SELECT EXISTS (
    SELECT FROM pg_roles r
    WHERE pg_has_role('{READER}', r.oid, 'MEMBER')
      AND (r.rolsuper OR r.rolbypassrls
           OR EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid AND c.relname IN ('documents', 'chunks'))))
FROM pg_roles WHERE rolname = '{READER}'
"""  # noqa: S608  (a constant)
SELECT_UNPROTECTED = r"""
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relrowsecurity
  AND (c.relname = ANY(%(tables)s) OR c.relname ~ '^chunks_c\d+_g\d+$')
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
        with system_access(), connections[alias].cursor() as cursor:
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


def stop_unless_bound() -> None:
    """End the process with a sentence when row-level security would not bind readers in some database."""
    problems = [problem for alias in connections for problem in list_gaps(connections[alias])]
    for alias in connections:
        connections[alias].close()
        connections[alias].close_pool()  # type: ignore[attr-defined]  # a pool does not survive a fork
    if problems:
        sys.exit("ragd does not start.\n" + "\n".join(problems))


def list_gaps(connection: Any) -> list[str]:
    """Sentences: why `ragd_reader` could read rows that it may not. A database that is away has none."""
    try:
        with system_access(), connection.cursor() as cursor:
            cursor.execute(SELECT_READER)
            role = cursor.fetchone()
            cursor.execute(SELECT_UNPROTECTED, {"tables": list(POLICIES)})
            unprotected = [name for (name,) in cursor.fetchall()]
    except OperationalError:
        return []
    if role is None:
        return [f"The role {READER} is missing; run manage.py migrate, as a user that may create roles."]
    problems = []
    if role[0]:
        problems.append(
            f"The role {READER} may bypass row-level security (superuser, BYPASSRLS, or owner of tables), so nobody"
            f" would be kept from anything. Run: ALTER ROLE {READER} NOSUPERUSER NOBYPASSRLS; and let it own no table."
        )
    if unprotected:
        problems.append(
            f"Row-level security is off for {', '.join(unprotected)}; run manage.py migrate, which switches it on."
        )
    return problems


def refuse(code: str, message: str) -> CheckMessage:
    return Error(message, id=code)
