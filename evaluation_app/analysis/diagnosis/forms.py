"""Forms of the board and of the bands of a set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from evaluation_app.analysis.diagnosis.cards import DECISIONS, NOTE_CHARS_MAX
from evaluation_app.measures.catalogue import MEASURES
from evaluation_app.models import GoldenSet
from evaluation_app.scoring.modes.bands import banded_measures, bands_for, server_bands
from evaluation_app.scoring.modes.catalogue import stored_table


class DecisionForm(forms.Form):
    """What is decided about one card."""

    question = forms.CharField(strip=False)
    mode = forms.ChoiceField(choices=lambda: [(key, key) for key in stored_table().modes])
    decision = forms.ChoiceField(choices=[(name, name) for name in DECISIONS])
    assignee = forms.CharField(required=False, max_length=150)
    until = forms.DateField(required=False)
    note = forms.CharField(required=False, max_length=NOTE_CHARS_MAX)


class BandsForm(forms.Form):
    """Two numbers per measure. What is empty, or the server's own, is left to the server."""

    def __init__(self, data: Mapping[str, Any] | None = None, *, golden_set: GoldenSet) -> None:
        super().__init__(data)
        own, shown = server_bands(), bands_for(golden_set)
        self.rows = [(MEASURES[name], own[name], name in golden_set.bands) for name in banded_measures()]
        for name in banded_measures():
            for part, position in (("good", 0), ("poor", 1)):
                self.fields[f"{name}_{part}"] = forms.FloatField(
                    required=False,
                    min_value=0,
                    max_value=1,
                    initial=shown[name][position] if name in golden_set.bands else None,
                    widget=forms.NumberInput(
                        attrs={
                            "step": "0.01",
                            "placeholder": f"{own[name][position]:g}",
                            "aria-label": f"{MEASURES[name].title}, {part}",
                        }
                    ),
                )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for name in banded_measures():
            if (values.get(f"{name}_good") is None) != (values.get(f"{name}_poor") is None):
                missing = "good" if values.get(f"{name}_good") is None else "poor"
                if f"{name}_{missing}" not in self.errors:
                    self.add_error(f"{name}_{missing}", "Enter both thresholds, or neither.")
        return values

    def bands(self) -> dict[str, list[float]]:
        """measure -> [good, poor] of those that are filled in."""
        values = self.cleaned_data
        return {
            name: [values[f"{name}_good"], values[f"{name}_poor"]]
            for name in banded_measures()
            if values.get(f"{name}_good") is not None and values.get(f"{name}_poor") is not None
        }

    @property
    def lines(self) -> list[tuple[Any, Any, bool, Any, Any]]:
        """(measure, the server's pair, whether the set has its own, bound field of good, of poor)."""
        return [
            (measure, pair, is_own, self[f"{measure.name}_good"], self[f"{measure.name}_poor"])
            for measure, pair, is_own in self.rows
        ]
