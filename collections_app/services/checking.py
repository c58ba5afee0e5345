"""The invariant check: whether what is stored agrees with itself. Each rule is looked at in bounded time.

It reads and changes nothing. A finding says what is wrong, by which rows, and what to do. Rules that read a whole
collection stop at their time limit, which is told, and never taken for a pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.db import OperationalError, connection, transaction
from django.utils import timezone
from kombu.exceptions import KombuError
from psycopg.errors import QueryCanceled

from collections_app.errors import ServiceError
from collections_app.models import Collection, Operation
from collections_app.services import audit
from collections_app.services.operations import Running, last_operation, running
from ragd.errors import UnknownCollection
from ragd.store import fetch_all, partition_name

log = logging.getLogger(__name__)

BROKER_ERRORS = (KombuError, OSError)
RULE_LIMIT_S = 60.0
SHOWN_ROWS = 5
DOCUMENTS_AT_ONCE = 50
WAITING = "waits for a worker"

SET_LIMIT = "SELECT set_config('statement_timeout', %(limit)s, true)"

REINDEX = "Re-index these documents (Documents, or POST /v1/collections/NAME/documents/reindex)."
REBUILD = "Build the index anew (Index, or `manage.py ragd rebuild NAME`)."
SWEEP = "The worker's sweeper removes this within a week; if it stays, see docs/operations.md."


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule over a collection. sql yields a text per wrong row. remedy: what to do about it."""

    name: str
    says: str
    sql: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found. rows: the first few of `count`."""

    collection: str
    rule: str
    says: str
    count: int
    rows: tuple[str, ...]
    remedy: str


RULES = (
    Rule(
        "chunk counts",
        "a document has another number of chunks than it says",
        """
        SELECT d.doc_id || ' has ' || coalesce(c.chunks, 0) || ' chunks and says ' || d.chunk_count
        FROM documents d
        LEFT JOIN (SELECT doc_id, count(*) AS chunks FROM {chunks} GROUP BY doc_id) AS c USING (doc_id)
        WHERE d.collection_id = %(collection)s AND d.chunk_count <> coalesce(c.chunks, 0)
        ORDER BY d.doc_id
        """,
        REINDEX,
    ),
    Rule(
        "chunk indexes",
        "the chunks of a document are not numbered from 0 without gaps",
        """
        SELECT doc_id || ' has ' || count(*) || ' chunks, the last of them number ' || max(chunk_index)
        FROM {chunks} GROUP BY doc_id HAVING max(chunk_index) <> count(*) - 1 ORDER BY doc_id
        """,
        REINDEX,
    ),
    Rule(
        "chunks without a document",
        "there are chunks of a document that is not there",
        """
        SELECT DISTINCT c.doc_id FROM {chunks} c
        WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.collection_id = c.collection_id AND d.doc_id = c.doc_id)
        ORDER BY c.doc_id
        """,
        REBUILD,
    ),
    Rule(
        "switches",
        "a chunk can be found though its document is disabled, or the other way round",
        """
        SELECT c.doc_id || '#' || c.chunk_index FROM {chunks} c
        JOIN documents d ON d.collection_id = c.collection_id AND d.doc_id = c.doc_id
        WHERE c.enabled <> (d.enabled AND NOT c.switched_off)
        ORDER BY c.doc_id, c.chunk_index
        """,
        "Disable or enable the document again.",
    ),
    Rule(
        "archived documents",
        "an archived document is enabled",
        """
        SELECT doc_id FROM documents WHERE collection_id = %(collection)s AND archived_at IS NOT NULL AND enabled
        ORDER BY doc_id
        """,
        "Archive the document again.",
    ),
    Rule(
        "statistics",
        "the collection's statistics are not those of its chunks",
        """
        SELECT 'counted ' || counted.chunks || ' chunks of ' || counted.length || ' words, stored ' || s.chunk_count
               || ' of ' || s.length_total
        FROM chunk_stats s, LATERAL (
            SELECT count(*) AS chunks,
                   coalesce(sum((SELECT sum(cardinality(positions)) FROM unnest(c.fts))), 0)::bigint AS length
            FROM {chunks} c) AS counted
        WHERE s.collection_id = %(collection)s AND s.generation = %(generation)s
          AND (s.chunk_count, s.length_total) IS DISTINCT FROM (counted.chunks, counted.length)
        UNION ALL
        SELECT 'there are no statistics' WHERE NOT EXISTS (
            SELECT 1 FROM chunk_stats s WHERE s.collection_id = %(collection)s AND s.generation = %(generation)s)
        """,
        REBUILD,
    ),
    Rule(
        "document frequencies",
        "a term's number of chunks is not what a recount gives",
        """
        SELECT 'term ' || coalesce(t.term, r.term) || ' is in ' || coalesce(r.chunks, 0) || ' chunks, stored '
               || coalesce(t.chunk_count, 0)
        FROM (SELECT ragd_term(lexeme) AS term, count(*) AS chunks FROM {chunks} c, unnest(c.fts) GROUP BY 1) AS r
        FULL JOIN (SELECT term, chunk_count FROM chunk_terms
                   WHERE collection_id = %(collection)s AND generation = %(generation)s) AS t USING (term)
        WHERE coalesce(t.chunk_count, 0) <> coalesce(r.chunks, 0)
        ORDER BY 1
        """,
        REBUILD,
    ),
    Rule(
        "lexical index",
        "a chunk has no words, though the collection keeps a lexical index, or has some though it does not",
        """
        SELECT doc_id || '#' || chunk_index FROM {chunks}
        WHERE (fts IS NOT NULL) <> %(hybrid)s OR (lexical IS NOT NULL) <> %(hybrid)s
        ORDER BY doc_id, chunk_index
        """,
        REBUILD,
    ),
    Rule(
        "vectors",
        "a vector has another number of dimensions than the collection",
        """
        SELECT doc_id || '#' || chunk_index || ' has ' || vector_dims(embedding) FROM {chunks}
        WHERE vector_dims(embedding) <> %(dims)s ORDER BY doc_id, chunk_index
        """,
        REBUILD,
    ),
    Rule(
        "packed postings",
        "a packed chunk is missing from its segment",
        """
        SELECT 'segment ' || s.id || ' holds ' || length(s.chunk_ids) / 8 || ' ids and says ' || s.size
        FROM chunk_segments s
        WHERE s.collection_id = %(collection)s AND s.generation = %(generation)s
          AND (length(s.chunk_ids) <> 8 * s.size OR s.first_id > s.last_id
               OR NOT EXISTS (SELECT 1 FROM chunk_postings p WHERE p.segment_id = s.id)
               OR (SELECT count(*) FROM {chunks} c
                   WHERE c.id BETWEEN s.first_id AND s.last_id AND c.lexical IS NOT NULL) > s.size)
        ORDER BY s.id
        """,
        REBUILD,
    ),
    Rule(
        "indexes",
        "an index of the chunks is missing or invalid",
        """
        SELECT wanted.name || CASE WHEN i.indexrelid IS NULL THEN ' is missing' ELSE ' is invalid' END
        FROM (VALUES ('{chunks}_tags'), ('{chunks}_fts')) AS wanted (name)
        LEFT JOIN pg_index i ON i.indexrelid = to_regclass(wanted.name)
        WHERE i.indexrelid IS NULL OR NOT i.indisvalid
        UNION ALL
        SELECT i.indexrelid::regclass::text || ' is invalid' FROM pg_index i
        WHERE i.indrelid = to_regclass('{chunks}') AND NOT i.indisvalid
          AND i.indexrelid::regclass::text NOT IN ('{chunks}_tags', '{chunks}_fts')
          AND NOT EXISTS (SELECT 1 FROM pg_stat_progress_create_index p WHERE p.relid = i.indrelid)
        """,
        REBUILD,
    ),
    Rule(
        "uploads without an owner",
        "a file is no document's source and no job needs it",
        """
        SELECT u.name || ' of ' || u.doc_id FROM uploads u
        WHERE u.collection_id = %(collection)s AND u.created_at < now() - interval '8 days'
          AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.collection_id = u.collection_id AND d.doc_id = u.doc_id
                                                     AND d.source_hash = u.sha256)
          AND NOT EXISTS (SELECT 1 FROM ingest_jobs j WHERE j.upload_id = u.id AND j.state IN ('queued', 'running'))
        ORDER BY u.id
        """,
        SWEEP,
    ),
    Rule(
        "revisions without a document",
        "there are revisions of a document that is not there",
        """
        SELECT DISTINCT r.doc_id FROM document_revisions r
        WHERE r.collection_id = %(collection)s AND NOT EXISTS (
            SELECT 1 FROM documents d WHERE d.collection_id = r.collection_id AND d.doc_id = r.doc_id)
        ORDER BY r.doc_id
        """,
        "Delete them in the admin (Document revisions), or upload the document again and roll it back.",
    ),
    Rule(
        "overlays without a document",
        "there are changes to chunks of a document that is not there",
        """
        SELECT DISTINCT o.doc_id FROM chunk_overlays o
        WHERE o.collection_id = %(collection)s AND NOT EXISTS (
            SELECT 1 FROM documents d WHERE d.collection_id = o.collection_id AND d.doc_id = o.doc_id)
        ORDER BY o.doc_id
        """,
        "Delete them in the admin (Chunk overlays), or upload the document again.",
    ),
    Rule(
        "hanging jobs",
        "a job is running and its worker gave no sign of life for five minutes",
        """
        SELECT j.kind || ' ' || j.doc_id || ' (' || j.id || ')' FROM ingest_jobs j
        WHERE j.collection_id = %(collection)s AND j.state = 'running'
          AND coalesce(j.lease_until, j.started_at, j.created_at) < now() - interval '5 minutes'
        ORDER BY j.created_at
        """,
        "Look whether a worker runs (Operations); it takes the job over within a minute. Or cancel it.",
    ),
)

OTHERS = (
    Rule(
        "tables without a generation",
        "there is a table of chunks that no generation names",
        r"""
        SELECT c.relname FROM pg_class c
        WHERE c.relkind = 'r' AND c.relname ~ '^chunks_c\d+_g\d+$'
          AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'chunks'::regclass)
          AND NOT EXISTS (SELECT 1 FROM chunk_stats s
                          WHERE c.relname = 'chunks_c' || s.collection_id || '_g' || s.generation)
        ORDER BY c.relname
        """,
        "Drop the table by hand: nothing reads it. See docs/operations.md.",
    ),
    Rule(
        "rows without a collection",
        "a table holds rows of a collection that is not there",
        "",
        "Delete these rows by hand: nothing reads them. See docs/operations.md.",
    ),
    Rule(
        "deletions that hang",
        "a collection was deleted more than an hour ago, and its rows are still there",
        "SELECT name FROM collections WHERE deleted_at < now() - interval '1 hour' ORDER BY name",
        "Look whether a worker runs (Operations), and what reads the rows (pg_stat_activity).",
    ),
)

LISTED_DOCUMENTS = """
SELECT d.doc_id, d.text FROM documents d
WHERE d.collection_id = %(collection)s AND d.doc_id > %(after)s AND d.text <> ''
ORDER BY d.doc_id LIMIT %(most)s
"""

PLACED_CHUNKS = """
SELECT doc_id, chunk_index, start_char, end_char, content FROM {chunks}
WHERE doc_id = ANY(%(doc_ids)s) AND NOT metadata ? 'overlay'
ORDER BY doc_id, chunk_index
"""


def check_invariants(
    collection: Collection | None = None, *, actor: audit.Actor = None, operation: Operation | None = None
) -> Operation:
    """Check one collection, or all of them with what stands between them; the operation that keeps the result.

    `findings` counts the rules that found something. report: {"collections": how many, "rules": how many were looked
    at, "findings": [`Finding` as objects], "unfinished": [rules that hit their time limit], "seconds"}.
    """
    subject = "" if collection is None else collection.name
    with running(Operation.Kind.CHECK, subject, actor=actor, operation=operation) as progress:
        return Check(progress).run(collection)


def request_check(collection: Collection | None = None, *, actor: audit.Actor = None) -> Operation:
    """Have a worker check; the operation that will keep the result. One that is under way is returned instead."""
    subject = "" if collection is None else collection.name
    newest = last_operation(Operation.Kind.CHECK, subject)
    if newest is not None and newest.is_running:
        return newest
    made = Operation.objects.create(
        kind=Operation.Kind.CHECK, subject=subject, stage=WAITING, created_by=audit.name_actor(actor)
    )
    transaction.on_commit(lambda: _send(made))
    return made


def _send(operation: Operation) -> None:
    """Ask the broker; what it refuses is kept in the operation, so that nobody waits for nothing."""
    from collections_app.tasks import check_stored

    try:
        check_stored.apply_async([str(operation.pk)])
    except BROKER_ERRORS as error:
        log.warning("the broker took no check: %s", error)
        Running(operation.kind, operation.subject, operation=operation).fail(
            ServiceError("the broker does not answer; look at it, then try again", type="broker", status=503)
        )


def complete_check(operation_id: str) -> None:
    """The worker's side of `request_check`. A check that has begun elsewhere, or has ended, is left alone."""
    claimed = Operation.objects.filter(pk=operation_id, stage=WAITING, state=Operation.State.RUNNING)
    if not claimed.update(stage="", beat_at=timezone.now()):
        return
    operation = Operation.objects.get(pk=operation_id)
    collection = Collection.objects.live().filter(name=operation.subject).first() if operation.subject else None
    if operation.subject and collection is None:
        Running(operation.kind, operation.subject, operation=operation).fail(
            UnknownCollection(f"collection {operation.subject!r} was deleted", field="collection")
        )
        return
    check_invariants(collection, operation=operation)


class Check:
    """One run."""

    def __init__(self, progress: Running, limit_s: float = RULE_LIMIT_S) -> None:
        self.progress, self.limit_s = progress, limit_s
        self.findings: list[Finding] = []
        self.unfinished: list[str] = []
        self.rules = 0

    def run(self, collection: Collection | None) -> Operation:
        began = time.monotonic()
        listed = list(Collection.objects.live().by_name()) if collection is None else [collection]
        for number, each in enumerate(listed):
            self.progress.tell(each.name, number, len(listed))
            self._collection(each)
        if collection is None:
            for rule in OTHERS:
                self._rule("", rule, {}, {}, rows=_rows_without_collection if not rule.sql else None)
        report = {
            "collections": len(listed),
            "rules": self.rules,
            "findings": [asdict(finding) for finding in self.findings],
            "unfinished": self.unfinished,
            "seconds": round(time.monotonic() - began, 3),
        }
        return self.progress.succeed(report, findings=len(self.findings))

    def _collection(self, collection: Collection) -> None:
        names = {"chunks": partition_name(collection.pk, collection.generation)}
        params = {
            "collection": collection.pk,
            "generation": collection.generation,
            "dims": collection.embed_dims,
            "hybrid": collection.hybrid_enabled,
        }
        for rule in RULES:
            self._rule(collection.name, rule, names, params)
            self.progress.tell(collection.name, self.rules, 0)
        self._rule(collection.name, SLICES, names, params, rows=lambda: self._wrong_slices(names, params))

    def _rule(
        self,
        collection: str,
        rule: Rule,
        names: Mapping[str, str],
        params: Mapping[str, Any],
        rows: Callable[[], Iterator[str]] | None = None,
    ) -> None:
        self.rules += 1
        try:
            with transaction.atomic():
                fetch_all(connection, SET_LIMIT, {"limit": f"{self.limit_s * 1000:.0f}ms"})
                if rows is None:
                    sql = rule.sql
                    for name, value in names.items():  # patterns hold braces, so no format
                        sql = sql.replace(f"{{{name}}}", value)
                    found = [str(row) for (row,) in fetch_all(connection, sql, dict(params) or None)]
                else:
                    found = list(rows())
        except (OperationalError, TimeoutError) as error:
            if not isinstance(error, TimeoutError) and not isinstance(error.__cause__, QueryCanceled):
                raise
            self.unfinished.append(f"{rule.name} of {collection or 'all collections'}")
            return
        if found:
            remedy = rule.remedy.replace("NAME", collection)
            self.findings.append(
                Finding(collection, rule.name, rule.says, len(found), tuple(found[:SHOWN_ROWS]), remedy)
            )

    def _wrong_slices(self, names: Mapping[str, str], params: Mapping[str, Any]) -> Iterator[str]:
        """Chunks that are not the slice of their document's text; those that a person changed are passed over.

        Compared here, because the database would unpack a document's whole text for each of its chunks.
        """
        began, after = time.monotonic(), ""
        sql = PLACED_CHUNKS.format(**names)
        while rows := fetch_all(connection, LISTED_DOCUMENTS, {**params, "after": after, "most": DOCUMENTS_AT_ONCE}):
            texts: dict[str, str] = dict(rows)
            for doc_id, index, start, end, content in fetch_all(connection, sql, {"doc_ids": list(texts)}):
                if texts[doc_id][start:end] != content:
                    yield f"{doc_id}#{index}"
            after = rows[-1][0]
            if time.monotonic() - began > self.limit_s:
                raise TimeoutError


SLICES = Rule("slices", "a chunk is not the slice of its document's text that it says it is", "", REINDEX)


def _rows_without_collection() -> Iterator[str]:
    from collections_app.services.deleting import collection_tables

    for table, _ in collection_tables():
        sql = (
            'SELECT count(*) FROM "{table}" t WHERE collection_id IS NOT NULL '
            "AND NOT EXISTS (SELECT 1 FROM collections c WHERE c.id = t.collection_id)"
        )
        ((count,),) = fetch_all(connection, sql.format(table=table))
        if count:
            yield f"{table} has {count}"
