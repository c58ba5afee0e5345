"""The list of evaluation runs with its filter, and what can be done to a run: cancel, resume, retry, delete, make it
the baseline, ask it again without one document."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.audit import services
from collections_app.documents.bulk_changes import BulkChange, change_documents
from collections_app.errors import ServiceError
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    next_address,
    page_of,
    render_page,
)
from collections_app.models import Collection, Document
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.runs.figures import Figure, coverage_of, first_names, make_figure, means_of, run_figures
from evaluation_app.runs.lifecycle import RunRequest, cancel_run, delete_run, resume_run, retry_failed, start_run
from evaluation_app.runs.requests import clear_baseline, make_baseline
from evaluation_app.scoring.modes import Bands, bands_for
from evaluation_app.scoring.run_settings import JUDGES, RunSettings
from ragd.identity import can_be_stored
from ragd.types import RetrievePlan

RUNS_PER_PAGE = 50
SHOWN_FIGURES = 3
VERDICTS = {"passed": True, "missed": False, "none": None}
SINGLE_PURPOSES = ("manual", "api", "cli", "fix")  # experiments and gates make many that nobody looks at one by one


class RunsFilterForm(forms.Form):
    """The filter of the runs table. What is wrong in an address is told and left out, not refused."""

    text = forms.CharField(label=gettext_lazy("Search"), required=False)
    set = forms.CharField(label=gettext_lazy("Test set"), required=False)
    collection = forms.CharField(label=gettext_lazy("Collection"), required=False)
    state = forms.ChoiceField(
        label=gettext_lazy("State"), required=False, choices=[("", gettext_lazy("All")), *EvaluationRun.State.choices]
    )
    verdict = forms.ChoiceField(
        label=gettext_lazy("Thresholds"),
        required=False,
        choices=[
            ("", gettext_lazy("All")),
            ("passed", gettext_lazy("Passed")),
            ("missed", gettext_lazy("Missed")),
            ("none", gettext_lazy("No criteria")),
        ],
    )
    judge = forms.ChoiceField(
        label=gettext_lazy("Judge"),
        required=False,
        choices=[("", gettext_lazy("All")), *((name, name) for name in JUDGES)],
    )
    purpose = forms.ChoiceField(
        label=gettext_lazy("Origin"),
        required=False,
        choices=[
            ("", gettext_lazy("Without experiments and gates")),
            ("all", gettext_lazy("All")),
            (EvaluationRun.Purpose.MANUAL.value, gettext_lazy("People")),
            *(pair for pair in EvaluationRun.Purpose.choices if pair[0] != EvaluationRun.Purpose.MANUAL),
        ],
    )


@dataclass(frozen=True, slots=True)
class RunRow:
    """figures: the few measures of the run that a list has room for. coverage: scores of all its measures."""

    run: EvaluationRun
    figures: tuple[Figure, ...]
    coverage: dict[str, int]
    is_baseline: bool

    @property
    def scored(self) -> int:
        return self.coverage["scored"]

    @property
    def scores(self) -> int:
        return sum(self.coverage.values())


@needs(READ, EVALUATE)
@require_GET
def list_runs(request: PageRequest) -> HttpResponse:
    """With pick=ID twice or more: on to their comparison, the oldest as its base."""
    picked = [value for value in request.GET.getlist("pick") if can_be_stored(value)]
    if "compare" in request.GET and (address := _comparison_of(picked)):
        return redirect(address)
    form = RunsFilterForm(request.GET)
    form.is_valid()
    sets = list(EvaluationRun.objects.order_by("set_name").values_list("set_name", flat=True).distinct())
    if (named := form.cleaned_data.get("set")) and named not in sets:
        form.add_error("set", f"no evaluation run is of {named!r}")
    data = {name: form.cleaned_data.get(name) or "" for name in form.fields}
    page = page_of(request, filtered_runs(**data), RUNS_PER_PAGE)
    columns = columns_of(list(page))
    rows = run_rows(list(page), columns)
    context: dict[str, Any] = {
        "form": form,
        "wanted": data,
        "page": page,
        "rows": rows,
        "run_columns": [measure_of(name) for name in columns],
        "is_filtered": any(data.values()),
        "is_active": any(row.run.is_active for row in rows),
        "picked_too_few": "compare" in request.GET,
        "sets": sets,
        "collections": EvaluationRun.objects.order_by("collection_name")
        .values_list("collection_name", flat=True)
        .distinct(),
    }
    parts = {"evaluation-runs": "evaluation/dashboard/parts/runs.html"}
    return render_page(request, "evaluation/dashboard/runs.html", context, parts=parts)


def filtered_runs(
    *,
    text: str = "",
    set: str = "",
    collection: str = "",
    state: str = "",
    verdict: str = "",
    judge: str = "",
    purpose: str = "",
) -> QuerySet[EvaluationRun]:
    """Newest first, with the golden set. "" leaves a condition out; purpose "": without those of experiments and
    gates; "all": all."""
    rows = EvaluationRun.objects.select_related("golden_set").order_by("-created_at", "-id")
    if not all(can_be_stored(value) for value in (text, set, collection)):
        return rows.none()
    named = {"set_name": set, "collection_name": collection, "state": state, "judge": judge}
    rows = rows.filter(**{name: value for name, value in named.items() if value})
    if text:
        rows = rows.filter(
            Q(name__icontains=text) | Q(plan_name__icontains=text) | Q(set_name__icontains=text)
            | Q(plan_hash__startswith=text.lower())
        )  # fmt: skip
    if verdict in VERDICTS:
        rows = rows.filter(passed=VERDICTS[verdict])
    if purpose == "":
        return rows.filter(purpose__in=SINGLE_PURPOSES)
    return rows if purpose == "all" else rows.filter(purpose=purpose)


def columns_of(runs: Sequence[EvaluationRun]) -> list[str]:
    """The few measures that a table of these runs has room for."""
    return first_names(list({name: None for run in runs for name in means_of(run.summary)}), SHOWN_FIGURES)


def run_rows(runs: Sequence[EvaluationRun], names: Sequence[str]) -> list[RunRow]:
    """names: the measures to show, also of a run that lacks them. Bands are read once per golden set."""
    bands: dict[int | None, Bands] = {}
    rows = []
    for run in runs:
        if run.golden_set_id not in bands:
            bands[run.golden_set_id] = bands_for(run.golden_set)
        figures = {figure.name: figure for figure in run_figures(run, bands[run.golden_set_id])}
        rows.append(
            RunRow(
                run=run,
                figures=tuple(figures.get(name) or make_figure(name, {}, bands[run.golden_set_id]) for name in names),
                coverage=coverage_of(list(figures.values())),
                is_baseline=_is_baseline(run, run.golden_set),
            )
        )
    return rows


def _is_baseline(run: EvaluationRun, golden_set: GoldenSet | None) -> bool:
    return golden_set is not None and golden_set.baseline_id == run.pk


def _comparison_of(picked: Sequence[str]) -> str:
    """The address of the comparison of these runs; "" for fewer than two that exist."""
    form = forms.UUIDField()
    known = []
    for value in picked:
        try:
            known.append(form.clean(value))
        except forms.ValidationError:
            continue
    records = EvaluationRun.objects.filter(pk__in=known).order_by("created_at", "id").values_list("pk", flat=True)
    if len(records) < 2:
        return ""
    return (
        f"{reverse('evaluation:compare')}?{urlencode([('base', records[0]), *(('other', pk) for pk in records[1:])])}"
    )


@needs(READ, EVALUATE)
@require_POST
def cancel(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    return _act(request, pk, lambda run: cancel_run(run, request.user), gettext("Stopping after the current question."))


@needs(READ, EVALUATE)
@require_POST
def resume(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    return _act(request, pk, lambda run: resume_run(run, request.user), gettext("Evaluation resumed."))


@needs(READ, EVALUATE)
@require_POST
def retry(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    return _act(request, pk, lambda run: retry_failed(run, request.user), gettext("Failed questions queued for retry."))


@needs(READ, EVALUATE)
@require_POST
def baseline(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    return _act(request, pk, lambda run: make_baseline(run, actor=request.user), gettext("Set as baseline."))


@needs(READ, EVALUATE)
@require_POST
def no_baseline(request: PageRequest, pk: int) -> HttpResponse:
    """Of a golden set; back to where the form says, else to the dashboard."""
    clear_baseline(get_object_or_404(GoldenSet, pk=pk), actor=request.user)
    messages.success(request, gettext("Baseline removed."))
    return redirect(next_address(request, "evaluation:index"))


@needs(EVALUATE)
@require_http_methods(["GET", "POST"])
def delete(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    """A GET asks, with how many questions would go; a POST deletes."""
    run = get_object_or_404(EvaluationRun.objects.select_related("golden_set"), pk=pk)
    if request.method == "GET":
        is_baseline = run.golden_set is not None and run.golden_set.baseline_id == run.pk
        context = {"run": run, "items": run.items.count(), "is_baseline": is_baseline}
        return render_page(request, "evaluation/dashboard/delete_run.html", context)
    with RefusalMessages(request):
        delete_run(run, request.user)
        messages.success(request, gettext("Evaluation run %(run)s deleted.") % {"run": run})
        return redirect("evaluation:evaluation-runs")
    return redirect(run)


def _act(request: PageRequest, pk: uuid.UUID, act: Callable[[EvaluationRun], object], details: str) -> HttpResponse:
    """Do it and lead back to where the form says, else to the run's page, with what came of it."""
    run = get_object_or_404(EvaluationRun, pk=pk)
    with RefusalMessages(request):
        act(run)
        messages.success(request, details)
    return redirect(next_address(request, reverse("evaluation:evaluation-run", args=[pk])))


@needs(EVALUATE)
@require_http_methods(["GET", "POST"])
def run_without(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    """doc_id= names the document. A GET asks, a POST disables it and starts the run again, which it leads to."""
    run = get_object_or_404(EvaluationRun.objects.select_related("golden_set"), pk=pk)
    collection = find_or_404(Collection.objects.live(), name=run.collection_name)
    provided = request.POST if request.method == "POST" else request.GET
    document = find_or_404(collection.documents.listed(), doc_id=provided.get("doc_id", ""))
    if request.method == "POST":
        with RefusalMessages(request):
            return redirect(disable_and_run(run, document, actor=request.user))
        return redirect(run)
    context = {
        "run": run,
        "collection": collection,
        "document": document,
        "expected_by": run.items.filter(golden__expected_doc_ids__contains=[document.doc_id]).count(),
    }
    return render_page(request, "evaluation/dashboard/run_without.html", context)


@transaction.atomic
def disable_and_run(run: EvaluationRun, document: Document, *, actor: services.Actor = None) -> EvaluationRun:
    """A new run by the same plan and settings, held against `run`, after the document was disabled.

    Raises ServiceError 409 "set_gone" where the golden set was deleted, and what `start_run` raises; then the document
    stays as it was.
    """
    if run.golden_set is None:
        raise ServiceError(
            f"the golden set {run.set_name!r} of this run was deleted, so it cannot be asked again",
            type="set_gone",
            status=409,
        )
    change_documents(document.collection, BulkChange("disable"), [document.doc_id], actor=actor)
    return start_run(
        run.golden_set,
        RunRequest(
            plan=RetrievePlan.from_dict(run.plan),
            plan_name=run.plan_name,
            settings=RunSettings.from_dict(run.settings),
            name=f"without {document.doc_id}"[:200],
            purpose=EvaluationRun.Purpose.FIX,
            thresholds=run.thresholds,
            base_run=run,
        ),
        actor=actor,
    )
