"""The chunks of a collection that deserve a look."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from collections_app.domain.outliers import FLAG_WORDS, FLAGS
from collections_app.http.page_requests import PageRequest, page_number, pages_around, render_page
from collections_app.services.chunks.chunk_outliers import count_outliers, last_scan, list_outliers, scan_duplicates
from collections_app.templatetags.interface import counted
from collections_app.views.collections import find_collection

ROWS_PER_PAGE = 50
PAGE_MAX = 999_999


@require_http_methods(["GET", "POST"])
def outliers(request: PageRequest, name: str) -> HttpResponse:
    """Counts per flag and the chunks, by ?flag=; a POST looks for near-duplicates anew."""
    collection = find_collection(name)
    if request.method == "POST":
        scan = scan_duplicates(collection, actor=request.user)
        message = f"{counted(scan.found, 'near-duplicate')} found."
        if scan.complete:
            messages.success(request, message)
        else:
            messages.warning(request, f"The scan is incomplete: {scan.error}.")
        return redirect("collections:outliers", name)
    flag = request.GET.get("flag", "")
    flag = flag if flag in FLAGS else ""
    number = min(page_number(request), PAGE_MAX)
    rows = list_outliers(collection, flag, offset=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE + 1)
    counts = count_outliers(collection) if rows is not None else None
    context = {
        "collection": collection,
        "tab": "outliers",
        "counts": counts,
        "links": [(each, FLAG_WORDS[each], counts.by_flag[each] if counts else None) for each in FLAGS],
        "flag": flag,
        "rows": rows[:ROWS_PER_PAGE] if rows is not None else None,
        **pages_around(number, has_more=rows is not None and len(rows) > ROWS_PER_PAGE),
        "scan": last_scan(collection),
    }
    return render_page(request, "collections/outliers.html", context)
