"""A stored run's scores: on its page, on a page of their own, and the button that has it judged."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, is_part, render_page
from evaluation_app.pages.live.presenters import describe_marks, describe_score
from evaluation_app.scoring.run_scores import judge_run
from evaluation_app.scoring.run_settings import RunSettings
from ragd.errors import RagdError
from retrieval_app.models import QueryRun

PARTS = {"run-score": "evaluation/scoring/parts/run_score.html"}


@require_GET
def show_score(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The part of the run's page for htmx, else a page with the marked answer and context."""
    run = get_object_or_404(QueryRun, pk=run_id)
    context = describe_score(run)
    if not is_part(request, PARTS) and context["kept"] is not None:
        context |= describe_marks(context["kept"])
    return render_page(request, "evaluation/scoring/run_score.html", context, parts=PARTS)


@require_POST
def judge(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """Judge the run now, by the judge of the form, and show what came of it."""
    run = get_object_or_404(QueryRun.objects.select_related("collection"), pk=run_id)
    try:
        settings = RunSettings.from_dict({"judge": request.POST.get("judge") or "embedded"})
        judge_run(run, settings, actor=request.user)
    except (ServiceError, RagdError) as error:
        messages.error(request, describe(error)[1]["error"]["message"])
    if is_part(request, PARTS):
        return render_page(request, "evaluation/scoring/run_score.html", describe_score(run), parts=PARTS)
    return redirect(reverse("evaluation:run-score", args=[run.pk]))
