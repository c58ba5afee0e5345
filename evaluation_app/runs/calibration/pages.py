"""The form that calibrates a collection, which its page of the floor below includes by address."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404, refuse, render_page
from collections_app.models import Collection
from evaluation_app.models import GoldenSet
from evaluation_app.runs.calibration.calibrate import calibrate
from evaluation_app.runs.calibration.fitting import TARGET
from ragd.errors import RagdError

QUESTIONS_MAX = 300  # in a request; the command has no limit
PARTS = {"calibrate": "evaluation/calibration/form.html"}


class CalibrateForm(forms.Form):
    """set: of the collection. unanswerable: of others."""

    set = forms.ModelChoiceField(label="Test set", queryset=GoldenSet.objects.none(), empty_label=None)
    target = forms.FloatField(
        label="Target precision",
        min_value=0.51,
        max_value=1.0,
        initial=TARGET,
        help_text="For retrievals classified as correct and as incorrect.",
    )
    unanswerable = forms.ModelMultipleChoiceField(
        label="Unanswerable questions",
        queryset=GoldenSet.objects.none(),
        required=False,
        help_text="Test sets of other collections, as negative examples.",
        widget=forms.CheckboxSelectMultiple,
    )

    def __init__(self, *args: object, collection: Collection, **values: object) -> None:
        super().__init__(*args, **values)  # type: ignore[arg-type]
        sets = GoldenSet.objects.order_by("name")
        self.fields["set"].queryset = sets.filter(collection_name=collection.name)  # type: ignore[attr-defined]
        self.fields["unanswerable"].queryset = sets.exclude(  # type: ignore[attr-defined]
            collection_name=collection.name
        )

    def clean(self) -> None:
        super().clean()
        chosen = [self.cleaned_data.get("set"), *(self.cleaned_data.get("unanswerable") or ())]
        count = sum(item.questions.filter(suggested=False).count() for item in chosen if item)
        if count > QUESTIONS_MAX:
            raise forms.ValidationError(
                f"{count} questions are too many for a page, which takes at most {QUESTIONS_MAX}; run manage.py ragd "
                "calibrate instead"
            )


@require_http_methods(["GET", "POST"])
def calibrate_page(request: PageRequest, name: str) -> HttpResponse:
    """A POST calibrates and leads to the collection's figures."""
    collection = find_or_404(Collection.objects.live().with_counts(), name=name)
    form = CalibrateForm(request.POST if request.method == "POST" else None, collection=collection)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            data = form.cleaned_data
            try:
                calibrate(
                    collection,
                    data["set"],
                    unanswerable=list(data["unanswerable"]),
                    target=data["target"],
                    actor=request.user,
                )
                messages.success(request, f"{collection.name} was calibrated on {data['set'].name}.")
                return redirect("retrieval:corrective", name)
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
    context = {
        "collection": collection,
        "tab": "settings",
        "form": form,
        "sets": form.fields["set"].queryset.exists(),  # type: ignore[attr-defined]
        "others": form.fields["unanswerable"].queryset.exists(),  # type: ignore[attr-defined]
        "most": 100,
    }
    return render_page(request, "evaluation/calibration/calibrate.html", context, parts=PARTS, status=status)
