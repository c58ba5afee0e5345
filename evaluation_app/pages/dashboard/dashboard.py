"""The first page of Evaluation: is it getting better? Per measure the trend over runs and how scores are spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from collections_app.http.page_requests import PageRequest, render_page
from collections_app.models import Collection
from evaluation_app.analysis.figures import GROUPS, Figure, coverage_of, first_names, make_figure, means_of, run_figures
from evaluation_app.charts.score_charts import Distribution, Trend, TrendPoint, draw_trend
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.pages.dashboard.item_rows import ItemRow, items_address, read_rows
from evaluation_app.pages.dashboard.run_page import comparison_address, distribution_of, mode_counts, mode_rows
from evaluation_app.pages.dashboard.runs_page import PURPOSES_OF_PEOPLE, columns_of, run_rows
from evaluation_app.scoring.modes.catalogue import Bands, bands_for

SHOWN_RUNS = 24  # in a trend
LAST_RUNS = 8
SHOWN_MEASURES = 6
FAILING = 6  # questions shown of the newest run
FIRST_GROUP = "main"


@dataclass(frozen=True, slots=True)
class MeasurePanel:
    """One measure: the newest run's figure (of live traffic: of all runs), the trend, how its scores are spread."""

    figure: Figure
    trend: Trend
    distribution: Distribution
    href: str
    unscored_href: str = ""

    @property
    def coverage(self) -> dict[str, int]:
        return coverage_of([self.figure])


@require_GET
def dashboard(request: PageRequest) -> HttpResponse:
    """set=ID of the golden set, else the one that was evaluated last; group= of measures, else those that matter first.

    What is wrong in the address is as if it were not there.
    """
    sets = list(GoldenSet.objects.select_related("baseline").order_by("name"))
    shown = _chosen(sets, request.GET.get("set", ""))
    context: dict[str, Any] = {"sets": sets, "shown": shown}
    if shown is not None:
        context |= describe_set(shown, request.GET.get("group", ""))
    return render_page(request, "evaluation/dashboard/dashboard.html", context)


def _chosen(sets: Sequence[GoldenSet], requested: str) -> GoldenSet | None:
    result = next((golden_set for golden_set in sets if str(golden_set.pk) == requested), None)
    if result is not None or not sets:
        return result
    newest = _runs_of_people().filter(golden_set__in=sets).values_list("golden_set_id", flat=True).first()
    return next((golden_set for golden_set in sets if golden_set.pk == newest), sets[0])


def _runs_of_people() -> Any:
    return EvaluationRun.objects.filter(purpose__in=PURPOSES_OF_PEOPLE).order_by("-created_at", "-id")


def describe_set(golden_set: GoldenSet, group: str) -> dict[str, Any]:
    runs = list(_runs_of_people().filter(golden_set=golden_set).select_related("golden_set")[:SHOWN_RUNS])
    # a fix that was tried is held against the run it is for; the trend is of what serves
    tried = EvaluationRun.Purpose.FIX
    done = [run for run in runs if run.state == EvaluationRun.State.SUCCEEDED and run.purpose != tried]
    newest = done[0] if done else None
    baseline = golden_set.baseline
    columns = columns_of(runs[:LAST_RUNS])
    context: dict[str, Any] = {
        "lives": Collection.objects.live().filter(name=golden_set.collection_name).exists(),
        "questions": golden_set.questions.filter(suggested=False).count(),
        "baseline": baseline,
        "newest": newest,
        "active": [run for run in runs if run.is_active],
        "last_runs": run_rows(runs[:LAST_RUNS], columns),
        "run_columns": [measure_of(name) for name in columns],
        "runs_href": f"{reverse('evaluation:evaluation-runs')}?{urlencode({'set': golden_set.name})}",
    }
    return context | (_describe_newest(golden_set, newest, done, baseline, group) if newest is not None else {})


def _describe_newest(
    golden_set: GoldenSet,
    newest: EvaluationRun,
    done: Sequence[EvaluationRun],
    baseline: EvaluationRun | None,
    group: str,
) -> dict[str, Any]:
    bands = bands_for(golden_set)
    held_against = None if baseline is None or baseline.pk == newest.pk else baseline
    figures = run_figures(newest, bands, held_against)
    groups = [key for key in GROUPS if any(figure.measure.group == key for figure in figures)]
    chosen = group if group in groups else FIRST_GROUP
    names = [figure.name for figure in figures if figure.measure.group == chosen]
    if chosen == FIRST_GROUP:
        names = first_names([figure.name for figure in figures], SHOWN_MEASURES)
    rows = read_rows(newest)
    panels = [_panel(figure, newest, rows, done, baseline, bands) for figure in figures if figure.name in names]
    failing = sorted((row for row in rows if row.modes or row.misses), key=_badness)
    return {
        "panels": panels,
        "group": chosen,
        "groups": [(FIRST_GROUP, "Overview"), *((key, GROUPS[key]) for key in groups)],
        "numbers": [panel.figure for panel in panels][:4] if chosen == FIRST_GROUP else [],
        "coverage": coverage_of(figures),
        "held_against": held_against,
        "compare_href": comparison_address(held_against, newest),
        "modes": mode_rows(newest),
        "mode_counts": mode_counts(newest),
        "failing": [(row, _item_address(newest, row)) for row in failing[:FAILING]],
        "failing_total": len(failing),
        "failing_href": items_address(newest, verdict="failed"),
        "board_href": f"{reverse('evaluation:board')}?run={newest.pk}",
        "measures_missing": len(figures) - len(panels),
    }


def _panel(
    figure: Figure,
    newest: EvaluationRun,
    rows: Sequence[ItemRow],
    done: Sequence[EvaluationRun],
    baseline: EvaluationRun | None,
    bands: Bands,
) -> MeasurePanel:
    is_one_day = len({run.created_at.date() for run in done}) == 1
    points = [
        _point(run, figure.name, bands, is_baseline=baseline is not None and run.pk == baseline.pk, by_hour=is_one_day)
        for run in reversed(done)
    ]
    base = means_of(baseline.summary).get(figure.name, {}).get("value") if baseline is not None else None
    return MeasurePanel(
        figure=figure,
        trend=draw_trend(figure.measure, points, baseline=base),
        distribution=distribution_of(newest, figure, rows),
        href=items_address(newest, measure=figure.name, sort=figure.name),
        unscored_href=items_address(newest, measure=figure.name, score="unscored"),
    )


def _point(run: EvaluationRun, name: str, bands: Bands, *, is_baseline: bool, by_hour: bool) -> TrendPoint:
    figure = make_figure(name, means_of(run.summary).get(name, {}), bands)
    return TrendPoint(
        title=f"{run}, {run.created_at.day} {run.created_at:%b %H:%M}",
        label=f"{run.created_at:%H:%M}" if by_hour else f"{run.created_at.day} {run.created_at:%b}",
        href=f"{reverse('evaluation:evaluation-run', args=[run.pk])}#measures",
        value=figure.value,
        low=figure.low,
        high=figure.high,
        group=run.set_digest,
        is_baseline=is_baseline,
    )


def _badness(row: ItemRow) -> tuple[int, int, int]:
    """Most thresholds missed first, then most modes, then by position."""
    return (-len(row.misses or ()), -len(row.modes), row.position)


def _item_address(run: EvaluationRun, row: ItemRow) -> str:
    return reverse("evaluation:evaluation-item", args=[run.pk, row.position])
