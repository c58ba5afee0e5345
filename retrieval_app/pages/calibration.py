"""The page of a collection's calibration, and its part of the settings page."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404, render_page
from collections_app.models import Collection
from retrieval_app.corrective.calibrations import calibration_of, forget_calibration, switch_corrective
from retrieval_app.pages.calibration_presenters import describe_calibration

PARTS = {"corrective": "retrieval/corrective/summary.html"}


@require_http_methods(["GET", "POST"])
def corrective(request: PageRequest, name: str) -> HttpResponse:
    """A POST with do=on, off or forget changes the calibration and leads back here."""
    collection = find_or_404(Collection.objects.live().with_counts(), name=name)
    if request.method == "POST":
        _change(request, collection, request.POST.get("do", ""))
        return redirect("retrieval:corrective", name)
    context = {"collection": collection, "tab": "settings"} | describe_calibration(calibration_of(collection))
    return render_page(request, "retrieval/corrective/calibration.html", context, parts=PARTS)


def _change(request: PageRequest, collection: Collection, requested: str) -> None:
    try:
        if requested in ("on", "off"):
            switch_corrective(collection, requested == "on", actor=request.user)
            messages.success(request, f"Corrective step {'enabled' if requested == 'on' else 'disabled'}.")
        elif requested == "forget" and forget_calibration(collection, actor=request.user):
            messages.success(request, "Calibration deleted.")
    except ServiceError as error:
        messages.error(request, error.message)
