"""The downloads of the pages, and the answer that streams one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET

from collections_app.errors import ServiceError, describe
from collections_app.http.downloads import download_response
from collections_app.http.page_requests import PageRequest, render_page
from evaluation_app.models import Span
from evaluation_app.spans.exports import services
from evaluation_app.spans.exports.formats import FORMATS
from evaluation_app.spans.exports.services import SpanExport
from evaluation_app.spans.search.search import parse_filter
from evaluation_app.spans.store.span_reads import flush_pending
from ragd import telemetry
from ragd.errors import RagdError
from retrieval_app.models import QueryRun

OWN = ("format", "content", "span", "cursor", "page", "sort", "tab", "next")  # of addresses, beside the filter
Opener = Callable[[str, telemetry.Capture], SpanExport]
TRACE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class ExportScope:
    """Where a download was asked for. what: the spans, in words. params: of the address, the filter's."""

    label: str
    href: str
    what: str
    params: Sequence[tuple[str, str]] = ()


def stream(request: HttpRequest, export: SpanExport) -> StreamingHttpResponse:
    """The answer that downloads an export. It ends when its reader leaves, or takes nothing for a minute."""
    return download_response(request, export, export.form.content_type, export.name)


@require_GET
def run(request: PageRequest, run_id: UUID) -> HttpResponseBase:
    result = get_object_or_404(QueryRun, pk=run_id)
    back = ExportScope("Run", reverse("retrieval:run", args=[run_id]), f"the spans of the run “{result.query[:80]}”")
    if "format" in request.GET:
        flush_pending(result)
    return _answer(request, back, lambda form, capture: services.export_run(result, form, capture), f"run {run_id}")


@require_GET
def trace(request: PageRequest, trace_id: str) -> HttpResponseBase:
    if not TRACE_ID.fullmatch(trace_id) or not Span.objects.of_trace(trace_id).exists():
        raise Http404(f"no span of the trace {trace_id[:40]} is stored")
    back = ExportScope("Trace", reverse("evaluation:trace", args=[trace_id]), f"the spans of the trace {trace_id}")
    return _answer(
        request, back, lambda form, capture: services.export_trace(trace_id, form, capture), f"trace {trace_id}"
    )


@require_GET
def selection(request: PageRequest) -> HttpResponseBase:
    """What the explorer shows, all of its pages: the address holds the same filter."""
    try:
        span_filter = parse_filter(request.GET, also=OWN)
    except RagdError as error:
        messages.error(request, describe(error)[1]["detail"])
        return redirect("evaluation:spans")
    params = span_filter.as_params()
    back = ExportScope(
        "Spans",
        f"{reverse('evaluation:spans')}?{urlencode(params)}",
        "every span of this filter, newest first" if params else "every span that is stored, newest first",
        params=params,
    )
    return _answer(
        request,
        back,
        lambda form, capture: services.export_matching(span_filter, form, capture),
        "a selection of spans",
    )


def _answer(request: PageRequest, export_scope: ExportScope, open_export: Opener, what: str) -> HttpResponseBase:
    """Without a format the page that offers them, with one the download. Texts as they are stored are for staff."""
    form, content = request.GET.get("format"), request.GET.get("content")
    if not form:
        context = {"place": export_scope, "formats": FORMATS.values(), "lets": settings.RAGD_OTLP_CONTENT}
        return render_page(request, "evaluation/export.html", context)
    try:
        capture = services.choose_capture(content, may_read_stored=request.user.is_staff)
        export = open_export(form, capture)
    except (ServiceError, RagdError) as error:
        messages.error(request, describe(error)[1]["detail"])
        return redirect(f"{request.path}?{urlencode(export_scope.params)}")
    if content:
        services.note_download(export, request.user, what)
    return stream(request, export)
