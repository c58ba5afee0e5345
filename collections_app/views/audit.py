"""The audit log as a page: who did what when, of one collection or of everything."""

from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from collections_app.http.page_requests import PageRequest, page_of, render_page
from collections_app.models import Collection
from collections_app.services.governance.audit import AuditFilter, list_entries, list_subject_kinds

PER_PAGE = 50


@require_GET
def audit_log(request: PageRequest) -> HttpResponse:
    audit_filter = AuditFilter(
        collection=request.GET.get("collection", ""),
        actor=request.GET.get("actor", ""),
        kind=request.GET.get("kind", ""),
        words=request.GET.get("q", ""),
    )
    context = {
        "page": page_of(request, list_entries(audit_filter), PER_PAGE),
        "wanted": audit_filter,
        "kinds": list_subject_kinds(),
        "collections": Collection.objects.live().by_name().values_list("name", flat=True)[:200],
    }
    return render_page(request, "collections/audit.html", context, parts={"audit": "collections/parts/audit.html"})
