"""The versions of a golden set on pages: the list, one of them, the difference of two, and the way back."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, page_of, render_page
from evaluation_app.golden import edits
from evaluation_app.golden.pages.sets import find_set_or_404, set_context
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.version_diff import compare_versions
from evaluation_app.models import GoldenSet, GoldenSetVersion
from ragd.errors import RagdError

PER_PAGE = 30
CHANGES_PER_PAGE = 50
CHOICES_MAX = 200


@require_GET
def list_versions(request: PageRequest, pk: int) -> HttpResponse:
    """The newest first, each with what it changed of the one before."""
    golden_set = find_set_or_404(pk)
    rows = golden_set.versions.order_by("-version")
    page = page_of(request, rows, PER_PAGE)
    shown = list(page)
    following = list(rows[page.end_index() : page.end_index() + 1])
    states = [*shown, *following]
    pairs = [(state, states[number + 1] if number + 1 < len(states) else None) for number, state in enumerate(shown)]
    context = set_context(golden_set, "versions") | {
        "page": page,
        "rows": [(state, before, _difference(before, state) if before else None) for state, before in pairs],
        "runs": _run_counts(golden_set),
    }
    return render_page(request, "evaluation/golden/versions.html", context)


def _run_counts(golden_set: GoldenSet) -> dict[int, int]:
    """version -> evaluation runs over it."""
    result: dict[int, int] = {}
    for version in golden_set.runs.values_list("set_version", flat=True):
        result[version] = result.get(version, 0) + 1
    return result


def goldens_of(version: GoldenSetVersion) -> list[Golden]:
    return [Golden.from_dict(item) for item in version.questions]


def _difference(before: GoldenSetVersion, after: GoldenSetVersion) -> dict[str, int]:
    return compare_versions(goldens_of(before), goldens_of(after)).counts


@require_GET
def show_version(request: PageRequest, pk: int, version: int) -> HttpResponse:
    golden_set = find_set_or_404(pk)
    result = _or_404(golden_set, version)
    page = Paginator(goldens_of(result), CHANGES_PER_PAGE).get_page(request.GET.get("page"))
    context = set_context(golden_set, "versions") | {"version": result, "page": page}
    return render_page(request, "evaluation/golden/version.html", context)


@require_GET
def show_difference(request: PageRequest, pk: int, before: int, after: int) -> HttpResponse:
    """What two versions hold that the other does not. ?before=&after=, from the form that chooses, leads there."""
    golden_set = find_set_or_404(pk)
    chosen = [request.GET.get(name, "") for name in ("before", "after")]
    if all(text.isascii() and text.isdecimal() and len(text) < 10 for text in chosen):
        return redirect("evaluation:golden-difference", pk, *map(int, chosen))
    difference = compare_versions(goldens_of(_or_404(golden_set, before)), goldens_of(_or_404(golden_set, after)))
    context: dict[str, Any] = set_context(golden_set, "versions") | {
        "before": before,
        "after": after,
        "numbers": list(golden_set.versions.order_by("-version").values_list("version", flat=True)[:CHOICES_MAX]),
        "difference": difference,
        "page": Paginator(difference.changes, CHANGES_PER_PAGE).get_page(request.GET.get("page")),
    }
    return render_page(request, "evaluation/golden/difference.html", context)


@require_http_methods(["GET", "POST"])
def bring_back(request: PageRequest, pk: int, version: int) -> HttpResponse:
    """Ask, then make the set hold what it held."""
    golden_set = find_set_or_404(pk)
    result = _or_404(golden_set, version)
    if request.method == "POST":
        try:
            stored = edits.bring_back(golden_set, version, actor=request.user)
            messages.success(request, f"Restored version {version} (now version {stored.version}).")
        except (ServiceError, RagdError) as error:
            messages.error(request, describe(error)[1]["error"]["message"])
        return redirect("evaluation:golden-versions", pk)
    present = _or_404(golden_set, golden_set.version)
    context = {"golden_set": golden_set, "version": result, "counts": _difference(present, result)}
    return render_page(request, "evaluation/golden/bring_back.html", context)


def _or_404(golden_set: GoldenSet, version: int) -> GoldenSetVersion:
    try:
        return edits.find_version(golden_set, version)
    except ServiceError as error:
        raise Http404(error.message) from None
