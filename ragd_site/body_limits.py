"""How large the body of a request may be, by its route. Refused by its stated length, before any of it is read."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render

from collections_app.access.rules import name_page
from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError
from collections_app.http.middleware import API_PATHS
from ragd_site.api import error_response


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """1 MB, and `times` the megabytes of a setting."""

    setting: str = ""
    times: int = 0

    @property
    def limit_mb(self) -> int:
        return 1 + (getattr(settings, self.setting) * self.times if self.setting else 0)


FIELDS = BodyLimit()
TEXT = BodyLimit("RAGD_MAX_DOCUMENT_MB", 2)  # a text in JSON escapes some characters; long lists of names fit too
UPLOAD = BodyLimit("RAGD_MAX_DOCUMENT_MB", 20)  # several files in one request
IMPORT = BodyLimit("RAGD_IMPORT_MAX_MB", 1)

# The first route that the address's begins with counts; all others take FIELDS.
LIMITS: tuple[tuple[str, BodyLimit], ...] = (
    ("v1/collections/import", IMPORT),
    ("v1/collections/<collection>/documents/", TEXT),
    ("v1/collections/<collection>/documents-bulk", TEXT),
    ("v1/collections/<collection>/documents", UPLOAD),
    ("v1/collections/<collection>/chunk-preview", TEXT),
    ("v1/collections/<collection>/uploads/plan", TEXT),
    ("v1/collections/<collection>/sync", TEXT),
    ("v1/collections/<collection>/urls", TEXT),
    ("v1/collections/<collection>/impact", TEXT),
    ("v1/golden-sets/<golden_set>/import", TEXT),
    ("admin/collections_app/document/add/", UPLOAD),
    ("collections/?view=import", IMPORT),
    ("collections/<str:name>/upload/?view=text", TEXT),
    ("collections/<str:name>/upload/?view=urls", TEXT),
    ("collections/<str:name>/upload/", UPLOAD),
    ("collections/<str:name>/documents/<path:doc_id>/?view=new-version", UPLOAD),
    ("collections/<str:name>/documents/<path:doc_id>/?view=edit-text", TEXT),
    ("chat/files/", UPLOAD),
    ("evaluation/sets/<int:pk>/?view=import", TEXT),
)


def body_limit(route: str) -> BodyLimit:
    return next((limit for start, limit in LIMITS if route.startswith(start)), FIELDS)


def refuse_body(request: HttpRequest) -> HttpResponseBase | None:
    """413 for a body above its route's limit, and 411 for one of unstated length, which cannot be bounded."""
    explicit = request.META.get("CONTENT_LENGTH") or ""
    if not explicit and request.headers.get("Transfer-Encoding"):
        message = "the request does not state its length; send it with Content-Length, not in chunks"
        return _refuse(request, ServiceError(message, type="length_required", status=411))
    match = request.resolver_match
    limit = body_limit(name_page(request, match.route) if match else "")
    if not explicit.isdecimal() or int(explicit) <= limit.limit_mb * MEGABYTE:
        return None
    advice = f"send it in parts, or raise {limit.setting}" if limit.setting else "send less"
    message = f"the request has {int(explicit):,} bytes, and this address takes at most {limit.limit_mb:,} MB; {advice}"
    return _refuse(request, ServiceError(message, type="too_large", status=413))


def _refuse(request: HttpRequest, error: ServiceError) -> HttpResponseBase:
    if request.path.startswith(API_PATHS):
        return error_response(request, error)
    return render(request, "body_refused.html", {"error": error}, status=error.status)
