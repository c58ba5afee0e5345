"""The page of a collection's contradictions: passages of different documents that disagree, side by side."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods

from collections_app.http.page_requests import PageRequest, page_number, pages_around, render_page, whole_number
from collections_app.models import Contradiction, Operation
from collections_app.services.collections.contradictions import (
    count_contradictions,
    dismiss_contradiction,
    estimate_scan,
    list_contradictions,
    request_scan,
)
from collections_app.services.collections.operations import last_operation
from collections_app.views.collections import find_collection
from ragd.errors import RagdError

ROWS_PER_PAGE = 25
PAGE_MAX = 999_999


@require_http_methods(["GET", "POST"])
def contradictions(request: PageRequest, name: str) -> HttpResponse:
    """By ?kind= and ?state=dismissed; a POST starts a scan (do=scan), dismisses one, or brings it back."""
    collection = find_collection(name)
    dismissed = request.GET.get("state") == "dismissed"
    if request.method == "POST":
        try:
            if request.POST.get("do") == "scan":
                request_scan(collection, actor=request.user)
                messages.success(request, gettext("The scan has started."))
            else:
                pk = whole_number(request.POST.get("contradiction")) or 0
                dismiss_contradiction(collection, pk, dismissed=not dismissed, actor=request.user)
                messages.success(
                    request, gettext("Contradiction returned.") if dismissed else gettext("Contradiction dismissed.")
                )
        except RagdError as error:
            messages.error(request, error.message)
        return redirect(f"{reverse('collections:contradictions', args=[name])}?{request.GET.urlencode()}")
    counts = count_contradictions(collection, dismissed=dismissed)
    kind = request.GET.get("kind", "")
    kind = kind if kind in counts else ""
    number = min(page_number(request), PAGE_MAX)
    rows = list_contradictions(
        collection, kind, dismissed=dismissed, offset=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE + 1
    )
    context = {
        "collection": collection,
        "tab": "contradictions",
        "rows": rows[:ROWS_PER_PAGE],
        "kind": kind,
        "kinds": [(each.value, each.label, counts[each.value]) for each in Contradiction.Kind],
        "all": sum(counts.values()),
        "dismissed": dismissed,
        "scan": last_operation(Operation.Kind.CONTRADICTIONS, name),
        "estimate": estimate_scan(collection),
        **pages_around(number, has_more=len(rows) > ROWS_PER_PAGE),
    }
    return render_page(request, "collections/contradictions.html", context)
