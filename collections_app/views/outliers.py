"""The chunks of a collection that deserve a look, and those in which something harmful was found."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods

from collections_app.domain.formats import counted
from collections_app.domain.outliers import FLAG_WORDS, FLAGS
from collections_app.http.page_requests import PageRequest, page_number, pages_around, render_page
from collections_app.services.chunks.chunk_outliers import find_outliers, last_scan, scan_duplicates
from collections_app.services.chunks.finding_scan import (
    PAGE_SCAN_S,
    count_findings,
    last_finding_scan,
    list_findings,
    scan_collection,
)
from collections_app.services.governance.security_policy import policy_of
from collections_app.views.collections import find_collection
from ragd.security import FAMILIES, RULES_VERSION

ROWS_PER_PAGE = 50
PAGE_MAX = 999_999


@require_http_methods(["GET", "POST"])
def outliers(request: PageRequest, name: str) -> HttpResponse:
    """Counts per flag and the chunks, by ?flag=; a POST looks for near-duplicates anew."""
    collection = find_collection(name)
    if request.method == "POST":
        scan = scan_duplicates(collection, actor=request.user)
        message = gettext("%(found)s found.") % {
            "found": counted(scan.found, gettext("near-duplicate,near-duplicates"))
        }
        if scan.complete:
            messages.success(request, message)
        else:
            messages.warning(request, gettext("The scan is incomplete: %(error)s.") % {"error": scan.error})
        return redirect("collections:outliers", name)
    flag = request.GET.get("flag", "")
    flag = flag if flag in FLAGS else ""
    number = min(page_number(request), PAGE_MAX)
    found = find_outliers(collection, flag, offset=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE + 1)
    rows, counts = (found.rows, found.counts) if found else (None, None)
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


@require_http_methods(["GET", "POST"])
def findings(request: PageRequest, name: str) -> HttpResponse:
    """Counts per family and the chunks, the riskiest first, by ?family=; a POST looks through the chunks."""
    collection = find_collection(name)
    if request.method == "POST":
        done = scan_collection(collection, seconds=PAGE_SCAN_S, actor=request.user)
        message = gettext("%(chunks)s scanned.") % {"chunks": counted(done.chunks_scanned, gettext("chunk,chunks"))}
        if done.complete:
            messages.success(request, message)
        else:
            messages.warning(
                request,
                gettext("%(message)s The scan is incomplete: resume it, or run ragd scan.") % {"message": message},
            )
        return redirect("collections:findings", name)
    family = request.GET.get("family", "")
    family = family if family in FAMILIES else ""
    number = min(page_number(request), PAGE_MAX)
    rows = list_findings(collection, family, offset=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE + 1)
    scan = last_finding_scan(collection)
    context = {
        "collection": collection,
        "tab": "findings",
        "counts": count_findings(collection),
        "family": family,
        "rows": rows[:ROWS_PER_PAGE],
        **pages_around(number, has_more=len(rows) > ROWS_PER_PAGE),
        "scan": scan,
        "older_rules": scan is not None and scan.rules != RULES_VERSION,
        "policy": policy_of(collection),
    }
    return render_page(request, "collections/findings.html", context)
