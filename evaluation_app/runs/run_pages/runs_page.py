"""The list of evaluation runs with its filter, and what can be done to a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.audit import services
from collections_app.documents.bulk_changes import BulkChange, change_documents
from collections_app.errors import ServiceError
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    collection_titles,
    find_or_404,
    render_page,
    run_action,
    tell,
)
from collections_app.models import Collection, Document
from evaluation_app.experiments.starting import try_fix
from evaluation_app.failures.views import decide_card
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.runs.figures import Figure, coverage_of, first_names, make_figure, means_of, run_figures
from evaluation_app.runs.lifecycle import RunRequest, cancel_run, delete_run, resume_run, retry_failed, start_run
from evaluation_app.runs.requests import clear_baseline, make_baseline
from evaluation_app.scoring.modes import Bands, bands_for
from evaluation_app.scoring.run_settings import JUDGES, RunSettings
from ragd.identity import can_be_stored
from ragd.types import RetrievePlan

SHOWN_FIGURES = 3
SINGLE_PURPOSES = ("manual", "api", "cli", "fix")  # experiments and gates make many that nobody looks at one by one


NOUN = gettext_lazy("evaluation run,evaluation runs")
RUNS = ListKind("evaluation-runs", NOUN, gettext_lazy("Name, preset or settings hash"), words="text")


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


@needs(READ, EVALUATE, methods="GET")
def list_runs(request: PageRequest) -> HttpResponse:
    """With pick=ID twice or more: on to their comparison, the oldest as its base."""
    picked = [value for value in request.GET.getlist("pick") if can_be_stored(value)]
    if "compare" in request.GET and (address := _comparison_of(picked)):
        return redirect(address)
    listing = list_page(request, RUNS, find_runs(request.GET.get(RUNS.words, "").strip()), _filters(request))
    runs = list(listing.page)
    columns = columns_of(runs)
    rows = run_rows(runs, columns)
    context: dict[str, Any] = listing.context() | {
        "rows": rows,
        "run_columns": [measure_of(name) for name in columns],
        "is_active": any(row.run.is_active for row in rows),
        "picked_too_few": "compare" in request.GET,
    }
    parts = {"evaluation-runs": "evaluation/dashboard/parts/runs.html"}
    return render_page(request, "evaluation/dashboard/runs.html", context, parts=parts)


def _filters(request: PageRequest) -> list[Filter]:
    rows = EvaluationRun.objects.order_by()
    sets, collections = (sorted(set(rows.values_list(name, flat=True))) for name in ("set_name", "collection_name"))
    titles = collection_titles(request)
    people = (EvaluationRun.Purpose.MANUAL, gettext("People"))
    purposes = [pair for pair in EvaluationRun.Purpose.choices if pair[0] != people[0]]
    verdicts = [("passed", gettext("Passed")), ("missed", gettext("Missed")), ("none", gettext("No criteria"))]
    usual = ("", gettext("Without experiments and gates"))
    collection_names = [(name, titles.get(name, name)) for name in collections]
    return [
        Filter("set", gettext("Test set"), sets, "set_name"),
        Filter("collection", gettext("Collection"), collection_names, "collection_name"),
        Filter("state", gettext("State"), EvaluationRun.State.choices, "state"),
        Filter("verdict", gettext("Thresholds"), verdicts, _of_verdict),
        Filter("judge", gettext("Judge"), JUDGES, "judge"),
        Filter("purpose", gettext("Origin"), [usual, ("all", gettext("All")), people, *purposes], _of_purpose),
    ]


def _of_verdict(rows: QuerySet[EvaluationRun], verdict: str) -> QuerySet[EvaluationRun]:
    return rows.filter(passed={"passed": True, "missed": False, "none": None}[verdict]) if verdict else rows


def _of_purpose(rows: QuerySet[EvaluationRun], purpose: str) -> QuerySet[EvaluationRun]:
    return rows if purpose == "all" else rows.filter(purpose__in=[purpose] if purpose else SINGLE_PURPOSES)


def find_runs(text: str) -> QuerySet[EvaluationRun]:
    """Newest first, with the golden set. text: in a name, or the begin of the settings' hash; "" leaves it out."""
    rows = EvaluationRun.objects.select_related("golden_set").order_by("-created_at", "-id")
    if not can_be_stored(text):
        return rows.none()
    named = Q(name__icontains=text) | Q(plan_name__icontains=text) | Q(set_name__icontains=text)
    return rows.filter(named | Q(plan_hash__startswith=text.lower())) if text else rows


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
    """What the form's do= names; `without` disables the document of doc_id= and asks again, `fix` tries fix= for mode=,
    `decide` decides about a card of the board.
    Back to where the form says, else to the run, with what came of it; to a run or an experiment that was started."""

    def unpin() -> str:
        if run.golden_set is not None and _is_baseline(run, run.golden_set):
            clear_baseline(run.golden_set, actor=request.user)
        return gettext("Baseline removed.")

    def delete() -> HttpResponse:
        delete_run(run, request.user)
        return tell(request, gettext("Evaluation run %(run)s deleted.") % {"run": run}, "evaluation:evaluation-runs")

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
        "decide": lambda: decide_card(request, _set_of(run)),
    }
    return run_action(request, acts, run.get_absolute_url())


def _tell(words: str, act: Callable[..., object], *arguments: object, **named: object) -> str:
    act(*arguments, **named)
    return words


def _set_of(run: EvaluationRun) -> GoldenSet:
    if run.golden_set is None:
        raise ServiceError(
            f"the golden set {run.set_name!r} of this run was deleted, so it cannot be asked again", type="set_gone"
        )
    return run.golden_set


@transaction.atomic
def disable_and_run(run: EvaluationRun, document: Document, *, actor: services.Actor = None) -> EvaluationRun:
    """A new run by the same plan and settings, held against `run`, after the document was disabled.

    Raises ServiceError 409 "set_gone" where the golden set was deleted, and what `start_run` raises; then the document
    stays as it was.
    """
    golden_set = _set_of(run)
    change_documents(document.collection, BulkChange("disable"), [document.doc_id], actor=actor)
    return start_run(
        golden_set,
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
