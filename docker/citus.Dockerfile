# PostgreSQL with Citus and pgvector: a coordinator or a node of the profile `cluster` in compose.yaml.
FROM citusdata/citus:14.0-pg18
RUN apt-get update && apt-get install -y --no-install-recommends postgresql-18-pgvector && rm -rf /var/lib/apt/lists/*
