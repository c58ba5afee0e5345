"""The tables of the library, made in a database that can hold them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragd.errors import UnsupportedDatabase
from ragd.store.store import Connection, execute, fetch_all

POSTGRES_MIN = 170000
PGVECTOR_MIN = (0, 8, 4)  # 0.8.2 to 0.8.4 mend overflows in parallel HNSW builds and corruption under vacuum
SCHEMA_FILE = Path(__file__).parent.with_name("schema.sql")

SERVER_VERSION = """
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
       (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')
"""


EXTENSION_SCHEMA = """
SELECT quote_ident(n.nspname)
FROM pg_extension e
JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector'
"""


def apply_schema(connection: Connection) -> None:
    """Create what `schema.sql` names; running it again changes nothing. The caller commits."""
    check_database(connection)
    execute(connection, SCHEMA_FILE.read_text(encoding="utf-8"))


@contextmanager
def scratch_schema(connection: Connection) -> Iterator[None]:
    """A new schema with the library's tables, first on the search path. Everything is rolled back at the end.

    Nobody else ever sees the schema, because nothing is committed, and a run that is killed leaves nothing. The caller
    must be inside a transaction; it stands as it was afterwards. Raises UnsupportedDatabase.
    """
    check_database(connection)
    with undone(connection):
        schema = f"ragd_scratch_{secrets.token_hex(6)}"
        execute(connection, f"CREATE SCHEMA {schema}")
        rows = fetch_all(connection, EXTENSION_SCHEMA)
        path = ", ".join([schema, *(name for (name,) in rows)])
        execute(connection, f"SET LOCAL search_path TO {path}")
        apply_schema(connection)
        yield


@contextmanager
def undone(connection: Connection) -> Iterator[None]:
    """What happens inside is rolled back, also after an error of the database."""
    name = f"ragd_{secrets.token_hex(6)}"
    execute(connection, f"SAVEPOINT {name}")
    try:
        yield
    finally:
        execute(connection, f"ROLLBACK TO SAVEPOINT {name}")
        execute(connection, f"RELEASE SAVEPOINT {name}")


def check_database(connection: Connection) -> None:
    """Raise UnsupportedDatabase unless the server is PostgreSQL 17+ with pgvector 0.8.4+ installed or available."""
    ((number, version, installed, available),) = fetch_all(connection, SERVER_VERSION)
    if number < POSTGRES_MIN:
        raise UnsupportedDatabase(
            f"ragd needs PostgreSQL 17 or newer, because older ones cannot break ties on an HNSW index; "
            f"this server is {version}. Point DATABASE_URL at a newer server, or leave it unset for the embedded one."
        )
    pgvector = installed or available
    if pgvector is None:
        raise UnsupportedDatabase(
            "ragd needs the pgvector extension 0.8.4 or newer, and this server does not have it. "
            "Install the package of pgvector for its PostgreSQL version."
        )
    if not is_supported_pgvector(pgvector):
        raise UnsupportedDatabase(
            f"ragd needs pgvector 0.8.4 or newer; this database has {pgvector}. "
            "Upgrade the package, then run: ALTER EXTENSION vector UPDATE."
        )


def is_supported_pgvector(version: str) -> bool:
    """Whether a version such as "0.8.4" is new enough; one without a third number is its .0."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3]) >= PGVECTOR_MIN
