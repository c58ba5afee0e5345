"""Home, operations, maintenance, the nodes of a cluster, the conformance page and the leak probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy, ngettext

from collections_app.access.context import current_access, elevated
from collections_app.access.people import name_administrators
from collections_app.access.permissions import Permission
from collections_app.access.rules import ADMINISTER, needs
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, field_of, is_part, render_page, run_action
from collections_app.index.cluster import plan_moves, read_cluster, rebalance, recover
from collections_app.index.measurements import low_recalls
from collections_app.index.stores import has_replica, replica_state
from collections_app.jobs.operations import arriving_collection, last_operation
from collections_app.jobs.views import changing
from collections_app.jobs.workers import backup_state
from collections_app.models import Collection, Operation
from evaluation_app.conformance import CONFORMANCE, SHOWN_RESULTS, group_rules, read_versions, request_run
from evaluation_app.runs.requests import under_way
from evaluation_app.runs.run_pages.run_page import docs_address
from evaluation_app.sample import SAMPLE_NAME
from evaluation_app.telemetry.store.span_store import collector_state
from ragd_site.operations.leak_probe import ProbeReport, probe
from ragd_site.operations.summaries import (
    attention_summary,
    index_builds,
    operations_summary,
    retry_all_failed,
    storage_summary,
    work_summary,
)
from retrieval_app.chat.views import describe_page

RECENT = 8
ARRIVING = {"arriving": "evaluation/parts/arriving.html"}
ARRIVED = {"arriving": "retrieval/chat/arrived.html"}  # beside a question that is being typed
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


@needs(None, methods="GET")
def home(request: PageRequest) -> HttpResponse:
    """A new thread, where one asks and adds files, under what needs attention."""
    collections = list(Collection.objects.live().by_name())
    if is_part(request, ARRIVING) and (arriving := arriving_collection()):
        return render_page(request, "evaluation/home.html", {"arriving": arriving}, parts=ARRIVING)
    context = describe_page(request, None, collections)
    if is_part(request, ARRIVED):
        return render_page(request, "evaluation/home.html", context, parts=ARRIVED)
    context |= {"summary": attention_summary()}
    if not current_access().may_anywhere(Permission.READ):
        context["administrators"] = name_administrators()
    return render_page(request, "evaluation/home.html", context)


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def operations(request: PageRequest) -> HttpResponse:
    """POST with do=retry: everything that failed, in all collections."""
    if request.method == "POST":
        return run_action(request, changing({"retry": retry_all_failed}, actor=request.user), "operations:operations")
    parts = {name: f"evaluation/parts/{name}.html" for name in ("operations", "storage", "upkeep")}
    if is_part(request, ["storage"]):
        return render_page(request, "evaluation/operations.html", {"storage": storage_summary()}, parts=parts)
    if is_part(request, ["upkeep"]):
        return render_page(request, "evaluation/operations.html", {"upkeep": read_upkeep()}, parts=parts)
    summary = operations_summary()
    context: dict[str, Any] = {
        "summary": summary,
        "queries_total": sum(summary.runs_by_status.values()),
        "work": work_summary(),
        "builds": index_builds(),
        "replica": replica_state() if has_replica() else None,
        "low_recall": low_recalls(),
        "collector": collector_state(),
        "evaluations": under_way(),
        "backups": backup_state(),
    }
    if not is_part(request, parts):
        context |= {"storage": storage_summary(), "upkeep": read_upkeep()}
    return render_page(request, "evaluation/operations.html", context, parts=parts)


@needs(None, ADMINISTER, everywhere=True, methods="GET POST")
def status(request: PageRequest) -> HttpResponse:
    """The rules of the specification and how the last run over this database found them; a POST asks for a run.

    result=ID: an older run.
    """
    if request.method == "POST":
        return _try_rules(request)
    results = list(Operation.objects.filter(kind=CONFORMANCE)[:SHOWN_RESULTS])
    shown = _shown_result(request, results)
    rules = shown.report.get("rules", []) if shown else []
    context = {
        "versions": read_versions(),
        "result": shown,
        "chapters": group_rules(rules),
        "rules_count": len(rules),
        "rules_passed": sum(rule["passed"] for rule in rules),
        "running": next((result for result in results if result.verdict == "running"), None),
        "results": results,
        "has_docs": bool(docs_address(CONFORMANCE_DOCS)),
        "docs": (SAMPLE_NAME, CONFORMANCE_DOCS),
    }
    parts = {"conformance": "evaluation/parts/conformance.html"}
    return render_page(request, "evaluation/status.html", context, parts=parts)


def _shown_result(request: PageRequest, results: list[Operation]) -> Operation | None:
    """The one that the address names, else the newest that is not under way. Http404 for one that is not there."""
    requested = request.GET.get("result", "")
    if requested:
        try:
            return get_object_or_404(Operation, pk=UUID(requested), kind=CONFORMANCE)
        except ValueError:
            raise Http404(f"result must be an id, not {requested!r}") from None
    return next((result for result in results if result.verdict != "running"), None)


def _try_rules(request: PageRequest) -> HttpResponse:
    """Ask the worker for a run, then back to the page, which shows it."""
    result = request_run(request.user)
    result.refresh_from_db()
    if result.error:
        messages.error(request, gettext("The check failed: %(error)s.") % {"error": result.error})
    return redirect(reverse("operations:operations", query={"view": "conformance"}))


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def cluster(request: PageRequest) -> HttpResponse:
    """POST with do=rebalance or do=recover."""
    if request.method == "POST":
        try:
            with elevated(Permission.ADMINISTER):
                _change(request)
        except ServiceError as error:
            messages.error(request, str(error))
        return redirect(reverse("operations:operations", query={"view": "cluster"}))
    with elevated(Permission.ADMINISTER):  # who is bound may not see how far replicas are
        state = read_cluster()
    context = {"state": state, "moves": plan_moves(state.shards, state.nodes)}
    context["rows"] = [(each, [state.address_of(group) for group in each.groups]) for each in state.versions]
    return render_page(request, "evaluation/cluster.html", context)


def _change(request: PageRequest) -> None:
    if request.POST.get("do") == "recover":
        count = recover(request.user)
        text = ngettext("%(count)d prepared transaction ended.", "%(count)d prepared transactions ended.", count)
    else:
        count = len(rebalance(request.user))
        text = ngettext("%(count)d shard moved.", "%(count)d shards moved.", count)
    messages.success(request, text % {"count": count} if count else gettext("Nothing to do."))


ROUNDS = 1  # of the page, which answers when all is asked; the command asks more


class ProbeForm(forms.Form):
    person = forms.ModelChoiceField(label=gettext_lazy("Person"), queryset=User.objects.none())
    collection = forms.ModelChoiceField(label=gettext_lazy("Collection"), queryset=Collection.objects.none())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        people = User.objects.filter(is_active=True).order_by("username")
        field_of(self, "person", forms.ModelChoiceField).queryset = people
        collection, rows = field_of(self, "collection", forms.ModelChoiceField), Collection.objects.live().by_name()
        collection.queryset = rows
        collection.choices = [("", "---------"), *((row.pk, row.label) for row in rows)]


@needs(ADMINISTER, everywhere=True, methods="GET HEAD POST")
def leak_probe(request: PageRequest) -> HttpResponse:
    form, status = ProbeForm(request.POST or None, initial=request.GET.dict()), 200
    report: ProbeReport | None = None
    if request.method == "POST":
        status = 422
        if form.is_valid():
            report = probe(form.cleaned_data["person"], [form.cleaned_data["collection"]], rounds=ROUNDS)
            status = 200
    return render_page(request, "evaluation/leak_probe.html", {"form": form, "report": report}, status=status)
