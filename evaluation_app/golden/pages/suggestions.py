"""Suggestions on pages: asked for, looked through, accepted or thrown away."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, page_of, refuse, render_page
from evaluation_app.golden.pages.sets import find_set_or_404, question_rows, set_context
from evaluation_app.golden.suggestions.suggestions import COUNT, COUNT_MAX, suggest_questions
from ragd.errors import RagdError
from retrieval_app.answerers.selection import has_chat_model

PER_PAGE = 100


class SuggestForm(forms.Form):
    count = forms.IntegerField(label="Number of questions", min_value=1, max_value=COUNT_MAX, initial=COUNT)
    method = forms.ChoiceField(
        label="Method", choices=[("rules", "Rules (offline)"), ("model", "Chat model")], initial="rules"
    )
    doc_ids = forms.CharField(
        label="Documents",
        required=False,
        widget=forms.Textarea(
            attrs={"rows": 1, "class": "mono", "spellcheck": "false", "placeholder": "IDs, one per line. Default: all"}
        ),
    )

    def __init__(self, *args: Any, has_model: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not has_model:
            self.fields["method"].choices = [("rules", "Rules (offline)")]  # type: ignore[attr-defined]

    def clean_doc_ids(self) -> list[str]:
        lines = (line.strip() for line in str(self.cleaned_data["doc_ids"]).splitlines())
        return [line for line in lines if line]


@require_http_methods(["GET", "POST"])
def suggestions(request: PageRequest, pk: int) -> HttpResponse:
    """The suggestions that nobody has decided on; a POST makes more."""
    golden_set, status = find_set_or_404(pk), 200
    form = SuggestForm(request.POST or None, has_model=has_chat_model())
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                outcome = suggest_questions(golden_set, actor=request.user, **form.cleaned_data)
                tell = messages.success if outcome.made else messages.warning
                tell(request, f"{outcome.words[:1].upper()}{outcome.words[1:]}.")
                return redirect("evaluation:golden-suggestions", pk)
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
    rows = golden_set.questions.filter(suggested=True).order_by("created_at", "position", "id")
    page = page_of(request, rows, PER_PAGE)
    context = set_context(golden_set, "suggestions") | {
        "form": form,
        "page": page,
        "rows": question_rows(golden_set, list(page)),
    }
    return render_page(request, "evaluation/golden/suggestions.html", context, status=status)
