"""The SQL that a retrieval ran: kept while it runs, explained afterwards by the database itself."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connections, transaction

from ragd.search.candidates import ACCESS
from ragd.search.vector_search import BinaryVector
from ragd.store.store import Connection, execute, fetch_all

EXPLAIN = "EXPLAIN (COSTS, VERBOSE OFF, SETTINGS) "
EXPLAIN_ANALYZE = "EXPLAIN (ANALYZE, COSTS, BUFFERS, SETTINGS, VERBOSE OFF) "
READ_ONLY = "SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout', '60s', true)"

# a vector written out, which a plan repeats wherever it compares it
LONG_LITERAL = re.compile(r"'([\[{][^']{24})[^']{60,}'")

# the first of these that a statement holds says what it is for
PURPOSES = (
    ("ts_parse(", "query terms"),
    ("chunk_stats", "state of the collection"),
    ("chunk_terms", "query terms"),
    ("set_config(", "settings of the index scan"),
    ("SET LOCAL", "settings of the index scan"),
    ("<=>", "vector list"),
    ("<#>", "lexical list"),
    ("chunk_segments", "segments of the postings"),
    ("count(*)", "how many chunks pass the filters"),
)


@dataclass(slots=True)
class Statement:
    """One statement as it ran. took_ms is what the caller waited, fetching left out; rows None when it gave none.

    params holds what the statement names, not all that it was sent with.
    """

    sql: str
    params: dict[str, Any]
    took_ms: float
    rows: int | None

    @property
    def purpose(self) -> str:
        return next((words for mark, words in PURPOSES if mark in self.sql), "other")

    @property
    def sets_something(self) -> bool:
        return "set_config(" in self.sql or self.is_setting

    @property
    def is_setting(self) -> bool:
        """Whether it sets something and reads nothing, which has no plan."""
        return self.sql.startswith("SET ")


class RecordingConnection:
    """A connection that passes everything on and keeps the statements that run through its cursors."""

    def __init__(self, connection: Connection) -> None:
        self.inner = connection
        self.statements: list[Statement] = []

    def cursor(self, **options: Any) -> Any:
        return _RecordingCursor(self.inner.cursor(**options), self.statements)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _RecordingCursor:
    def __init__(self, inner: Any, statements: list[Statement]) -> None:
        self._inner = inner
        self._statements = statements

    def execute(self, sql: str, params: dict[str, Any] | None = None) -> Any:
        began = time.perf_counter()
        answer = self._inner.execute(sql, params)
        took_ms = round((time.perf_counter() - began) * 1000, 3)
        rows = int(self._inner.rowcount)
        used = {name: value for name, value in (params or {}).items() if f"%({name})s" in str(sql)}
        named = {name: str(value) if isinstance(value, BinaryVector) else value for name, value in used.items()}
        self._statements.append(Statement(str(sql).strip(), named, took_ms, rows if rows >= 0 else None))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> _RecordingCursor:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._inner.__exit__(*error)


def explain_statements(connection: Connection, statements: list[Statement], *, analyze: bool) -> list[dict[str, Any]]:
    """Each statement with its plan, in a read-only transaction that is rolled back.

    {purpose, sql (with named parameters), params, runnable (parameters filled in), took_ms, rows, explain}. explain is
    the plan's lines, long vectors in it cut short; [] for a statement that only sets something. analyze runs each
    statement again and shows what its plan really took.
    """
    explained = []
    command = EXPLAIN_ANALYZE if analyze else EXPLAIN
    with transaction.atomic(using=alias_of(connection)):
        execute(connection, READ_ONLY)
        for statement in statements:
            if statement.sets_something:
                execute(connection, statement.sql, statement.params)
            planned = not statement.is_setting
            lines = fetch_all(connection, command + statement.sql, statement.params) if planned else []
            explained.append(
                {
                    "purpose": statement.purpose,
                    "sql": statement.sql,
                    "params": statement.params,
                    "runnable": fill_in(connection, statement),
                    "took_ms": statement.took_ms,
                    "rows": statement.rows,
                    "explain": [LONG_LITERAL.sub(r"'\1…'", str(line)) for (line,) in lines],
                }
            )
        transaction.set_rollback(True, using=alias_of(connection))
    return explained


def bare_statements(statements: list[Statement]) -> list[dict[str, Any]]:
    """As explain_statements(), with the text of each statement of a list alone, once: for somebody from whom documents
    are kept.

    Plans, rows, parameters, repeats and what else is looked up change with rows that the reader may not read, and so
    does whether they are left out by the statement too.
    """
    listed = [statement for statement in statements if statement.purpose in ("vector list", "lexical list")]
    texts = {statement.sql.replace(f" AND {ACCESS}", ""): statement for statement in listed}
    return [
        {
            "purpose": statement.purpose,
            "sql": sql,
            "params": {},
            "runnable": "",
            "took_ms": statement.took_ms,
            "rows": None,
            "explain": [],
        }
        for sql, statement in texts.items()
    ]


def fill_in(connection: Connection, statement: Statement) -> str:
    """The statement with its parameters as literals: what can be pasted into psql."""
    raw = connections[alias_of(connection)].connection
    return psycopg.ClientCursor(raw).mogrify(statement.sql, statement.params or None) + ";"


def alias_of(connection: Connection) -> str:
    """Which of Django's databases the connection belongs to."""
    return str(getattr(connection, "alias", "default"))
