"""Pages of the failure analysis: the board and the table of failure modes."""

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
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from collections_app.http.page_requests import PageRequest, RefusalMessages, next_address, render_page
from evaluation_app.analysis.diagnosis.board import (
    SHOWN_PER_COLUMN,
    SHOWS,
    Filters,
    newest_run,
    read_board,
    runs_of,
    sets_with_runs,
)
from evaluation_app.analysis.diagnosis.cards import DECISIONS, NOTE_CHARS_MAX, decide, people
from evaluation_app.analysis.diagnosis.fixes import has_changed
from evaluation_app.analysis.diagnosis.question_table import SHOWN_PER_GROUP, read_table
from evaluation_app.analysis.diagnosis.suggestions import suggest_fixes
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.scoring.modes.catalogue import stored_table, thresholds_for

ALL_OF_ONE = 300  # of a mode that is shown alone
DECIDED = {
    "assign": gettext_lazy("Saved: %(question)s"),
    "snooze": gettext_lazy("Dismissed: %(question)s"),
    "resolve": gettext_lazy("Resolved: %(question)s"),
    "reopen": gettext_lazy("Reopened: %(question)s"),
}


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
    """set=NAME and run=ID: what is shown; without, the newest finished run of the set that was run last. 404 for a set
    or a run that is not there; earlier addresses have the id of the set, which is found too.

    view=cards: a card per question and mode, for triage; else the table of questions. category, assignee, show (open,
    away, all) and mode choose questions; what is not known is left out.
    """
    sets = list(sets_with_runs())
    run = _chosen_run(request.GET, sets)
    view = "cards" if request.GET.get("view") == "cards" else "table"
    context: dict[str, Any] = {"tab": "board", "sets": sets, "run": run, "view": view}
    if run is not None:
        filters = _filters(request.GET)
        context |= _cards(run, filters) if view == "cards" else _table(run, filters)
        context |= {
            "filters": filters,
            "runs": runs_of(run.golden_set) if run.golden_set else [run],
            "people": people(),
            "changed": has_changed(run),
            "address": f"{reverse('evaluation:board')}?{_query(run, filters, view)}",
        }
    return render_page(request, "evaluation/diagnosis/board.html", context)


def _cards(run: EvaluationRun, filters: Filters) -> dict[str, Any]:
    shown = read_board(run, filters, per_column=ALL_OF_ONE if filters.mode else SHOWN_PER_COLUMN)
    return {"board": shown, "snoozes": _snoozes(), "categories": shown.categories}


def _table(run: EvaluationRun, filters: Filters) -> dict[str, Any]:
    table = read_table(run, filters, per_group=ALL_OF_ONE if filters.mode else SHOWN_PER_GROUP)
    return {"table": table, "suggestions": suggest_fixes(run, table.questions), "categories": table.categories}


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
    address = f"{reverse('evaluation:board')}?{urlencode({'set': golden_set.name})}"
    return redirect(next_address(request, address))


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
    messages.success(request, DECIDED[decision] % {"question": values["question"]})


@require_GET
def modes(request: PageRequest) -> HttpResponse:
    """The table of failure modes, with the server's thresholds."""
    thresholds = thresholds_for()
    rows = [(mode, mode.describe_band(thresholds)) for mode in stored_table().modes.values()]
    return render_page(request, "evaluation/diagnosis/modes.html", {"tab": "board", "rows": rows})


def _chosen_run(query: QueryDict, sets: list[GoldenSet]) -> EvaluationRun | None:
    """The one that the address names, else the newest of its set, else the newest of all. Http404 when it is gone."""
    golden_set = _chosen_set(query.get("set", ""), sets)
    if requested := query.get("run", ""):
        try:
            run = get_object_or_404(EvaluationRun.objects.select_related("golden_set"), pk=UUID(requested))
        except ValueError:
            raise Http404(f"run must be the id of an evaluation run, not {requested!r}") from None
        if golden_set is None or run.golden_set_id == golden_set.pk:
            return run  # else another set was chosen since
    chosen = [golden_set] if golden_set else sets
    return newest_run(chosen)


def _chosen_set(requested: str, sets: list[GoldenSet]) -> GoldenSet | None:
    """By name, else by id; None for "". Raises Http404."""
    if not requested:
        return None
    known = {str(each.pk): each for each in sets} | {each.name: each for each in sets}
    if requested not in known:
        raise Http404(f"no test set {requested!r} has an evaluation run")
    return known[requested]


def _filters(query: QueryDict) -> Filters:
    show, mode = query.get("show", ""), query.get("mode", "")
    return Filters(
        category=query.get("category", ""),
        assignee=query.get("assignee", ""),
        show=show if show in SHOWS else SHOWS[0],
        mode=mode if mode in stored_table().modes else "",
    )


def _query(run: EvaluationRun, filters: Filters, view: str) -> str:
    """The address of what is shown, without what stands for all."""
    values = {"run": str(run.pk), "category": filters.category, "assignee": filters.assignee, "mode": filters.mode}
    if filters.show != SHOWS[0]:
        values["show"] = filters.show
    if view == "cards":
        values["view"] = view
    return urlencode({name: value for name, value in values.items() if value})


def _snoozes() -> list[tuple[str, str]]:
    today = timezone.localdate()
    choices = (("1 week", 7), ("4 weeks", 28))
    return [(words, (today + timedelta(days=days)).isoformat()) for words, days in choices]
