"""The form that says which share of a collection's answers is scored."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from evaluation_app.models import Sampling
from evaluation_app.scoring.judge_selection import has_judge_model, judge_model
from evaluation_app.scoring.sampling import PER_DAY_MAX


class SamplingForm(forms.Form):
    """percent: 0.01 to 100. The judge "llm" can only be chosen where a chat model is set up, or was chosen before."""

    enabled = forms.BooleanField(label="Enable online evaluation", required=False)
    percent = forms.FloatField(
        label="Sampling rate (%)",
        min_value=0.01,
        max_value=100,
        help_text="Sampled by query run ID.",
    )
    per_day = forms.IntegerField(
        label="Daily limit",
        min_value=1,
        max_value=PER_DAY_MAX,
        help_text="Per day (UTC).",
    )
    judge = forms.ChoiceField(label="Judge")
    judge_model = forms.CharField(label="Chat model", max_length=200, required=False)

    def __init__(self, data: QueryDict | None, *, sampling: Sampling) -> None:
        initial = {
            "enabled": sampling.enabled,
            "percent": f"{sampling.rate * 100:.6g}",
            "per_day": sampling.per_day,
            "judge": sampling.judge,
            "judge_model": sampling.judge_model,
        }
        super().__init__(data, initial=initial)
        choices = [("embedded", "Embedded judge (no cost)")]
        self.has_model = has_judge_model() or sampling.judge == "llm"
        if self.has_model:
            choices.append(("llm", "Chat model"))
            self.fields["judge_model"].help_text = f"Default: {judge_model()}"
        else:
            del self.fields["judge_model"]
        self.fields["judge"].choices = choices  # type: ignore[attr-defined]

    @property
    def values(self) -> dict[str, Any]:
        """What `save_sampling` takes."""
        data = self.cleaned_data
        return {
            "enabled": data["enabled"],
            "rate": data["percent"] / 100,
            "per_day": data["per_day"],
            "judge": data["judge"],
            "judge_model": data.get("judge_model", ""),
        }
