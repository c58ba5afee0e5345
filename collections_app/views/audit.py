"""The audit log as a page: who did what when, of one collection or of everything."""

from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from collections_app.http.page_requests import PageRequest

PER_PAGE = 50


@require_GET
def audit_log(request: PageRequest) -> HttpResponse:
    raise NotImplementedError
