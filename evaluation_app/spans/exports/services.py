"""Opens an export: chooses what its texts may say, reads spans batch by batch, and makes the file while it is read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.http.downloads import BATCH, DownloadSlots, LimitedDownload, read_batches
from collections_app.models import ApiKey
from collections_app.services.governance import audit
from evaluation_app.models import Span
from evaluation_app.spans.exports.formats import Format, find_format
from evaluation_app.spans.exports.records import SpanRecord, make_record
from evaluation_app.spans.search.search import SpanFilter, search_spans
from evaluation_app.spans.store.span_reads import run_spans
from ragd import telemetry
from retrieval_app.models import QueryRun

EXPORTS_AT_ONCE = 3  # in one process: each takes a thread of the server until its reader has read it
STORED = "stored"

Batches = Iterable[Sequence[Span]]
_slots = DownloadSlots(EXPORTS_AT_ONCE, "spans")


def choose_capture(content: str | None, *, may_read_stored: bool) -> telemetry.Capture:
    """What texts may say in an export: what RAGD_OTLP_CONTENT lets leave, or "stored": as the span store has them.

    "stored" is for staff and for keys with write scope: ServiceError 403 for others, 422 for any other word.
    """
    if not content:
        allowed: telemetry.Capture = settings.RAGD_OTLP_CONTENT
        return allowed
    if content != STORED:
        raise ServiceError(
            f"content must be {STORED!r} or left out; it is {content!r}",
            type="invalid_input",
            status=422,
            field="content",
        )
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
    """The spans of a run, by start. A run without stored spans gives an empty file."""
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


def file_name(now: Callable[[], datetime] = timezone.now) -> str:
    """ "spans-20260131-120000", in UTC."""
    return f"spans-{now():%Y%m%d-%H%M%S}"


def note_download(export: SpanExport, actor: ApiKey | User, what: str) -> None:
    """Keep in the audit log who took texts out as they are stored, and which; without that nothing is taken out."""
    try:
        audit.record(actor, [actor], audit.CHANGE, f"Downloaded spans with their texts: {what} as {export.form.name}")
    except BaseException:
        export.close()
        raise
