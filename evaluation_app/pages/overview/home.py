"""Home, operations, upkeep, the status of the rules, the style page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_POST

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.http.page_requests import PageRequest, is_part, render_page
from collections_app.models import Collection, Document, IngestJob, Operation
from collections_app.replicas import has_replica, replica_state
from collections_app.services.collections.operations import arriving_collection, last_operation
from collections_app.services.generations.recall_probes import collections_with_low_recall
from collections_app.services.governance.people import name_administrators
from collections_app.services.worker.backup_records import backup_state
from collections_app.views.jobs import answer_changed
from evaluation_app.conformance import SHOWN_RESULTS, group_rules, read_versions, request_run
from evaluation_app.models import ConformanceResult
from evaluation_app.pages.overview.summaries import (
    home_summary,
    index_builds,
    operations_summary,
    retry_all_failed,
    storage_summary,
    work_summary,
)
from evaluation_app.pages.overview.trends import home_trends
from evaluation_app.runs.requests import under_way
from evaluation_app.sample.loading import SAMPLE_NAME
from evaluation_app.spans.store.span_reads import collector_state
from retrieval_app.chats.starters import find_starters, usual_collections

RECENT = 8
ARRIVING = {"arriving": "evaluation/parts/arriving.html"}
CONFORMANCE_DOCS = "docs/conformance.md"


@dataclass(frozen=True, slots=True)
class UpkeepSummary:
    """check: the newest of everything. removed: (what, how many) of the last retention. recent: of the other kinds."""

    check: Operation | None
    retention: Operation | None
    removed: list[tuple[str, int]]
    recent: list[Operation]

    @property
    def is_busy(self) -> bool:
        return any(each.is_running for each in (self.check, *self.recent) if each is not None)


def read_upkeep() -> UpkeepSummary:
    retention = last_operation(Operation.Kind.RETENTION)
    removed = [(name, count) for name, count in (retention.report if retention else {}).items() if count]
    others = Operation.objects.exclude(kind=Operation.Kind.RETENTION).exclude(kind=Operation.Kind.CHECK, subject="")
    return UpkeepSummary(last_operation(Operation.Kind.CHECK, ""), retention, removed, list(others[:RECENT]))


@require_GET
def upkeep(request: PageRequest) -> HttpResponse:
    context = {"upkeep": read_upkeep()}
    return render_page(request, "evaluation/upkeep.html", context, parts={"upkeep": "evaluation/parts/upkeep.html"})


@require_GET
def home(request: PageRequest) -> HttpResponse:
    if is_part(request, ARRIVING):
        context: dict[str, Any] = {"arriving": arriving_collection()}
        response = render_page(request, "evaluation/home.html", context, parts=ARRIVING)
        if context["arriving"] is None:
            response.headers["HX-Refresh"] = "true"  # the page that waits shows what has come
        return response
    context = {"summary": home_summary(), "active": _active_jobs()}
    if is_part(request, ["running"]):
        return render_page(request, "evaluation/home.html", context, parts={"running": "evaluation/parts/running.html"})
    context |= {"arriving": arriving_collection(), "trends": home_trends()} | _suggested(request)
    if not current_access().may_anywhere(Permission.READ):
        context["administrators"] = name_administrators()
    return render_page(request, "evaluation/home.html", context)


def _active_jobs() -> list[IngestJob]:
    """Running ones first, then those that wait longest."""
    return list(IngestJob.objects.active().listed().order_by("-state", "created_at", "id")[:6])


def _suggested(request: PageRequest) -> dict[str, Any]:
    """Questions that one click asks, of the collections that the reader asked last: {"starters", "starts_in"}."""
    usual = usual_collections(request.user, list(Collection.objects.live().by_name()))
    return {"starters": find_starters(usual), "starts_in": usual}


@require_GET
def operations(request: PageRequest) -> HttpResponse:
    parts = {"operations": "evaluation/parts/operations.html", "storage": "evaluation/parts/storage.html"}
    if is_part(request, ["storage"]):
        return render_page(request, "evaluation/operations.html", {"storage": storage_summary()}, parts=parts)
    context: dict[str, Any] = {
        "summary": operations_summary(),
        "work": work_summary(),
        "builds": index_builds(),
        "replica": replica_state() if has_replica() else None,
        "low_recall": collections_with_low_recall(),
        "collector": collector_state(),
        "evaluations": under_way(),
        "backups": backup_state(),
    }
    if not is_part(request, parts):
        context["storage"] = storage_summary()
    return render_page(request, "evaluation/operations.html", context, parts=parts)


@require_POST
def retry_failed(request: PageRequest) -> HttpResponse:
    """Everything that failed, in all collections; back to the page."""
    answer_changed(request, lambda: retry_all_failed(request.user), "retry")
    return redirect("evaluation:operations")


@require_GET
def status(request: PageRequest) -> HttpResponse:
    """The rules of the specification and how the last run over this database found them. result=ID: an older run."""
    results = list(ConformanceResult.objects.all()[:SHOWN_RESULTS])
    shown = _shown_result(request, results)
    context = {
        "versions": read_versions(),
        "result": shown,
        "chapters": group_rules(shown),
        "running": next((result for result in results if result.state == "running"), None),
        "results": results,
        "has_docs": Document.objects.filter(collection__name=SAMPLE_NAME, doc_id=CONFORMANCE_DOCS).exists(),
        "docs": (SAMPLE_NAME, CONFORMANCE_DOCS),
    }
    parts = {"conformance": "evaluation/parts/conformance.html"}
    return render_page(request, "evaluation/status.html", context, parts=parts)


def _shown_result(request: PageRequest, results: list[ConformanceResult]) -> ConformanceResult | None:
    """The one that the address names, else the newest that is not under way. Http404 for one that is not there."""
    requested = request.GET.get("result", "")
    if requested:
        if not requested.isdecimal() or len(requested) > 18:
            raise Http404(f"result must be a number, not {requested!r}")
        return get_object_or_404(ConformanceResult, pk=int(requested))
    return next((result for result in results if result.state != "running"), None)


@require_POST
def try_rules(request: PageRequest) -> HttpResponse:
    """Ask the worker for a run, then back to the page, which shows it."""
    result = request_run(request.user)
    result.refresh_from_db()
    if result.error:
        messages.error(request, gettext("The check failed: %(error)s.") % {"error": result.error})
    return redirect("evaluation:status")
