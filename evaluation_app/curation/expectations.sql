-- worth
/* What a chunk was called depends on the index version, so only runs over the one that serves are read. */
WITH runs AS (
    SELECT id FROM evaluation_runs
    WHERE collection_name = %(collection)s AND index_version = %(index_version)s
    ORDER BY created_at DESC, id DESC LIMIT %(runs)s
), live AS (
    SELECT s.contributions FROM run_scores s
    JOIN retrieval_app_queryrun q ON q.id = s.query_run AND q.index_version = %(index_version)s
    WHERE s.collection_name = %(collection)s AND s.contributions <> '[]'::jsonb
    ORDER BY s.asked_at DESC, s.query_run DESC LIMIT %(live)s
), listed AS (
    SELECT i.contributions FROM evaluation_items i JOIN runs r ON r.id = i.run_id WHERE i.contributions <> '[]'::jsonb
    UNION ALL
    SELECT contributions FROM live
), told AS (
    SELECT part ->> 'key' AS key, part ->> 'effect' AS effect,
           (part ->> 'contribution')::double precision AS contribution
    FROM listed, jsonb_array_elements(listed.contributions) AS part
    WHERE left(part ->> 'key', length(%(prefix)s)) = %(prefix)s
)
SELECT key, count(*), count(contribution), coalesce(sum(contribution), 0),
       count(*) FILTER (WHERE effect = 'helpful'), count(*) FILTER (WHERE effect = 'neutral'),
       count(*) FILTER (WHERE effect = 'harmful')
FROM told GROUP BY key ORDER BY key
