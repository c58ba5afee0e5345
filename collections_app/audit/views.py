"""The audit log as pages: the list, one event with what was before and after, the downloads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import ADMINISTER, needs
from collections_app.audit.log import AuditFilter, action_words, kind_words, list_actions, send_audit_log
from collections_app.audit.origin import Channel
from collections_app.errors import ServiceError
from collections_app.http.lists import Entry, Filter, ListKind, list_page, period
from collections_app.http.page_requests import PageRequest, collection_titles, find_or_404, render_page, whole_number
from collections_app.models import AuditEvent

PER_PAGE = 50
AUDIT = ListKind("audit", "", gettext_lazy("Search actions"))
CHANNEL_NAMES = {
    Channel.WEB: "Web", Channel.API: "API", Channel.MCP: "MCP", Channel.CLI: "CLI", Channel.ADMIN: "Admin",
    Channel.WORKER: "Worker",
}  # fmt: skip


@needs(ADMINISTER, everywhere=True, methods="GET")
def audit_log(request: PageRequest) -> HttpResponse:
    audit_filter = AuditFilter.read(request.GET)
    error = ""
    try:
        rows = audit_filter.rows()
    except ServiceError as refusal:
        rows, error = AuditEvent.objects.none(), refusal.message
    events, before, after = _page(request, rows)
    params = audit_filter.as_params()
    listing = replace(
        list_page(request, AUDIT, None, _filters(request)),
        misfits=(),
        rows=events,
        older="?" + urlencode(params | {"before": events[-1].pk}) if before else "",
        newer="?" + urlencode(params | {"after": events[0].pk}) if after else "",
    )
    context = listing.context() | {"query": urlencode(params), "error": error}
    return render_page(request, "collections/audit.html", context, parts={"audit": "collections/parts/audit.html"})


def _filters(request: PageRequest) -> list[Filter]:
    named = AuditEvent.objects.order_by("subject_kind").exclude(subject_kind="")
    kinds = named.values_list("subject_kind", flat=True).distinct()
    return [
        Filter("action", gettext("Action"), [(each, action_words(each)) for each in list_actions()], free=True),
        Filter("actor", gettext("User"), entries=(Entry("actor", gettext("User or address")),)),
        Filter("collection", gettext("Collection"), collection_titles(request).items(), free=True),
        period(),
        Filter("channel", gettext("Channel"), [(str(key), name) for key, name in CHANNEL_NAMES.items()]),
        Filter("outcome", gettext("Outcome"), AuditEvent.Outcome.choices),
        Filter("kind", gettext("Object type"), [(each, kind_words(each)) for each in kinds], free=True),
        Filter("subject", gettext("Object ID"), entries=(Entry("subject", gettext("Object ID")),)),
    ]


def _page(request: PageRequest, rows: Any) -> tuple[list[AuditEvent], bool, bool]:
    """(the events, whether there are older ones, whether there are newer ones), by the ids at the page's ends."""
    older_than, newer_than = whole_number(request.GET.get("before")), whole_number(request.GET.get("after"))
    if newer_than is not None:
        found = list(rows.filter(pk__gt=newer_than).order_by("id")[: PER_PAGE + 1])
        events = found[:PER_PAGE][::-1]
        return events, bool(events), len(found) > PER_PAGE
    if older_than is not None:
        rows = rows.filter(pk__lt=older_than)
    found = list(rows[: PER_PAGE + 1])
    return found[:PER_PAGE], len(found) > PER_PAGE, older_than is not None and bool(found)


@needs(ADMINISTER, everywhere=True, methods="GET")
def audit_event(request: PageRequest, pk: int) -> HttpResponse:
    """One event; what changed as (field, before, after)."""
    event = find_or_404(AuditEvent.objects.select_related("link"), pk=pk)
    before, after = event.before or {}, event.after or {}
    context = {
        "event": event,
        "channel": CHANNEL_NAMES.get(Channel(event.channel), event.channel),
        "fields": [(name, before.get(name), after.get(name), name in before, name in after) for name in
                   {**before, **after}],
        "has_before": bool(before),
        "related": AuditEvent.objects.filter(subject_kind=event.subject_kind, subject_id=event.subject_id)
        .exclude(subject_id="")
        .exclude(pk=pk)[:10],
    }  # fmt: skip
    return render_page(request, "collections/audit_event.html", context)


@needs(ADMINISTER, everywhere=True, methods="GET")
def audit_download(request: PageRequest) -> HttpResponseBase:
    try:
        return send_audit_log(request, AuditFilter.read(request.GET), request.GET.get("format", "jsonl"), request.user)
    except ServiceError as error:
        messages.error(request, error.message)
        return redirect("collections:audit")
