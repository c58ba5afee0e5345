"""What the model calls of a job cost, whatever became of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, connection

from collections_app.models import IngestJob
from ragd import telemetry
from ragd.store.store import execute

ADD_COST = """
UPDATE ingest_jobs SET cost = jsonb_build_object(
    'usd', coalesce((cost->>'usd')::float8, 0) + %(usd)s,
    'priced', coalesce((cost->>'priced')::int, 0) + %(priced)s,
    'unpriced', coalesce((cost->>'unpriced')::int, 0) + %(unpriced)s)
WHERE id = %(job_id)s
"""

log = logging.getLogger(__name__)


@contextmanager
def record_cost(job: IngestJob) -> Iterator[None]:
    """Adds what its model calls cost to the job, also when it fails or is lost: they are paid for all the same.

    A job that asked no model elsewhere is left alone.
    """
    with telemetry.spending() as spent:
        try:
            yield
        finally:
            if spent.priced or spent.unpriced:
                _add(job, spent)


def _add(job: IngestJob, spent: telemetry.Spending) -> None:
    values = {"usd": spent.known_usd, "priced": spent.priced, "unpriced": spent.unpriced, "job_id": job.pk}
    try:
        execute(connection, ADD_COST, values)
    except DatabaseError:
        log.warning("what job %s cost could not be written", job.pk, exc_info=True)
