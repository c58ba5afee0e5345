"""The settings of one test set, and its thresholds: set by hand, or fitted to what its runs scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext

from collections_app.access.rules import EVALUATE, needs
from collections_app.domain.formats import counted
from collections_app.http.page_requests import PageRequest, render_page, submit_form, tell
from evaluation_app.failures.board import runs_of
from evaluation_app.failures.fixes import quartiles, refresh_modes
from evaluation_app.golden.set_views import find_set_or_404, set_context
from evaluation_app.measures.catalogue import DOCUMENT_BANDS, Measure, measure_of
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.runs.figures import percentile_of
from evaluation_app.scoring.fitted_bands import Fit, FittedBand, fit_bands
from evaluation_app.scoring.modes import banded_measures, bands_for, keep_bands, thresholds_for

PARTS = (("good", 0), ("poor", 1))


@dataclass(frozen=True, slots=True)
class BandLine:
    """reference: (good, poor) that colour nothing, each with its RAGBench percentile or None. source: who set what
    holds: "set", "server", "" for nobody. fitted: what the fit gives; left_out: why it gives nothing, "" otherwise."""

    measure: Measure
    good: forms.BoundField
    poor: forms.BoundField
    reference: tuple[tuple[float, float | None], ...]
    source: str
    fitted: FittedBand | None = None
    left_out: str = ""


class BandsForm(forms.Form):
    """Two numbers per measure; where both are empty the server's hold, else those of the diagnostics document. A
    measure without any has no colour.

    fit: fills the fields in, to be looked at and saved.
    """

    def __init__(self, data: Mapping[str, Any] | None = None, *, golden_set: GoldenSet, fit: Fit | None = None) -> None:
        super().__init__(data)
        self.golden_set, self.fit, self.server = golden_set, fit, bands_for()
        self.names = banded_measures(golden_set)
        own: Mapping[str, Any] = golden_set.bands
        if fit is not None:
            own = {name: (band.good, band.poor) for name, band in fit.bands.items()}
        for name in self.names:
            for part, position in PARTS:
                hint = f"{self.server[name][position]:g}" if name in self.server else ""
                attrs = {"step": "0.01", "placeholder": hint, "aria-label": f"{measure_of(name).title}, {part}"}
                self.fields[f"{name}_{part}"] = forms.FloatField(
                    required=False,
                    min_value=0,
                    max_value=1,
                    initial=own[name][position] if name in own else None,
                    widget=forms.NumberInput(attrs=attrs),
                )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for name in self.names:
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
            for name in self.names
            if values.get(f"{name}_good") is not None and values.get(f"{name}_poor") is not None
        }

    @property
    def lines(self) -> list[BandLine]:
        reference = thresholds_for()
        return [
            BandLine(
                measure=measure_of(name),
                good=self[f"{name}_good"],
                poor=self[f"{name}_poor"],
                reference=tuple((at, percentile_of(name, at)) for at in self._reference(name, reference)),
                source=self._source(name),
                fitted=self.fit.bands.get(name) if self.fit else None,
                left_out=self.fit.left_out.get(name, "") if self.fit else "",
            )
            for name in self.names
        ]

    def _source(self, name: str) -> str:
        known: dict[str, Mapping[str, Any]] = {
            "set": self.golden_set.bands,
            "server": self.server,
            "document": DOCUMENT_BANDS,
        }
        return next((source for source, bands in known.items() if name in bands), "")

    def _reference(self, name: str, reference: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        measure = measure_of(name)
        if measure.good is not None and measure.poor is not None:
            return (measure.good, measure.poor)
        return () if name in self.server else reference.get(name, ())


@needs(EVALUATE, methods="GET POST")
def show_bands(request: PageRequest, pk: int) -> HttpResponse:
    """fit=1 fills in what is fitted to the set; nothing is kept before it is saved."""
    golden_set = find_set_or_404(pk)
    fit = fit_bands(golden_set) if request.method == "GET" and request.GET.get("fit") else None
    form = BandsForm(request.POST if request.method == "POST" else None, golden_set=golden_set, fit=fit)

    def save() -> HttpResponse:
        keep_bands(golden_set, form.bands(), actor=request.user)
        # with `again`, the modes of the newest run are found again; its board shows what that did
        newest = _newest_ended(golden_set)
        if not request.POST.get("again") or newest is None:
            text = gettext("Thresholds saved. They apply to new evaluation runs.")
            return tell(request, text, request.get_full_path())
        changed = counted(refresh_modes(newest, actor=request.user), gettext("question,questions"))
        text = gettext("Thresholds saved. %(counted)s of the latest run changed.") % {"counted": changed}
        return tell(request, text, reverse("evaluation:board", query={"run": newest.pk}))

    response, status = submit_form(request, form, save)
    run = _newest_ended(golden_set)
    context = {
        **set_context(golden_set, "bands"),
        "form": form,
        "fit": fit,
        "run": run,
        "quartiles": quartiles(run, form.names) if run is not None else {},
    }
    return response or render_page(request, "evaluation/diagnosis/bands.html", context, status=status)


def _newest_ended(golden_set: GoldenSet) -> EvaluationRun | None:
    return next((run for run in runs_of(golden_set) if not run.is_active), None)
