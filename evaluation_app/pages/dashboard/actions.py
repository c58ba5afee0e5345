"""What can be done to a run from its page: cancel, resume, retry what failed, delete, make it the baseline."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, next_address, render_page
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.runs.baselines import clear_baseline, make_baseline
from evaluation_app.runs.lifecycle import cancel_run, delete_run, resume_run, retry_failed
from ragd.errors import RagdError


@require_POST
def cancel(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    return _act(request, pk, lambda run: cancel_run(run, request.user), "Stopping after the current question.")


@require_POST
def resume(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    return _act(request, pk, lambda run: resume_run(run, request.user), "Evaluation resumed.")


@require_POST
def retry(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    return _act(request, pk, lambda run: retry_failed(run, request.user), "Failed questions queued for retry.")


@require_POST
def baseline(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    return _act(request, pk, lambda run: make_baseline(run, actor=request.user), "Set as baseline.")


@require_POST
def no_baseline(request: PageRequest, pk: int) -> HttpResponse:
    """Of a golden set; back to where the form says, else to the dashboard."""
    clear_baseline(get_object_or_404(GoldenSet, pk=pk), actor=request.user)
    messages.success(request, "Baseline removed.")
    return redirect(next_address(request, "evaluation:index"))


@require_http_methods(["GET", "POST"])
def delete(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    """A GET asks, with how many questions would go; a POST deletes."""
    run = get_object_or_404(EvaluationRun.objects.select_related("golden_set"), pk=pk)
    if request.method == "GET":
        is_baseline = run.golden_set is not None and run.golden_set.baseline_id == run.pk
        context = {"run": run, "items": run.items.count(), "is_baseline": is_baseline}
        return render_page(request, "evaluation/dashboard/delete_run.html", context)
    try:
        delete_run(run, request.user)
    except (ServiceError, RagdError) as error:
        messages.error(request, error.message)
        return redirect(run)
    messages.success(request, f"Evaluation run {run} deleted.")
    return redirect("evaluation:evaluation-runs")


def _act(request: PageRequest, pk: uuid.UUID, act: Callable[[EvaluationRun], object], details: str) -> HttpResponse:
    """Do it and lead back to where the form says, else to the run's page, with what came of it."""
    run = get_object_or_404(EvaluationRun, pk=pk)
    try:
        act(run)
    except (ServiceError, RagdError) as error:
        messages.error(request, error.message)
    else:
        messages.success(request, details)
    return redirect(next_address(request, reverse("evaluation:evaluation-run", args=[pk])))
