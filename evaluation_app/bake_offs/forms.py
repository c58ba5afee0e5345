"""The form of a new bake-off."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy

from collections_app.http.page_requests import field_of
from collections_app.models import Collection
from evaluation_app.bake_offs.candidates import other_models, parse_candidate
from evaluation_app.bake_offs.lifecycle import K_MAX, K
from evaluation_app.bake_offs.sample import SAMPLE_CHUNKS, SAMPLE_CHUNKS_MAX
from evaluation_app.models import GoldenSet
from ragd.errors import InvalidInput


class BakeOffForm(forms.Form):
    """What `start_bake_off` takes, for one collection."""

    known = forms.MultipleChoiceField(label=gettext_lazy("Models"), required=False, widget=forms.CheckboxSelectMultiple)
    models = forms.CharField(
        label=gettext_lazy("More variants"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        help_text=gettext_lazy("One per line: NAME, NAME:DIMENSIONS or NAME:DIMENSIONS:halfvec."),
    )
    golden_set = forms.ChoiceField(label=gettext_lazy("Questions"), required=False)
    k = forms.IntegerField(
        label="k", min_value=1, max_value=K_MAX, initial=K, help_text=gettext_lazy("Documents that count.")
    )
    sample = forms.IntegerField(
        label=gettext_lazy("Sample (chunks)"),
        min_value=100,
        max_value=SAMPLE_CHUNKS_MAX,
        initial=SAMPLE_CHUNKS,
        help_text=gettext_lazy("Whole documents, expected ones first."),
    )

    def __init__(self, *args: Any, collection: Collection, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sets = list(GoldenSet.objects.filter(collection_name=collection.name))
        known = field_of(self, "known", forms.MultipleChoiceField)
        known.choices = [(name, name) for name in other_models(collection)]
        names = [(each.name, each.name) for each in self.sets]
        golden_set = field_of(self, "golden_set", forms.ChoiceField)
        golden_set.choices = [*names, ("", gettext("Made from the documents"))]
        golden_set.initial = names[0][0] if names else ""

    def clean_models(self) -> list[dict[str, Any]]:
        lines = [line for line in str(self.cleaned_data["models"]).splitlines() if line.strip()]
        try:
            return [parse_candidate(line) for line in lines]
        except InvalidInput as error:
            raise forms.ValidationError(error.message) from error

    def chosen(self) -> dict[str, Any]:
        data = self.cleaned_data
        named = next((each for each in self.sets if each.name == data["golden_set"]), None)
        models = [{"embed_model": name} for name in data["known"]] + data["models"]
        return {"models": models, "golden_set": named, "k": data["k"], "sample": data["sample"]}
