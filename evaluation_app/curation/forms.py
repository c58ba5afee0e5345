"""Forms of the curation pages."""

from __future__ import annotations

from typing import Any

from django import forms

from collections_app.models import Collection
from evaluation_app.curation.gate_settings import DEFAULTS, K_MAX
from evaluation_app.measures.ranking import MEASURES
from evaluation_app.models import GoldenSet, PromotionGate

TITLES = {
    "recall": "Recall: share of expected results that are retrieved",
    "hit": "Hit rate: any expected result retrieved",
    "mrr": "MRR: reciprocal rank of the first expected result",
    "map": "MAP: mean average precision",
    "ndcg": "nDCG: normalized discounted cumulative gain",
    "precision": "Precision: share of results that are expected",
}


class GateForm(forms.Form):
    """What golden questions must say of a generation before it serves. No set: no gate."""

    set = forms.ChoiceField(label="Test set", required=False)
    measure = forms.ChoiceField(
        label="Metric", choices=[(name, TITLES[name]) for name in TITLES if name in MEASURES], initial="recall"
    )
    k = forms.IntegerField(label="k", min_value=1, max_value=K_MAX, help_text="Number of results that count.")
    margin = forms.FloatField(
        label="Allowed regression",
        min_value=0,
        max_value=1,
        help_text="0.02: blocked if the mean falls by more than 0.02.",
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
        choices = [("", "None: no quality gate"), *((name, name) for name in names)]
        self.fields["set"].choices = choices  # type: ignore[attr-defined]


class OverruleForm(forms.Form):
    """Why a generation is to serve although the gate holds it."""

    reason = forms.CharField(
        label="Reason for the override",
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Recorded in the audit log.",
    )
