"""The databases of the tests: one template, migrated once, that every worker's own database is a copy of."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg import sql

REPOSITORY = Path(__file__).resolve().parent.parent
PREFIX = "ragd_template_"
LOCK = 8_214_077  # of those that make a template at the same time
TEMPLATES = "SELECT datname FROM pg_database WHERE starts_with(datname, %s)"
TABLES = """
SELECT format('%I', relname), relispartition FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
"""
# foreign keys and triggers ask nothing: what refers to a row goes with it
NO_TRIGGERS = "SET LOCAL session_replication_role = replica; SET LOCAL lock_timeout = '30s'"


def template_name() -> str:
    """Named by a hash of what a new database is made of: migrations, SQL files, and the versions of the libraries."""
    sources = [*REPOSITORY.glob("*/migrations/**/*.py"), *REPOSITORY.glob("*_app/**/*.sql")]
    sources += [*REPOSITORY.glob("ragd/**/*.sql"), *REPOSITORY.glob("ragd_site/postgresql/*.py")]
    sources.append(REPOSITORY / "requirements.txt")
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(path.relative_to(REPOSITORY).as_posix().encode() + b"\0" + path.read_bytes())
    return PREFIX + digest.hexdigest()[:16]


def make_template(url: str) -> None:
    """Migrate a draft in a process of its own and rename it when it is whole; templates of other sources go."""
    name = template_name()
    draft = f"{name}_draft"
    with psycopg.connect(url, autocommit=True) as maintenance:
        maintenance.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        known = {row[0] for row in maintenance.execute(TEMPLATES, [PREFIX])}
        if name in known:
            return
        for old in known:
            maintenance.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(old)))
        maintenance.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(draft)))
        variables = os.environ | {"DATABASE_URL": urlsplit(url)._replace(path=f"/{draft}").geturl()}
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=REPOSITORY, env=variables, check=True)
        rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
        maintenance.execute(rename.format(sql.Identifier(draft), sql.Identifier(name)))


@dataclass(frozen=True)
class Baseline:
    """The tables of a new database, and those of them that hold rows, which no test changes."""

    tables: frozenset[str]
    filled: frozenset[str]

    @classmethod
    def read(cls) -> Baseline:
        with connection.cursor() as cursor:
            return cls(frozenset(_tables(cursor)), frozenset(_filled(cursor)))

    def restore(self) -> None:
        """What a test committed goes, with the tables that it made. Django's flush would truncate every table."""
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(NO_TRIGGERS)
            for table in _tables(cursor).keys() - self.tables:
                cursor.execute(f"DROP TABLE IF EXISTS {table} CASCADE")
            for table in _filled(cursor) - self.filled:
                cursor.execute(f"DELETE FROM {table}")


class ModuleTransaction:
    """The transaction around the tests of one module; `end` rolls it back and may be called again."""

    def __init__(self) -> None:
        self._atomic: transaction.Atomic | None = None

    def begin(self) -> None:
        self._atomic = transaction.atomic()
        self._atomic._from_testcase = True  # type: ignore[attr-defined]  # durable blocks may stand in it
        self._atomic.__enter__()

    def end(self) -> None:
        if self._atomic is not None:
            transaction.set_rollback(True)
            self._atomic.__exit__(None, None, None)
            self._atomic = None


MODULE_TRANSACTION = ModuleTransaction()


def _tables(cursor: CursorWrapper) -> dict[str, bool]:
    """Name -> whether it is a partition of another one."""
    cursor.execute(TABLES)
    return dict(cursor.fetchall())


def _filled(cursor: CursorWrapper) -> set[str]:
    """The tables, each with its partitions, that hold rows."""
    whole = [table for table, is_partition in _tables(cursor).items() if not is_partition]
    cursor.execute(" UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT FROM {table})" for table in whole))
    return {table for (table,) in cursor.fetchall()}
