"""The tables of the library, made in a database that can hold them."""

from __future__ import annotations

import re
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


def apply_schema(connection: Connection) -> None:
    """Create what `schema.sql` names; running it again changes nothing. The caller commits."""
    check_database(connection)
    execute(connection, SCHEMA_FILE.read_text(encoding="utf-8"))


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
