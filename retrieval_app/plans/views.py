"""A collection's calibration: its page, its part of the settings page, and what pages show of a weighed run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext

from collections_app.access.rules import READ, WRITE, needs
from collections_app.http.page_requests import PageRequest, RefusalMessages, find_or_404, render_page
from collections_app.models import Collection
from retrieval_app.models import Calibration, QueryRun
from retrieval_app.plans.services import calibration_of, forget_calibration, switch_corrective
from retrieval_app.search.confidence import ACTIONS

MEANINGS = {
    "correct": "the results are likely to contain the answer",
    "ambiguous": "the results may or may not contain the answer",
    "incorrect": "the results are unlikely to contain the answer",
}
PARTS = {"corrective": "retrieval/corrective/summary.html"}


@dataclass(frozen=True, slots=True)
class Scale:
    """The line from 0 to 100 with its thresholds, and a mark on it; None where there is none."""

    lower: float | None
    upper: float | None
    mark: float | None = None

    @property
    def low_end(self) -> float:
        return self.lower or 0.0

    @property
    def high_start(self) -> float:
        return 100.0 if self.upper is None else self.upper

    @property
    def middle(self) -> float:
        return self.high_start - self.low_end

    @property
    def high(self) -> float:
        return 100.0 - self.high_start


@dataclass(frozen=True, slots=True)
class Weighed:
    """One passage that was weighed. is_result: whether it stayed among the results."""

    key: str
    score: float
    href: str
    is_result: bool


def scale_of(upper: float | None, lower: float | None, mark: float | None = None) -> Scale:
    return Scale(*(None if value is None else round(100 * value, 2) for value in (lower, upper, mark)))


def describe_calibration(calibration: Calibration | None) -> dict[str, Any]:
    """actions: (action, its meaning, retrievals that hold what is expected, that do not), of the held-out questions."""
    if calibration is None:
        return {"calibration": None}
    counts = calibration.figures.get("actions", {})
    none = {"answering": 0, "not_answering": 0}
    return {
        "calibration": calibration,
        "scale": scale_of(calibration.upper, calibration.lower),
        "figures": calibration.figures,
        "actions": [(name, MEANINGS[name], *counts.get(name, none).values()) for name in ACTIONS],
        "features": [
            (name, entry["coefficient"], entry["mean"])
            for name, entry in calibration.weights.get("features", {}).items()
        ],
    }


def describe_correction(run: QueryRun, links: bool) -> dict[str, Any]:
    """{} for a run whose retrieval was not weighed. links: whether its chunks can be opened."""
    correction: Mapping[str, Any] | None = run.correction
    if not correction:
        return {}
    if "error" in correction:
        return {"correction": correction}
    results = set(run.retrieved_ids)
    passages = [
        Weighed(key, score, chunk_href(run.collection_name, key) if links else "", key in results)
        for key, score in sorted(correction["scores"].items(), key=lambda item: (-item[1], item[0]))
    ]
    return {
        "correction": correction,
        "correction_scale": scale_of(correction["upper"], correction["lower"], run.retrieval_confidence),
        "correction_meaning": MEANINGS.get(run.retrieval_action, ""),
        "weighed": passages,
    }


def chunk_href(collection: str, key: str) -> str:
    doc_id, _, index = key.rpartition("#")
    return reverse("collections:chunk", args=[collection, int(index), doc_id])


@needs(READ, WRITE, methods="GET POST")
def corrective(request: PageRequest, name: str) -> HttpResponse:
    """A POST with do=on, off or forget changes the calibration and leads back here."""
    collection = find_or_404(Collection.objects.live().with_counts(), name=name)
    if request.method == "POST":
        requested = request.POST.get("do", "")
        with RefusalMessages(request):
            if requested in ("on", "off"):
                switch_corrective(collection, requested == "on", actor=request.user)
                is_on = requested == "on"
                messages.success(
                    request, gettext("Corrective step enabled.") if is_on else gettext("Corrective step disabled.")
                )
            elif requested == "forget" and forget_calibration(collection, actor=request.user):
                messages.success(request, gettext("Calibration deleted."))
        return redirect(reverse("evaluation:plans", args=[name], query={"view": "corrective"}))
    context = {"collection": collection, "tab": "settings"} | describe_calibration(calibration_of(collection))
    return render_page(request, "retrieval/corrective/calibration.html", context, parts=PARTS)
