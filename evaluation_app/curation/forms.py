"""Forms of the curation pages."""

from __future__ import annotations

from typing import Any

from django import forms

from collections_app.models import Collection
from evaluation_app.curation.gate_settings import DEFAULTS, K_MAX
from evaluation_app.measures.ranking import MEASURES
from evaluation_app.models import GoldenSet, PromotionGate

TITLES = {
    "recall": "Recall: how much of what is expected is found",
    "hit": "Hit: whether anything expected is found",
    "mrr": "MRR: how far up the first expected one is",
    "map": "MAP: precision at the ranks of what is expected",
    "ndcg": "nDCG: gain of the ranking over the ideal one",
    "precision": "Precision: share of the results that is expected",
}


class GateForm(forms.Form):
    """What golden questions must say of a generation before it serves. No set: no gate."""

    set = forms.ChoiceField(label="Golden set", required=False)
    measure = forms.ChoiceField(
        label="Measure", choices=[(name, TITLES[name]) for name in TITLES if name in MEASURES], initial="recall"
    )
    k = forms.IntegerField(
        label="Results looked at", min_value=1, max_value=K_MAX, help_text="How many of the first results count (k)."
    )
    margin = forms.FloatField(
        label="May fall by",
        min_value=0,
        max_value=1,
        help_text="0.02: the mean over the questions may be lower by 0.02, more holds the generation back.",
    )

    def __init__(self, *args: Any, collection: Collection, gate: PromotionGate | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial = dict(DEFAULTS)
        if gate is not None:
            name = gate.golden_set.name if gate.golden_set else ""
            self.initial = {"set": name, "measure": gate.measure, "k": gate.k, "margin": gate.margin}
        names = (
            GoldenSet.objects.filter(collection_name=collection.name).order_by("name").values_list("name", flat=True)
        )
        choices = [("", "None: every complete generation serves"), *((name, name) for name in names)]
        self.fields["set"].choices = choices  # type: ignore[attr-defined]


class OverruleForm(forms.Form):
    """Why a generation is to serve although the gate holds it."""

    reason = forms.CharField(
        label="Why it is to serve nevertheless",
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Kept with the generation and in the audit log.",
    )
