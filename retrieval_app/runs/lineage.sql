-- keep
WITH kept AS ({insert})
INSERT INTO retrieval_app_retrievedchunk
    (run_id, collection_id, doc_id, chunk_index, revision, rank, cited, created_at)
SELECT %(id)s, c.id, found.doc_id, found.chunk_index, found.revision, found.rank, found.cited, %(created_at)s
FROM collections c JOIN unnest(
    %(collection_ids)s::bigint[], %(doc_ids)s::text[], %(indexes)s::integer[], %(revisions)s::integer[],
    %(ranks)s::integer[], %(cited)s::boolean[]
) AS found (collection_id, doc_id, chunk_index, revision, rank, cited) ON c.id = found.collection_id

-- runs
/* One row per run: its best chunk of the document, and how many of it the run retrieved. */
WITH found AS (
    SELECT run_id, min(rank) AS rank, bool_or(cited) AS cited, count(*) AS chunks, max(revision) AS revision,
           (array_agg(chunk_index ORDER BY rank))[1] AS chunk_index, max(created_at) AS created_at
    FROM retrieval_app_retrievedchunk
    WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s
      AND (%(chunk_index)s::integer IS NULL OR chunk_index = %(chunk_index)s)
    GROUP BY run_id
    ORDER BY max(created_at) DESC, run_id DESC
    LIMIT %(limit)s
)
SELECT f.run_id, r.query, r.kind, r.status, r.channel, f.created_at, f.rank, f.cited, f.chunks, f.chunk_index,
       f.revision, r.index_version
FROM found f JOIN retrieval_app_queryrun r ON r.id = f.run_id
ORDER BY f.created_at DESC, f.run_id DESC

-- tally
SELECT count(DISTINCT run_id), count(DISTINCT run_id) FILTER (WHERE cited), max(created_at)
FROM retrieval_app_retrievedchunk
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s
  AND (%(chunk_index)s::integer IS NULL OR chunk_index = %(chunk_index)s)

-- counts
SELECT doc_id, count(DISTINCT run_id), count(DISTINCT run_id) FILTER (WHERE cited), max(created_at)
FROM retrieval_app_retrievedchunk
WHERE collection_id = %(collection_id)s
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
GROUP BY doc_id

-- unretrieved
/* Documents made after the moment have had no chance to be retrieved before it; they are listed all the same. */
SELECT d.doc_id, d.title, d.enabled, d.created_at, count(*) OVER ()
FROM documents d
WHERE d.collection_id = %(collection)s AND d.doc_id > %(after)s AND NOT EXISTS (
    SELECT 1 FROM retrieval_app_retrievedchunk r
    WHERE r.collection_id = d.collection_id AND r.doc_id = d.doc_id AND r.created_at >= %(since)s)
ORDER BY d.doc_id LIMIT %(most)s
