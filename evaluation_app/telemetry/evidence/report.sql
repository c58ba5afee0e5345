-- read spans
/* Of each span only what the rows name: a long text is cut, for it is asked only whether it is there. */
SELECT trace_id, span_id, status_code, started_at, id,
       (SELECT jsonb_object_agg(key, CASE WHEN length(value::text) > %(longest)s THEN %(cut)s::jsonb ELSE value END)
        FROM jsonb_each(attributes) WHERE key = ANY(%(names)s)),
       CASE WHEN %(events)s::text[] <> '{}' THEN
       (SELECT jsonb_agg(jsonb_build_array(event ->> 'name', (
            SELECT jsonb_object_agg(
                key, CASE WHEN length(value::text) > %(longest)s THEN %(cut)s::jsonb ELSE value END)
            FROM jsonb_each(event -> 'attributes') WHERE key = ANY(%(names)s))))
        FROM jsonb_array_elements(events) AS event WHERE event ->> 'name' = ANY(%(events)s)) END
FROM (
    SELECT trace_id, span_id, status_code, started_at, id, attributes, events FROM spans
    WHERE type = %(type)s AND started_at >= %(since)s AND started_at < %(until)s
      AND (%(within)s::text[] IS NULL OR EXISTS (
          SELECT 1 FROM unnest(%(within)s::text[], %(made_at)s::timestamptz[]) AS opened (name, made_at)
          WHERE opened.name = collection AND started_at >= opened.made_at))
      AND (%(at)s::timestamptz IS NULL OR (started_at, id) < (%(at)s, %(behind)s))
    ORDER BY started_at DESC, id DESC LIMIT %(limit)s
) AS newest

-- count spans
SELECT type, count(*), count(*) FILTER (WHERE dropped_count > 0) FROM spans
WHERE type = ANY(%(types)s) AND started_at >= %(since)s AND started_at < %(until)s
  AND (%(within)s::text[] IS NULL OR EXISTS (
      SELECT 1 FROM unnest(%(within)s::text[], %(made_at)s::timestamptz[]) AS opened (name, made_at)
      WHERE opened.name = collection AND started_at >= opened.made_at))
GROUP BY type

-- read children
SELECT trace_id, parent_span_id, type FROM spans
WHERE trace_id = ANY(%(traces)s) AND parent_span_id IS NOT NULL AND type = ANY(%(types)s)
