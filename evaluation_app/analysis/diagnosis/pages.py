"""Pages: the board, and what a tried fix did."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from collections_app.http.page_requests import PageRequest, RefusalMessages, next_address, render_page
from evaluation_app.analysis.diagnosis.board import (
    SHOWN_PER_COLUMN,
    SHOWS,
    Board,
    Filters,
    read_board,
    runs_of,
    sets_with_runs,
    shown_runs,
)
from evaluation_app.analysis.diagnosis.cards import DECISIONS, NOTE_CHARS_MAX, decide, people
from evaluation_app.analysis.diagnosis.fixes import (
    FixProposal,
    has_changed,
    keep_plan,
    propose_fixes,
    read_outcome,
    try_fix,
)
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.scoring.modes.catalogue import stored_table, thresholds_for

ALL_OF_ONE = 500  # cards of a column that is shown alone
RESOLVED_WORDS = {"assign": "Saved", "snooze": "Dismissed", "resolve": "Resolved", "reopen": "Reopened"}


class DecisionForm(forms.Form):
    """What is decided about one card."""

    question = forms.CharField(strip=False)
    mode = forms.ChoiceField(choices=lambda: [(key, key) for key in stored_table().modes])
    decision = forms.ChoiceField(choices=[(name, name) for name in DECISIONS])
    assignee = forms.CharField(required=False, max_length=150)
    until = forms.DateField(required=False)
    note = forms.CharField(required=False, max_length=NOTE_CHARS_MAX)


@require_GET
def board(request: PageRequest) -> HttpResponse:
    """set=ID and run=ID: what is shown; without, the newest run of the set that was run last.

    category, assignee, show (open, away, all) and mode choose the cards; what is not known is left out.
    """
    sets = list(sets_with_runs())
    run = _chosen_run(request.GET, sets)
    context: dict[str, Any] = {"tab": "board", "sets": sets, "run": run}
    if run is not None:
        filters = _filters(request.GET)
        result = read_board(run, filters, per_column=ALL_OF_ONE if filters.mode else SHOWN_PER_COLUMN)
        context |= {
            "board": result,
            "filters": filters,
            "runs": runs_of(run.golden_set) if run.golden_set else [run],
            "people": people(),
            "fixes": _fixes(result),
            "changed": has_changed(run),
            "snoozes": _snoozes(),
            "address": f"{reverse('evaluation:board')}?{_query(run, filters)}",
        }
    return render_page(request, "evaluation/diagnosis/board.html", context)


@require_POST
def decide_card(request: PageRequest, pk: int) -> HttpResponse:
    """One decision about one card of the set; back to the board as it was."""
    golden_set = get_object_or_404(GoldenSet, pk=pk)
    form = DecisionForm(request.POST)
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        messages.error(request, f"{field}: {errors[0]}")
    else:
        with RefusalMessages(request):
            _decide(request, golden_set, form.cleaned_data)
    return redirect(next_address(request, f"{reverse('evaluation:board')}?set={pk}"))


def _decide(request: PageRequest, golden_set: GoldenSet, values: dict[str, Any]) -> None:
    decision = values["decision"]
    summary = "assignee" in request.POST
    decide(
        golden_set,
        values["question"],
        values["mode"],
        decision,
        assignee=values["assignee"] if summary else None,
        until=values["until"],
        note=values["note"] if "note" in request.POST else None,
        actor=request.user,
    )
    messages.success(request, f"{RESOLVED_WORDS[decision]}: {values['question']}")


@require_POST
def start_fix(request: PageRequest, pk: UUID) -> HttpResponse:
    """Run the set with the fix (`mode`, `fix`) over this run's plan, and show how it goes."""
    run = get_object_or_404(EvaluationRun, pk=pk)
    with RefusalMessages(request):
        tried = try_fix(run, request.POST.get("mode", ""), request.POST.get("fix", ""), actor=request.user)
        return redirect("evaluation:tried-fix", pk=tried.pk)
    return redirect(next_address(request, f"{reverse('evaluation:board')}?run={pk}"))


@require_GET
def tried_fix(request: PageRequest, pk: UUID) -> HttpResponse:
    """What the fix changes, how far its run is, and which questions fail before and after."""
    run = get_object_or_404(EvaluationRun.objects.select_related("base_run", "golden_set"), pk=pk)
    if run.base_run is None:
        raise Http404("this run is not a fix of another run")
    compare = f"{reverse('evaluation:compare')}?{urlencode({'base': run.base_run_id, 'other': run.pk})}"
    context = {
        "tab": "board",
        "run": run,
        "outcome": read_outcome(run),
        "compare_href": compare,
        "can_keep": not run.is_active and run.plan_hash != run.base_run.plan_hash,
    }
    parts = {"tried": "evaluation/diagnosis/tried.html"}
    return render_page(request, "evaluation/diagnosis/tried_fix.html", context, parts=parts)


@require_POST
def keep_fix(request: PageRequest, pk: UUID) -> HttpResponse:
    """Save the plan of a tried fix for its collection, under `name`; default=1: as what every door begins from."""
    run = get_object_or_404(EvaluationRun, pk=pk)
    name, is_default = request.POST.get("name", ""), bool(request.POST.get("default"))
    with RefusalMessages(request):
        saved = keep_plan(run, name, is_default=is_default, actor=request.user)
        messages.success(request, f"Preset {saved.name} saved{' as the default' if saved.is_default else ''}.")
    return redirect("evaluation:tried-fix", pk=pk)


@require_GET
def modes(request: PageRequest) -> HttpResponse:
    """The table of failure modes, with the server's thresholds."""
    thresholds = thresholds_for()
    rows = [(mode, mode.describe_band(thresholds)) for mode in stored_table().modes.values()]
    return render_page(request, "evaluation/diagnosis/modes.html", {"tab": "board", "rows": rows})


def _chosen_run(query: QueryDict, sets: list[GoldenSet]) -> EvaluationRun | None:
    """The one that the address names, else the newest of its set, else the newest of all. Http404 when it is gone."""
    ids = {str(item.pk): item for item in sets}
    golden_set = ids.get(query.get("set", ""))
    if requested := query.get("run", ""):
        try:
            run = get_object_or_404(EvaluationRun.objects.select_related("golden_set"), pk=UUID(requested))
        except ValueError:
            raise Http404(f"run must be the id of an evaluation run, not {requested!r}") from None
        if golden_set is None or run.golden_set_id == golden_set.pk:
            return run  # else another set was chosen since
    chosen = [golden_set] if golden_set else sets
    return shown_runs().filter(golden_set__in=chosen).select_related("golden_set").first()


def _filters(query: QueryDict) -> Filters:
    show, mode = query.get("show", ""), query.get("mode", "")
    return Filters(
        category=query.get("category", ""),
        assignee=query.get("assignee", ""),
        show=show if show in SHOWS else SHOWS[0],
        mode=mode if mode in stored_table().modes else "",
    )


def _query(run: EvaluationRun, filters: Filters) -> str:
    """The address of what is shown, without what stands for all."""
    values = {"run": str(run.pk), "category": filters.category, "assignee": filters.assignee, "mode": filters.mode}
    if filters.show != SHOWS[0]:
        values["show"] = filters.show
    return urlencode({name: value for name, value in values.items() if value})


def _fixes(results: Board) -> dict[str, list[FixProposal]]:
    return {column.mode.key: propose_fixes(column.mode, results.run) for column in results.columns}


def _snoozes() -> list[tuple[str, str]]:
    today = timezone.localdate()
    choices = (("1 week", 7), ("4 weeks", 28))
    return [(words, (today + timedelta(days=days)).isoformat()) for words, days in choices]
