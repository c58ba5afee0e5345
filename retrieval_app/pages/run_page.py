"""One query run under its tabs: the answer, the ranking; its trace and its evaluation are pages of the evaluation."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from collections_app.errors import ServiceError
from collections_app.http.list_views import keep_setting, read_setting
from collections_app.http.page_requests import PageRequest, render_page
from collections_app.models import Collection
from ragd.errors import RagdError
from retrieval_app.models import QueryRun
from retrieval_app.pages.plan_forms import address_of_run
from retrieval_app.pages.run_list import address_of_filter, filtered_runs, read_filter
from retrieval_app.pages.runs import describe_run
from retrieval_app.runs.replay import Replayed, search_again

BASELINE = "baseline-run"  # of the person
TABS = (
    ("retrieval:run", gettext_lazy("Answer")),
    ("retrieval:run-ranking", gettext_lazy("Ranking")),
    ("evaluation:run-trace", gettext_lazy("Trace")),
    ("evaluation:run-score", gettext_lazy("Evaluation")),
)


def find_run(run_id: uuid.UUID) -> QueryRun:
    return get_object_or_404(QueryRun.objects.select_related("user"), pk=run_id)


def frame_of_run(request: PageRequest, run: QueryRun, tab: str) -> dict[str, Any]:
    """What retrieval/run_layout.html shows around a tab. tab: the name of its view, one of TABS.

    newer, older: the addresses of that tab of the runs beside it in the list that the address filters, "" at an end.
    run_filter: that filter as it stands in addresses. baseline_href: the comparison with the run that was pinned.
    """
    _, values = read_filter(request)
    rows = filtered_runs(values | {"environment": values["environment"] or run.environment})
    newer, older = rows.beside(run)
    run_filter = address_of_filter(values)
    baseline = QueryRun.objects.filter(pk=read_setting(request.user, BASELINE)).only("id").first()
    lives = Collection.objects.live().filter(name=run.collection_name).exists()
    return {
        "run": run,
        "run_tabs": [
            (gettext("Results") if name == "retrieval:run" and run.answer is None else label, address_of_tab(run, name))
            for name, label in TABS
        ],
        "run_tab": address_of_tab(run, tab),
        "collection_lives": lives,
        "playground_href": address_of_run(run) if lives else "",
        "run_filter": run_filter,
        "is_baseline": baseline == run,
        "baseline_href": reverse("evaluation:compare-query-runs", args=[run.pk, baseline.pk])
        if baseline is not None and baseline != run
        else "",
        "newer": newer and (newer.query, address_of_tab(newer, tab) + run_filter),
        "older": older and (older.query, address_of_tab(older, tab) + run_filter),
    }


def address_of_tab(run: QueryRun, tab: str) -> str:
    return reverse(tab, args=[run.pk])


@require_GET
def show_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The answer with what it cites first, then the other results; of a search its results."""
    run = find_run(run_id)
    before = QueryRun.objects.filter(pk=run.replay_of).first() if run.replay_of else None
    context = describe_run(run) | ({"replay": Replayed(before, run)} if before else {})
    rows = context["rows"]
    cited = [row for row in rows if row.cited] if run.answer else rows
    context |= {"cited_rows": cited, "other_rows": [row for row in rows if row not in cited]}
    return render_page(request, "retrieval/run.html", context | frame_of_run(request, run, "retrieval:run"))


@require_GET
def show_ranking(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The results with their place in every list, and by which settings they were ranked."""
    run = find_run(run_id)
    context = describe_run(run) | frame_of_run(request, run, "retrieval:run-ranking")
    return render_page(request, "retrieval/run_ranking.html", context)


@require_POST
def replay_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """Run the stored plan and question again; the new run's page says what differs."""
    run = get_object_or_404(QueryRun, pk=run_id)
    try:
        again = search_again(run, channel=QueryRun.Channel.PAGE, user=request.user)
    except (ServiceError, RagdError) as error:
        messages.error(request, gettext("Replay failed: %(message)s") % {"message": error.message})
        return redirect(run)
    return redirect(again if again.pk else run)


@require_POST
def pin_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The run as the person's baseline, which other runs offer to be compared with; once more: none any longer."""
    run = find_run(run_id)
    is_pinned = read_setting(request.user, BASELINE) == str(run.pk)
    keep_setting(request.user, BASELINE, None if is_pinned else str(run.pk))
    messages.success(request, gettext("Baseline removed.") if is_pinned else gettext("Pinned as baseline."))
    return redirect(run)
