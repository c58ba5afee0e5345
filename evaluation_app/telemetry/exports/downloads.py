"""Exports of spans: their forms by name, what their texts may say, files made as they are read, downloads of pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
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
from evaluation_app.telemetry.exports.ocsf import write_ocsf
from evaluation_app.telemetry.exports.records import SpanRecord, make_record
from evaluation_app.telemetry.search.search import SpanFilter, parse_filter, search_spans
from evaluation_app.telemetry.store.span_store import flush_pending, run_spans
from ragd import SPEC_VERSION, telemetry
from ragd.conventions import TABLES
from ragd.errors import RagdError
from ragd.version import product_version
from retrieval_app.models import QueryRun

KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
STATUS_CODES = {"UNSET": 0, "OK": 1, "ERROR": 2}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
INT64 = range(-(2**63), 2**63)
# A double that is whole looks like an integer once JSON has kept it; these names say what it was.
DOUBLES = frozenset(
    row.name for table in TABLES.spans for row in table.fields if row.value_type == "double"
) | frozenset(row.name for table in TABLES.events for row in table.fields if row.value_type == "double")


def write_otlp(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[str]:
    """One JSON document, a piece per batch. No span: a request without resources. A document that broke off is none."""
    yield '{"resourceSpans":['
    separator = ""
    for batch in batches:
        for resource in resource_spans(batch):
            yield separator + _json(resource)
            separator = ","
    yield "]}\n"


def write_otlp_lines(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[str]:
    """JSON Lines, one request per batch, as collectors write and read files."""
    for batch in batches:
        if batch:
            yield _json({"resourceSpans": resource_spans(batch)}) + "\n"


def resource_spans(batch: Sequence[SpanRecord]) -> list[dict[str, Any]]:
    """The spans by the process kind and the instrumentation that made them, each group in the order given."""
    groups: dict[str, dict[str, list[SpanRecord]]] = {}
    for record in batch:
        groups.setdefault(record.service, {}).setdefault(record.scope, []).append(record)
    return [
        {
            "resource": {"attributes": key_values(_resource(service))},
            "scopeSpans": [
                {"scope": {"name": scope}, "spans": [encode_span(record) for record in records]}
                for scope, records in scopes.items()
            ],
        }
        for service, scopes in groups.items()
    ]


def _resource(service: str) -> dict[str, Any]:
    return {
        "service.name": service or "ragd",
        "service.namespace": "ragd",
        "service.version": product_version(),
        telemetry.SPEC: SPEC_VERSION,
        "openinference.project.name": "ragd",
    }


def encode_span(record: SpanRecord) -> dict[str, Any]:
    span: dict[str, Any] = {
        "traceId": record.trace_id,
        "spanId": record.span_id,
        "name": record.name,
        "kind": KINDS.get(record.kind, 0),
        "startTimeUnixNano": nanoseconds(record.started_at),
        "endTimeUnixNano": nanoseconds(record.ended_at),
        "attributes": key_values(record.attributes),
        "events": [
            {
                "timeUnixNano": nanoseconds(datetime.fromisoformat(event["time"])),
                "name": event["name"],
                "attributes": key_values(event.get("attributes") or {}),
            }
            for event in record.events
        ],
        "links": [
            {
                "traceId": link["trace_id"],
                "spanId": link["span_id"],
                "attributes": key_values(link.get("attributes") or {}),
            }
            for link in record.links
        ],
        "status": {"code": STATUS_CODES.get(record.status_code, 0)},
    }
    if record.parent_span_id:
        span["parentSpanId"] = record.parent_span_id
    if record.status_description:
        span["status"]["message"] = record.status_description
    if record.dropped_count:
        span["droppedAttributesCount"] = record.dropped_count
    return span


def nanoseconds(moment: datetime) -> str:
    """Since 1970, as text. The store keeps microseconds."""
    return str((moment - EPOCH) // MICROSECOND * 1000)


def key_values(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes in their order; one without a value is left out."""
    return [{"key": name, "value": any_value(value, name)} for name, value in attributes.items() if value is not None]


def any_value(value: Any, name: str = "") -> dict[str, Any]:
    """One value under the field that says its type. name: of the attribute, tells a whole double from an integer."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, float) or (isinstance(value, int) and (name in DOUBLES or value not in INT64)):
        return {"doubleValue": float(value)}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [any_value(item, name) for item in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": key_values(value)}}
    return {"stringValue": str(value)}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


UNKNOWN = "UNKNOWN"  # the kind of a span that is none of OpenInference's: a request, a statement
VOCABULARY = (
    "openinference.", "input.", "output.", "retrieval.documents.", "reranker.", "embedding.", "llm.", "metadata",
    "session.id", "user.id", "tag.tags", "tool.", "evaluations.", "annotations.", "trace.", "session.", "exception.",
)  # fmt: skip
JSON, JSON_LINES = "application/json", "application/jsonl"


def write_openinference(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[str]:
    """A line per span, a piece per batch."""
    for batch in batches:
        yield "".join(json.dumps(encode_openinference(record), ensure_ascii=False) + "\n" for record in batch)


def encode_openinference(record: SpanRecord) -> dict[str, Any]:
    """Only the attributes of this vocabulary; an exception keeps its event, and links stay."""
    return {
        "name": record.name,
        "context": {"trace_id": record.trace_id, "span_id": record.span_id},
        "span_kind": str(record.attributes.get(telemetry.OI_KIND) or UNKNOWN),
        "parent_id": record.parent_span_id,
        "start_time": record.started_at.isoformat(),
        "end_time": record.ended_at.isoformat(),
        "status_code": record.status_code,
        "status_message": record.status_description,
        "attributes": {name: value for name, value in record.attributes.items() if name.startswith(VOCABULARY)},
        "events": [
            {"name": event["name"], "timestamp": event["time"], "attributes": dict(event.get("attributes") or {})}
            for event in record.events
            if event["name"] == telemetry.EXCEPTION
        ],
        "links": [
            {
                "context": {"trace_id": link["trace_id"], "span_id": link["span_id"]},
                "attributes": dict(link.get("attributes") or {}),
            }
            for link in record.links
        ],
    }


@dataclass(frozen=True, slots=True)
class Format:
    """title, use: for people. suffix: of a file's name. write turns batches of spans into pieces of the file."""

    name: str
    title: str
    use: str
    content_type: str
    suffix: str
    write: Callable[[Iterable[Sequence[SpanRecord]]], Iterator[str]]


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            "otlp",
            "OTLP JSON",
            "One request as the OpenTelemetry protocol writes it, with every attribute: for any collector.",
            JSON,
            ".otlp.json",
            write_otlp,
        ),
        Format(
            "otlp-lines",
            "OTLP JSON Lines",
            "The same in one request per line, as collectors read files: for many spans.",
            JSON_LINES,
            ".otlp.jsonl",
            write_otlp_lines,
        ),
        Format(
            "openinference",
            "OpenInference JSON Lines",
            "One span per line with the attributes of OpenInference alone: for Phoenix and its kin.",
            JSON_LINES,
            ".openinference.jsonl",
            write_openinference,
        ),
        Format(
            "ocsf",
            "OCSF events",
            "Model calls (7001), retrieval (7004) and findings (7005), one event per line: for a SIEM.",
            JSON_LINES,
            ".ocsf.jsonl",
            write_ocsf,
        ),
    )
}


def find_format(name: str) -> Format:
    """Raises ServiceError 422 for a name that is none."""
    value = FORMATS.get(name)
    if value is None:
        raise WrongValueError(f"format must be one of {', '.join(FORMATS)}; it is {name!r}", "format")
    return value


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
        request, back, lambda form, capture: export_matching(span_filter, form, capture), "a selection of spans"
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
