"""A golden question out of a run: at once, or with everything filled in to be changed first."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, refuse, render_page
from collections_app.models import Collection
from evaluation_app.golden.pages.forms import RunQuestionForm, known_categories
from evaluation_app.golden.pages.questions import CHOSEN_PART
from evaluation_app.golden.pages.sets import find_set_or_404
from evaluation_app.golden.suggestions import from_runs
from evaluation_app.golden.suggestions.expectation_search import (
    EXPECTED,
    Chosen,
    chosen_context,
    find_expected,
    read_chosen,
    retrieved_of,
)
from evaluation_app.models import GoldenSet
from ragd.errors import RagdError
from retrieval_app.models import QueryRun


@require_http_methods(["GET", "POST"])
def question_from_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """A question out of a run, everything filled in. do=save adds it; do=make, from the run's page, adds it at once."""
    run = get_object_or_404(QueryRun, pk=run_id)
    if request.method == "POST" and request.POST.get("do") == "make":
        return _make_at_once(request, run)
    proposal = from_runs.propose(run)
    sets = [(str(row.pk), row.name) for row in from_runs.sets_for(run)]
    chosen: Chosen = {name: list(proposal.stated[name]) for name in EXPECTED}
    initial = {name: value for name, value in proposal.stated.items() if name not in EXPECTED} | {"weight": 1.0}
    initial |= {"golden_set": sets[0][0]} if sets else {}
    form = RunQuestionForm(request.POST or None, initial=initial, sets=sets)
    status = 200
    if request.method == "POST":
        chosen = read_chosen(request)
        if request.POST.get("do") == "save":
            status = 422
            if form.is_valid() and (answer := _save_from_run(request, run, form, chosen)) is not None:
                return answer
    stand_in = GoldenSet(collection_name=run.collection_name)
    context: dict[str, Any] = {"form": form, "run": run, "golden_set": stand_in, "is_from_run": True}
    context |= _from_run_expected(request, run, form, chosen)
    return render_page(request, "evaluation/golden/from_run.html", context, parts=CHOSEN_PART, status=status)


def _from_run_expected(request: PageRequest, run: QueryRun, form: RunQuestionForm, chosen: Chosen) -> dict[str, Any]:
    text = (form["find"].value() or "").strip()
    result = find_expected(run.collection_name, text, chosen) if text else retrieved_of(run, chosen)
    return {
        **chosen_context(run.collection_name, chosen),
        "found": result,
        "categories": known_categories([]),
    }


def _save_from_run(request: PageRequest, run: QueryRun, form: RunQuestionForm, chosen: Chosen) -> HttpResponse | None:
    picked = form.cleaned_data["golden_set"]
    try:
        golden_set = find_set_or_404(int(picked)) if picked else from_runs.new_set_for(run, actor=request.user)
        question = from_runs.make_from_run(run, golden_set, form.stated() | chosen, actor=request.user)
    except (ServiceError, RagdError) as error:
        refuse(form, error)
        return None
    messages.success(request, f"Added to {golden_set.name}.")
    return redirect(f"{reverse('evaluation:golden-set', args=[golden_set.pk])}#question-{question.pk}")


def _make_at_once(request: PageRequest, run: QueryRun) -> HttpResponse:
    try:
        question = from_runs.make_from_run(run, None, actor=request.user)
    except (ServiceError, RagdError) as error:
        messages.error(request, describe(error)[1]["error"]["message"])
        return redirect(run)
    messages.success(request, f"Added to {question.golden_set.name}. Check the expected results.")
    return redirect("evaluation:golden-question", question.golden_set_id, question.pk)


@require_GET
def golden_of_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The part of a run's page that makes a golden question of it, or leads to the one that there is."""
    run = get_object_or_404(QueryRun, pk=run_id)
    context = {
        "run": run,
        "questions": from_runs.golden_of(run),
        "proposal": from_runs.propose(run),
        "sets": from_runs.sets_for(run)[:1],
        "lives": Collection.objects.live().filter(name=run.collection_name).exists(),
    }
    parts = {"golden-of-run": "evaluation/golden/parts/of_run.html"}
    return render_page(request, "evaluation/golden/of_run.html", context, parts=parts)
