"""What must hold of everything that is stored, each rule a query for the rows that break it, with what to do then.

{chunks} stands for the table of the generation that serves; what is joined with it is read first, since on a cluster it
is elsewhere; %(collection)s, %(generation)s, %(dims)s and %(hybrid)s are
the collection's own.
"""

from __future__ import annotations

from dataclasses import dataclass

REINDEX = "Re-index these documents (Documents, or POST /v1/collections/NAME/documents-bulk with action reindex)."
REBUILD = "Rebuild the index (Index, or `manage.py ragd index rebuild NAME`)."
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
        WITH words AS MATERIALIZED (
            SELECT coalesce(sum(w.places), 0)::bigint AS length FROM {chunks} c, ragd_counted(c.fts, c.access) AS w
        ), rows AS MATERIALIZED (
            SELECT count(*) AS chunks, count(*) FILTER (WHERE 1 = ANY (access)) AS opened FROM {chunks}
        ), counted AS (SELECT * FROM rows, words)
        SELECT 'counted ' || counted.chunks || ' chunks, ' || counted.opened || ' open ones of ' || counted.length
               || ' words, stored ' || s.chunk_count || ', ' || s.open_count || ' of ' || s.length_total
        FROM chunk_stats s, counted
        WHERE s.collection_id = %(collection)s AND s.generation = %(generation)s
          AND (s.chunk_count, s.open_count, s.length_total)
              IS DISTINCT FROM (counted.chunks, counted.opened, counted.length)
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
        WITH r AS MATERIALIZED (
            SELECT w.term, count(*) AS chunks FROM {chunks} c, ragd_counted(c.fts, c.access) AS w GROUP BY 1
        )
        SELECT 'term ' || coalesce(t.term, r.term) || ' is in ' || coalesce(r.chunks, 0) || ' chunks, stored '
               || coalesce(t.chunk_count, 0)
        FROM r FULL JOIN (SELECT term, chunk_count FROM chunk_terms
                   WHERE collection_id = %(collection)s AND generation = %(generation)s) AS t USING (term)
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
        WHERE s.collection_id = %(collection)s AND s.generation = %(generation)s
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

SLICES = Rule("slices", "a chunk is not the slice of its document's text that it says it is", "", REINDEX)
HASHES = Rule("content hashes", "the content hash of a document is not that of what is stored", "", REINDEX)

# what a file could bring that was written by hand; the rest is made here
IMPORT_RULES = (
    *(rule for rule in RULES if rule.name in {"chunk indexes", "switches", "archived documents"}), SLICES, HASHES,
)  # fmt: skip
