"""The list of evaluation runs with its filter, and what can be done to a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.audit import services
from collections_app.documents.bulk_changes import BulkChange, change_documents
from collections_app.errors import ServiceError
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    find_or_404,
    page_of,
    render_page,
    run_action,
)
from collections_app.models import Collection, Document
from evaluation_app.experiments.starting import try_fix
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


def change_run(request: PageRequest, run: EvaluationRun) -> HttpResponse:
    """What the form's do= names; `without` disables the document of doc_id= and asks again, `fix` tries fix= for mode=.
    Back to where the form says, else to the run, with what came of it; to a run or an experiment that was started."""

    def unpin() -> str:
        if run.golden_set is not None and _is_baseline(run, run.golden_set):
            clear_baseline(run.golden_set, actor=request.user)
        return gettext("Baseline removed.")

    def delete() -> HttpResponse:
        delete_run(run, request.user)
        messages.success(request, gettext("Evaluation run %(run)s deleted.") % {"run": run})
        return redirect("evaluation:evaluation-runs")

    def ask_without() -> HttpResponse:
        collection = find_or_404(Collection.objects.live(), name=run.collection_name)
        document = find_or_404(collection.documents.listed(), doc_id=request.POST.get("doc_id", ""))
        return redirect(disable_and_run(run, document, actor=request.user))

    def fix() -> HttpResponse:
        return redirect(try_fix(run, request.POST.get("mode", ""), request.POST.get("fix", ""), actor=request.user))

    acts: Acts = {
        "cancel": lambda: _tell(gettext("Stopping after the current question."), cancel_run, run, request.user),
        "resume": lambda: _tell(gettext("Evaluation resumed."), resume_run, run, request.user),
        "retry": lambda: _tell(gettext("Failed questions queued for retry."), retry_failed, run, request.user),
        "baseline": lambda: _tell(gettext("Set as baseline."), make_baseline, run, actor=request.user),
        "unpin": unpin,
        "delete": delete,
        "without": ask_without,
        "fix": fix,
    }
    return run_action(request, acts, run.get_absolute_url())


def _tell(words: str, act: Callable[..., object], *arguments: object, **named: object) -> str:
    act(*arguments, **named)
    return words


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
