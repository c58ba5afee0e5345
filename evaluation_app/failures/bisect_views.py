"""What changed since a golden question was found: asked for, shown, and taken back, on pages and over HTTP."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, request_key
from collections_app.access.permissions import Permission
from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.errors import UnknownError
from collections_app.http.page_requests import Acts, PageRequest, find_or_404, render_page, run_action
from collections_app.jobs.operation_api import OperationOut
from collections_app.models import Operation
from evaluation_app.failures.bisect_requests import (
    as_run,
    earlier_runs,
    find_good,
    find_item,
    items,
    latest_bisection,
    request_bisection,
    undo_event,
)
from evaluation_app.models import EvaluationItem
from evaluation_app.runs.requests import find_run
from ragd.errors import UnknownCollection

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
