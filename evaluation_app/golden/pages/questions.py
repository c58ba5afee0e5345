"""The page of one golden question: its fields, and what it expects, chosen by searching the collection."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, refuse, render_page
from evaluation_app.golden import edits
from evaluation_app.golden.pages.forms import QuestionForm, initial_of, known_categories
from evaluation_app.golden.pages.sets import find_set_or_404, set_context
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.suggestions.expectation_search import (
    EXPECTED,
    Chosen,
    chosen_context,
    find_expected,
    read_chosen,
)
from evaluation_app.models import EvaluationItem, GoldenQuestion, GoldenSet
from ragd.errors import RagdError

RESULTS_SHOWN = 8
CHOSEN_PART = {"expected": "evaluation/golden/parts/expected.html"}


@require_http_methods(["GET", "POST"])
def new_question(request: PageRequest, pk: int) -> HttpResponse:
    golden_set = find_set_or_404(pk)
    form = QuestionForm(request.POST or None, initial={"question": request.GET.get("q", "")})
    return _edit(request, golden_set, form, None, Golden("new"))


@require_http_methods(["GET", "POST"])
def edit_question(request: PageRequest, pk: int, question_id: int) -> HttpResponse:
    golden_set = find_set_or_404(pk)
    question = get_object_or_404(GoldenQuestion, pk=question_id, golden_set=pk)
    golden = Golden.of(question)
    form = QuestionForm(request.POST or None, initial=initial_of(golden, question.updated_at.isoformat()))
    form.fields["place"].widget.attrs["placeholder"] = "" if question.suggested else question.position + 1
    return _edit(request, golden_set, form, question, golden)


def _edit(
    request: PageRequest, golden_set: GoldenSet, form: QuestionForm, question: GoldenQuestion | None, golden: Golden
) -> HttpResponse:
    """do=save writes; anything else that is posted searches, keeps what was typed and ticked, and shows it."""
    status = 200
    chosen: Chosen = {name: list(getattr(golden, name)) for name in EXPECTED}
    if request.method == "POST":
        chosen = read_chosen(request)
        if request.POST.get("do") == "save":
            status = 422
            if form.is_valid() and (answer := _save(request, golden_set, form, question, chosen)) is not None:
                return answer
            status = 409 if form.non_field_errors() else status
    context = set_context(golden_set, "questions") | {
        "form": form,
        "question": question,
        "earlier": _earlier_items(question),
        **_expected_context(request, golden_set, form, chosen, question),
    }
    return render_page(request, "evaluation/golden/question.html", context, parts=CHOSEN_PART, status=status)


def _save(
    request: PageRequest,
    golden_set: GoldenSet,
    form: QuestionForm,
    question: GoldenQuestion | None,
    chosen: Chosen,
) -> HttpResponse | None:
    """Where to go next; None when the form has an error now."""
    explicit = form.stated() | chosen
    data = form.cleaned_data["place"]
    try:
        if question is None:
            question = edits.add_question(golden_set, explicit, actor=request.user)
            messages.success(request, "Question added.")
        else:
            seen = form.cleaned_data["seen"]
            if seen and seen != question.updated_at.isoformat():
                form.add_error(None, "The question was changed by someone else. Reload and edit it again.")
                return None
            position = data - 1 if data else None
            edits.change_question(question, explicit, position=position, seen=question.updated_at, actor=request.user)
            if request.POST.get("keep_present"):
                edits.keep_present_chunks(question, actor=request.user)
            messages.success(request, "Question saved.")
    except (ServiceError, RagdError) as error:
        refuse(form, error)
        return None
    if request.POST.get("then") == "another":
        return redirect("evaluation:new-golden-question", golden_set.pk)
    return redirect(f"{reverse('evaluation:golden-set', args=[golden_set.pk])}#question-{question.pk}")


def _expected_context(
    request: PageRequest,
    golden_set: GoldenSet,
    form: QuestionForm,
    chosen: Chosen,
    question: GoldenQuestion | None,
) -> dict[str, Any]:
    """What is ticked, and what a search finds besides."""
    text = (form["find"].value() or "").strip() or (form["question"].value() or "").strip()
    looks = request.method == "POST" or bool(form.initial.get("question"))
    return {
        **chosen_context(golden_set.collection_name, chosen, question.chunk_marks if question else None),
        "found": find_expected(golden_set.collection_name, text, chosen) if looks and text else None,
        "categories": known_categories(sorted(set(golden_set.questions.values_list("category", flat=True)))),
    }


def _earlier_items(question: GoldenQuestion | None) -> list[EvaluationItem]:
    """What the newest runs found of it."""
    if question is None:
        return []
    rows = EvaluationItem.objects.filter(question=question).select_related("run")
    return list(rows.defer("context", "answer_sentences", "annotation").order_by("-created_at", "-id")[:RESULTS_SHOWN])
