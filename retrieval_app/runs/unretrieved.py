"""Documents that no stored run has retrieved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

from collections_app.models import Collection
from ragd.store.store import fetch_all

USUAL_DAYS = 30
DAYS_MAX = 36_500
SHOWN = 20

# Documents made after the moment have had no chance to be retrieved before it; they are listed all the same.
UNRETRIEVED = """
SELECT d.doc_id, d.title, d.enabled, d.created_at, count(*) OVER ()
FROM documents d
WHERE d.collection_id = %(collection)s AND d.doc_id > %(after)s AND NOT EXISTS (
    SELECT 1 FROM retrieval_app_retrievedchunk r
    WHERE r.collection_id = d.collection_id AND r.doc_id = d.doc_id AND r.created_at >= %(since)s)
ORDER BY d.doc_id LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Unretrieved:
    """A document that no run retrieved. A disabled one cannot be."""

    doc_id: str
    title: str
    enabled: bool
    created_at: datetime


def list_unretrieved(
    collection: Collection, days: int = USUAL_DAYS, *, after: str = "", most: int = SHOWN
) -> tuple[Sequence[Unretrieved], int]:
    """Documents that no run of the last `days` retrieved, by doc_id behind `after`; and how many there are from there.

    Of runs that retention has removed nothing is known any more.
    """
    params = {
        "collection": collection.pk,
        "since": timezone.now() - timedelta(days=days),
        "after": after,
        "most": most,
    }
    rows = fetch_all(connection, UNRETRIEVED, params)
    return [Unretrieved(*row[:4]) for row in rows], int(rows[0][4]) if rows else 0
