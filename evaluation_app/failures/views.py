"""Pages of the failure analysis: the board, the table of failure modes, what changed since a question was found.

The page of a collection's content gaps.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, request_key
from collections_app.access.permissions import Permission
from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.collections.views import find_collection
from collections_app.domain.formats import counted
from collections_app.errors import UnknownError
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    RefusalMessages,
    find_or_404,
    next_address,
    render_page,
    run_action,
)
from collections_app.jobs.operation_api import OperationOut
from collections_app.models import Operation
from evaluation_app.failures.bisection import (
    as_run,
    earlier_runs,
    find_good,
    find_item,
    items,
    latest_bisection,
    request_bisection,
    undo_event,
)
from evaluation_app.failures.board import (
    DECISIONS,
    LOW_CONFIDENCE,
    NO_ANSWER,
    NO_RESULTS,
    NOTE_CHARS_MAX,
    SHOWN_PER_COLUMN,
    SHOWS,
    WRONG,
    Decision,
    Filters,
    decide,
    dismiss,
    find_gaps,
    newest_run,
    people,
    read_board,
    runs_of,
    sets_with_runs,
)
from evaluation_app.failures.fixes import has_changed, suggest_fixes
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.runs.comparison.changes import openable
from evaluation_app.runs.requests import find_run
from evaluation_app.scoring.modes import stored_table, thresholds_for
from ragd.errors import InvalidInput, UnknownCollection

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


@needs(READ, EVALUATE, methods="GET")
def board(request: PageRequest) -> HttpResponse:
    """set=NAME and run=ID: what is shown; without, the newest finished run of the set that was run last. 404 for a set
    or a run that is not there.

    category, assignee, show (open, away, all) and mode choose questions; what is not known is left out. view=modes:
    what the modes mean, instead.
    """
    if request.GET.get("view") == "modes":
        return _show_modes(request)
    sets = list(sets_with_runs())
    run = _chosen_run(request.GET, sets)
    context: dict[str, Any] = {"tab": "board", "sets": sets, "run": run}
    if run is not None:
        query = request.GET
        show, mode = query.get("show", ""), query.get("mode", "")
        filters = Filters(
            category=query.get("category", ""),
            assignee=query.get("assignee", ""),
            show=show if show in SHOWS else SHOWS[0],
            mode=mode if mode in stored_table().modes else "",
        )
        shown = read_board(run, filters, per_column=ALL_OF_ONE if filters.mode else SHOWN_PER_COLUMN)
        context |= {
            "board": shown,
            "openable": openable(entry.item for column in shown.columns for entry in column.entries),
            "suggestions": suggest_fixes(run, shown.questions),
            "snoozes": _snoozes(),
            "filters": filters,
            "list": list_page(request, ListKind("", ""), None, _chips(run, sets, shown.categories)),
            "changed": has_changed(run),
            "address": f"{reverse('evaluation:board')}?{_query(run, filters)}",
        }
    return render_page(request, "evaluation/diagnosis/board.html", context)


def decide_card(request: PageRequest, golden_set: GoldenSet) -> HttpResponse:
    """One decision about one card of the set; back to the board as it was."""
    form = DecisionForm(request.POST)
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        messages.error(request, f"{field}: {errors[0]}")
    else:
        with RefusalMessages(request):
            _decide(request, golden_set, form.cleaned_data)
    address = reverse("evaluation:board", query={"set": golden_set.name})
    return redirect(next_address(request, address))


def _decide(request: PageRequest, golden_set: GoldenSet, values: dict[str, Any]) -> None:
    decision = values["decision"]
    summary = "assignee" in request.POST
    decide(
        golden_set,
        values["question"],
        values["mode"],
        Decision(
            decision,
            assignee=values["assignee"] if summary else None,
            until=values["until"],
            note=values["note"] if "note" in request.POST else None,
        ),
        actor=request.user,
    )
    messages.success(request, DECIDED[decision] % {"question": values["question"]})


def _show_modes(request: PageRequest) -> HttpResponse:
    """The table of failure modes, with the server's thresholds."""
    thresholds = thresholds_for()
    rows = [(mode, mode.describe_band(thresholds)) for mode in stored_table().modes.values()]
    return render_page(request, "evaluation/diagnosis/modes.html", {"tab": "board", "rows": rows})


def _chips(run: EvaluationRun, sets: Sequence[GoldenSet], categories: Sequence[str]) -> list[Filter]:
    baseline = run.golden_set and run.golden_set.baseline_id
    runs = [
        (each.pk, f"{each} {gettext('(baseline)')}" if each.pk == baseline else each)
        for each in (runs_of(run.golden_set) if run.golden_set else [run])
    ]
    shows = [("", gettext("Open")), ("away", gettext("Dismissed")), ("all", gettext("All"))]
    modes = [(key, mode.title) for key, mode in stored_table().modes.items()]
    return [
        Filter("show", gettext("Status"), shows, usual=SHOWS[0]),
        Filter("set", gettext("Test set"), [each.name for each in sets], free=True),
        Filter("run", gettext("Evaluation run"), runs, free=True),
        Filter("category", gettext("Category"), categories, free=True),
        Filter("assignee", gettext("Assigned to"), people(), free=True),
        Filter("mode", gettext("Failure mode"), modes),
    ]


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
    """By name; None for "". Raises Http404."""
    if not requested:
        return None
    known = {each.name: each for each in sets}
    if requested not in known:
        raise Http404(f"no test set {requested!r} has an evaluation run")
    return known[requested]


def _query(run: EvaluationRun, filters: Filters) -> str:
    """The address of what is shown, without what stands for all."""
    values = {"run": str(run.pk), "category": filters.category, "assignee": filters.assignee, "mode": filters.mode}
    if filters.show != SHOWS[0]:
        values["show"] = filters.show
    return urlencode({name: value for name, value in values.items() if value})


def _snoozes() -> list[tuple[str, str]]:
    today = timezone.localdate()
    choices = (("1 week", 7), ("4 weeks", 28))
    return [(words, (today + timedelta(days=days)).isoformat()) for words, days in choices]


DAYS = (7, 30, 90, 365)
USUAL_DAYS = 30
SHOWN = 100
REASON_WORDS = {
    NO_ANSWER: ("bad", gettext_lazy("No answer")),
    NO_RESULTS: ("bad", gettext_lazy("No results")),
    WRONG: ("watch", gettext_lazy("Feedback: not correct")),
    LOW_CONFIDENCE: ("watch", gettext_lazy("Low confidence")),
}


@needs(READ, EVALUATE, methods="GET POST")
def content_gaps(request: PageRequest, name: str) -> HttpResponse:
    """What was asked and not answered, by ?days= and ?state=dismissed; a POST dismisses a group, or brings it back."""
    collection = find_collection(name)
    dismissed = request.GET.get("state") == "dismissed"
    stated = request.GET.get("days", "")
    days = int(stated) if stated.isdecimal() and int(stated[:6]) in DAYS else USUAL_DAYS
    if request.method == "POST":
        try:
            count = dismiss(collection, request.POST.getlist("question"), dismissed=not dismissed, actor=request.user)
        except InvalidInput as error:
            messages.error(request, error.message)
        else:
            questions = counted(count, gettext("question,questions"))
            text = gettext("%(questions)s returned.") if dismissed else gettext("%(questions)s dismissed.")
            messages.success(request, text % {"questions": questions})
        return redirect(request.get_full_path())
    found = find_gaps(collection, days=days, dismissed=dismissed)
    context = {
        "collection": collection,
        "tab": "gaps",
        "rows": [(gap, [REASON_WORDS[reason] for reason in gap.reasons]) for gap in found.rows[:SHOWN]],
        "more": max(0, len(found.rows) - SHOWN) + found.left_out,
        "asked": sum(gap.count for gap in found.rows),
        "problem": found.problem,
        "dismissed": dismissed,
        "days": days,
        "choices": DAYS,
    }
    return render_page(request, "evaluation/gaps/gaps.html", context)


router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])
Good = param.Query(None, description="A run in which the question was better; default: the newest earlier one")


@router.post(
    "/evaluation-runs/{run_id}/items/{position}/bisection", operation_id="bisections-create", response=OperationOut
)
def bisect_question(request: HttpRequest, run_id: UUID, position: int, good: UUID | None = Good) -> Any:
    """Find the change that broke a question, between an earlier run and this one. Of a large collection it is made in
    the background (state running): ask for the operation. 409 where the question was not better before."""
    key = request_key(request)
    bad = find_item(find_run(run_id, key.visible), position)
    return request_bisection(find_good(bad, find_run(good, key.visible) if good else None), bad, key)


@needs(READ, EVALUATE, methods="GET POST")
def show_changes(request: PageRequest, pk: uuid.UUID, position: int) -> HttpResponse:
    """The last bisection of the question, or how to begin one. do=start: good= is a run in which the question was
    better, empty for the newest earlier one; do=undo: event= is the place of the change in the report."""
    item = find_or_404(items(), run_id=pk, position=position)
    stored = latest_bisection(item)
    if request.method == "POST":
        acts: Acts = {"start": partial(_start, request, item), "undo": partial(_undo, request, stored)}
        return run_action(request, acts, request.get_full_path())
    try:
        runs = list(earlier_runs(item))
    except UnknownCollection:
        runs = []
    report = stored.report if stored else {}
    good = items().filter(pk=stored.arguments["good"]).first() if stored else None
    context = {"item": item, "run": item.run, "good": good, "stored": stored, "report": report, "runs": runs}
    return render_page(request, "evaluation/history/changes.html", context)


def _start(request: PageRequest, item: EvaluationItem) -> HttpResponse:
    request_bisection(find_good(item, as_run(request.POST.get("good", "").strip())), item, request.user)
    return redirect(request.get_full_path())


def _undo(request: PageRequest, stored: Operation | None) -> str:
    number = request.POST.get("event", "")
    if stored is None or not number.isdigit():
        raise UnknownError("change", "choose a change of the report")
    done = undo_event(stored, int(number), request.user)
    return gettext("Done: %(text)s. Evaluate the test set again to see what it did.") % {"text": done.text}
