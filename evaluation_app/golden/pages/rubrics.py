"""The page of a test set's own rubrics: listed, added, changed, removed."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_http_methods

from collections_app.http.page_requests import PageRequest, RefusalMessages, render_page, submit_form
from evaluation_app.golden.pages.sets import find_set_or_404, set_context
from evaluation_app.golden.sets import update_set
from evaluation_app.models import GoldenSet
from evaluation_app.rubrics.definitions import ENTRY_POINTS, Rubric, installed_names, read_rubrics
from retrieval_app.answerers.selection import has_chat_model

KINDS = (
    ("regex", gettext_lazy("Regular expression")),
    ("json", "JSON"),
    ("prompt", gettext_lazy("Prompt for a chat model")),
    ("code", gettext_lazy("Code")),
)


class RubricForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=40,
        help_text=gettext_lazy("Lower-case letters, digits, _ and -. The metric is rubric:NAME."),
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off", "spellcheck": "false"}),
    )
    kind = forms.ChoiceField(label=gettext_lazy("Kind"), choices=KINDS)
    definition = forms.CharField(
        label=gettext_lazy("Definition"),
        required=False,
        strip=False,
        help_text=gettext_lazy(
            "Regular expression, JSON schema (empty: any JSON), instructions for the chat model, or entry point."
        ),
        widget=forms.Textarea(attrs={"rows": 5, "class": "mono", "spellcheck": "false", "data-send": True}),
    )
    must_match = forms.BooleanField(
        label=gettext_lazy("The regular expression must match"),
        required=False,
        initial=True,
        help_text=gettext_lazy("Otherwise it must not match."),
    )


@require_http_methods(["GET", "POST"])
def show_rubrics(request: PageRequest, pk: int) -> HttpResponse:
    """A POST adds the rubric, or changes the one of its name; remove=NAME removes one. ?edit=NAME fills the form."""
    golden_set = find_set_or_404(pk)
    if name := request.POST.get("remove"):
        with RefusalMessages(request):
            _write(request, golden_set, [each for each in golden_set.rubrics if each["name"] != name])
            messages.success(request, gettext("Rubric %(name)s removed.") % {"name": name})
        return redirect("evaluation:golden-set-rubrics", pk)
    rubrics = read_rubrics(golden_set.rubrics)
    edited = next((rubric for rubric in rubrics if rubric.name == request.GET.get("edit")), None)
    form = RubricForm(request.POST or None, initial=edited.as_dict() if edited else None)

    def save() -> HttpResponse:
        rubric = Rubric(**form.cleaned_data).as_dict()
        known = [each["name"] for each in golden_set.rubrics]
        kept = [rubric if each["name"] == rubric["name"] else each for each in golden_set.rubrics]
        _write(request, golden_set, kept if rubric["name"] in known else [*kept, rubric])
        messages.success(
            request, gettext("Rubric %(name)s saved. The next evaluation run scores it.") % {"name": rubric["name"]}
        )
        return redirect("evaluation:golden-set-rubrics", pk)

    response, status = submit_form(request, form, save)
    if response:
        return response
    titles = dict(KINDS)
    context = set_context(golden_set, "rubrics") | {
        "form": form,
        "edited": edited,
        "rubrics": [(rubric, titles[rubric.kind]) for rubric in rubrics],
        "entry_points": installed_names(),
        "entry_group": ENTRY_POINTS,
        "has_model": has_chat_model(),
    }
    return render_page(request, "evaluation/golden/rubrics.html", context, status=status)


def _write(request: PageRequest, golden_set: GoldenSet, rubrics: list[dict[str, object]]) -> None:
    update_set(golden_set, rubrics=rubrics, actor=request.user)
