-- stale hours
/* hours that hold more spans than were rolled up; one that holds fewer lost them to retention and stays as it is */
WITH stored AS (
    SELECT date_trunc('hour', started_at, 'UTC') AS hour, count(*) AS spans FROM spans
    WHERE started_at >= %(since)s AND started_at < %(before)s GROUP BY 1),
rolled AS (
    SELECT hour, sum(spans) AS spans FROM span_rollups
    WHERE summed_over = %(over_all)s AND hours = 1 AND hour >= %(since)s AND hour < %(before)s GROUP BY 1)
SELECT stored.hour FROM stored LEFT JOIN rolled USING (hour)
WHERE stored.spans > coalesce(rolled.spans, 0) ORDER BY stored.hour

-- forget hour
DELETE FROM span_rollups WHERE hour = %(hour)s AND hours = 1

-- roll hour
WITH began AS (
    SELECT type, environment, collection, model, api_key, {bucket} AS bucket, status_code, input_tokens,
           output_tokens, cost_usd
    FROM spans WHERE started_at >= %(hour)s AND started_at < %(hour)s + interval '1 hour'),
counted AS (
    SELECT GROUPING(collection, model, api_key) AS summed_over, type, environment, collection, model, api_key, bucket,
           count(*) AS spans, count(*) FILTER (WHERE status_code = 'ERROR') AS failed,
           coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(output_tokens), 0) AS output_tokens,
           coalesce(sum(cost_usd), 0) AS cost_usd, count(cost_usd) AS priced
    FROM began GROUP BY type, environment, bucket, CUBE (collection, model, api_key))
INSERT INTO span_rollups (hour, hours, summed_over, type, environment, collection, model, api_key, buckets, counts,
                          spans, failed, input_tokens, output_tokens, cost_usd, priced)
SELECT %(hour)s, 1, summed_over, type, environment, coalesce(collection, ''), coalesce(model, ''),
       coalesce(api_key, ''), array_agg(bucket ORDER BY bucket), array_agg(spans ORDER BY bucket), sum(spans),
       sum(failed), sum(input_tokens), sum(output_tokens), sum(cost_usd), sum(priced)
FROM counted
WHERE summed_over = %(over_all)s OR (type <> '' AND summed_over & %(model)s <> 0) OR type = ANY(%(model_types)s)
GROUP BY summed_over, type, environment, collection, model, api_key

-- stale days
/* days that are over and whose hours hold more or fewer spans than was added up */
WITH hourly AS (
    SELECT date_trunc('day', hour, 'UTC') AS day, sum(spans) AS spans FROM span_rollups
    WHERE summed_over = %(over_all)s AND hours = 1 AND hour >= %(since)s AND hour < %(before)s GROUP BY 1),
daily AS (
    SELECT hour AS day, sum(spans) AS spans FROM span_rollups
    WHERE summed_over = %(over_all)s AND hours = 24 AND hour >= %(since)s AND hour < %(before)s GROUP BY 1)
SELECT hourly.day FROM hourly LEFT JOIN daily USING (day)
WHERE hourly.spans <> coalesce(daily.spans, 0) ORDER BY hourly.day

-- forget day
DELETE FROM span_rollups WHERE hour = %(day)s AND hours = 24

-- roll day
WITH hourly AS (
    SELECT * FROM span_rollups WHERE hours = 1 AND hour >= %(day)s AND hour < %(day)s + interval '1 day'),
durations AS (
    SELECT summed_over, type, environment, collection, model, api_key, array_agg(bucket ORDER BY bucket) AS buckets,
           array_agg(count ORDER BY bucket) AS counts
    FROM (
        SELECT summed_over, type, environment, collection, model, api_key, bucket, sum(count) AS count
        FROM hourly, unnest(buckets, counts) AS part (bucket, count) GROUP BY 1, 2, 3, 4, 5, 6, 7) AS parts
    GROUP BY 1, 2, 3, 4, 5, 6),
sums AS (
    SELECT summed_over, type, environment, collection, model, api_key, sum(spans) AS spans, sum(failed) AS failed,
           sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd,
           sum(priced) AS priced
    FROM hourly GROUP BY 1, 2, 3, 4, 5, 6)
INSERT INTO span_rollups (hour, hours, summed_over, type, environment, collection, model, api_key, buckets, counts,
                          spans, failed, input_tokens, output_tokens, cost_usd, priced)
SELECT %(day)s, 24, summed_over, type, environment, collection, model, api_key, buckets, counts, spans, failed,
       input_tokens, output_tokens, cost_usd, priced
FROM sums JOIN durations USING (summed_over, type, environment, collection, model, api_key)

-- oldest span
SELECT (SELECT started_at FROM spans ORDER BY started_at LIMIT 1)
