"""Panels that the pages of a collection include: its saved plans, and the documents that no run has retrieved."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from collections_app.http.page_requests import PageRequest, find_or_404, render_page
from collections_app.models import Collection
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.runs.unretrieved import DAYS_MAX, USUAL_DAYS, list_unretrieved

DAYS = (7, 30, 90, 365)


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
    requested = request.GET.get("days", "")
    days = min(int(requested), DAYS_MAX) if requested.isdecimal() and int(requested[:6]) else USUAL_DAYS
    documents, total = list_unretrieved(collection, days)
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
