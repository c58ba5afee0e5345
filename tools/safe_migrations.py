"""Holds new migrations to what a server that runs on during them needs: `python -m tools.safe_migrations`.

Two things go wrong in an upgrade of a running server. A migration locks a large table while it rewrites, scans or
indexes it; and the code of before, which runs beside the new schema until its processes are replaced, meets a column
that is gone or one that it does not know and must fill. Each rule says what to do instead. A migration that breaks one
with good cause names it: `safe = {"rule": "why"}` in its class.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import models
from django.db.migrations import Migration
from django.db.migrations.operations.base import Operation
from django.db.models.fields import NOT_PROVIDED

# those up to here make a new database and upgrade none
INITIAL = {"collections_app": 3, "evaluation_app": 2, "ragd_site": 1, "retrieval_app": 2}
LARGE = frozenset(
    {
        "audit_events", "audit_links", "chat_messages", "chunk_findings", "chunk_postings", "chunk_segments",
        "chunk_terms", "chunks", "document_access", "document_revisions", "documents",
        "evaluation_items", "index_version_documents", "ingest_jobs", "kept_judgements", "retrieval_app_queryrun",
        "retrieval_app_retrievedchunk", "run_scores", "span_rollups", "spans",
        "work_parts",
    }
)  # fmt: skip
RULES = {
    "index": "an index on a large table blocks its writers while it is built: AddIndexConcurrently, atomic = False",
    "required": "the code of before fills no column that it does not know: give db_default, or null=True",
    "removed": "the code of before still reads it: remove it one release after the code that stopped",
    "renamed": "the code of before knows the old name: add the new one, fill it, remove the old one a release later",
    "retyped": "another type rewrites the table under a lock: add a column, fill it in batches",
    "constraint": "a constraint on a large table scans it under a lock: add it NOT VALID, validate it in a migration"
    " of its own",
    "filled": "one UPDATE of a large table holds its rows until it ends, and an index of it grows: fill in batches,"
    " atomic = False",
    "blocking": "this statement locks the table until the transaction ends; use its CONCURRENTLY or NOT VALID form",
}
UPDATES = re.compile(r"\bUPDATE\s+(?:ONLY\s+)?\"?(\w+)", re.IGNORECASE)
BLOCKS = re.compile(
    r"\b(?:CREATE\s+(?:UNIQUE\s+)?INDEX\s+(?!CONCURRENTLY)(?:IF\s+NOT\s+EXISTS\s+)?\S+\s+ON\s+(?:ONLY\s+)?\"?(?P<indexed>\w+)"
    r"|VACUUM\s+FULL\s+\"?(?P<vacuumed>\w+)"
    r"|LOCK\s+(?:TABLE\s+)?\"?(?P<locked>\w+))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One operation of one migration that breaks a rule."""

    migration: str
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.migration}: {self.what}\n    {self.rule}: {RULES[self.rule]}"


def check(migration: Migration, state: Any) -> list[Finding]:
    """What breaks a rule that the migration does not name as `safe`. state: the ProjectState before it."""
    found = []
    excused = getattr(migration, "safe", {})
    for operation in migration.operations:
        for rule, what in _broken(migration, operation, state):
            if rule not in excused:
                found.append(Finding(f"{migration.app_label}.{migration.name}", rule, what))
        operation.state_forwards(migration.app_label, state)
    return found


def _broken(migration: Migration, operation: Operation, state: Any) -> Iterator[tuple[str, str]]:
    kind, values = type(operation).__name__, vars(operation)
    table = _table(migration.app_label, values.get("model_name") or values.get("name", ""), state)
    field = values.get("field")
    if kind == "AddIndex" and table in LARGE:
        yield "index", f"an index on {table}"
    elif kind == "AddConstraint" and table in LARGE:
        yield "constraint", f"a constraint on {table}"
    elif kind == "AddField" and isinstance(field, models.Field) and not field.many_to_many:
        if not field.null and field.db_default is NOT_PROVIDED:
            yield "required", f"{table}.{values['name']} may not be null and has no default in the database"
    elif kind in ("RemoveField", "DeleteModel"):
        yield "removed", f"{table}.{values['name']}" if kind == "RemoveField" else table
    elif kind in ("RenameField", "RenameModel", "AlterModelTable"):
        yield "renamed", table
    elif kind == "AlterField" and isinstance(field, models.Field) and table in LARGE:
        before = state.models[migration.app_label, values["model_name"].lower()].fields[values["name"]]
        if type(before) is not type(field):
            yield "retyped", f"{table}.{values['name']} from {type(before).__name__} to {type(field).__name__}"
        elif before.null and not field.null:
            yield "constraint", f"{table}.{values['name']} may be null no more"
    elif kind == "RunSQL":
        yield from _broken_sql(migration, str(operation.sql))  # type: ignore[attr-defined]


def _broken_sql(migration: Migration, sql: str) -> Iterator[tuple[str, str]]:
    for name in UPDATES.findall(sql):
        if name.lower() in LARGE and migration.atomic:
            yield "filled", f"UPDATE {name}"
    for match in BLOCKS.finditer(sql):
        name = next(each for each in match.groups() if each)
        if name.lower() in LARGE or match["vacuumed"]:
            yield "blocking", " ".join(match[0].split())


def _table(app_label: str, model: str, state: Any) -> str:
    known = state.models.get((app_label, model.lower()))
    return known.options.get("db_table", f"{app_label}_{model.lower()}") if known else model.lower()


def number_of(name: str) -> int:
    return int(re.match(r"\d+", name)[0])  # type: ignore[index]


def check_all() -> list[Finding]:
    """Of all migrations after INITIAL, in the order in which they are applied."""
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.state import ProjectState

    loader = MigrationLoader(None)
    state, found = ProjectState(), []
    nodes = [node for leaf in loader.graph.leaf_nodes() for node in loader.graph.forwards_plan(leaf)]
    for node in dict.fromkeys(nodes):
        migration = loader.graph.nodes[node]
        if number_of(node[1]) > INITIAL.get(node[0], 9999):
            found += check(migration, state)
        else:
            state = migration.mutate_state(state, preserve=False)
    return found


def main() -> None:
    import django

    django.setup()
    found = check_all()
    for each in found:
        print(each, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
