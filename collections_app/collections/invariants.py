"""What must hold of everything that is stored, each rule a query for the rows that break it, with what to do then.

{chunks} stands for the table of the index version that serves; what is joined with it is read first, since on a cluster
it is elsewhere; %(collection)s, %(index_version)s, %(dims)s and %(hybrid)s are
the collection's own.

The invariant check: whether what is stored agrees with itself. Each rule is looked at in bounded time.

It reads and changes nothing. A finding says what is wrong, by which rows, and what to do. Rules that read a whole
collection stop at their time limit, which is told, and never taken for a pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from collections_app.audit import services
from collections_app.collections.deletion import collection_tables
from collections_app.documents.services import draft_of
from collections_app.documents.stored_documents import DocumentOverlays
from collections_app.index.ingestion import hash_content
from collections_app.jobs.operations import OperationProgress, handles, last_operation, request_operation, running
from collections_app.models import ChunkOverlay, Collection, Document, Operation
from ragd.errors import UnknownCollection
from ragd.store.store import fetch_all, partition_name
from ragd.types import ChunkPolicy

REINDEX = "Re-index these documents (Documents, or POST /v1/collections/NAME/documents-bulk with action reindex)."
REBUILD = "Rebuild the index (Index, or `manage.py ragd index rebuild NAME`)."
MAINTENANCE = "The worker removes this within a week; if it stays, see docs/operations.md."


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
        WITH c AS MATERIALIZED (SELECT doc_id, count(*) AS chunks FROM {chunks} GROUP BY doc_id)
        SELECT d.doc_id || ' has ' || coalesce(c.chunks, 0) || ' chunks and says ' || d.chunk_count
        FROM documents d LEFT JOIN c USING (doc_id)
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
        WITH c AS MATERIALIZED (SELECT DISTINCT doc_id FROM {chunks})
        SELECT c.doc_id FROM c
        WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.collection_id = %(collection)s AND d.doc_id = c.doc_id)
        ORDER BY c.doc_id
        """,
        REBUILD,
    ),
    Rule(
        "switches",
        "a chunk can be found though its document is disabled, or the other way round",
        """
        WITH c AS MATERIALIZED (SELECT doc_id, chunk_index, enabled, switched_off FROM {chunks})
        SELECT c.doc_id || '#' || c.chunk_index FROM c
        JOIN documents d ON d.collection_id = %(collection)s AND d.doc_id = c.doc_id
        WHERE c.enabled <> (d.enabled AND NOT c.switched_off)
        ORDER BY c.doc_id, c.chunk_index
        """,
        "Disable or enable the document again.",
    ),
    Rule(
        "statistics",
        "the collection's statistics are not those of its chunks",
        """
        WITH words AS MATERIALIZED (
            SELECT coalesce(sum(w.places), 0)::bigint AS length FROM {chunks} c, ragd_counted(c.fts, c.access) AS w
        ), rows AS MATERIALIZED (
            SELECT count(*) AS chunks, count(*) FILTER (WHERE 1 = ANY (access)) AS opened FROM {chunks}
        ), counted AS (SELECT * FROM rows, words)
        SELECT 'counted ' || counted.chunks || ' chunks, ' || counted.opened || ' open ones of ' || counted.length
               || ' words, stored ' || s.chunk_count || ', ' || s.open_count || ' of ' || s.length_total
        FROM chunk_stats s, counted
        WHERE s.collection_id = %(collection)s AND s.index_version = %(index_version)s
          AND (s.chunk_count, s.open_count, s.length_total)
              IS DISTINCT FROM (counted.chunks, counted.opened, counted.length)
        UNION ALL
        SELECT 'there are no statistics' WHERE NOT EXISTS (
            SELECT 1 FROM chunk_stats s WHERE s.collection_id = %(collection)s AND s.index_version = %(index_version)s)
        """,
        REBUILD,
    ),
    Rule(
        "document frequencies",
        "a term's number of chunks is not what a recount gives",
        """
        WITH r AS MATERIALIZED (
            SELECT w.term, count(*) AS chunks FROM {chunks} c, ragd_counted(c.fts, c.access) AS w GROUP BY 1
        )
        SELECT 'term ' || coalesce(t.term, r.term) || ' is in ' || coalesce(r.chunks, 0) || ' chunks, stored '
               || coalesce(t.chunk_count, 0)
        FROM r FULL JOIN (SELECT term, chunk_count FROM chunk_terms
                   WHERE collection_id = %(collection)s AND index_version = %(index_version)s) AS t USING (term)
        WHERE coalesce(t.chunk_count, 0) <> coalesce(r.chunks, 0)
        ORDER BY 1
        """,
        REBUILD,
    ),
    Rule(
        "keyword index",
        "a chunk has no keyword index entry although keyword search is enabled, or has one although it is not",
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
        WITH c AS MATERIALIZED (SELECT id FROM {chunks} WHERE lexical IS NOT NULL)
        SELECT 'segment ' || s.id || ' holds ' || length(s.chunk_ids) / 8 || ' ids and says ' || s.size
        FROM chunk_segments s
        WHERE s.collection_id = %(collection)s AND s.index_version = %(index_version)s
          AND (length(s.chunk_ids) <> 8 * s.size OR s.first_id > s.last_id
               OR NOT EXISTS (SELECT 1 FROM chunk_postings p WHERE p.segment_id = s.id)
               OR (SELECT count(*) FROM c WHERE c.id BETWEEN s.first_id AND s.last_id) > s.size)
        ORDER BY s.id
        """,
        REBUILD,
    ),
    Rule(
        "indexes",
        "an index of the chunks is missing or invalid",
        """
        SELECT wanted.name || CASE WHEN i.indexrelid IS NULL THEN ' is missing' ELSE ' is invalid' END
        FROM (VALUES ('{chunks}_tags'), ('{chunks}_fts'), ('{chunks}_metadata'), ('{chunks}_attributes'))
            AS wanted (name)
        LEFT JOIN pg_index i ON i.indexrelid = to_regclass(wanted.name)
        WHERE i.indexrelid IS NULL OR NOT i.indisvalid
        UNION ALL
        SELECT i.indexrelid::regclass::text || ' is invalid' FROM pg_index i
        WHERE i.indrelid = to_regclass('{chunks}') AND NOT i.indisvalid
          AND i.indexrelid::regclass::text NOT IN
              ('{chunks}_tags', '{chunks}_fts', '{chunks}_metadata', '{chunks}_attributes')
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
        MAINTENANCE,
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
        "a job is running and its worker sent no heartbeat for five minutes",
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
        "tables without an index version",
        "there is a table of chunks that no index version names",
        r"""
        SELECT c.relname FROM pg_class c
        WHERE c.relkind = 'r' AND c.relname ~ '^chunks_c\d+_g\d+$'
          AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'chunks'::regclass)
          AND NOT EXISTS (SELECT 1 FROM chunk_stats s
                          WHERE c.relname = 'chunks_c' || s.collection_id || '_g' || s.index_version)
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
        "SELECT name FROM collections WHERE deleted_at < now() - interval '1 hour' AND trash IS NULL ORDER BY name",
        "Look whether a worker runs (Operations), and what reads the rows (pg_stat_activity).",
    ),
)

SLICES = Rule("slices", "a chunk is not the slice of its document's text that it says it is", "", REINDEX)
HASHES = Rule("content hashes", "the content hash of a document is not that of what is stored", "", REINDEX)

# what a file could bring that was written by hand; the rest is made here
IMPORT_RULES = (
    *(rule for rule in RULES if rule.name in {"chunk indexes", "switches"}), SLICES, HASHES,
)  # fmt: skip


RULE_LIMIT_S = 60.0
SHOWN_ROWS = 5
DOCUMENTS_AT_ONCE = 50
CHARS_AT_ONCE = 4_000_000

SET_LIMIT = "SELECT set_config('statement_timeout', %(limit)s, true)"

LISTED_DOCUMENTS = """
SELECT doc_id, text FROM (
    SELECT d.doc_id, d.text, sum(d.size_chars) OVER (ORDER BY d.doc_id) - d.size_chars AS before
    FROM documents d
    WHERE d.collection_id = %(collection)s AND d.doc_id > %(after)s AND d.size_chars > 0
    ORDER BY d.doc_id LIMIT %(most)s
) AS listed
WHERE before < %(chars)s
ORDER BY doc_id
"""

PLACED_CHUNKS = """
SELECT doc_id, chunk_index, start_char, end_char, content FROM {chunks}
WHERE doc_id = ANY(%(doc_ids)s) AND NOT attributes ? 'overlay'
ORDER BY doc_id, chunk_index
"""


def check_invariants(collection: Collection | None = None, *, actor: services.Actor = None) -> Operation:
    """Check one collection, or all of them with what stands between them; the operation that keeps the result.

    `findings` counts the rules that found something. report: {"collections": how many, "rules": how many were looked
    at, "findings": [`Finding` as objects], "unfinished": [rules that hit their time limit], "seconds"}.
    """
    subject = "" if collection is None else collection.name
    with running(Operation.Kind.CHECK, subject, actor=actor) as progress:
        return Check(progress).run(collection)


def request_check(collection: Collection | None = None, *, actor: services.Actor = None) -> Operation:
    """Have a worker check; the operation that will keep the result. One that is under way is returned instead."""
    subject = "" if collection is None else collection.name
    newest = last_operation(Operation.Kind.CHECK, subject)
    if newest is not None and newest.is_running:
        return newest
    return request_operation(Operation.Kind.CHECK, subject, {}, actor=actor)


@handles(Operation.Kind.CHECK)
def run_check(progress: OperationProgress) -> None:
    """The worker's side of `request_check`."""
    name = progress.operation.subject
    collection = Collection.objects.live().filter(name=name).first() if name else None
    if name and collection is None:
        raise UnknownCollection(f"collection {name!r} was deleted", field="collection")
    Check(progress).run(collection)


class Check:
    """One run."""

    def __init__(self, progress: OperationProgress, limit_s: float = RULE_LIMIT_S) -> None:
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

    def broken(self, collection: Collection, rules: Sequence[Rule]) -> list[Finding]:
        """What these rules find in a collection, whether or not anybody sees it yet; see `unfinished` too."""
        self._collection(collection, rules)
        return self.findings

    def _collection(self, collection: Collection, rules: Sequence[Rule] | None = None) -> None:
        names = {"chunks": partition_name(collection.pk, collection.index_version)}
        params = {
            "collection": collection.pk,
            "index_version": collection.index_version,
            "dims": collection.embed_dims,
            "hybrid": collection.hybrid_enabled,
        }
        in_python = {SLICES.name: self._wrong_slices, HASHES.name: self._wrong_hashes}
        for rule in (*RULES, SLICES, HASHES) if rules is None else rules:
            find = in_python.get(rule.name)
            self._rule(collection.name, rule, names, params, rows=partial(find, names, params) if find else None)
            self.progress.tell(collection.name, self.rules, 0)

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
                    fetched = [str(row) for (row,) in fetch_all(connection, sql, dict(params) or None)]
                else:
                    fetched = list(rows())
        except (OperationalError, TimeoutError) as error:
            if not isinstance(error, TimeoutError) and not isinstance(error.__cause__, QueryCanceled):
                raise
            self.unfinished.append(f"{rule.name} of {collection or 'all collections'}")
            return
        if fetched:
            remedy = rule.remedy.replace("NAME", collection)
            self.findings.append(
                Finding(collection, rule.name, rule.says, len(fetched), tuple(fetched[:SHOWN_ROWS]), remedy)
            )

    def _wrong_slices(self, names: Mapping[str, str], params: Mapping[str, Any]) -> Iterator[str]:
        """Chunks that are not the slice of their document's text; those that a person changed are passed over.

        Compared here, because the database would unpack a document's whole text for each of its chunks.
        """
        began, after = time.monotonic(), ""
        sql = PLACED_CHUNKS.format(**names)
        params = {**params, "most": DOCUMENTS_AT_ONCE, "chars": CHARS_AT_ONCE}
        while rows := fetch_all(connection, LISTED_DOCUMENTS, {**params, "after": after}):
            texts: dict[str, str] = dict(rows)
            for doc_id, index, start, end, content in fetch_all(connection, sql, {"doc_ids": list(texts)}):
                if texts[doc_id][start:end] != content:
                    yield f"{doc_id}#{index}"
            after = rows[-1][0]
            if time.monotonic() - began > self.limit_s:
                raise TimeoutError

    def _wrong_hashes(self, names: Mapping[str, str], params: Mapping[str, Any]) -> Iterator[str]:
        """Documents whose chunks were not made from what is stored of them; those of the library have no hash."""
        began = time.monotonic()
        collection = Collection.objects.get(pk=params["collection"])
        changed = set(ChunkOverlay.objects.filter(collection=collection).values_list("doc_id", flat=True))
        rows = Document.objects.filter(collection=collection).exclude(content_hash="")
        for document in rows.order_by("doc_id").iterator(chunk_size=DOCUMENTS_AT_ONCE):
            overlays = (
                DocumentOverlays.read(collection.pk, document.doc_id).digest if document.doc_id in changed else []
            )
            policy = ChunkPolicy.from_dict(document.chunk_policy)
            if hash_content(collection, draft_of(document), document.text, policy, overlays) != document.content_hash:
                yield document.doc_id
            if time.monotonic() - began > self.limit_s:
                raise TimeoutError


def _rows_without_collection() -> Iterator[str]:
    """0 stands for all collections, in roles and alert rules."""
    for table, _ in collection_tables():
        sql = (
            'SELECT count(*) FROM "{table}" t WHERE collection_id <> 0 '
            "AND NOT EXISTS (SELECT 1 FROM collections c WHERE c.id = t.collection_id)"
        )
        ((count,),) = fetch_all(connection, sql.format(table=table))
        if count:
            yield f"{table} has {count}"
