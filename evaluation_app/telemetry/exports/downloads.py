"""Exports of spans: what their texts may say, reading in batches, files made as they are read, pages' downloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.audit.services import Subject
from collections_app.errors import ServiceError, WrongValueError, describe
from collections_app.http.downloads import (
    BATCH,
    DownloadSlots,
    LimitedDownload,
    Reading,
    download_response,
    read_batches,
)
from collections_app.http.page_requests import PageRequest, render_page
from evaluation_app.models import Span
from evaluation_app.telemetry.exports.formats import FORMATS, Format, find_format
from evaluation_app.telemetry.exports.records import SpanRecord, make_record
from evaluation_app.telemetry.search.search import SpanFilter, parse_filter, search_spans
from evaluation_app.telemetry.store.span_store import flush_pending, run_spans
from ragd import telemetry
from ragd.errors import RagdError
from retrieval_app.models import QueryRun

EXPORTS_AT_ONCE = 3  # in one process: each takes a thread of the server until its reader has read it
STORED = "stored"

Batches = Iterable[Sequence[Span]]
_slots = DownloadSlots(EXPORTS_AT_ONCE, "spans")
OWN = ("format", "content", "span", "cursor", "page", "sort", "tab", "next")  # of addresses, beside the filter


def choose_capture(content: str | None, *, may_read_stored: bool) -> telemetry.Capture:
    """What texts may say in an export: what RAGD_OTLP_CONTENT lets leave, or "stored": as the span store has them.

    "stored" is for staff and for keys with write scope: ServiceError 403 for others, 422 for any other word.
    """
    if not content:
        allowed: telemetry.Capture = settings.RAGD_OTLP_CONTENT
        return allowed
    if content != STORED:
        raise WrongValueError(f"content must be {STORED!r} or left out; it is {content!r}", "content")
    if not may_read_stored:
        raise ServiceError(
            "texts as they are stored need a staff account or a key with write scope; leave content out to get what "
            "RAGD_OTLP_CONTENT lets leave",
            type="out_of_scope",
            status=403,
            field="content",
        )
    return "full"


class SpanExport(LimitedDownload):
    """A file of spans that is made while it is read: iterate it for its bytes, once; `close` ends it early.

    name: what the file may be called. spans: how many have been written so far. Nothing but one batch is in memory.
    Raises ServiceError 429 when three exports run in this process already.
    """

    def __init__(self, form: Format, batches: Batches, capture: telemetry.Capture, *, name: str) -> None:
        self.form = form
        self.name = f"{name}{form.suffix}"
        self.spans = 0
        super().__init__(_slots, self._write(batches, capture))

    def _write(self, batches: Batches, capture: telemetry.Capture) -> Generator[bytes]:
        for piece in self.form.write(self._records(batches, capture)):
            if piece:
                yield piece.encode()

    def _records(self, batches: Batches, capture: telemetry.Capture) -> Iterator[list[SpanRecord]]:
        for batch in batches:
            self.spans += len(batch)
            yield [make_record(span, capture) for span in batch]


def export_run(run: QueryRun, form: str, capture: telemetry.Capture) -> SpanExport:
    """The spans of a run, by start, then those of its later evaluations. None stored: an empty file."""
    return SpanExport(find_format(form), batched(run_spans(run)), capture, name=f"run-{run.pk}")


def export_trace(trace_id: str, form: str, capture: telemetry.Capture) -> SpanExport:
    spans = Span.objects.of_trace(trace_id)
    return SpanExport(find_format(form), read_batches(spans, "started_at"), capture, name=f"trace-{trace_id}")


def export_matching(
    span_filter: SpanFilter, form: str, capture: telemetry.Capture, *, limit: int | None = None
) -> SpanExport:
    """Every span of the filter, newest first, or the first `limit` of them."""
    return SpanExport(find_format(form), search_in_batches(span_filter, limit), capture, name=file_name())


def search_in_batches(span_filter: SpanFilter, limit: int | None = None) -> Iterator[list[Span]]:
    """The pages of a search, with content. No transaction stays open, however slow the reader."""
    cursor: str | None = None
    left = limit
    while left is None or left > 0:
        page = search_spans(span_filter, cursor, BATCH if left is None else min(left, BATCH), with_content=True)
        if page.spans:
            yield page.spans
        cursor = page.next_cursor
        if cursor is None:
            return
        left = None if left is None else left - len(page.spans)


def batched(spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    for start in range(0, len(spans), BATCH):
        yield spans[start : start + BATCH]


def file_name() -> str:
    """ "spans-20260131-120000", in UTC."""
    return f"spans-{timezone.now():%Y%m%d-%H%M%S}"


Opener = Callable[[str, telemetry.Capture], SpanExport]
TRACE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class ExportScope:
    """Where a download was asked for. what: the spans, in words. params: of the address, the filter's."""

    label: str
    href: str
    what: str
    params: Sequence[tuple[str, str]] = ()


def stream(request: HttpRequest, export: SpanExport, what: str, *, content: str | None) -> StreamingHttpResponse:
    """The answer that downloads an export, noted in the audit log. what: the spans. content: as it was asked for."""
    texts = "with their texts" if content else "as RAGD_OTLP_CONTENT lets them leave"
    reading = Reading(
        "span.export",
        f"downloaded spans {texts}: {what} as {export.form.name}",
        subject=Subject("span"),
        details={"format": export.form.name, "texts": content or settings.RAGD_OTLP_CONTENT},
        count=lambda: export.spans,
    )
    return download_response(request, export, export.form.content_type, export.name, reading=reading)


@needs(READ, EVALUATE, methods="GET")
def run(request: PageRequest, run_id: UUID) -> HttpResponseBase:
    result = get_object_or_404(QueryRun, pk=run_id)
    back = ExportScope(
        "Run", reverse("evaluation:query-run", args=[run_id]), f"the spans of the run “{result.query[:80]}”"
    )
    if "format" in request.GET:
        flush_pending(result)
    return _answer(request, back, lambda form, capture: export_run(result, form, capture), f"run {run_id}")


@needs(READ, EVALUATE, methods="GET")
def trace(request: PageRequest, trace_id: str) -> HttpResponseBase:
    if not TRACE_ID.fullmatch(trace_id) or not Span.objects.of_trace(trace_id).exists():
        raise Http404(f"no span of the trace {trace_id[:40]} is stored")
    back = ExportScope("Trace", reverse("evaluation:trace", args=[trace_id]), f"the spans of the trace {trace_id}")
    return _answer(request, back, lambda form, capture: export_trace(trace_id, form, capture), f"trace {trace_id}")


@needs(READ, methods="GET")
def selection(request: PageRequest) -> HttpResponseBase:
    """What the explorer shows, all of its pages: the address holds the same filter."""
    try:
        span_filter = parse_filter(request.GET, also=OWN)
    except RagdError as error:
        messages.error(request, describe(error)[1]["detail"])
        return redirect("evaluation:activity", "spans")
    params = span_filter.as_params()
    back = ExportScope(
        "Spans",
        reverse("evaluation:activity", args=["spans"], query=params),
        "every span of this filter, newest first" if params else "every span that is stored, newest first",
        params=params,
    )
    return _answer(
        request,
        back,
        lambda form, capture: export_matching(span_filter, form, capture),
        "a selection of spans",
    )


def _answer(request: PageRequest, export_scope: ExportScope, open_export: Opener, what: str) -> HttpResponseBase:
    """Without a format the page that offers them, with one the download. Texts as they are stored are for staff."""
    form, content = request.GET.get("format"), request.GET.get("content")
    if not form:
        context = {"place": export_scope, "formats": FORMATS.values(), "lets": settings.RAGD_OTLP_CONTENT}
        return render_page(request, "evaluation/export.html", context)
    try:
        export = open_export(form, choose_capture(content, may_read_stored=request.user.is_staff))
    except (ServiceError, RagdError) as error:
        messages.error(request, describe(error)[1]["detail"])
        return redirect(f"{request.path}?{urlencode(export_scope.params)}")
    return stream(request, export, what, content=content)
