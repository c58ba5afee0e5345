"""What changed since a golden question was found: asked for, shown, and taken back."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_POST

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, find_or_404, render_page
from evaluation_app.history.requests import (
    as_run,
    earlier_runs,
    find_good,
    items,
    latest_bisection,
    request_bisection,
    undo_event,
)
from evaluation_app.models import EvaluationItem
from ragd.errors import RagdError, UnknownCollection


@require_GET
def show_changes(request: PageRequest, pk: uuid.UUID, position: int) -> HttpResponse:
    """The last bisection of the question, or how to begin one."""
    item = find_or_404(items(), run_id=pk, position=position)
    stored = latest_bisection(item)
    try:
        runs = list(earlier_runs(item))
    except UnknownCollection:
        runs = []
    report = stored.report if stored else {}
    context = {"item": item, "run": item.run, "stored": stored, "report": report, "runs": runs}
    return render_page(request, "evaluation/history/changes.html", context)


@require_POST
def start(request: PageRequest, pk: uuid.UUID, position: int) -> HttpResponse:
    """good: a run in which the question was better; empty for the newest earlier one."""
    item = find_or_404(items(), run_id=pk, position=position)
    try:
        request_bisection(find_good(item, as_run(request.POST.get("good", "").strip())), item, request.user)
    except (ServiceError, RagdError) as error:
        messages.error(request, describe(error)[1]["error"]["message"])
    return redirect(_address(item))


@require_POST
def undo(request: PageRequest, pk: uuid.UUID, position: int) -> HttpResponse:
    """event: the place of the change in the report."""
    item = find_or_404(items(), run_id=pk, position=position)
    stored = latest_bisection(item)
    number = request.POST.get("event", "")
    try:
        if stored is None or not number.isdigit():
            raise ServiceError("choose a change of the report", type="unknown_change", status=404)
        done = undo_event(stored, int(number), request.user)
    except (ServiceError, RagdError) as error:
        messages.error(request, describe(error)[1]["error"]["message"])
    else:
        messages.success(
            request, gettext("Done: %(text)s. Evaluate the test set again to see what it did.") % {"text": done.text}
        )
    return redirect(_address(item))


def _address(item: EvaluationItem) -> str:
    return reverse("evaluation:item-changes", args=[item.run_id, item.position])
