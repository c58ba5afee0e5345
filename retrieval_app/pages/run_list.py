"""The list of the query runs, its filter as it stands in an address, and the same rows as a file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast
from urllib.parse import urlencode

from django.db.models import Count
from django.forms import ChoiceField
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET

from collections_app.http.list_views import read_views
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    collection_titles,
    field_of,
    page_of,
    render_page,
)
from retrieval_app.models import QueryRun
from retrieval_app.models.runs import QueryRunQuerySet
from retrieval_app.pages.forms import ALL, RunFilterForm
from retrieval_app.runs.run_log import RunLog, send_log
from retrieval_app.runs.score_filter import offered_measures, scored

RUNS_PER_PAGE = 50
COUNTED = ("environment", "kind", "status", "channel")  # the filters whose choices say how many runs they leave
SCORE_FILTERS = ("measure", "score_below", "score_above")
SELDOM_FILTERS = ("degraded", "max_ms", "min_cost", "max_cost", "channel", "since", "until", *SCORE_FILTERS)


def read_filter(request: PageRequest) -> tuple[RunFilterForm, dict[str, Any]]:
    """The filter that the address holds, and its values by field; None for what is wrong, or is as it is anyway."""
    form = RunFilterForm(request.GET)
    form.is_valid()
    values = {name: form.cleaned_data.get(name) for name in form.fields}
    return form, values | ({"environment": None} if values["environment"] == QueryRun.Environment.PRODUCTION else {})


def filtered_runs(values: Mapping[str, Any]) -> QueryRunQuerySet:
    """The rows of a filter of the page: of production unless it names another environment, or all."""
    environment = values["environment"] or QueryRun.Environment.PRODUCTION
    by_column = {name: value for name, value in values.items() if name not in SCORE_FILTERS}
    runs = QueryRun.objects.filtered(**{**by_column, "environment": None if environment == ALL else environment})
    measure, below, above = (values[name] for name in SCORE_FILTERS)
    return runs.filter(scored(measure, below, above)) if measure else runs


def _other_environments(values: dict[str, Any]) -> list[tuple[str, int, str]]:
    """(label, runs, address) of the environments with runs that match, where the filter's own has none."""
    rows = filtered_runs(values | {"environment": ALL}).order_by().values_list("environment")
    counts = dict(rows.annotate(Count("pk")))
    return [
        (str(label), counts[name], address_of_filter(values | {"environment": name}))
        for name, label in QueryRun.Environment.choices
        if name in counts
    ]


def _count_choices(form: RunFilterForm, values: Mapping[str, Any]) -> None:
    """Beside each choice how many runs it would leave with the other filters as they are. One query per filter."""
    for name in COUNTED:
        other = {**values, name: ALL if name == "environment" else None}
        counts = dict(filtered_runs(other).order_by().values_list(name).annotate(Count("pk")))
        field = field_of(form, name, ChoiceField)
        whole = ("", ALL)
        field.choices = [
            (value, label if value in whole else f"{label} ({counts.get(value, 0):,})")
            for value, label in cast("list[tuple[str, str]]", field.choices)
        ]


@require_GET
def list_runs(request: PageRequest) -> HttpResponse:
    form, values = read_filter(request)
    address = address_of_filter(values)
    page = page_of(request, filtered_runs(values).for_lists(), RUNS_PER_PAGE)
    _count_choices(form, values)
    context = {
        "list_views": read_views(request, "runs"),
        "form": form,
        "page": page,
        "others": () if page.paginator.count else _other_environments(values),
        "is_filtered": bool(address),
        "run_filter": address,
        "models": QueryRun.objects.recent_models(),
        "measures": offered_measures(),
        "opens_more": any(values[name] not in (None, "") or name in form.errors for name in SELDOM_FILTERS),
        "collections": collection_titles(request),
    }
    return render_page(request, "retrieval/runs.html", context, parts={"runs": "retrieval/parts/runs.html"})


@require_GET
def download_log(request: PageRequest) -> HttpResponseBase:
    """What the runs' page lists, all of its pages, as JSON Lines: the address holds the same filter."""
    _, values = read_filter(request)
    with RefusalMessages(request):
        return send_log(request, RunLog(filtered_runs(values)))
    return redirect(f"{reverse('retrieval:runs')}?{request.GET.urlencode()}")


def address_of_filter(requested: Mapping[str, Any]) -> str:
    """ "?status=error" of what is set; "" where nothing is. Times as ISO 8601."""
    stated = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in requested.items()}
    selected = {name: value for name, value in stated.items() if value not in (None, "")}
    return f"?{urlencode(selected)}" if selected else ""
