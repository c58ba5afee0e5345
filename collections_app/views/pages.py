"""A page of a document's file as a picture, for whoever may read the document."""

from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import condition, require_GET

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest
from collections_app.services.documents.page_pictures import LONG_SIDES, draw, picture_tag
from collections_app.views.collections import find_document

KEPT = "private, no-cache"  # a browser asks each time whether its copy still holds, and so whether it may be seen


def _zoom(request: PageRequest) -> int:
    return len(LONG_SIDES) - 1 if request.GET.get("zoom") == "1" else 0


def _tag(request: PageRequest, name: str, number: int, doc_id: str) -> str | None:
    _, document = find_document(name, doc_id)
    tag = picture_tag(document, number, _zoom(request))
    return f'"{tag}"' if tag else None


@require_GET
@condition(etag_func=_tag)
def page_image(request: PageRequest, name: str, number: int, doc_id: str) -> HttpResponse:
    """JPEG or PNG; ?zoom=1 the larger one. 404 where there is no such page or the file is gone."""
    _, document = find_document(name, doc_id)
    try:
        picture = draw(document, number, _zoom(request))
    except ServiceError as error:
        return HttpResponse(error.message, status=error.status, content_type="text/plain; charset=utf-8")
    return HttpResponse(picture.data, content_type=picture.media_type, headers={"Cache-Control": KEPT})
