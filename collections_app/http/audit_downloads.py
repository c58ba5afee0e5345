"""The audit log as a file: JSON Lines or OCSF, newest first, made while it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.http.downloads import BATCH, DownloadSlots, LimitedDownload, download_response
from collections_app.models import AuditEvent
from collections_app.models.library import Actor
from collections_app.services.governance.audit import record_event
from collections_app.services.governance.audit_log import AuditFilter, describe_event
from collections_app.services.governance.audit_ocsf import ocsf_event

FORMATS: dict[str, Callable[[AuditEvent], dict[str, Any]]] = {"jsonl": describe_event, "ocsf": ocsf_event}
MEDIA_TYPE = "application/jsonl"

_slots = DownloadSlots(2, "the audit log")


def send_audit_log(request: HttpRequest, audit_filter: AuditFilter, form: str, actor: Actor) -> StreamingHttpResponse:
    """The events of the filter as a download, which is an event itself. Raises ServiceError 422 and 429."""
    if form not in FORMATS:
        raise ServiceError(
            f"format must be {' or '.join(FORMATS)}, not {form!r}", type="invalid_input", status=422, field="format"
        )
    lines = LimitedDownload(_slots, audit_lines(audit_filter, form, actor))
    name = f"audit-{timezone.now():%Y%m%d-%H%M%S}.{form}.jsonl"
    return download_response(request, lines, MEDIA_TYPE, name, reading=None)


def audit_lines(audit_filter: AuditFilter, form: str, actor: Actor) -> Generator[bytes]:
    """The events of the filter as they are now, a piece per batch; that they are taken out is an event before them."""
    rows = audit_filter.rows()
    after = {"rows": rows.count(), "format": form, "filter": audit_filter.as_params()}
    newest = rows.values_list("pk", flat=True).first() or 0
    record_event(actor, "audit.export", "downloaded the audit log", subject_kind="auditevent", after=after)
    return _write(rows.filter(pk__lte=newest), FORMATS[form])


def _write(rows: QuerySet[AuditEvent], form: Callable[[AuditEvent], dict[str, Any]]) -> Generator[bytes]:
    for batch in _batches(rows.select_related("link")):
        yield "".join(json.dumps(form(event), ensure_ascii=False) + "\n" for event in batch).encode()


def _batches(rows: QuerySet[AuditEvent]) -> Iterator[list[AuditEvent]]:
    """By id downwards, each batch by a statement of its own: no transaction stays open."""
    following = rows
    while batch := list(following[:BATCH]):
        yield batch
        following = rows.filter(pk__lt=batch[-1].pk)
