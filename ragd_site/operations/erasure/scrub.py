"""The last step of an erasure: every text of every table is looked at, and what tells of the erased text goes.

By what a text is found again wherever it was copied to: runs of six words that no other document has.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.db import connection

from ragd.store.store import execute, fetch_all

WORDS = re.compile(r"\w+")
RUN = 6
MARK = "(erased)"


def word_runs(text: str) -> Iterator[int]:
    """A number per run of six words, in any case and whatever stands between the words. Shorter texts have none."""
    words = WORDS.findall(text.casefold())
    for start in range(len(words) - RUN + 1):
        yield hash(tuple(words[start : start + RUN]))


class Fingerprint:
    """What is to be erased. `forget` takes out what others say too. exact: strings that are erased where they stand
    alone."""

    def __init__(self, texts: Iterable[str], exact: Iterable[str] = ()) -> None:
        self.runs = {run for text in texts for run in word_runs(text)}
        self.exact = frozenset(text for text in exact if text)

    def forget(self, text: str) -> None:
        if self.runs:
            self.runs.difference_update(word_runs(text))

    def tells(self, value: Any) -> bool:
        """Whether the text, or any text of the JSON value, says something of it."""
        if isinstance(value, str):
            return value in self.exact or any(run in self.runs for run in word_runs(value))
        if isinstance(value, Mapping):
            return any(self.tells(name) or self.tells(item) for name, item in value.items())
        return isinstance(value, list | tuple) and any(map(self.tells, value))

    def without(self, value: Any, mark: str = MARK) -> Any:
        """The value with `mark` for each text that tells something."""
        if isinstance(value, str):
            return mark if self.tells(value) else value
        if isinstance(value, Mapping):
            return {self.without(name, mark): self.without(item, mark) for name, item in value.items()}
        return [self.without(item, mark) for item in value] if isinstance(value, list | tuple) else value


# Tables of the schema with their texts; partitions are read through the table that they belong to.
COLUMNS = r"""
SELECT c.relname, a.attname, t.typname
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'documents'::regclass)
  AND t.typname IN ('text', 'varchar', 'json', 'jsonb', '_text')
  AND c.relname !~ '^(chunks|chunk_|auth_|django_|axes_|pgmq)'
ORDER BY c.relname, a.attnum
"""
# what other documents say, what is erased by itself, and what nobody's texts are in
SKIPPED = frozenset(
    {
        "trashed_documents", "trashed_chunks",
        "documents", "document_revisions", "uploads", "page_layouts", "state_changes",
        "audit_events", "audit_links", "audit_head", "erasures", "api_keys", "model_settings", "model_prices",
        "index_version_documents", "fetched_sources", "providers", "server_settings",
    }
)  # fmt: skip
# rows that are of no use without their text
DELETED = frozenset(
    {"spans", "source_changes", "idempotency_records", "kept_judgements", "run_scores", "retrieval_app_queryrun"}
)
UNIQUE = frozenset({("golden_questions", "question"), ("board_cards", "question_text"), ("sources", "name")})

READ = "SELECT tableoid::regclass::text, ctid::text, {columns} FROM {table}"
DELETE = "DELETE FROM {table} WHERE ctid = %(row)s::tid"
UPDATE = "UPDATE {table} SET {values} WHERE ctid = %(row)s::tid"
OF_RUNS = """
DELETE FROM retrieval_app_retrievedchunk r
WHERE NOT EXISTS (SELECT FROM retrieval_app_queryrun q WHERE q.id = r.run_id)
"""
READ_AT_ONCE = 500


def scrub(fingerprint: Fingerprint) -> Counter[str]:
    """Table -> rows that were deleted or changed. In the caller's transaction."""
    touched: Counter[str] = Counter()
    if not fingerprint.runs and not fingerprint.exact:
        return touched
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in fetch_all(connection, COLUMNS):
        if table not in SKIPPED:
            tables.setdefault(str(table), {})[str(column)] = str(kind)
    for table, columns in tables.items():
        for part, row, values in _telling_rows(table, columns, fingerprint):
            _erase(table, part, row, values, columns, fingerprint)
            touched[table] += 1
    if touched["retrieval_app_queryrun"]:
        execute(connection, OF_RUNS)
    return touched


def _telling_rows(
    table: str, columns: dict[str, str], fingerprint: Fingerprint
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(table or partition, its row, the columns that tell something)."""
    listed = ", ".join(f'"{name}"' if kind[-4:] != "json" else f'"{name}"::text' for name, kind in columns.items())
    with connection.chunked_cursor() as cursor:
        cursor.execute(READ.format(columns=listed.replace("jsonb", "json"), table=f'"{table}"'))
        while rows := cursor.fetchmany(READ_AT_ONCE):
            for part, row, *raw in rows:
                values = dict(zip(columns, map(_read, raw, columns.values()), strict=True))
                telling = {name: value for name, value in values.items() if fingerprint.tells(value)}
                if telling:
                    yield part, row, telling


def _read(value: Any, kind: str) -> Any:
    return json.loads(value) if value is not None and kind in ("json", "jsonb") and isinstance(value, str) else value


def _erase(
    table: str, part: str, row: str, values: dict[str, Any], kinds: dict[str, str], fingerprint: Fingerprint
) -> None:
    if table in DELETED:
        execute(connection, DELETE.format(table=part), {"row": row})
        return
    params: dict[str, Any] = {"row": row}
    parts = []
    for index, (name, value) in enumerate(values.items()):
        mark = f"{MARK[:-1]} {secrets.token_hex(4)})" if (table, name) in UNIQUE else MARK
        cleaned = fingerprint.without(value, mark)
        is_json = kinds[name] in ("json", "jsonb")
        params[f"v{index}"] = json.dumps(cleaned) if is_json else cleaned
        parts.append(f'"{name}" = %(v{index})s' + (f"::{kinds[name]}" if is_json else ""))
    execute(connection, UPDATE.format(table=part, values=", ".join(parts)), params)
