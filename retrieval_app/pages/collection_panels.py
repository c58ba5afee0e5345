"""What the pages of a collection show of this floor: its plans, and the documents that no run has retrieved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from collections_app.http.page_requests import PageRequest, find_or_404, render_page
from collections_app.models import Collection
from ragd.store.store import fetch_all
from retrieval_app.models import QueryRun, SavedPlan

DAYS = (7, 30, 90, 365)
USUAL_DAYS = 30
DAYS_MAX = 36_500
SHOWN = 20

# Documents made after the moment have had no chance to be retrieved before it; they are listed all the same.
NEVER = """
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


def list_never_retrieved(
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
    rows = fetch_all(connection, NEVER, params)
    return [Unretrieved(*row[:4]) for row in rows], int(rows[0][4]) if rows else 0


@require_GET
def plans(request: PageRequest, name: str) -> HttpResponse:
    """The saved plans of a collection, for its settings page."""
    collection = find_or_404(Collection.objects.live(), name=name)
    context = {"collection": collection, "plans": SavedPlan.objects.of(collection).by_name()}
    return render_page(request, "retrieval/plans.html", context, parts={"plans": "retrieval/parts/plans.html"})


@require_GET
def never_retrieved(request: PageRequest, name: str) -> HttpResponse:
    """For the statistics page; days=N says how far back is looked."""
    collection = find_or_404(Collection.objects.live().with_counts(), name=name)
    wanted = request.GET.get("days", "")
    days = min(int(wanted), DAYS_MAX) if wanted.isdecimal() and int(wanted[:6]) else USUAL_DAYS
    documents, total = list_never_retrieved(collection, days)
    since = timezone.now() - timedelta(days=days)
    context = {
        "collection": collection,
        "documents": documents,
        "total": total,
        "days": days,
        "choices": DAYS,
        "runs": QueryRun.objects.filter(collection=collection, created_at__gte=since).count(),
    }
    parts = {"never-retrieved": "retrieval/parts/never_retrieved.html"}
    return render_page(request, "retrieval/never_retrieved.html", context, parts=parts)
