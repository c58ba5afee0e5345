"""Home, operations, upkeep, the status of the rules, the command palette and where it leads, the style page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models.functions import Collate
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_POST

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.http.page_requests import PageRequest, is_part, render_page
from collections_app.http.places import Reader, all_pages
from collections_app.models import Collection, Document, IngestJob, Operation
from collections_app.replicas import has_replica, replica_state
from collections_app.services.collections.operations import last_operation
from collections_app.services.generations.recall_probes import collections_with_low_recall
from collections_app.services.governance.people import name_administrators
from collections_app.views.jobs import answer_changed
from evaluation_app.conformance import SHOWN_RESULTS, group_rules, read_versions, request_run
from evaluation_app.models import ConformanceResult, GoldenQuestion, GoldenSet
from evaluation_app.pages.dashboard.runs_page import filtered_runs
from evaluation_app.pages.overview.summaries import (
    home_summary,
    index_builds,
    operations_summary,
    retry_all_failed,
    storage_summary,
    work_summary,
)
from evaluation_app.pages.overview.trends import home_trends
from evaluation_app.pages.style_examples import style_examples
from evaluation_app.runs.requests import under_way
from evaluation_app.sample.loading import SAMPLE_NAME
from evaluation_app.spans.store.span_reads import collector_state
from retrieval_app.models import QueryRun

FOUND_PER_GROUP = 6

RECENT = 8
SUGGESTED = 4
CONFORMANCE_DOCS = "docs/conformance.md"


@dataclass(frozen=True, slots=True)
class Destination:
    href: str
    symbol: str
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    destinations: list[Destination]


def find_destinations(words: str, reader: Reader) -> list[Group]:
    """Groups that are not empty. Without words: the pages and the first collections."""
    groups = [Group(gettext("Pages"), _pages(words, reader)), Group(gettext("Collections"), _collections(words))]
    if words:
        groups.append(Group(gettext("Playgrounds"), _playgrounds(words)))
        groups += [Group(gettext("Documents"), _documents(words)), Group(gettext("Query runs"), _runs(words))]
        groups += [
            Group(gettext("Test sets"), _golden_sets(words)),
            Group(gettext("Evaluation runs"), _evaluation_runs(words)),
        ]
    return [group for group in groups if group.destinations]


def _pages(words: str, reader: Reader) -> list[Destination]:
    requested = words.lower()
    named = ((page, f"{page.title} {page.label} {page.words}".lower()) for page in all_pages() if page.offer(reader))
    return [Destination(page.href, page.symbol, page.title) for page, names in named if requested in names]


def _collections(words: str) -> list[Destination]:
    # the name is collated "C", whose upper() knows ASCII only
    named = Collection.objects.live().by_name().alias(folded_name=Collate("name", "default"))
    rows = named.filter(folded_name__icontains=words)[:FOUND_PER_GROUP]
    return [Destination(reverse("collections:detail", args=[row.name]), "collections", row.name) for row in rows]


def _playgrounds(words: str) -> list[Destination]:
    """Of the collections that are found; of the first ones for the word itself."""
    names_the_page = len(words) > 2 and "playground".startswith(words.lower())
    destinations = _collections("" if names_the_page else words)
    return [
        Destination(
            reverse("retrieval:playground", args=[item.label]), "evaluation", item.label, gettext("why this ranking")
        )
        for item in destinations
    ]


def _documents(words: str) -> list[Destination]:
    live = Document.objects.listed().filter(collection__deleted_at__isnull=True).select_related("collection")
    rows = live.matching(words).newest()[:FOUND_PER_GROUP]
    return [Destination(_address(row), "file", row.name, row.collection.name) for row in rows]


def _address(document: Document) -> str:
    return reverse("collections:document", args=[document.collection.name, document.doc_id])


def _runs(words: str) -> list[Destination]:
    rows = QueryRun.objects.filtered(text=words).for_lists()[:FOUND_PER_GROUP]
    return [Destination(row.get_absolute_url(), "runs", row.query[:120], row.collection_name) for row in rows]


def _golden_sets(words: str) -> list[Destination]:
    """By name, each to its dashboard."""
    rows = [] if "\x00" in words else GoldenSet.objects.filter(name__icontains=words)[:FOUND_PER_GROUP]
    index = reverse("evaluation:index")
    return [
        Destination(f"{index}?{urlencode({'set': row.name})}", "evaluation", row.name, row.collection_name)
        for row in rows
    ]


def _evaluation_runs(words: str) -> list[Destination]:
    """By their own name or that of their set, newest first."""
    rows = [] if "\x00" in words else filtered_runs(text=words, purpose="all")[:FOUND_PER_GROUP]
    return [Destination(row.get_absolute_url(), "evaluation", str(row), row.set_name) for row in rows]


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
    context: dict[str, Any] = {"summary": home_summary(), "active": _active_jobs()}
    if is_part(request, ["running"]):
        return render_page(request, "evaluation/home.html", context, parts={"running": "evaluation/parts/running.html"})
    context |= {"trends": home_trends(), "sample": _sample_questions()}
    if not current_access().may_anywhere(Permission.READ):
        context["administrators"] = name_administrators()
    return render_page(request, "evaluation/home.html", context)


def _active_jobs() -> list[IngestJob]:
    """Running ones first, then those that wait longest."""
    return list(IngestJob.objects.active().listed().order_by("-state", "created_at", "id")[:6])


def _sample_questions() -> list[GoldenQuestion]:
    """A few questions that the sample collection answers, for somebody who is new; none once it is deleted."""
    if not Collection.objects.live().filter(name=SAMPLE_NAME).exists():
        return []
    questions = GoldenQuestion.objects.filter(golden_set__collection_name=SAMPLE_NAME).exclude(expected_doc_ids=[])
    return list(questions.order_by("position", "id")[:SUGGESTED])


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


@require_GET
def palette(request: PageRequest) -> HttpResponse:
    """Where one can go: pages, collections, documents and runs whose names hold the words."""
    words = request.GET.get("q", "").replace("\x00", "").strip()
    context = {"q": words, "groups": find_destinations(words, request.user)}
    parts = {"palette-results": "evaluation/parts/palette.html"}
    return render_page(request, "evaluation/palette.html", context, parts=parts)


@require_GET
def style(request: PageRequest) -> HttpResponse:
    return render_page(request, "evaluation/style.html", style_examples(request))
