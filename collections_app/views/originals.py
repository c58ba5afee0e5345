"""The file that a document was made from: shown, downloaded or drawn by page for whoever may read it, and replaced."""

from __future__ import annotations

from collections.abc import Generator
from typing import IO

from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import condition, require_GET, require_http_methods

from collections_app.errors import ServiceError
from collections_app.http.downloads import DownloadSlots, LimitedDownload, Reading, download_response
from collections_app.http.page_requests import PageRequest, render_page, submit_form
from collections_app.services.documents.files import find_original, open_content
from collections_app.services.documents.page_pictures import LONG_SIDES, draw, picture_tag
from collections_app.services.uploads.replacements import replace_document
from collections_app.views.collections import find_document

PIECE_BYTES = 1 << 16
PDF = "application/pdf"
SHOWN = (PDF, "image/png", "image/jpeg", "image/webp")  # what a browser shows without running anything of it
TEXTS = ("text/plain", "text/markdown", "text/csv")  # shown as plain text
# A browser's own viewer of PDFs does not run in a sandbox; it is no part of the page, which may load nothing.
POLICIES = {PDF: "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}

KEPT = "private, no-cache"  # a browser asks each time whether its copy still holds, and so whether it may be seen

_slots = DownloadSlots(4, "files")


@require_GET
def original(request: PageRequest, name: str, doc_id: str) -> HttpResponseBase:
    """The file, shown where it is of a type that runs nothing, else downloaded; ?download=1 downloads it in any case.

    404 where the document has none.
    """
    _, document = find_document(name, doc_id)
    try:
        upload = find_original(document)
        pieces = LimitedDownload(_slots, _pieces(open_content(upload.pk)))
    except ServiceError as error:
        return HttpResponse(error.message, status=error.status, content_type="text/plain; charset=utf-8")
    kind = document.media_type
    shown = "text/plain; charset=utf-8" if kind in TEXTS else kind if kind in SHOWN else "application/octet-stream"
    inline = shown != "application/octet-stream" and "download" not in request.GET
    reading = Reading(
        "document.original", "opened the original" if inline else "downloaded the original", document, rows=1
    )
    response = download_response(request, pieces, shown, upload.name, reading=reading, inline=inline)
    policy = {"Content-Security-Policy": POLICIES.get(shown, SANDBOX), "Content-Length": str(upload.size_bytes)}
    for header, value in (HEADERS | policy).items():
        response[header] = value
    return response


def _pieces(content: IO[bytes]) -> Generator[bytes]:
    with content:
        content.seek(0)
        while piece := content.read(PIECE_BYTES):
            yield piece


class VersionForm(forms.Form):
    """The file of the next revision."""

    file = forms.FileField(
        label=gettext_lazy("File"),
        help_text=gettext_lazy("Any file name and format. It becomes a new revision; ID, tags and metadata stay."),
        allow_empty_file=True,
    )


@require_http_methods(["GET", "POST"])
def new_version(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """Another file becomes the next revision of the document."""
    collection, document = find_document(name, doc_id)
    form = VersionForm(request.POST, request.FILES) if request.method == "POST" else VersionForm()

    def save() -> HttpResponse:
        outcome = replace_document(collection, doc_id, form.cleaned_data["file"], actor=request.user)
        if outcome.job is None:
            messages.warning(request, gettext("The file is the same as that of the current revision."))
            return redirect("collections:document", name, doc_id)
        messages.success(request, gettext("The new version of %(doc_id)s is processed.") % {"doc_id": doc_id})
        return redirect("collections:job", name, outcome.job.pk)

    response, status = submit_form(request, form, save)
    context = {"collection": collection, "document": document, "form": form, "part": "new-version"}
    return response or render_page(request, "collections/new_version.html", context, status=status)


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
