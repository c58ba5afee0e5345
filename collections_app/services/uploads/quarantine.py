"""Files that ended their reader or their worker as often as they may be tried, told apart by their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection

from collections_app.models import Collection

QUARANTINED = """
SELECT DISTINCT ON (u.sha256) u.sha256, j.id::text, j.doc_id, j.error
FROM ingest_jobs j JOIN uploads u ON u.id = j.upload_id
WHERE j.collection_id = %(collection_id)s AND j.state = 'quarantined'
ORDER BY u.sha256, j.finished_at DESC, j.id
"""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The job that set these bytes aside last, and why."""

    job_id: str
    doc_id: str
    error: str

    @property
    def refusal(self) -> str:
        """What somebody is told who sends the same bytes again."""
        return (
            f"these bytes are in quarantine, {self.error}. To try them anyway, retry the job of {self.doc_id!r} on its "
            f"page or by POST /v1/jobs/{self.job_id}/retry"
        )


def load_quarantined(collection: Collection) -> Mapping[str, Quarantined]:
    """SHA-256 of the file -> what is known, for all of a collection. One query."""
    with connection.cursor() as cursor:
        cursor.execute(QUARANTINED, {"collection_id": collection.pk})
        return {sha256: Quarantined(*values) for sha256, *values in cursor.fetchall()}
